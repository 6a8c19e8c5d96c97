"""The next token from the left and the previous one from the right, by one output layer (Peters et al., 2018)."""

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from regard.data.sets.batches import IGNORE, Batch
from regard.objectives.next_token import head_cross_entropy


def both_sides(model: Any, batch: Batch, *, smoothing: float = 0.0) -> tuple[Float[Tensor, ""], int]:
    """Return the summed loss of both directions, and the number of predicted tokens; each direction counts."""
    ids = batch.inputs["ids"]
    left, right = model.directions(ids)
    real = batch.targets != IGNORE
    before = torch.cat([real.new_zeros(len(ids), 1), real[:, :-1]], dim=1)  # the first token has none, padding no token
    x = torch.cat([left[real], right[before]])
    targets = torch.cat([batch.targets[real], ids[:, :-1][before[:, 1:]]])
    return head_cross_entropy(model.head, x, targets, smoothing), len(targets)
