"""Models of CTranslate2: variables by name, with shapes, types and scales."""

import struct

import torch
from torch import Tensor

from fuzz.scratch import put
from regard.hub.ctranslate2 import TYPES, read_ctranslate2

READS = ("regard.hub.ctranslate2",)
DIM, MELS, FFN, VOCAB, LENGTH = 4, 3, 5, 7, 6


def seeds() -> list[bytes]:
    """Return a model of zeros in floats, and one whose matrices are integers with scales."""
    found: dict[str, Tensor] = {
        "encoder/conv1/weight": torch.zeros(DIM, MELS, 3), "encoder/conv2/weight": torch.zeros(DIM, DIM, 3),
        "decoder/embeddings/weight": torch.zeros(VOCAB, DIM),
    }  # fmt: skip
    for side in ("encoder", "decoder"):
        found[f"{side}/num_heads"] = torch.tensor(2, dtype=torch.int16)
        found[f"{side}/position_encodings/encodings"] = torch.zeros(LENGTH, DIM)
        found[f"{side}/layer_norm/gamma"] = torch.zeros(DIM)
        found[f"{side}/layer_0/self_attention/linear_0/weight"] = torch.zeros(3 * DIM, DIM)
        found[f"{side}/layer_0/self_attention/linear_1/bias"] = torch.zeros(DIM)
        found[f"{side}/layer_0/ffn/linear_0/weight"] = torch.zeros(FFN, DIM)
    packed = {name: tensor.to(torch.int8) if tensor.dim() == 2 else tensor for name, tensor in found.items()}
    packed |= {f"{name}_scale": torch.ones(len(tensor)) for name, tensor in found.items() if tensor.dim() == 2}
    return [content(found), content(packed)]


def content(found: dict[str, Tensor]) -> bytes:
    parts = [struct.pack("<I", 6), text("WhisperSpec"), struct.pack("<II", 3, len(found))]
    for name, tensor in found.items():
        data = tensor.numpy().tobytes()
        parts += [text(name), struct.pack(f"<B{tensor.dim()}I", tensor.dim(), *tensor.shape)]
        parts += [struct.pack("<BI", TYPES.index(tensor.dtype), len(data)), data]
    return b"".join(
        [*parts, struct.pack("<I", 1), text("decoder/projection/weight"), text("decoder/embeddings/weight")]
    )


def text(name: str) -> bytes:
    return struct.pack("<H", len(name) + 1) + name.encode() + b"\0"


def run(data: bytes) -> None:
    """Read a model."""
    read_ctranslate2(put("model.bin", data))
