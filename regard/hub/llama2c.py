"""The files of llama2.c: a Llama as seven integers and a run of floats, and its vocabulary with scores.

The floats come kind by kind: all layers' query matrices, then all key matrices, and so on. llama2.c rotates
neighbours (0, 1), (2, 3), …; Hugging Face's layout rotates (0, K/2), (1, K/2 + 1), …: the rows of query and key are
put in that order, as a Llama in that layout expects them.
"""

import struct
from collections.abc import Iterator
from math import prod
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float
from tokenizers import processors
from torch import Tensor

from regard.files import read_bytes
from regard.tokens import Tokenizer
from regard.tokens.bounds import MOST_BYTES
from regard.tokens.spm import BPE, BYTE, CONTROL, NORMAL, UNKNOWN, Piece, PieceModel, build

HEADER = struct.Struct("<7i")
NEWER = b"24ka"  # how the later, versioned formats begin
BOS, EOS = 1, 2
MOST_LAYERS = 10_000
ROTATIONS = "rotations"  # tables of cosines and sines, which nobody needs


def read_llama2c(path: str | Path) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """The fields of a `config.json` and the tensors, both under the names of Hugging Face's Llama."""
    path = Path(path)
    fields = _read_fields(path)
    names, shapes = zip(*_table(fields), strict=True)
    expected, got = HEADER.size + 4 * sum(map(prod, shapes)), path.stat().st_size
    if got != expected:
        raise ValueError(f"{path} has {got} bytes, its header asks for {expected}; copy or export it again")
    # Mapped, not read: a page is copied only where somebody writes to it.
    numbers = torch.from_file(str(path), size=expected // 4, dtype=torch.float32)[HEADER.size // 4 :]
    tensors: dict[str, Tensor] = {}
    for name, shape, flat in zip(names, shapes, numbers.split([prod(shape) for shape in shapes]), strict=True):
        values = flat.reshape(shape)
        if "{}" not in name:
            tensors[name] = values
            continue
        for layer, own in enumerate(values):
            turned = name.endswith(("q_proj.weight", "k_proj.weight"))
            tensors[name.format(layer)] = _halves(own, fields["head_dim"]) if turned else own
    del tensors[ROTATIONS]
    return fields, tensors


def _read_fields(path: Path) -> dict[str, Any]:
    with _existing(path).open("rb") as file:
        head = file.read(HEADER.size)
    if len(head) < HEADER.size or head.startswith(NEWER):
        raise ValueError(f"{path} is no llama2.c file of the first format; export the model with --version 0")
    sizes = HEADER.unpack(head)
    dim, hidden, layers, heads, kv_heads, vocabulary, length = sizes
    counted = min(dim, hidden, layers, heads, kv_heads, abs(vocabulary), length) > 0 and layers <= MOST_LAYERS
    if not counted or dim % (2 * heads) or heads % kv_heads:  # a head is rotated in pairs
        raise ValueError(
            f"{path} is no model: as a llama2.c file its sizes would be {sizes}; give a run's or checkpoint's directory"
        )
    return {
        "model_type": "llama",
        "hidden_size": dim,
        "intermediate_size": hidden,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
        "head_dim": dim // heads,
        "vocab_size": abs(vocabulary),
        "max_position_embeddings": length,
        "rms_norm_eps": 1e-5,
        "rope_theta": 10000.0,
        "hidden_act": "silu",
        "attention_bias": False,
        "mlp_bias": False,
        "tie_word_embeddings": vocabulary > 0,  # a negative size says that the output has a matrix of its own
        "bos_token_id": BOS,
        "eos_token_id": EOS,
    }


def _table(fields: dict[str, Any]) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Return the names and shapes of the tensors in the order of the file; names with `{}` stand for one tensor per
    layer."""
    dim, hidden, layers = fields["hidden_size"], fields["intermediate_size"], fields["num_hidden_layers"]
    wide, narrow = dim, fields["num_key_value_heads"] * fields["head_dim"]
    layer = "model.layers.{}."
    yield "model.embed_tokens.weight", (fields["vocab_size"], dim)
    yield layer + "input_layernorm.weight", (layers, dim)
    yield layer + "self_attn.q_proj.weight", (layers, wide, dim)
    yield layer + "self_attn.k_proj.weight", (layers, narrow, dim)
    yield layer + "self_attn.v_proj.weight", (layers, narrow, dim)
    yield layer + "self_attn.o_proj.weight", (layers, dim, wide)
    yield layer + "post_attention_layernorm.weight", (layers, dim)
    yield layer + "mlp.gate_proj.weight", (layers, hidden, dim)
    yield layer + "mlp.down_proj.weight", (layers, dim, hidden)
    yield layer + "mlp.up_proj.weight", (layers, hidden, dim)
    yield "model.norm.weight", (dim,)
    yield ROTATIONS, (2, fields["max_position_embeddings"], fields["head_dim"] // 2)
    if not fields["tie_word_embeddings"]:
        yield "lm_head.weight", (fields["vocab_size"], dim)


def _halves(weight: Float[Tensor, "R D"], head_dim: int) -> Float[Tensor, "R D"]:
    """Reorder the rows of each head from interleaved rotation pairs (0, 1), (2, 3), … to half-split ones."""
    return weight.unflatten(0, (-1, head_dim // 2, 2)).transpose(1, 2).flatten(0, 2)


def read_llama2c_tokenizer(path: str | Path, vocab_size: int) -> Tokenizer:
    """The tokenizer of a `tokenizer.bin`: BPE by scores, bytes for what it lacks, a space before every text."""
    path = Path(path)
    raw = read_bytes(_existing(path), MOST_BYTES)
    pieces: list[Piece] = []
    place = 4  # after the length of the longest entry
    try:
        for id in range(vocab_size):
            score, size = struct.unpack_from("<fI", raw, place)
            text = raw[place + 8 : place + 8 + size].decode()
            place += 8 + size
            # The file has these three with line breaks around them, or as they are.
            name = {0: "<unk>", BOS: "<s>", EOS: "</s>"}.get(id, text.replace(" ", "▁"))
            kind = UNKNOWN if id == 0 else CONTROL if id in (BOS, EOS) else BYTE if _is_byte(name) else NORMAL
            pieces.append(Piece(name, score, kind))
    except (struct.error, UnicodeDecodeError):
        place = -1
    if place != len(raw):
        fact = f"is not a llama2.c vocabulary of {vocab_size} entries"
        raise ValueError(f"{path} {fact}; give the tokenizer file that belongs to the model")
    model = PieceModel(pieces=pieces, algorithm=BPE, squeeze=False)
    inner = build(model)
    inner.add_special_tokens(model.special)
    inner.post_processor = processors.TemplateProcessing(
        single="<s> $A", pair="<s> $A <s>:1 $B:1", special_tokens=[("<s>", BOS)]
    )
    return Tokenizer(inner)


def load_llama2c_tokenizer(path: str | Path) -> Tokenizer:
    """The tokenizer beside a model file: `tok512.bin` for a vocabulary of 512, or `tokenizer.bin`."""
    path = Path(path)
    size = _read_fields(path)["vocab_size"]
    names = [f"tok{size}.bin", "tokenizer.bin"]
    present = [path.with_name(name) for name in names if path.with_name(name).is_file()]
    if not present:
        raise ValueError(f"no {' or '.join(names)} beside {path}; put the model's tokenizer file there")
    return read_llama2c_tokenizer(present[0], size)


def _is_byte(name: str) -> bool:
    return len(name) == 6 and name.startswith("<0x") and name.endswith(">")


def _existing(path: Path) -> Path:
    if not path.is_file():
        raise ValueError(f"no such file: {path}; give a file that llama2.c has written")
    return path
