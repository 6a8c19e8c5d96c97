"""Additive scores, vᵀ tanh(q + k) (Bahdanau et al., 2015). q and k arrive projected to one width."""

import torch
from jaxtyping import Float
from torch import Tensor, nn

from regard.nn.kernels.base import Kernel
from regard.nn.kernels.full import attend, repeat_heads
from regard.nn.masks import Mask
from regard.nn.positions import Bias
from regard.registry import register_kernel


@register_kernel("additive")
class Additive(Kernel):
    """softmax(wᵀ tanh(q + k) · scale) · v with a vector w for each head; needs B·H·T·S·K intermediate numbers."""

    reference, dense = False, True

    def __init__(self, **sizes: int) -> None:
        super().__init__(**sizes)
        vectors = torch.empty(self.heads, self.head_dim).uniform_(-1, 1)
        self.vector = nn.Parameter(vectors * (3 / self.head_dim) ** 0.5)

    def scores(
        self, q: Float[Tensor, "B H T K"], k: Float[Tensor, "B G S K"], scale: float | None = None
    ) -> Float[Tensor, "B H T S"]:
        sums = q.unsqueeze(3) + repeat_heads(k, q.shape[1]).unsqueeze(2)  # B H T S K
        return torch.einsum("bhtsk,hk->bhts", sums.tanh(), self.vector) * (1.0 if scale is None else scale)

    def terms(
        self, q: Float[Tensor, "B H T K"], k: Float[Tensor, "B G S K"], scale: float | None
    ) -> tuple[Tensor, Tensor, float | None, Float[Tensor, "B H T S"] | None]:
        return q, k, None, self.scores(q, k, scale)

    def forward(
        self,
        q: Float[Tensor, "B H T K"],
        k: Float[Tensor, "B G S K"],
        v: Float[Tensor, "B G S C"],
        *,
        mask: Mask | None = None,
        bias: Bias | None = None,
        scale: float | None = None,
        dropout: float = 0.0,
        weights: bool = False,
    ) -> tuple[Float[Tensor, "B H T C"], Float[Tensor, "B H T S"] | None]:
        T, S = q.shape[2], k.shape[2]
        scores = self.scores(q, k, scale)
        if bias is not None:
            scores = scores + bias.dense(T, S).to(scores.dtype)
        out, attention = attend(scores, v, mask=None if mask is None else mask.dense(T, S), dropout=dropout)
        return out, attention if weights else None
