"""Contrastive losses: a vector's partner must be identified among others (CLIP and SimCLR)."""

import math
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor

from regard.data.sets.batches import Batch
from regard.nn.rows import everyone

SHARPEST = 0.01
"""Lower bound of the learned temperature."""


def contrastive(
    left: Float[Tensor, "N D"],
    right: Float[Tensor, "N D"],
    temperature: float | Float[Tensor, ""],
    same: Bool[Tensor, "N N"] | None = None,
    rows: Int[Tensor, "M"] | None = None,
) -> Float[Tensor, ""]:
    """Return the summed loss over pairs of rows: cross-entropy of identifying the partner, the mean of both directions.

    `same[i, j]` marks right j as another correct partner of left i, which is not counted as a negative; the diagonal
    always is. For two views of the same images, pass cat(a, b) and cat(b, a), where same[i, j] marks i itself in the
    other. With `rows`, only the losses of those are summed, as where other processes sum the rest.
    """
    scores = F.normalize(left, dim=-1) @ F.normalize(right, dim=-1).T / temperature
    indices = torch.arange(len(scores), device=scores.device)
    if same is not None:
        scores = scores.masked_fill(same & ~torch.eye(len(scores), dtype=torch.bool, device=same.device), -math.inf)
    rows = indices if rows is None else rows
    both = (F.cross_entropy(logits[rows], indices[rows], reduction="sum") for logits in (scores, scores.T))
    return sum(both) / 2  # type: ignore[return-value]


def image_text_contrast(model: Any, batch: Batch, *, smoothing: float = 0.0) -> tuple[Float[Tensor, ""], int]:
    """Return the summed loss over image–text pairs; targets B B mark the texts that fit each image."""
    left, right = model.features(**batch.inputs)
    (every, rows), (others, _), (targets, _) = (everyone(x) for x in (left, right, batch.targets))
    return contrastive(every, others, model.temperature.clamp(min=SHARPEST), targets, rows), len(left)
