"""spiece.model of SentencePiece: protocol buffers, written here field by field."""

import json
import struct

from fuzz.scratch import FOLDER, put
from regard.tokens import Tokenizer

READS = ("regard.tokens.spm", "regard.tokens.published")


def varint(number: int) -> bytes:
    """Return a number in groups of seven bits."""
    return bytes([number & 127 | 128]) + varint(number >> 7) if number > 127 else bytes([number])


def field(number: int, value: bytes | int | float) -> bytes:
    """Return one field of a message."""
    if isinstance(value, bytes):
        return varint(number << 3 | 2) + varint(len(value)) + value
    return (
        varint(number << 3 | 5) + struct.pack("<f", value)
        if isinstance(value, float)
        else varint(number << 3) + varint(value)
    )


def model(algorithm: int) -> bytes:
    """Return a model of a few pieces: 1 Unigram, 2 BPE."""
    kinds = {"<pad>": 3, "<unk>": 2, "</s>": 3, "<s>": 3}
    names = [*kinds, "\u2581", "a", "r", "e", "d", "re", "red", "\u2581a", "<0x41>"]
    pieces = [
        field(1, name.encode()) + field(2, -float(i)) + field(3, kinds.get(name, 6 if name[0] == "<" else 1))
        for i, name in enumerate(names)
    ]
    trainer = field(3, algorithm) + field(35, int(algorithm == 2)) + field(40, 1)
    normaliser = field(1, b"nmt_nfkc") + field(3, 1) + field(4, 1) + field(5, 1)
    return b"".join(field(1, piece) for piece in pieces) + field(2, trainer) + field(3, normaliser)


def seeds() -> list[bytes]:
    """Return a Unigram and a BPE model."""
    return [model(1), model(2)]


def run(data: bytes) -> None:
    """Load it as the tokenizer of a T5 and of a Llama, and encode."""
    refused = None
    for kind, name in (("t5", "spiece.model"), ("llama", "tokenizer.model")):
        put(f"{kind}/{name}", data)
        put(f"{kind}/config.json", json.dumps({"model_type": kind}).encode())
        try:
            Tokenizer.load(FOLDER / kind).encode("a red bird, na\u00efve \u65e5\u672c")
        except ValueError as error:
            if type(error) is not ValueError:
                raise
            refused = error
    if refused is not None:
        raise refused
