"""Writes `model.bin` as CTranslate2's converter does, from a Whisper of ours."""

import json
import struct
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

CODES = {torch.float32: 0, torch.int8: 1, torch.int16: 2, torch.int32: 3, torch.float16: 4, torch.bfloat16: 5}
LAYERS = {
    "attention": ("self_attention/linear_0", "self_attention/linear_1", "self_attention"),
    "cross": ("attention/linear_0", "attention/linear_2", "attention"),
}


def variables(model: Any) -> dict[str, Tensor]:
    """The variables by name: q, k and v are one matrix, or of cross-attention two."""
    stem, found = model.stem, dict[str, Tensor]()
    for side, stack in (("encoder", model.encoder), ("decoder", model.decoder)):
        found[f"{side}/num_heads"] = torch.tensor(model.config.heads, dtype=torch.int16)
        found |= norm(f"{side}/layer_norm", stack.norm)
        for index, block in enumerate(stack.blocks):
            for name, (first, last, part) in LAYERS.items():
                layer = block.attention if name == "attention" else block.cross
                if layer is None:
                    continue
                front = f"{side}/layer_{index}/"
                found |= norm(f"{front}{part}/layer_norm", block.norms[name])
                found |= linear(front + last, layer.out.weight, layer.out.bias)
                q, kv = (layer.query.weight, layer.query.bias), (layer.key_value.weight, layer.key_value.bias)
                if name == "attention":
                    found |= linear(front + first, torch.cat([q[0], kv[0]]), torch.cat([q[1], kv[1]]))
                else:
                    found |= linear(front + first, *q) | linear(f"{front}{part}/linear_1", *kv)
            ffn = block.feedforward
            found |= norm(f"{side}/layer_{index}/ffn/layer_norm", block.norms["feedforward"])
            found |= linear(f"{side}/layer_{index}/ffn/linear_0", ffn.up.weight, ffn.up.bias)
            found |= linear(f"{side}/layer_{index}/ffn/linear_1", ffn.down.weight, ffn.down.bias)
    found |= linear("encoder/conv1", stem.first.weight, stem.first.bias)
    found |= linear("encoder/conv2", stem.second.weight, stem.second.bias)
    found["encoder/position_encodings/encodings"] = stem.waves
    found["decoder/position_encodings/encodings"] = model.decoder.position.table
    found["decoder/embeddings/weight"] = model.embedding.weight
    found["decoder/scale_embeddings"] = torch.tensor(0, dtype=torch.int8)
    return {name: tensor.detach().contiguous() for name, tensor in found.items()}


def linear(name: str, weight: Tensor, bias: Tensor) -> dict[str, Tensor]:
    return {f"{name}/weight": weight, f"{name}/bias": bias}


def norm(name: str, layer: Any) -> dict[str, Tensor]:
    return {f"{name}/gamma": layer.weight, f"{name}/beta": layer.bias}


def quantized(found: dict[str, Tensor]) -> dict[str, Tensor]:
    """Matrices as integers of 8 bits, with a scale for each row."""
    result = dict(found)
    for name, tensor in found.items():
        if tensor.dim() == 2 and "position" not in name:
            scale = 127 / tensor.abs().amax(1)
            result[name], result[f"{name}_scale"] = (tensor * scale[:, None]).round().to(torch.int8), scale
    return result


def text(name: str) -> bytes:
    return struct.pack("<H", len(name) + 1) + name.encode() + b"\0"


def content(
    found: dict[str, Tensor], *, version: int = 6, spec: str = "WhisperSpec", aliases: dict[str, str] | None = None
) -> bytes:
    """The bytes of the file; `aliases` are further names of variables."""
    parts = [struct.pack("<I", version), text(spec), struct.pack("<II", 3, len(found))]
    for name, tensor in found.items():
        data = tensor.view(torch.uint8).numpy().tobytes() if tensor.dim() else tensor.numpy().tobytes()
        sizes = struct.pack(f"<B{tensor.dim()}I", tensor.dim(), *tensor.shape)
        parts += [text(name), sizes, struct.pack("<BI", CODES[tensor.dtype], len(data)), data]
    names = {"decoder/projection/weight": "decoder/embeddings/weight"} | (aliases or {})
    parts += [struct.pack("<I", len(names)), *(text(alias) + text(name) for alias, name in names.items())]
    return b"".join(parts)


def write(directory: Path, found: dict[str, Tensor], **settings: Any) -> Path:
    """A directory with model.bin, and a config of tokens."""
    directory.mkdir(exist_ok=True)
    (directory / "model.bin").write_bytes(content(found, **settings))
    (directory / "config.json").write_text(json.dumps({"suppress_ids": [1, 2], "lang_ids": [5, 6]}))
    return directory
