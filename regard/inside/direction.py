"""A direction between two kinds of examples, and a walk along it: what is near, and what a model then writes."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from textwrap import shorten
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from regard.data.sets.collection import Examples
from regard.inside.states import behind, blocks_of, moved
from regard.tasks import ImageCaptioner, Translator
from regard.tasks.engine_task import EngineTask

STOPS = (-1.0, -0.5, -0.25, 0.0, 0.25, 0.5, 1.0)
"""Of a walk, as shares of how far it reaches to both sides."""
REACH = 4.0
"""Lengths of a direction that a walk reaches, unless told otherwise."""
NEAREST = 3
NEW_TOKENS = 40
"""That a language model writes at each stop."""


@dataclass(frozen=True, slots=True)
class Direction:
    """From the mean of some examples to that of others, and how often its middle tells others of them apart."""

    start: Float[Tensor, "D"]
    vector: Float[Tensor, "D"]
    accuracy: float
    """The mean of both sides', on examples that the means do not know."""
    held: int
    """Those examples."""

    def report(self) -> dict[str, Any]:
        return {"length": self.vector.norm().item(), "accuracy": self.accuracy, "held_out": self.held}


def find_direction(one: Float[Tensor, "N D"], other: Float[Tensor, "M D"]) -> Direction:
    """The difference of the means of one half of each side, tried on the other half."""
    for side in (one, other):
        if len(side) < 2:
            raise ValueError(f"a direction needs at least 2 examples on each side, got {len(side)}; give more")
    rng = np.random.default_rng(0)
    (known, held), (known_other, held_other) = (
        (side[order[::2]], side[order[1::2]])
        for side, order in ((x, torch.from_numpy(rng.permutation(len(x)))) for x in (one, other))
    )
    start, vector = known.mean(0), known_other.mean(0) - known.mean(0)
    if not vector.any():
        raise ValueError("both sides have the same mean, so there is no direction; give others, or another --layer")
    middle = (start + vector / 2) @ vector
    right = ((held @ vector < middle).float().mean() + (held_other @ vector >= middle).float().mean()) / 2
    return Direction(start, vector, right.item(), len(held) + len(held_other))


def walk(
    loaded: Any, begin: Examples, x: Float[Tensor, "D"], along: Direction, others: Examples, y: Float[Tensor, "N D"],
    layer: int | None, reach: float = REACH,
) -> list[dict[str, Any]]:  # fmt: skip
    """Stops on a line through the vector of one example: which others are nearest and, where the model writes and
    vectors stand behind one of its blocks, what it writes when all its vectors there are moved as far."""
    stops = []
    labels: Sequence[str | None] = others.labels or [None] * len(others)
    same = torch.tensor([name == begin.names[0] for name in others.names])
    for step in (reach * stop for stop in STOPS):
        away = (y - (x + step * along.vector)).norm(dim=1).masked_fill(same, torch.inf)
        near = away.topk(min(NEAREST, len(y)), largest=False)
        pairs = zip(near.values.tolist(), near.indices.tolist(), strict=True)
        found = [{"distance": far, "name": others.names[i], "label": labels[i]} for far, i in pairs if far < torch.inf]
        stop: dict[str, Any] = {"step": step, "nearest": found}
        if isinstance(loaded, EngineTask) and layer is not None:
            with steered(loaded, layer, step * along.vector, pictures=begin.pictures):
                stop["writes"] = write(loaded, begin.items[0])
        stops.append(stop)
    return stops


@contextmanager
def steered(loaded: Any, layer: int, by: Float[Tensor, "D"], *, pictures: bool = False) -> Iterator[None]:
    """A block in which a model's vectors are moved behind one of its blocks; afterwards all is as it was."""
    like = next(loaded.model.parameters())
    with behind(blocks_of(loaded, pictures), layer, lambda output: moved(output, by.to(like))):
        yield


def write(loaded: Any, item: Any) -> str:
    """What a model that writes says to an example, the likeliest token each time."""
    if isinstance(loaded, ImageCaptioner):
        return loaded.caption([item], beams=1)[0][0].text
    if isinstance(loaded, Translator):
        return loaded.translate([item], beams=1)[0][0].text
    return loaded.generate([item], max_new_tokens=NEW_TOKENS)[0]


def render_direction(found: Mapping[str, Any]) -> str:
    """How well a direction separates, and the stops of a walk along it."""
    lines = [
        f"from {found['from']} to {found['to']}: length {found['length']:.3g}; halfway, "
        f"{100 * found['accuracy']:.1f} % of {found['held_out']:,} held-out examples are told apart"
    ]
    for stop in found.get("walk", ()):
        lines += ["", f"{stop['step']:+.1f}"]
        if "writes" in stop:
            lines[-1] += f"  writes: {' '.join(stop['writes'].split())}"
        for near in stop["nearest"]:
            label = "" if near["label"] is None else f"[{near['label']}] "
            lines.append(f"  {near['distance']:8.3g}  {label}{shorten(near['name'], 90, placeholder=' …')}")
    return "\n".join(lines)
