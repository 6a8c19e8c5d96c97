"""Two views of one image are to be similar, and dissimilar to all others (SimCLR: Chen et al., 2020)."""

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from regard.data.sets.batches import Batch
from regard.nn.rows import everyone
from regard.objectives.contrastive import contrastive


def two_views(
    model: Any, batch: Batch, *, smoothing: float = 0.0, temperature: float = 0.2
) -> tuple[Float[Tensor, ""], int]:
    """Return the summed loss over views; a batch holds all first views above all second ones.

    Each view must identify the other view of its image among all views but itself.
    """
    views, rows = everyone(model(**batch.inputs), parts=2)
    diagonal = torch.eye(len(views), dtype=torch.bool, device=views.device)
    others, itself = (x.roll(len(views) // 2, 0) for x in (views, diagonal))
    return contrastive(views, others, temperature, itself, rows), len(rows)
