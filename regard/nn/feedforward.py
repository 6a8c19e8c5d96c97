"""The position-wise feed-forward layer: each token by itself, through a wider hidden layer and back."""

import math
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from regard.nn.cut import Cut
from regard.nn.dropout import Dropout

BEND = 2 * math.sqrt(2 / math.pi)
CUBE = 0.044715
QUICK = 1.702


class _WithSlope(torch.autograd.Function):
    """An activation that computes its derivative in the forward pass, so that the backward pass is one product."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, both: Callable[[Tensor], tuple[Tensor, Tensor]]) -> Tensor:
        y, slope = both(x)
        ctx.save_for_backward(slope)
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        return grad * ctx.saved_tensors[0], None


def _learning_on_cpu(x: Tensor) -> bool:
    return x.requires_grad and x.device.type in ("cpu", "meta") and x.dtype in (torch.float32, torch.float64)


def _relu_squared(x: Tensor) -> tuple[Tensor, Tensor]:
    kept = F.relu(x)
    return kept * kept, kept.mul_(2)


def relu_squared(x: Float[Tensor, "*N F"]) -> Float[Tensor, "*N F"]:
    return _WithSlope.apply(x, _relu_squared) if _learning_on_cpu(x) else F.relu(x).square()


def gelu(x: Float[Tensor, "*N F"]) -> Float[Tensor, "*N F"]:
    """x · Φ(x). In inference mode it overwrites x, because new memory costs more than arithmetic."""
    inference = not torch.is_grad_enabled() and torch.is_inference_mode_enabled()  # the second breaks a graph
    return torch.ops.aten.gelu_(x) if inference else F.gelu(x)


def _gelu_tanh(x: Tensor) -> tuple[Tensor, Tensor]:
    """x · σ(z) with z = 2√(2/π) (x + 0.044715 x³), using tanh's relation to σ: PyTorch's tanh takes four times as long.

    The derivative is σ + x z' σ (1 − σ); in place where possible, because new memory costs more than arithmetic.
    """
    square = x * x
    sigma = torch.addcmul(x, x, square, value=CUBE).mul_(BEND).sigmoid_()
    rise = square.mul_(3 * CUBE * BEND).add_(BEND).mul_(x)  # x z'
    slope = rise.addcmul_(rise, sigma, value=-1).add_(1).mul_(sigma)
    return sigma.mul_(x), slope


def gelu_tanh(x: Float[Tensor, "*N F"]) -> Float[Tensor, "*N F"]:
    """GELU with GPT-2's approximation of the normal distribution."""
    return _WithSlope.apply(x, _gelu_tanh) if _learning_on_cpu(x) else F.gelu(x, approximate="tanh")


def _quick_gelu(x: Tensor) -> tuple[Tensor, Tensor]:
    sigma = torch.sigmoid(QUICK * x)
    slope = (x * sigma).mul_(1 - sigma).mul_(QUICK).add_(sigma)
    return sigma.mul_(x), slope


def quick_gelu(x: Float[Tensor, "*N F"]) -> Float[Tensor, "*N F"]:
    """x · σ(1.702 x), CLIP's approximation of GELU."""
    return _WithSlope.apply(x, _quick_gelu) if _learning_on_cpu(x) else x * torch.sigmoid(QUICK * x)


ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": F.relu,
    "gelu": gelu,
    "gelu-tanh": gelu_tanh,
    "quick-gelu": quick_gelu,
    "silu": F.silu,
    "relu2": relu_squared,
}
GATED: dict[str, Callable[[Tensor], Tensor]] = {
    "swiglu": F.silu,
    "geglu": gelu,
    "geglu-tanh": gelu_tanh,
}
"""Activations that multiply two projections, act(x W) · (x U)."""


class FeedForward(nn.Module):
    """act(x W₁) W₂, or for gated activations (act(x W) · x U) W₂ with W and U stored as one matrix."""

    def __init__(self, dim: int, ffn_dim: int, *, activation: str, bias: bool, dropout: float = 0.0) -> None:
        super().__init__()
        self.kind, self.gated = activation, activation in GATED
        self.activation = (GATED | ACTIVATIONS)[activation]
        self.dropout = Dropout(dropout)
        self.up = nn.Linear(dim, ffn_dim * (2 if self.gated else 1), bias=bias)
        self.down = nn.Linear(ffn_dim, dim, bias=bias)

    def cut(self) -> Cut:
        """Return how its hidden units may be divided among processes."""
        return Cut({"up": 1 + self.gated}, "down", {"ffn_dim": self.down.in_features}, (self.dropout, -1))

    def forward(self, x: Float[Tensor, "B T D"]) -> Float[Tensor, "B T D"]:
        hidden = self.up(x)
        if self.gated:
            gate, value = hidden.chunk(2, dim=-1)
            hidden = self.activation(gate) * value
        else:
            hidden = self.activation(hidden)
        return self.down(self.dropout(hidden))
