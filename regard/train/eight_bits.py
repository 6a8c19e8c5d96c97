"""FP8 training emulated: the operands of matrix products are rounded to eight bits; the products are exact.

As NVIDIA's Transformer Engine does it: inputs and weights in e4m3 (four bits of exponent, three of mantissa), gradients
in e5m2, each tensor scaled so that its largest value is the largest of the format (Micikevicius et al., 2022).
"""

from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn


@dataclass(frozen=True, slots=True)
class Format:
    """The types of the operands of products, in the forward and the backward pass."""

    forward: torch.dtype
    backward: torch.dtype
    scaled: bool = False
    """Whether each tensor is scaled to the range of the type first."""


FP8 = Format(torch.float8_e4m3fn, torch.float8_e5m2, scaled=True)


def rounded(x: Tensor, dtype: torch.dtype, *, scaled: bool) -> Tensor:
    """The nearest values of a type; `scaled`, so that the tensor's largest value is the largest of the type."""
    if not scaled:
        return x.to(dtype).to(x.dtype)
    scale = x.detach().abs().amax().clamp(min=torch.finfo(x.dtype).tiny) / torch.finfo(dtype).max
    return (x / scale).to(dtype).to(x.dtype) * scale


class _Values(torch.autograd.Function):
    """Rounds values on the way forward; gradients pass."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, numbers: Format) -> Tensor:
        return rounded(x, numbers.forward, scaled=numbers.scaled)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        return grad, None


class _Gradients(torch.autograd.Function):
    """Rounds gradients on the way back; values pass."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, numbers: Format) -> Tensor:
        ctx.numbers = numbers
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        return rounded(grad, ctx.numbers.backward, scaled=ctx.numbers.scaled), None


def rounded_linear(layer: nn.Linear, numbers: Format, x: Tensor) -> Tensor:
    """Return the output of a linear layer whose products read numbers of a format."""
    y = F.linear(_Values.apply(x, numbers), _Values.apply(layer.weight, numbers), layer.bias)
    return _Gradients.apply(y, numbers)
