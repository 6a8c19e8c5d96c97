"""Linformer: keys and values are projected along the length to a few (Wang et al., 2020)."""

from functools import partial

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from regard.config import at_least
from regard.nn.kernels.base import Kernel, causal_and_keys
from regard.nn.kernels.full import attend, repeat_heads
from regard.nn.masks import Mask
from regard.nn.positions import Bias
from regard.registry import register_kernel


@register_kernel("linformer")
class Linformer(Kernel):
    """softmax(Q (E K)ᵀ · scale) (F V) with trained E and F, rank × max_len: O(n · rank) time, O(n) memory.

    Both are initialised to means of neighbouring positions. A slot mixes keys of all positions, so it cannot be causal.
    """

    exact = False
    tolerance = 1.0
    reference = False
    causal = False
    cached = False
    biased = False
    weighs = False
    any_mask = False

    def __init__(self, rank: int = 128, **sizes: int) -> None:
        super().__init__(**sizes)
        at_least(1, rank=rank)
        rank = min(rank, self.max_len)
        means = (torch.arange(self.max_len) * rank // self.max_len == torch.arange(rank)[:, None]).float()
        means = means / means.sum(1, keepdim=True)
        self.mix_keys, self.mix_values = nn.Parameter(means.clone()), nn.Parameter(means)

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
    ) -> tuple[Float[Tensor, "B H T C"], None]:
        S = k.shape[2]
        if S > self.max_len:
            raise ValueError(f"linformer has learned to mix {self.max_len} positions, got {S}; use a larger max_len")
        _, real = causal_and_keys(mask, S, self)
        mix, mix_values = self.mix_keys[:, :S], self.mix_values[:, :S]
        used = mix.detach().ne(0).to(q.dtype)  # a slot without visible keys is hidden
        if real is None:
            slots = used.any(1)[None, None, None]
        else:
            k, v = k * real[..., None], v * real[..., None]
            slots = (real.to(q.dtype) @ used.T).gt(0)[:, :, None]  # B 1 1 rank
        k, v = mixed(mix, k), mixed(mix_values, v)
        if dropout > 0 and self.drop.noise is not None:  # counted, which PyTorch's kernel cannot do
            scores = q @ repeat_heads(k, q.shape[1]).mT * (q.shape[-1] ** -0.5 if scale is None else scale)
            return attend(scores, v, mask=slots.expand_as(scores), drop=partial(self.drop, p=dropout))[0], None
        out = F.scaled_dot_product_attention(
            q, k, v, dropout_p=dropout, scale=scale,
            attn_mask=None if slots.all() else slots.expand(-1, -1, q.shape[2], -1),
            enable_gqa=k.shape[1] != q.shape[1],
        )  # fmt: skip
        return out, None


def mixed(mix: Float[Tensor, "R S"], x: Float[Tensor, "B G S K"]) -> Float[Tensor, "B G R K"]:
    """Project along the length, all heads in one product."""
    return (mix @ x.transpose(1, 2).flatten(2)).unflatten(2, (x.shape[1], -1)).transpose(1, 2)
