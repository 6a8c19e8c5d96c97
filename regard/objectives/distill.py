"""Distillation: a student learns the whole distribution that its teacher predicts (Hinton et al., 2015)."""

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from regard.data.sets.batches import IGNORE, Batch


def distillation(teacher: Any) -> Callable[..., tuple[Float[Tensor, ""], int]]:
    """Return an objective: the summed cross-entropy between a teacher's probabilities and a student's.

    Both are called with the inputs of a batch and return logits; positions without a target do not count.
    """

    def objective(model: Any, batch: Batch, *, smoothing: float = 0.0) -> tuple[Float[Tensor, ""], int]:
        with torch.no_grad():
            expected = teacher(**batch.inputs)
        logits = model(**batch.inputs)
        if batch.targets.shape == logits.shape[:-1]:
            counted = batch.targets != IGNORE
            expected, logits = expected[counted], logits[counted]
        probabilities = expected.flatten(0, -2).softmax(-1)
        loss = F.cross_entropy(logits.flatten(0, -2), probabilities, reduction="sum")
        return loss, len(probabilities)

    return objective
