"""A direction between two kinds of examples, and a walk along it: what is near, and what a model then generates."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from textwrap import shorten
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor
from torch.utils.hooks import RemovableHandle

from regard.data.sets.collection import Examples
from regard.inside.capture.states import behind, blocks_of, moved, read_example
from regard.tasks.prepared import Prepared

STOPS = (-1.0, -0.5, -0.25, 0.0, 0.25, 0.5, 1.0)
"""Steps of a walk, as shares of its reach to both sides."""
REACH = 4.0
"""Default reach of a walk, in lengths of the direction."""
NEAREST = 3
NEW_TOKENS = 40
"""Tokens that a language model generates at each stop."""


@dataclass(frozen=True, slots=True)
class Direction:
    """The difference of the means of two sets of examples, and its accuracy in separating held-out ones."""

    start: Float[Tensor, "D"]
    vector: Float[Tensor, "D"]
    accuracy: float
    """The mean accuracy of both sides, on examples that were not used for the means."""
    held: int
    """The number of examples that the accuracy was measured on."""

    def report(self) -> dict[str, Any]:
        """The direction as plain data."""
        return {"length": self.vector.norm().item(), "accuracy": self.accuracy, "held_out": self.held}


def find_direction(first: Float[Tensor, "N D"], other: Float[Tensor, "M D"]) -> Direction:
    """Compute the difference of the means of one half of each set, and its accuracy on the other half."""
    for side in (first, other):
        if len(side) < 2:
            raise ValueError(f"a direction needs at least 2 examples on each side, got {len(side)}; give more")
    rng = np.random.default_rng(0)
    (known, held), (known_other, held_other) = (
        (side[order[::2]], side[order[1::2]])
        for side, order in ((x, torch.from_numpy(rng.permutation(len(x)))) for x in (first, other))
    )
    start, vector = known.mean(0), known_other.mean(0) - known.mean(0)
    if not vector.any():
        raise ValueError("both sides have the same mean, so there is no direction; give others, or another --layer")
    middle = (start + vector / 2) @ vector
    right = ((held @ vector < middle).float().mean() + (held_other @ vector >= middle).float().mean()) / 2
    return Direction(start, vector, right.item(), len(held) + len(held_other))


def walk(
    task: Any, begin: Examples, x: Float[Tensor, "D"], along: Direction, others: Examples, y: Float[Tensor, "N D"],
    layer: int | None, reach: float = REACH,
) -> list[dict[str, Any]]:  # fmt: skip
    """Move along a direction from one example's vector: return the nearest examples at each step and, for a generative
    model with vectors of a block, the text generated with that block's outputs moved as far."""
    stops = []
    labels: Sequence[str | None] = others.labels or [None] * len(others)
    prepared = None if layer is None else read_example(task, begin.items[0])
    same = torch.tensor([name == begin.names[0] for name in others.names])
    for step in (reach * stop for stop in STOPS):
        away = (y - (x + step * along.vector)).norm(dim=1).masked_fill(same, torch.inf)
        near = away.topk(min(NEAREST, len(y)), largest=False)
        pairs = zip(near.values.tolist(), near.indices.tolist(), strict=True)
        neighbours = [
            {"distance": far, "name": others.names[i], "label": labels[i]} for far, i in pairs if far < torch.inf
        ]
        stop: dict[str, Any] = {"step": step, "nearest": neighbours}
        if prepared is not None and layer is not None and prepared.generation is not None:
            with steered(prepared, layer, step * along.vector):
                stop["writes"] = write(prepared)
        stops.append(stop)
    return stops


def steered(prepared: Prepared, layer: int, by: Float[Tensor, "D"]) -> RemovableHandle:
    """Context manager: add a vector to the outputs of one of a model's blocks."""
    like = next(prepared.model.parameters())
    return behind(blocks_of(prepared), layer, lambda output: moved(output, by.to(like)))


def write(prepared: Prepared) -> str:
    """Return the text that a generative model writes for an example, by greedy decoding."""
    generation = prepared.generation
    assert generation is not None
    return generation.decode(generation.write(prepared.model, NEW_TOKENS if generation.ahead else None))


def render_direction(data: Mapping[str, Any]) -> str:
    """A direction as lines for a terminal: how well it separates, and the stops of a walk along it."""
    lines = [
        f"from {data['from']} to {data['to']}: length {data['length']:.3g}; halfway, "
        f"{100 * data['accuracy']:.1f} % of {data['held_out']:,} held-out examples are separated"
    ]
    for stop in data.get("walk", ()):
        lines += ["", f"{stop['step']:+.1f}"]
        if "writes" in stop:
            lines[-1] += f"  writes: {' '.join(stop['writes'].split())}"
        for near in stop["nearest"]:
            label = "" if near["label"] is None else f"[{near['label']}] "
            lines.append(f"  {near['distance']:8.3g}  {label}{shorten(near['name'], 90, placeholder=' …')}")
    return "\n".join(lines)
