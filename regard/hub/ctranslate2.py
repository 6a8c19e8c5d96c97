"""Directories that CTranslate2 converted Whisper into: `model.bin`, `config.json` and a vocabulary.

`model.bin` holds variables by name, each with its shape and type; matrices of integers have a scale for each row.
Queries, keys and values are one matrix there, and are taken apart as Hugging Face's layout has them.
"""

import math
import re
import struct
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from regard.config import one_line
from regard.files import check_regular

WEIGHTS, VERSION, SPEC = "model.bin", 6, "WhisperSpec"
TYPES = (torch.float32, torch.int8, torch.int16, torch.int32, torch.float16, torch.bfloat16)
"""The types of variables, by their number in the file."""
MOST_NAMES, MOST_AXES = 100_000, 8
AGAIN = "copy it again, or convert it again: ct2-transformers-converter"

ATTENTION = {"self_attention": "self_attn", "attention": "encoder_attn"}
NORMS = {"self_attention": "self_attn_layer_norm", "attention": "encoder_attn_layer_norm", "ffn": "final_layer_norm"}
ENDS = {"gamma": "weight", "beta": "bias"}
PLACES = {
    "encoder/position_encodings/encodings": "model.encoder.embed_positions.weight",
    "decoder/position_encodings/encodings": "model.decoder.embed_positions.weight",
    "decoder/embeddings/weight": "model.decoder.embed_tokens.weight",
    "decoder/projection/weight": "proj_out.weight",
}


class Reader:
    """Reads numbers, names and tensors from the bytes of a file, one after another."""

    def __init__(self, path: Path) -> None:
        check_regular(path)
        self.path, self.at = path, 0
        # Mapped, not read: what is not asked for is never in memory.
        self.content: np.ndarray = np.memmap(path, dtype=np.uint8, mode="r") if path.stat().st_size else np.zeros(0)

    def take(self, count: int) -> np.ndarray:
        if self.at + count > len(self.content):
            raise ValueError(f"{self.path} is cut short: byte {self.at + count:,} of {len(self.content):,}; {AGAIN}")
        self.at += count
        return self.content[self.at - count : self.at]

    def number(self, kind: str) -> int:
        return int(struct.unpack(f"<{kind}", self.take(struct.calcsize(kind)).tobytes())[0])

    def name(self) -> str:
        text = self.take(self.number("H")).tobytes()
        try:
            return text.removesuffix(b"\0").decode("ascii")
        except UnicodeDecodeError:
            raise ValueError(f"{self.path} is damaged: {one_line(repr(text), 80)} is no name; {AGAIN}") from None

    def tensor(self, name: str) -> Tensor:
        axes = self.number("B")
        shape = [self.number("I") for _ in range(min(axes, MOST_AXES + 1))]
        kind, size = self.number("B"), self.number("I")
        known = kind < len(TYPES) and axes <= MOST_AXES and 0 not in shape
        if not known or math.prod(shape) * TYPES[kind].itemsize != size:
            raise ValueError(
                f"{self.path} is damaged: {one_line(name, 80)} of shape {shape} in {size:,} bytes; {AGAIN}"
            )
        return torch.from_numpy(self.take(size).copy()).view(TYPES[kind]).reshape(shape)


class Converted(NamedTuple):
    """The fields of a `config.json` and the tensors, both under the names of Hugging Face's Whisper."""

    fields: dict[str, Any]
    tensors: dict[str, Tensor]


def is_ctranslate2(path: Path) -> bool:
    """Whether a file begins as CTranslate2's models do: with a version and the name of a kind of model."""
    if not path.is_file():
        return False
    with path.open("rb") as file:
        head = file.read(64)
    return len(head) > 8 and int.from_bytes(head[:4], "little") < 64 and re.match(rb"\w+Spec\0", head[6:]) is not None


def read_ctranslate2(path: Path) -> Converted:
    """Read a `model.bin`; its tensors become float32."""
    reader = Reader(path)
    version, spec, _ = reader.number("I"), reader.name(), reader.number("I")
    if version != VERSION:
        raise ValueError(f"{path} has version {version} of its format, {VERSION} is read; {AGAIN}")
    if spec != SPEC:
        raise ValueError(
            f"{path} holds a {one_line(spec, 40)}, only a {SPEC} is read here; load the original checkpoint"
        )
    variables: dict[str, Tensor] = {}
    for _ in range(counted(reader)):
        name = reader.name()
        variables[name] = reader.tensor(name)
    for _ in range(counted(reader)):
        alias, name = reader.name(), reader.name()
        if name not in variables:
            raise ValueError(f"{path} is damaged: {one_line(alias, 80)} stands for no variable; {AGAIN}")
        for end in ("", "_scale"):
            if name + end in variables:
                variables.setdefault(alias + end, variables[name + end])
    try:
        return Converted(fields_of(variables), dict(tensors_of(variables)))
    except (KeyError, RuntimeError, IndexError, OverflowError, ValueError) as error:  # do not fit together
        raise ValueError(f"{path} is no Whisper: {one_line(error, 100)}; {AGAIN}") from None


def counted(reader: Reader) -> int:
    count = reader.number("I")
    if count > MOST_NAMES:
        raise ValueError(f"{reader.path} is damaged: it would have {count:,} variables; {AGAIN}")
    return count


def fields_of(variables: Mapping[str, Tensor]) -> dict[str, Any]:
    """The config of a model, from the shapes of its variables."""
    sizes = {
        "d_model": variables["encoder/conv1/weight"].shape[0],
        "num_mel_bins": variables["encoder/conv1/weight"].shape[1],
        "vocab_size": variables["decoder/embeddings/weight"].shape[0],
        "max_source_positions": variables["encoder/position_encodings/encodings"].shape[0],
        "max_target_positions": variables["decoder/position_encodings/encodings"].shape[0],
    }
    for side in ("encoder", "decoder"):
        numbers = [int(match[1]) for name in variables if (match := re.match(rf"{side}/layer_(\d{{1,5}})/", name))]
        sizes |= {
            f"{side}_layers": 1 + max(numbers, default=-1),
            f"{side}_attention_heads": int(variables[f"{side}/num_heads"]),
            f"{side}_ffn_dim": variables[f"{side}/layer_0/ffn/linear_0/weight"].shape[0],
        }
    return {"model_type": "whisper", "is_encoder_decoder": True, "activation_function": "gelu"} | sizes


def tensors_of(variables: Mapping[str, Tensor]) -> Iterator[tuple[str, Tensor]]:
    """The tensors under Hugging Face's names."""
    floats: dict[int, Tensor] = {}  # one for all names of a variable: a file could name it a hundred thousand times
    for name, stored in variables.items():
        *front, end = name.split("/")
        if not stored.dim() or name.endswith("_scale") or "alignment" in end:  # settings, not weights
            continue
        if id(stored) not in floats:
            floats[id(stored)] = unscaled(name, stored, variables.get(f"{name}_scale"))
        values = floats[id(stored)]
        end = ENDS.get(end, end)
        if name in PLACES:
            yield PLACES[name], values
        elif len(front) == 2:  # a convolution, or the last norm
            yield f"model.{front[0]}.{front[1]}.{end}", values
        else:
            side, layer, part, what = front
            place = f"model.{side}.layers.{layer.removeprefix('layer_')}"
            if what == "layer_norm":
                yield f"{place}.{NORMS[part]}.{end}", values
            elif part == "ffn":
                yield f"{place}.fc{int(what.removeprefix('linear_')) + 1}.{end}", values
            else:
                for projection, own in projections(part, what, values):
                    if (projection, end) != ("k_proj", "bias"):  # zeros
                        yield f"{place}.{ATTENTION[part]}.{projection}.{end}", own


def unscaled(name: str, stored: Tensor, scale: Tensor | None) -> Tensor:
    """A variable as floats; integers have a scale, or one for each row."""
    values = stored.float()
    if scale is None:
        return values
    if scale.numel() not in (1, len(stored)):  # a row would be divided by each of a million scales
        raise ValueError(f"{one_line(name, 80)} has {len(stored):,} rows and {scale.numel():,} scales")
    return values / scale.float().reshape(-1, *[1] * (values.dim() - 1) if scale.dim() else ())


def projections(part: str, what: str, values: Tensor) -> list[tuple[str, Tensor]]:
    """A fused matrix, or bias, taken apart: of self-attention q, k and v; of cross-attention q alone, then k and v."""
    names = {
        ("self_attention", "linear_0"): ("q_proj", "k_proj", "v_proj"), ("self_attention", "linear_1"): ("out_proj",),
        ("attention", "linear_0"): ("q_proj",), ("attention", "linear_1"): ("k_proj", "v_proj"),
        ("attention", "linear_2"): ("out_proj",),
    }[part, what]  # fmt: skip
    return list(zip(names, values.chunk(len(names)), strict=True))
