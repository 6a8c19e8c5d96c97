"""Set prediction by bipartite matching (DETR): each object is assigned one prediction, the others are "no object".

Targets are B M 5: the index of an object's label, or IGNORE where an image has fewer objects, and its box as centre
(column, row), width and height, relative to the image's sides.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

from regard.data.sets.batches import IGNORE, Batch
from regard.nn.heads import split_predictions
from regard.nn.rows import total


@dataclass(frozen=True, kw_only=True, slots=True)
class Weights:
    """Weights of the terms of the matching cost and of the loss."""

    label: float = 1.0
    """Classification."""
    box: float = 5.0
    """L1 distance of the four box coordinates."""
    overlap: float = 2.0
    """Generalised intersection over union."""
    nothing: float = 0.1
    """Relative weight of "no object" predictions in the classification loss: there are many more of them."""


PUBLISHED = Weights()


def corners(boxes: Float[Tensor, "*N 4"]) -> Float[Tensor, "*N 4"]:
    """Convert centre, width and height to left, top, right and bottom."""
    centre, size = boxes.split(2, dim=-1)
    return torch.cat([centre - size / 2, centre + size / 2], dim=-1)


def best_objects(
    answers: Float[Tensor, "Q C"], size: tuple[int, ...]
) -> tuple[Float[Tensor, "Q"], Int[Tensor, "Q"], Float[Tensor, "Q 4"]]:
    """Return the probability and index of each query's best label, and its box (left, top, right, bottom) in pixels
    of an image with `size` rows and columns."""
    logits, boxes = split_predictions(answers)
    best = logits.softmax(-1)[:, :-1].max(-1)  # the last column is for nothing
    rows, columns = size
    return best.values, best.indices, corners(boxes).clamp(0, 1) * boxes.new_tensor([columns, rows, columns, rows])


def generalized_iou(first: Float[Tensor, "*#N 4"], other: Float[Tensor, "*#N 4"]) -> Float[Tensor, "*#N"]:
    """Return the generalised intersection over union of boxes as corners (Rezatofighi et al., 2019); axes broadcast."""

    def area(low: Tensor, high: Tensor) -> Tensor:
        return (high - low).clamp(min=0).prod(-1)

    (a, b), (c, d) = first.split(2, dim=-1), other.split(2, dim=-1)
    common = area(torch.maximum(a, c), torch.minimum(b, d))
    union = area(a, b) + area(c, d) - common
    around = area(torch.minimum(a, c), torch.maximum(b, d))
    return common / union.clamp(min=1e-9) - (around - union) / around.clamp(min=1e-9)


@torch.no_grad()
def match(
    scores: Float[Tensor, "*L B Q C"], boxes: Float[Tensor, "*L B Q 4"], targets: Float[Tensor, "B M 5"],
    weights: Weights = PUBLISHED,
) -> Int[Tensor, "*L B M"]:  # fmt: skip
    """Return the prediction assigned to each object, by minimal total cost; IGNORE where there is none.

    The classification cost is 1 minus the probability. With more objects than predictions, some get none.
    """
    try:
        from scipy.optimize import linear_sum_assignment
    except ImportError:
        raise ImportError("bipartite matching needs SciPy: pip install 'regard[vision]'") from None

    labels, wanted = targets[..., 0].long(), targets[..., 1:]
    classes = labels.clamp(min=0)[:, None].expand(*scores.shape[:-1], -1)
    cost = weights.label * -scores.softmax(-1).gather(-1, classes)
    cost += weights.box * (boxes[..., :, None, :] - wanted[:, None]).abs().sum(-1)
    cost -= weights.overlap * generalized_iou(corners(boxes)[..., :, None, :], corners(wanted)[:, None])
    table = cost.nan_to_num(nan=1e6, posinf=1e6, neginf=1e6).float().cpu().numpy()  # *L B Q M
    assigned = np.full((*table.shape[:-2], table.shape[-1]), IGNORE)
    counts = (labels != IGNORE).sum(1).tolist()
    for index in np.ndindex(table.shape[:-2]):
        predictions, objects = linear_sum_assignment(table[index][:, : counts[index[-1]]])
        assigned[index][objects] = predictions
    return torch.from_numpy(assigned).to(labels.device)


def set_loss(
    answers: Float[Tensor, "L B Q N"], targets: Float[Tensor, "B M 5"], weights: Weights = PUBLISHED,
    *, smoothing: float = 0.0,
) -> Float[Tensor, ""]:  # fmt: skip
    """Return the losses of each block's outputs, each matched by itself, summed."""
    scores, boxes = split_predictions(answers)
    chosen = match(scores, boxes, targets, weights)
    layer, row, target = (chosen != IGNORE).nonzero(as_tuple=True)
    prediction = chosen[layer, row, target]
    classes = scores.shape[-1]
    labels = torch.full(scores.shape[:-1], classes - 1, device=scores.device)
    labels[layer, row, prediction] = targets[row, target, 0].long()
    balance = scores.new_ones(classes)
    balance[-1] = weights.nothing
    loss = scores.new_zeros(())
    for logits, targets_ in zip(scores, labels, strict=True):  # the mean of each block by itself
        weight = balance[targets_].sum()
        mean = F.cross_entropy(logits.flatten(0, 1), targets_.flatten(), balance, label_smoothing=smoothing)
        loss = loss + mean * (weight / total(weight))
    predicted, wanted = boxes[layer, row, prediction], targets[row, target, 1:]
    distance = (predicted - wanted).abs().sum()
    overlap = (1 - generalized_iou(corners(predicted), corners(wanted))).sum()
    count = max(1, total(int((targets[..., 0] != IGNORE).sum())))
    return weights.label * loss + (weights.box * distance + weights.overlap * overlap) / count


def matched_boxes(model: Any, batch: Batch, *, smoothing: float = 0.0) -> tuple[Float[Tensor, ""], int]:
    """Return the loss of all decoder blocks, summed over images."""
    answers = model.answers(model.states(**batch.inputs))
    return set_loss(answers, batch.targets, smoothing=smoothing) * total(len(batch.targets)), len(batch.targets)
