"""Skip-gram with negative sampling (Mikolov et al., 2013): a classifier of a word's neighbours and noise words.

Rows of consecutive words share their noise words, so that nearly all of the work is in matrix products: each centre
word is compared with all noise words of its row, and each pair counts as much as its share of them.
"""

from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.autograd.function import once_differentiable

from regard.data.sets.batches import Batch


def neighbours(ids: Int[Tensor, "B S"], reach: Int[Tensor, "B T"]) -> Bool[Tensor, "B T S"]:
    """Whether a position is a neighbour of a centre word: another word at most `reach` positions away.

    The centre words are the middle ones of `ids`; a negative id, or reach, stands for no word.
    """
    S, T = ids.shape[1], reach.shape[1]
    near, far = torch.arange(T, device=ids.device), torch.arange(S, device=ids.device)
    away = (far[None] - near[:, None] - (S - T) // 2).abs()  # T S
    return (away <= reach[..., None]) & (away > 0) & (ids >= 0)[:, None]


class _NoiseContrast(torch.autograd.Function):
    """Σ over pairs of softplus(−x·c) + `negatives` times the mean of softplus(x·n) over noise words; gradients are
    computed in the forward pass."""

    @staticmethod
    def forward(
        ctx: Any, words: Tensor, contexts: Tensor, ids: Tensor, noise: Tensor, near: Tensor, negatives: int
    ) -> Tensor:
        B, T, S = near.shape
        margin = (S - T) // 2
        around = ids.clamp(min=0)
        centres = around[:, margin : S - margin].flatten()
        x, c, n = (
            F.embedding(index.flatten(), table).view(B, -1, table.shape[1])
            for index, table in ((centres, words), (around, contexts), (noise, contexts))
        )
        share = near.sum(-1, keepdim=True) * (negatives / noise.shape[1])  # of each noise word, for a centre's pairs
        right, wrong = torch.bmm(x, c.mT), torch.bmm(x, n.mT)  # B T S and B T N
        total = (F.softplus(-right) * near).sum() + (F.softplus(wrong) * share).sum()
        if not (ctx.needs_input_grad[0] or ctx.needs_input_grad[1]):
            return total
        right, wrong = right.sigmoid_().sub_(1).mul_(near), wrong.sigmoid_().mul_(share)  # gradients of the products
        x_grad = torch.bmm(right, c).baddbmm_(wrong, n)
        ctx.grads = (
            torch.zeros_like(words).index_add_(0, centres, x_grad.flatten(0, 1)),
            torch.zeros_like(contexts)
            .index_add_(0, around.flatten(), torch.bmm(right.mT, x).flatten(0, 1))
            .index_add_(0, noise.flatten(), torch.bmm(wrong.mT, x).flatten(0, 1)),
        )
        return total

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, outer: Tensor) -> tuple[Tensor | None, ...]:
        words, contexts = (grad.mul_(outer) for grad in ctx.grads)
        return words, contexts, None, None, None, None


def noise_contrast(
    model: Any, batch: Batch, *, negatives: int, smoothing: float = 0.0
) -> tuple[Float[Tensor, ""], int]:
    """Return the summed loss over pairs of a word and a neighbour, and their number."""
    ids, noise = batch.inputs["ids"], batch.inputs["noise"]
    near = neighbours(ids, batch.targets)
    loss = _NoiseContrast.apply(model.embedding.weight, model.contexts.weight, ids, noise, near, negatives)
    return loss, max(1, int(near.sum()))
