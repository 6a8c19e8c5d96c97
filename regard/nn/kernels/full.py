"""Full attention: PyTorch's fused kernel for the output, ten plain lines where weights are requested."""

import math
from collections.abc import Callable
from functools import partial

import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor

from regard.nn.kernels.base import Kernel, Terms
from regard.nn.masks import Mask
from regard.nn.positions import Bias
from regard.registry import register_kernel


def attend(
    scores: Float[Tensor, "B H T S"],
    v: Float[Tensor, "B G S C"],
    *,
    mask: Bool[Tensor, "#B #H T S"] | None = None,
    drop: Callable[[Tensor], Tensor] = lambda weights: weights,
) -> tuple[Float[Tensor, "B H T C"], Float[Tensor, "B H T S"]]:
    """mask → softmax → drop → mix; return output and weights. A query without visible keys gets zeros."""
    if mask is not None:
        scores = scores.masked_fill(~mask, -math.inf)
    weights = scores.softmax(dim=-1)
    if mask is not None:
        weights = weights.masked_fill(~mask.any(-1, keepdim=True), 0.0)
    mixed = drop(weights) @ repeat_heads(v, scores.shape[1])
    return mixed, weights


def repeat_heads(x: Float[Tensor, "B G S K"], heads: int) -> Float[Tensor, "B H S K"]:
    """Repeat each key/value head for the H/G query heads that share it."""
    return x if x.shape[1] == heads else x.repeat_interleave(heads // x.shape[1], dim=1)


@register_kernel("full")
class Full(Kernel):
    """softmax(q·kᵀ · scale + bias) · v; scale 1/√K keeps the variance of the scores at 1."""

    dense = True

    def terms(self, q: Float[Tensor, "B H T K"], k: Float[Tensor, "B G S J"], scale: float | None) -> Terms:
        return q, k, q.shape[-1] ** -0.5 if scale is None else scale, None

    def forward(
        self,
        q: Float[Tensor, "B H T K"],
        k: Float[Tensor, "B G S J"],
        v: Float[Tensor, "B G S C"],
        *,
        mask: Mask | None = None,
        bias: Bias | None = None,
        scale: float | None = None,
        dropout: float = 0.0,
        weights: bool = False,
    ) -> tuple[Float[Tensor, "B H T C"], Float[Tensor, "B H T S"] | None]:
        q, k, scale, scores = self.terms(q, k, scale)
        T, S = q.shape[2], k.shape[2]
        counted = dropout > 0 and self.drop.noise is not None  # which PyTorch's kernel cannot do
        if (weights or counted) and scores is None:
            assert scale is not None
            scores = q @ repeat_heads(k, q.shape[1]).transpose(-1, -2) * scale
        if scores is not None:
            if bias is not None:
                scores = scores + bias.dense(T, S).to(scores.dtype)
            seen, drop = None if mask is None else mask.dense(T, S, q.device), partial(self.drop, p=dropout)
            out, attention = attend(scores, v, mask=seen, drop=drop)
            return out, attention if weights else None

        causal = mask is not None and mask.is_causal and mask.start == 0 and T == S and bias is None
        hides = None if causal or mask is None or sees_everything(mask, T, S) else mask
        dense: Tensor | None = None if hides is None else hides.dense(T, S, q.device)
        if bias is not None:
            dense = bias.dense(T, S).to(q.dtype)
            if hides is not None:
                dense = dense + hides.added(T, S, q)
        out = F.scaled_dot_product_attention(
            q, k, v, attn_mask=dense, dropout_p=dropout, is_causal=causal, scale=scale,
            enable_gqa=k.shape[1] != q.shape[1],
        )  # fmt: skip
        return out, None


def sees_everything(mask: Mask, T: int, S: int) -> bool:
    """Whether a mask hides nothing, as for one new query after all cached keys: no mask tensor is needed."""
    return mask.is_everything or (mask.is_causal and T == 1 and mask.start >= S - 1)
