"""Top-k attention: each query keeps its k best keys, with a hard or a soft threshold."""

import math
from functools import partial
from itertools import count

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from regard.config import at_least
from regard.nn.kernels.base import Kernel
from regard.nn.kernels.chunks import again
from regard.nn.kernels.full import attend, repeat_heads
from regard.nn.masks import Mask
from regard.nn.positions import Bias
from regard.registry import register_kernel


@register_kernel("topk")
class TopK(Kernel):
    """softmax over the `k` largest scores of each query (Gupta et al., 2021); all scores are computed, O(n²) time.

    With a `temperature` the choice itself has a gradient: a weight is multiplied by σ((score − τ) / temperature), τ
    midway between the last key kept and the first one dropped. Ties at the threshold are all kept.
    """

    reference = False

    def __init__(self, k: int = 32, temperature: float = 0.0, chunk: int = 128, **sizes: int) -> None:
        super().__init__(**sizes)
        at_least(1, k=k, chunk=chunk)
        at_least(0, temperature=temperature)
        self.k, self.temperature, self.chunk = k, temperature, chunk

    def chosen(self, scores: Float[Tensor, "B H T S"]) -> Float[Tensor, "B H T S"]:
        """Lower the scores of keys outside the top k; at temperature 0 to −∞."""
        if scores.shape[-1] <= self.k:
            return scores
        best = scores.topk(self.k + 1).values
        if not self.temperature:
            return scores.masked_fill(scores < best[..., -2:-1], -math.inf)
        border = best[..., -2:].mean(-1, keepdim=True).clamp_min(torch.finfo(scores.dtype).min / 8)  # fewer: keep all
        return scores + F.logsigmoid((scores - border) / self.temperature)

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
        k, v = repeat_heads(k, q.shape[1]), repeat_heads(v, q.shape[1])
        start = mask.start if mask is not None else bias.start if bias is not None else 0
        j = torch.arange(k.shape[2], device=q.device)[None]

        def rows(number: int, q: Tensor, i: Tensor) -> tuple[Tensor, Tensor | None]:
            scores = q @ k.transpose(-1, -2) * (q.shape[-1] ** -0.5 if scale is None else scale)
            if bias is not None:
                scores = scores + bias.values(i, j).to(scores.dtype)
            if mask is not None:
                allowed = mask.allowed(i, j)
                allowed = allowed.unsqueeze(-3) if allowed.dim() == 3 else allowed[None, None]
                scores = scores.masked_fill(~allowed, -math.inf)
            drop = partial(self.drop, p=dropout, call=number)
            out, attention = attend(self.chosen(scores), v, mask=allowed if mask is not None else None, drop=drop)
            return out, attention if weights else None

        i = torch.arange(start, start + q.shape[2], device=q.device)[:, None]
        parts = zip(count(), q.split(self.chunk, 2), i.split(self.chunk))
        outs, attention = zip(*(again(rows, *part, random=dropout > 0) for part in parts), strict=True)
        return torch.cat(outs, 2), torch.cat(attention, 2) if weights else None
