"""Vectors that belong together are to be found among others (CLIP: Radford et al., 2021; SimCLR: Chen et al., 2020)."""

import math
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor

from regard.data.sets.batches import Batch

SHARPEST = 0.01
"""The temperature that learning does not go below."""


def contrastive(
    left: Float[Tensor, "N D"],
    right: Float[Tensor, "N D"],
    temperature: float | Float[Tensor, ""],
    same: Bool[Tensor, "N N"] | None = None,
) -> Float[Tensor, ""]:
    """The summed loss over pairs of rows: cross-entropy of finding its partner, the mean of both directions.

    `same[i, j]` says that right j would do for left i as well, so that it is no wrong answer; the diagonal is anyhow
    right. Two views of the same pictures are cat(a, b) and cat(b, a), where same[i, j] marks i itself in the other.
    """
    scores = F.normalize(left, dim=-1) @ F.normalize(right, dim=-1).T / temperature
    places = torch.arange(len(scores), device=scores.device)
    if same is not None:
        scores = scores.masked_fill(same & ~torch.eye(len(scores), dtype=torch.bool, device=same.device), -math.inf)
    both = (F.cross_entropy(one, places, reduction="sum") for one in (scores, scores.T))
    return sum(both) / 2  # type: ignore[return-value]


def pictures_and_texts(model: Any, batch: Batch, *, smoothing: float = 0.0) -> tuple[Float[Tensor, ""], int]:
    """The summed loss over pairs of a picture and its text; targets B B say which texts are right for which picture."""
    left, right = model.features(**batch.inputs)
    return contrastive(left, right, model.temperature.clamp(min=SHARPEST), batch.targets), len(left)
