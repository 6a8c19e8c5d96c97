"""Losses for labels of a text, labels of tokens, spans, and text similarity."""

import math
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from regard.data.sets.batches import IGNORE, Batch
from regard.nn.rows import everyone, total

TEMPERATURE = 0.05
"""Temperature of the softmax over the other texts of a batch."""


def text_labels(model: Any, batch: Batch, *, smoothing: float = 0.0) -> tuple[Float[Tensor, ""], int]:
    """Return the summed loss over texts, and their number."""
    scores = model(**batch.inputs)
    return F.cross_entropy(scores, batch.targets, label_smoothing=smoothing, reduction="sum"), len(scores)


def token_labels(model: Any, batch: Batch, *, smoothing: float = 0.0) -> tuple[Float[Tensor, ""], int]:
    """Return the summed loss over labelled tokens, and their number."""
    labelled = batch.targets != IGNORE
    scores = model(**batch.inputs)[labelled]
    return F.cross_entropy(scores, batch.targets[labelled], label_smoothing=smoothing, reduction="sum"), len(scores)


def span(model: Any, batch: Batch, *, smoothing: float = 0.0) -> tuple[Float[Tensor, ""], int]:
    """Return the summed loss over texts, of the first and the last token of the span (targets B 2)."""
    scores = hide_padding(model(**batch.inputs), batch.inputs["lengths"])
    losses = F.cross_entropy(scores, batch.targets, label_smoothing=0.0, reduction="sum")
    return losses / 2, len(scores)


def hide_padding(scores: Float[Tensor, "B T 2"], lengths: Tensor) -> Float[Tensor, "B T 2"]:
    hidden = torch.arange(scores.shape[1], device=scores.device) >= lengths[:, None]
    return scores.masked_fill(hidden[:, :, None], -math.inf)


def similarity(model: Any, batch: Batch, *, smoothing: float = 0.0) -> tuple[Float[Tensor, ""], int]:
    """Return the loss of pairs of texts, all first ones above all second ones; targets B are similarities in [0, 1].

    It is the squared difference of cosine and target, plus a contrastive loss: a paraphrase must be found in the batch.
    """
    vectors = F.normalize(model.embed(**batch.inputs), dim=-1)
    first, second = vectors.chunk(2)
    loss = F.mse_loss((first * second).sum(-1), batch.targets, reduction="sum")
    same = batch.targets > 0.99
    second, rows = everyone(second)
    if total(int(same.sum())):
        others = first[same] @ second.T / TEMPERATURE
        loss = loss + F.cross_entropy(others, rows[same], reduction="sum")
    return loss, len(first)
