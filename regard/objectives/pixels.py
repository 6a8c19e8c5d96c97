"""Reconstruction of masked patches (MAE)."""

from typing import Any

import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from regard.data.sets.batches import Batch


def masked_pixels(model: Any, batch: Batch, *, smoothing: float = 0.0) -> tuple[Float[Tensor, ""], int]:
    """Return the summed loss over masked patches, each the mean squared error of its pixels, and their number."""
    hidden = model.order(batch.inputs["noise"])[1]
    guesses, wanted = model(**batch.inputs)[hidden], model.targets(batch.inputs["pixels"])[hidden]
    return F.mse_loss(guesses, wanted, reduction="none").mean(-1).sum(), len(guesses)
