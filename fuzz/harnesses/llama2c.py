"""Files of llama2.c: a header of seven integers with a run of floats, and a vocabulary with scores."""

import struct

from fuzz.scratch import put
from regard.hub.checkpoint import load_model
from regard.hub.llama2c import read_llama2c_tokenizer

READS = ("regard.hub.llama2c",)
SIZES = (8, 12, 1, 2, 1, 9, 4)


def seeds() -> list[bytes]:
    """Return a model of zeros and a vocabulary, with a byte before it that says which."""
    dim, hidden, layers, heads, kv_heads, vocabulary, length = SIZES
    own = dim // heads * kv_heads
    count = (
        2 * dim + 2 * dim * dim + 2 * dim * own + 3 * dim * hidden + dim + length * (dim // heads) + vocabulary * dim
    )
    names = [b"<unk>", b"\n<s>\n", b"\n</s>\n", b"<0x41>", b" a", b"a", b"b", b"ab", b" "]
    entries = b"".join(struct.pack("<fi", -float(i), len(name)) + name for i, name in enumerate(names))
    return [b"m" + struct.pack("<7i", *SIZES) + bytes(4 * count), b"t" + struct.pack("<i", 8) + entries]


def run(data: bytes) -> None:
    """Load a model, or a vocabulary and encode."""
    if data[:1] == b"t":
        read_llama2c_tokenizer(put("tokenizer.bin", data[1:]), SIZES[5]).encode("a ab b")
    else:
        load_model(put("model.bin", data[1:]))
