"""Losses of forecasts: the squared error of the mean, and the pinball loss of quantiles."""

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from regard.data.sets.batches import Batch


def pinball(
    quantiles: Float[Tensor, "*N Q"], truth: Float[Tensor, "*N"], levels: Float[Tensor, "Q"]
) -> Float[Tensor, "*N Q"]:
    """Return the pinball loss of each quantile: above the truth it costs 1 − level, below it level, times the distance
    (Koenker and Bassett, 1978)."""
    error = truth[..., None] - quantiles
    return torch.maximum(levels * error, (levels - 1) * error)


def forecasting(model: Any, batch: Batch, *, smoothing: float = 0.0) -> tuple[Float[Tensor, ""], int]:
    """Return the summed loss over the values of the horizon that are there (targets B H C, NaN where missing), and
    their number; of each value it is the squared error of the mean plus the mean pinball loss of the quantiles."""
    out = model(**batch.inputs)
    there = ~batch.targets.isnan()
    levels = out.new_tensor(model.config.quantiles)
    mean, quantiles = (out[..., 0], out[..., 1:]) if len(levels) else (out, out[..., None][..., :0])
    truth = batch.targets.nan_to_num()
    loss = (mean - truth).square()
    if len(levels):
        loss = loss + pinball(quantiles, truth, levels).mean(-1)
    return (loss * there).sum(), int(there.sum())


forecasting.classifies = False  # type: ignore[attr-defined]
