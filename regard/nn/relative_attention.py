"""Attention with relative positions of Transformer-XL (Dai et al., 2019), as Conformers have them.

score(i, j) = (q_i + u) · k_j + (q_i + v) · W r_{i−j}, where r is a sinusoid of the distance and u, v are learned.
"""

import torch
from jaxtyping import Float
from torch import Tensor, nn

from regard.nn.attention import Attention, AttentionConfig
from regard.nn.positions import Position, sinusoids


class DistanceMatrix(nn.Linear):
    """The matrix W of distances. Queries are multiplied by its rows, so it stays in floating point when others are
    quantised."""


class RelativeAttention(Attention):
    """Attention whose scores have a term of content and one of distance.

    A sinusoid of i − j is a product of sinusoids of i and of j. So the second term is a product too, and joins the
    first one in longer queries and keys: every exact kernel computes it, and no matrix of distances is made.
    """

    def __init__(self, config: AttentionConfig, position: Position | None = None) -> None:
        super().__init__(config, position)
        if self.kernel.shares:
            raise ValueError(f"kernel {config.kernel!r} has no keys of its own for relative positions; use full")
        self.distance = DistanceMatrix(config.dim, self.heads * self.head_dim, bias=False)
        self.content_bias = nn.Parameter(torch.zeros(self.heads, 1, self.head_dim))  # u
        self.distance_bias = nn.Parameter(torch.zeros(self.heads, 1, self.head_dim))  # v
        self.scale = self.head_dim**-0.5

    def project(
        self, x: Float[Tensor, "B T D"], context: Float[Tensor, "B S C"] | None = None, *, start: int = 0
    ) -> tuple[Float[Tensor, "B H T K"], Float[Tensor, "B G S K"], Float[Tensor, "B G S V"]]:
        assert context is None, "relative positions are those of self-attention"
        q, k, v = super().project(x, start=start)
        weight = self.distance.weight.unflatten(0, (self.heads, self.head_dim))  # H K D
        toward = (q + self.distance_bias) @ weight  # B H T D: what multiplies r, sines and cosines in turn
        waves = sinusoids(x.shape[1], x.shape[2], start=start).to(x)
        sine, cosine = waves[:, 0::2], waves[:, 1::2]
        a, b = toward[..., 0::2], toward[..., 1::2]  # a sin(i − j) + b cos(i − j), spread out
        q = torch.cat([q + self.content_bias, a * sine + b * cosine, b * sine - a * cosine], dim=-1)
        places = torch.cat([cosine, sine], dim=-1).expand(*k.shape[:2], -1, -1)
        return q, torch.cat([k, places], dim=-1), v
