"""Matrices kept in bfloat16: half the memory of float32, and faster products where the processor has instructions for
them.

In blocks and cells both sides of a product are bfloat16, and sums float32. Token vectors and heads are multiplied in
float32: logits rounded to 8 bits would be equal too often.
"""

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from regard.native.program import Weight

CHUNK = 1 << 18
"""Numbers that are converted at once, so that they stay in the processor's cache."""


def pack_half(matrix: Float[Tensor, "N K"], *, both: bool) -> Weight:
    """Round a matrix to bfloat16; `both` sides of its products, or only this one."""
    values = matrix.detach().to(torch.bfloat16).contiguous()
    return Weight(values, len(values), values.shape[1], "bfloat16" if both else "bfloat16-weights")


def multiply_half(weight: Weight, x: Float[Tensor, "*N K"], bias: Float[Tensor, "M"] | None) -> Float[Tensor, "*N M"]:
    """x Wᵀ + b in the type of x."""
    if weight.format == "bfloat16":
        y = F.linear(x.to(weight.values.dtype), weight.values).to(x.dtype)
    else:
        parts = weight.values.split(max(1, CHUNK // weight.columns))
        y = torch.cat([F.linear(x, part.to(x.dtype)) for part in parts], dim=-1)
    return y if bias is None else y + bias.to(x.dtype)
