"""Labels of a text, of its tokens, of a span in it, and how alike two texts are."""

import math
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from regard.data.sets.batches import IGNORE, Batch

TEMPERATURE = 0.05
"""Of the softmax over the other texts of a batch."""


def text_labels(model: Any, batch: Batch, *, smoothing: float = 0.0) -> tuple[Float[Tensor, ""], int]:
    """The summed loss over texts."""
    scores = model(**batch.inputs)
    return F.cross_entropy(scores, batch.targets, label_smoothing=smoothing, reduction="sum"), len(scores)


def token_labels(model: Any, batch: Batch, *, smoothing: float = 0.0) -> tuple[Float[Tensor, ""], int]:
    """The summed loss over labelled tokens."""
    labelled = batch.targets != IGNORE
    scores = model(**batch.inputs)[labelled]
    return F.cross_entropy(scores, batch.targets[labelled], label_smoothing=smoothing, reduction="sum"), len(scores)


def span(model: Any, batch: Batch, *, smoothing: float = 0.0) -> tuple[Float[Tensor, ""], int]:
    """The summed loss over texts, of the first and the last token of the span (targets B 2)."""
    scores = hide_padding(model(**batch.inputs), batch.inputs["lengths"])
    losses = F.cross_entropy(scores, batch.targets, label_smoothing=0.0, reduction="sum")
    return losses / 2, len(scores)


def hide_padding(scores: Float[Tensor, "B T 2"], lengths: Tensor) -> Float[Tensor, "B T 2"]:
    hidden = torch.arange(scores.shape[1], device=scores.device) >= lengths[:, None]
    return scores.masked_fill(hidden[:, :, None], -math.inf)


def likeness(model: Any, batch: Batch, *, smoothing: float = 0.0) -> tuple[Float[Tensor, ""], int]:
    """Pairs of texts, all first ones above all second ones; targets B are how alike they are, from 0 to 1.

    Squared difference of cosine and target; and a text that means the same must be found among the batch's others.
    """
    vectors = F.normalize(model.embed(**batch.inputs), dim=-1)
    first, second = vectors.chunk(2)
    loss = F.mse_loss((first * second).sum(-1), batch.targets, reduction="sum")
    same = batch.targets > 0.99
    if same.any():
        others = first[same] @ second.T / TEMPERATURE
        loss = loss + F.cross_entropy(others, same.nonzero()[:, 0], reduction="sum")
    return loss, len(first)
