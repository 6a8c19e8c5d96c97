"""The loss of predicted numbers."""

from typing import Any

import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from regard.data.sets.batches import Batch


def numbers(model: Any, batch: Batch, *, smoothing: float = 0.0) -> tuple[Float[Tensor, ""], int]:
    """Return the summed absolute error, and the number of targets; those that are NaN do not count."""
    known = batch.targets.isfinite()
    return F.l1_loss(model(**batch.inputs)[..., 0][known], batch.targets[known], reduction="sum"), int(known.sum())
