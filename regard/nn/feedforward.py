"""The position-wise layer: each token by itself, through a wider hidden layer and back."""

from collections.abc import Callable
from functools import partial

import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from regard.nn.dropout import dropout


def relu_squared(x: Float[Tensor, "*N F"]) -> Float[Tensor, "*N F"]:
    return F.relu(x).square()


ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": F.relu,
    "gelu": F.gelu,
    "gelu-tanh": partial(F.gelu, approximate="tanh"),
    "silu": F.silu,
    "relu2": relu_squared,
}
GATED: dict[str, Callable[[Tensor], Tensor]] = {
    "swiglu": F.silu,
    "geglu": F.gelu,
    "geglu-tanh": partial(F.gelu, approximate="tanh"),
}
"""Activations that multiply two projections, act(x W) · (x U)."""


class FeedForward(nn.Module):
    """act(x W₁) W₂, or for the gated ones (act(x W) · x U) W₂ with W and U stored as one matrix."""

    def __init__(self, dim: int, ffn_dim: int, *, activation: str, bias: bool, dropout: float = 0.0) -> None:
        super().__init__()
        self.gated = activation in GATED
        self.activation = (GATED | ACTIVATIONS)[activation]
        self.dropout = dropout
        self.up = nn.Linear(dim, ffn_dim * (2 if self.gated else 1), bias=bias)
        self.down = nn.Linear(ffn_dim, dim, bias=bias)

    def forward(self, x: Float[Tensor, "B T D"]) -> Float[Tensor, "B T D"]:
        hidden = self.up(x)
        if self.gated:
            gate, value = hidden.chunk(2, dim=-1)
            hidden = self.activation(gate) * value
        else:
            hidden = self.activation(hidden)
        return self.down(dropout(hidden, self.dropout, self.training))
