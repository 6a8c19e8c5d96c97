"""Arrays as JSON for the page: base64 of their bytes, some of them rounded."""

import base64
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

LEVELS = 255
"""Number of steps between zero and a row's largest weight."""


def packed(numbers: Any, kind: str = "f4") -> dict[str, Any]:
    """An array as JSON: its shape, its type (f4, f2, i4, i2, i1 or u1, little-endian) and its bytes."""
    values = numbers.detach().cpu() if isinstance(numbers, Tensor) else numbers
    array = np.ascontiguousarray(np.asarray(values).astype(f"<{kind}"))
    return {"shape": list(array.shape), "type": kind, "data": base64.b64encode(array.tobytes()).decode()}


def in_bytes(weights: Float[Tensor, "*N S"]) -> dict[str, Any]:
    """Weights as bytes: each row in steps of 1/255 of its strongest, which is kept beside it.

    A fixed step would make nothing of long texts, where all weights are small.
    """
    tops = weights.amax(-1, keepdim=True)
    steps = (weights / tops.clamp(min=torch.finfo(torch.float32).tiny) * LEVELS).round()
    return {"tops": packed(tops.squeeze(-1)), "weights": packed(steps, "u1")}


def in_signs(values: Float[Tensor, "*N D"]) -> dict[str, Any]:
    """Return signed numbers as int8, in steps of 1/127 of the largest."""
    top = float(values.abs().max()) or 1.0
    return {"top": top, "values": packed((values / top * 127).round(), "i1")}
