"""The latent space: examples as points of a plane, a direction between two sets of them, and steps along it."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from textwrap import shorten
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from regard.data.sets import Examples
from regard.inside.canvas import INK, SOFT, chart, check_suffix, colors, families, fit, new_figure, pen, save, tidy
from regard.inside.curves import SIGNS
from regard.inside.states import behind, blocks_of, moved
from regard.tasks import CaptionWriter, Translator

if TYPE_CHECKING:
    import matplotlib.figure

STEPS = (-2.0, -1.0, 0.0, 1.0, 2.0)
"""Where a walk stops, in lengths of its direction."""
NEAREST = 3
NEIGHBOURS = 10
NEW_TOKENS = 40
"""That a language model writes at each stop."""
MOST_NAMED = 24
"""Labels in a legend; what is rarer is grey."""


def pca(x: Float[Tensor, "N D"], count: int = 2) -> tuple[Float[Tensor, "N C"], Float[Tensor, "C D"], list[float]]:
    """Points on the axes of most variance, those axes, and their shares of it; an axis' largest number is positive."""
    if len(x) < 3:
        raise ValueError(f"a plane needs at least 3 examples, got {len(x)}; give more")
    centred = x.double() - x.double().mean(0)
    _, sizes, axes = torch.linalg.svd(centred, full_matrices=False)
    if not sizes.any():
        raise ValueError("all examples have the same vector; give some that differ, or another --layer")
    axes = axes[:count]
    axes = axes * axes.gather(1, axes.abs().argmax(1, keepdim=True)).sign()
    return centred @ axes.T, axes, (sizes**2 / (sizes**2).sum())[:count].tolist()


def umap(x: Float[Tensor, "N D"]) -> Float[Tensor, "N 2"]:
    """Points of a plane in which neighbours stay neighbours (McInnes et al., 2018)."""
    try:
        from umap import UMAP
    except ImportError:
        raise ImportError("--project umap needs a package: pip install umap-learn") from None
    return torch.from_numpy(np.asarray(UMAP(random_state=0).fit_transform(x.numpy()), dtype=np.float64))


def agreement(x: Float[Tensor, "N D"], labels: Sequence[str]) -> float:
    """The share of the nearest neighbours of examples that have their label."""
    classes = {label: i for i, label in enumerate(dict.fromkeys(labels))}
    own, same = torch.tensor([classes[label] for label in labels]), 0.0
    count = min(NEIGHBOURS, len(x) - 1)
    for first in range(0, len(x), 512):  # N × N at once may be more than the memory
        far = torch.cdist(x[first : first + 512], x)
        far[torch.arange(len(far)), first + torch.arange(len(far))] = torch.inf
        near = far.topk(count, largest=False).indices
        same += (own[near] == own[first : first + 512, None]).float().sum().item()
    return same / (len(x) * count)


def by_chance(labels: Sequence[str]) -> float:
    """The same among examples thrown together."""
    total = len(labels)
    return sum(n * (n - 1) for n in Counter(labels).values()) / (total * (total - 1))


@dataclass(frozen=True, slots=True)
class Direction:
    """From the mean of some examples to that of others, and how often its middle tells others of them apart."""

    start: Float[Tensor, "D"]
    vector: Float[Tensor, "D"]
    accuracy: float
    """The mean of both sides', on examples that the means do not know."""
    held: int
    """Those examples."""


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


def walk(begin: Float[Tensor, "D"], along: Direction, x: Float[Tensor, "N D"], examples: Examples) -> list[dict]:
    """The examples nearest to each stop on a line through `begin`."""
    stops = []
    for step in STEPS:
        far = (x - (begin + step * along.vector)).norm(dim=1)
        near = far.topk(min(NEAREST, len(x)), largest=False)
        pairs = zip(near.values.tolist(), near.indices.tolist(), strict=True)
        found = [{"distance": d, "name": examples.names[i], "label": label_of(examples, i)} for d, i in pairs]
        stops.append({"step": step, "nearest": found})
    return stops


def label_of(examples: Examples, i: int) -> str | None:
    return examples.labels[i] if examples.labels else None


@contextmanager
def steered(loaded: Any, layer: int, by: Float[Tensor, "D"], *, pictures: bool = False) -> Iterator[None]:
    """A block in which a model's vectors are moved behind one of its blocks; afterwards all is as it was."""
    like = next(loaded.model.parameters())
    with behind(blocks_of(loaded, pictures), layer, lambda output: moved(output, by.to(like))):
        yield


def write(loaded: Any, item: Any) -> str:
    """What a model that writes says to an example, the likeliest token each time."""
    if isinstance(loaded, CaptionWriter):
        return loaded.caption([item], beams=1)[0][0].text
    if isinstance(loaded, Translator):
        return loaded.translate([item], beams=1)[0][0].text
    return loaded.generate([item], max_new_tokens=NEW_TOKENS)[0]


# From here on, as text and as a picture.
def render_space(found: Mapping[str, Any]) -> str:
    """What there is, and how much of it the plane shows."""
    lines = [f"{len(found['names']):,} examples, {found['width']} numbers each: {found['vectors']}"]
    if found["explained"]:
        shares = " + ".join(f"{100 * share:.1f} %" for share in found["explained"])
        lines.append(f"two axes hold {shares} of the variance")
    if "agreement" in found:
        lines.append(
            f"of {NEIGHBOURS} nearest neighbours {100 * found['agreement']:.0f} % have an example's label "
            f"({100 * found['by_chance']:.0f} % by chance; on the plane {100 * found['on_plane']:.0f} %)"
        )
        counts = Counter(found["labels"]).most_common(MOST_NAMED)
        lines.append("labels: " + ", ".join(f"{label} {count:,}" for label, count in counts))
    return "\n".join(lines)


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


def draw_space(
    points: Float[Tensor, "N 2"],
    labels: Sequence[str],
    path: str | Path | None = None,
    *,
    title: str = "",
    axes_names: tuple[str, str] = ("", ""),
    arrow: Float[Tensor, "2 2"] | None = None,
    stops: Float[Tensor, "S 2"] | None = None,
) -> "matplotlib.figure.Figure":
    """Examples as points, a colour and sign for each label; an `arrow` between two places, and numbered `stops`."""
    if path is not None:
        check_suffix(path)
    figure = new_figure(9, 7)
    axes = chart(figure, 1, 1, 5, 5, title=title, xlabel=axes_names[0], ylabel=axes_names[1])
    axes.set_aspect("equal", adjustable="datalim")
    size = float(np.clip(3000 / len(points), 4, 26))
    for name, places, color, sign in groups(labels, len(points)):
        how: dict[str, Any] = dict(color=color, marker=sign, s=size, alpha=0.75, linewidths=0, label=name)
        axes.scatter(*points[places].T.numpy(), **how)
    if arrow is not None:
        how = dict(arrowstyle="-|>", color=INK, linewidth=2, mutation_scale=16, shrinkA=0, shrinkB=0)
        axes.annotate("", arrow[1].tolist(), arrow[0].tolist(), arrowprops=how)
    if stops is not None:
        axes.plot(*stops.T.numpy(), color=INK, linewidth=0.8, linestyle=(0, (4, 3)), marker="o", markersize=4)
        for step, place in zip(STEPS, stops.tolist(), strict=True):
            back = dict(boxstyle="round,pad=0.12", facecolor="white", edgecolor="none", alpha=0.75)
            how = pen(8, fontweight="bold", bbox=back)
            axes.annotate(f"{step:+g}", place, (4, 5), textcoords="offset points", **how)
    axes.margins(0.04)
    axes.grid(axis="x", color=axes.get_ygridlines()[0].get_color(), linewidth=0.6)
    tidy(axes)
    if labels:
        axes.legend(
            loc="upper left", bbox_to_anchor=(1.01, 1), frameon=False, borderaxespad=0, handletextpad=0.3,
            prop={"family": list(families()), "size": 8.5}, labelcolor=INK, markerscale=min(3, (26 / size) ** 0.5),
        )  # fmt: skip
    return save(fit(figure), path)


def groups(labels: Sequence[str], count: int) -> Iterator[tuple[str, list[int], str, str]]:
    """Labels in their order, each with the places of its examples, a colour and a sign; rare ones together, grey."""
    named = sorted(label for label, _ in Counter(labels).most_common(MOST_NAMED))
    order = sorted(named, key=lambda name: (len(name), name)) if all(name.isdecimal() for name in named) else named
    rest = [i for i in range(count) if not labels or labels[i] not in order]
    if rest:
        yield "others", rest, colors(1)[0] if not labels else SOFT, "o"
    for i, (name, color) in enumerate(zip(order, colors(len(order)), strict=True)):
        yield name, [j for j in range(count) if labels[j] == name], color, SIGNS[i // 8]
