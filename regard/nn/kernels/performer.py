"""Performer: softmax attention estimated by random features, so that it becomes linear (Choromanski et al., 2021)."""

import torch
from jaxtyping import Float
from torch import Tensor

from regard.config import at_least
from regard.nn.kernels.linear import Features, Linear
from regard.nn.reversible import recomputes
from regard.registry import register_kernel

LARGEST = 40.0
"""Largest exponent of a key's feature, so that sums stay finite; only directions longer than √80 can reach it."""
FLOOR = 1e-12
"""Added to the features of keys: where all would underflow, every key counts equally."""


@register_kernel("performer")
class Performer(Linear):
    """FAVOR+: exp(q·k) = E[exp(w·q − |q|²/2) · exp(w·k − |k|²/2)] over normal w, sampled orthogonal to each other.

    All features are positive; the error falls with the root of their number. `redraw` samples new ones every so many
    training passes (0: never).
    """

    exact = False
    tolerance = 0.9
    reference = True
    directions: Tensor
    passes: Tensor

    def __init__(self, features: int | None = None, redraw: int = 0, chunk: int = 256, **sizes: int) -> None:
        super().__init__(chunk, **sizes)
        at_least(0, redraw=redraw)
        at_least(1, features=features)
        self.count, self.redraw = features or max(256, 4 * self.head_dim), redraw
        self.register_buffer("directions", orthogonal(self.count, self.head_dim))
        self.register_buffer("passes", torch.zeros((), dtype=torch.long))

    @property
    def width(self) -> int:
        return self.count

    def features(self, scale: float | None) -> Features:
        """Return φ with the current directions, even if they are redrawn before the backward pass.

        A factor of a query's features cancels, but not one of a key's; and dividing by the maximum over all keys would
        leak the future.
        """
        factor = (self.head_dim**-0.5 if scale is None else scale) ** 0.5
        directions = self.directions

        def phi(x: Float[Tensor, "B H T K"], *, key: bool) -> Float[Tensor, "B H T F"]:
            x = x * factor
            products = x @ directions.to(x.dtype).T
            if not key:
                return (products - products.detach().amax(-1, keepdim=True)).exp()
            return (products - x.square().sum(-1, keepdim=True) / 2).clamp_max(LARGEST).exp() + FLOOR

        return phi

    def forward(self, q: Tensor, k: Tensor, v: Tensor, **options) -> tuple[Tensor, Tensor | None]:
        if self.training and self.redraw and not recomputes():
            if self.passes % self.redraw == self.redraw - 1:  # a new tensor: the backward pass may still need the old
                self.directions = orthogonal(self.count, self.head_dim).to(self.directions)
            self.passes += 1
        return super().forward(q, k, v, **options)


def orthogonal(count: int, dim: int) -> Float[Tensor, "F K"]:
    """Return normal vectors, orthogonal in blocks of `dim`, with the lengths of independent normal ones."""
    blocks = [torch.linalg.qr(torch.randn(dim, dim)).Q for _ in range(-(-count // dim))]
    return torch.cat(blocks)[:count] * torch.randn(count, dim).norm(dim=1, keepdim=True)
