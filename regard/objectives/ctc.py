"""Connectionist temporal classification (Graves et al., 2006): the probability of a text over all its alignments."""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

from regard.data.sets.batches import IGNORE, Batch
from regard.objectives.next_token import head_cross_entropy


def fewest_frames(ids: Sequence[int]) -> int:
    """The fewest vectors that can spell these tokens: one each, and a blank between two that are equal."""
    return len(ids) + sum(one == other for one, other in pairwise(ids))


def ctc(model: Any, batch: Batch, *, smoothing: float = 0.0) -> tuple[Float[Tensor, ""], int]:
    """Return the summed loss of a batch of recordings, and the number of tokens in it, a silent one counted as one.

    With a decoder, its cross-entropy has the share that the model's config names.
    """
    x, lengths = model.features(**batch.inputs), batch.inputs["lengths"]
    real = batch.targets != IGNORE
    counts = real.sum(1)
    log_probs = model.head(x).float().log_softmax(-1).transpose(0, 1)
    loss = F.ctc_loss(
        log_probs, batch.targets.masked_fill(~real, 0), model.out_lengths(lengths), counts, blank=model.config.blank,
        reduction="sum",
    )  # fmt: skip
    total = int(counts.clamp(min=1).sum())
    if getattr(model, "decoder", None) is None:
        return loss, total
    share = model.config.decoder_share
    return (1 - share) * loss + share * decoder_loss(model, x, lengths, batch.targets, smoothing), total


def blank_share(model: Any, batch: Batch) -> dict[str, float]:
    """Return the share of vectors whose most probable token is blank, by the name of the figure."""
    x, lengths = model.features(**batch.inputs), model.out_lengths(batch.inputs["lengths"])
    blank = model.head(x).argmax(-1) == model.config.blank
    valid = torch.arange(blank.shape[1], device=x.device) < lengths[:, None]
    return {"blank": (blank & valid).sum().item() / max(1, int(valid.sum()))}


ctc.figures, ctc.classifies = blank_share, False  # type: ignore[attr-defined]


def decoder_loss(
    model: Any, x: Float[Tensor, "B N D"], lengths: Int[Tensor, "B"], targets: Int[Tensor, "B L"], smoothing: float
) -> Float[Tensor, ""]:
    """Return the summed cross-entropy of a decoder that reads the encoder's vectors; blank begins and ends a text."""
    blank = model.config.blank
    counts = (targets != IGNORE).sum(1)
    start = torch.full_like(targets[:, :1], blank)
    read = torch.cat([start, targets.masked_fill(targets == IGNORE, blank)], dim=1)
    wanted = F.pad(targets, (0, 1), value=IGNORE).scatter(1, counts[:, None], blank)
    y = model.written(x, lengths, read)
    real = wanted != IGNORE
    return head_cross_entropy(model.decoder_head, y[real], wanted[real], smoothing)
