"""Masked tokens, and next-sentence prediction (Devlin et al., 2019)."""

from typing import Any

import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from regard.data.sets.batches import IGNORE, Batch
from regard.nn.rows import total
from regard.objectives.next_token import head_cross_entropy


def masked_tokens(model: Any, batch: Batch, *, smoothing: float = 0.0) -> tuple[Float[Tensor, ""], int]:
    """Return the summed loss over masked tokens, and their number. Where the batch has labels (next sentence or not),
    their mean loss is added to the mean loss of a token."""
    x = model.features(**batch.inputs)
    hidden = batch.targets != IGNORE
    targets, head = batch.targets[hidden], model.head
    loss = head_cross_entropy(head, head.transform(x[hidden]), targets, smoothing)
    if batch.labels is not None:
        share = len(x) / total(len(x))
        loss = loss + F.cross_entropy(model.follows(x), batch.labels) * (share * total(len(targets)))
    return loss, len(targets)
