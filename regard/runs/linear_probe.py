"""A linear probe beside a fine-tuned classifier: where that failed on few examples, the probe is kept."""

import math
from collections.abc import Iterable
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.data.sets.batches import Batch


def fit_linear(
    vectors: Float[Tensor, "N D"], labels: Int[Tensor, "N"], classes: int, strength: float = 1.0
) -> tuple[Float[Tensor, "L D"], Float[Tensor, "L"]]:
    """Weight and bias of a multinomial logistic regression: the summed cross-entropy plus |W|² / (2 · strength), of
    vectors scaled to a mean length of 1."""
    scale = vectors.norm(dim=-1).mean().clamp(min=1e-9)
    x = (vectors / scale).double()
    weight, bias = (
        torch.zeros(size, dtype=torch.float64, requires_grad=True) for size in ((classes, x.shape[1]), (classes,))
    )
    optimizer = torch.optim.LBFGS([weight, bias], max_iter=500, tolerance_grad=1e-6, line_search_fn="strong_wolfe")

    def closure() -> Tensor:
        optimizer.zero_grad()
        loss = F.cross_entropy(F.linear(x, weight, bias), labels, reduction="sum")
        loss = loss + weight.square().sum() / (2 * strength)
        loss.backward()
        return loss

    with torch.enable_grad():
        optimizer.step(closure)
    return (weight / scale).detach().float(), bias.detach().float()


@torch.no_grad()
def probe(model: Any, batches: Iterable[Batch]) -> nn.Module:
    """The model with a head fitted to the frozen vectors of `embed`."""
    model.eval()
    rows = [(model.embed(**batch.inputs), batch.targets) for batch in batches]
    vectors, labels = (torch.cat(parts) for parts in zip(*rows, strict=True))
    weight, bias = fit_linear(vectors, labels, len(model.config.labels))
    model.head.out.weight.copy_(weight)
    model.head.out.bias.copy_(bias)
    return model


def clearly_better(score: float, other: float, count: int) -> bool:
    """Whether `other` is higher than `score` by more than a standard error; both are percentages of `count` examples.

    Fine-tuned models are better by some points as a rule, and few examples cannot tell them from a probe: only a
    difference that luck would hardly make speaks for the probe.
    """
    share = (score + other) / 200
    return other - score > 100 * math.sqrt(2 * share * (1 - share) / count)
