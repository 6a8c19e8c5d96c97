"""Int8 matrices for image models: hundreds of rows at once, so that arithmetic is the limit, not memory.

Activations are bytes too: 0 … 255 with a zero point for each row. Processors multiply unsigned by signed bytes and add
two neighbouring products in 16 bits, so the limit for the weights of a row is the largest sum of two neighbours of one
sign, at most 128: finer steps than ±64 for each would give. Sums are exact integers.
"""

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int8
from torch import Tensor

from regard.native.program import Weight

STRIP = 32
"""Rows of a matrix that are stored together, four columns at a time, after their sums."""
GROUP = 32
"""Number that columns are padded to a multiple of."""
MOST_COLUMNS = 1 << 17
"""The most columns: 255 · 64 · columns stays below 2³¹."""
EXACT = 1024
"""Columns whose products float32 sums without rounding: 255 · 64 · 1024 < 2²⁴."""
TINY = 1e-35
"""Rows with a smaller range count as zeros: 255 / range would overflow."""


def suits_bytes(matrix: Float[Tensor, "N K"]) -> bool:
    """Whether a matrix is large enough: small ones would be mostly padding."""
    return min(matrix.shape) >= GROUP and matrix.shape[1] <= MOST_COLUMNS


def pack_bytes(matrix: Float[Tensor, "N K"]) -> Weight:
    rows, columns = matrix.shape
    assert columns <= MOST_COLUMNS
    w = F.pad(matrix.detach().float(), (0, -columns % GROUP, 0, -rows % STRIP))
    pairs = w.unflatten(1, (-1, 2))
    scales = torch.maximum(pairs.clamp(min=0).sum(2).amax(1), pairs.clamp(max=0).sum(2).amin(1).neg_()) / 127
    whole = (w / scales.masked_fill(scales == 0, 1.0)[:, None]).round_().to(torch.int8)
    sums = whole.sum(1, dtype=torch.int32).view(torch.int8).view(-1, 1, STRIP, 4)
    strips = whole.view(-1, STRIP, w.shape[1] // 4, 4).transpose(1, 2)
    return Weight(torch.cat([sums, strips], dim=1), rows, columns, "bytes", scales[:rows].clone())


def whole_bytes(weight: Weight) -> Int8[Tensor, "N K"]:
    """Return the integers of all rows, padded columns included."""
    return weight.values[:, 1:].transpose(1, 2).flatten(2).flatten(0, 1)[: weight.rows]


def multiply_bytes(weight: Weight, x: Float[Tensor, "R K"]) -> Float[Tensor, "R M"]:
    """x Wᵀ exactly as the compiled kernel computes it, to the last bit."""
    assert weight.scales is not None
    low, high = x.amin(1, keepdim=True).clamp(max=0), x.amax(1, keepdim=True).clamp(min=0)
    span = high - low
    inverse = torch.where(span > TINY, x.new_tensor(255) / span, 0.0)  # a plain 255 would be rounded twice
    zero = (low * -inverse).round_().nan_to_num_(0.0)
    whole = ((x * inverse).round_() + zero).nan_to_num_(0.0).clamp_(0, 255) - zero
    matrix = whole_bytes(weight)[:, : weight.columns].to(x.dtype)
    sums = torch.zeros(len(x), weight.rows, dtype=torch.int32, device=x.device)
    for part, columns in zip(whole.split(EXACT, 1), matrix.split(EXACT, 1), strict=True):
        sums += (part @ columns.T).int()
    return sums.to(x.dtype) * (span / 255) * weight.scales.to(x.dtype)
