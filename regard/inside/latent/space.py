"""The latent space: the vectors of examples, and a map on which they are points."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import cycle
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from regard.data.sets.collection import Examples
from regard.inside.capture.states import example_vectors, layer_or_own
from regard.inside.draw.canvas import FAINT, INK, LINES, SOFT, Figure, Sheet, Target, pen, write_legend
from regard.inside.latent.directions import REACH, STOPS, Direction

NEIGHBOURS = 10
MOST_NAMED = 24
"""Labels in a legend; what is rarer is grey."""
SIGNS = ("o", "o-", "^")
"""Markers of labels that share a colour."""


@dataclass(frozen=True, slots=True)
class Space:
    """Examples and a vector for each."""

    examples: Examples
    x: Float[Tensor, "N D"]
    layer: int | None
    """Index of the block whose outputs are averaged over tokens; None for the model's own embedding."""

    @classmethod
    def of(cls, task: Any, examples: Examples, layer: int | None = None) -> "Space":
        """The vectors of examples: the model's own if it has such, or means over tokens behind a block."""
        layer = layer_or_own(task, examples, layer)
        return cls(examples, example_vectors(task, examples, layer), layer)

    @property
    def made_of(self) -> str:
        """A description of the vectors."""
        return "the model's own vectors" if self.layer is None else f"means over tokens behind block {self.layer}"


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
    """Points of a plane in which neighbours stay neighbours, by UMAP (McInnes et al., 2018)."""
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
    """The share of neighbours with the same label if examples were mixed at random."""
    total = len(labels)
    return sum(n * (n - 1) for n in Counter(labels).values()) / (total * (total - 1))


@dataclass(frozen=True, slots=True)
class Map:
    """Two-dimensional points for the examples of a space and, for PCA, its axes and their explained variance."""

    space: Space
    points: Float[Tensor, "N 2"]
    axes: Float[Tensor, "2 D"] | None = None
    explained: Sequence[float] = ()

    @classmethod
    def of(cls, space: Space, method: str = "pca") -> "Map":
        """A map of a space, by PCA or UMAP."""
        return cls(space, umap(space.x)) if method == "umap" else cls(space, *pca(space.x))

    def place(self, x: Float[Tensor, "S D"]) -> Float[Tensor, "S 2"]:
        """Project other vectors onto the plane."""
        assert self.axes is not None
        return (x.double() - self.space.x.double().mean(0)) @ self.axes.T

    def report(self) -> dict[str, Any]:
        """The map as plain data, and how much the plane keeps of the neighbourhoods."""
        examples, x = self.space.examples, self.space.x
        data = {
            "vectors": self.space.made_of, "width": x.shape[1], "explained": list(self.explained),
            "names": examples.names, "labels": examples.labels, "points": self.points.tolist(),
        }  # fmt: skip
        if len(set(examples.labels)) > 1:
            data |= {"agreement": agreement(x, examples.labels), "on_plane": agreement(self.points, examples.labels)}
            data["by_chance"] = by_chance(examples.labels)
        return data


def render_space(data: Mapping[str, Any]) -> str:
    """A map as lines for a terminal: the examples, and how much of their variance the plane shows."""
    lines = [f"{len(data['names']):,} examples, {data['vectors']} of {data['width']} numbers"]
    if data["explained"]:
        shares = " + ".join(f"{100 * share:.1f} %" for share in data["explained"])
        lines.append(f"two axes hold {shares} of the variance")
    if "agreement" in data:
        lines.append(
            f"of {NEIGHBOURS} nearest neighbours {100 * data['agreement']:.0f} % have an example's label "
            f"({100 * data['by_chance']:.0f} % by chance; on the plane {100 * data['on_plane']:.0f} %)"
        )
        counts = Counter(data["labels"]).most_common(MOST_NAMED)
        lines.append("labels: " + ", ".join(f"{label} ({count:,})" for label, count in counts))
    return "\n".join(lines)


def draw_space(
    space_map: Map,
    path: Target = None,
    along: Direction | None = None,
    begin: Float[Tensor, "D"] | None = None,
    reach: float = REACH,
) -> Figure:
    """Draw examples as points, a colour and sign for each label; on axes of PCA also an arrow `along` a direction and
    the stops of a walk from `begin`."""
    points, labels = space_map.points, space_map.space.examples.labels
    sheet = Sheet()
    names = [f"axis {i}: {100 * share:.1f} % of the variance" for i, share in enumerate(space_map.explained, 1)]
    axis_names = dict(zip(("xlabel", "ylabel"), names, strict=False))
    axes = sheet.chart(0, 0, 5, 5, title=f"{len(points):,} examples, {space_map.space.made_of}", **axis_names)
    axes.set_aspect("equal", adjustable="datalim")
    size = float(np.clip(4000 / len(points), 6, 26))
    for name, places, color, sign in groups(labels, len(points)):
        style: dict[str, Any] = dict(marker=sign.strip("-"), s=size, alpha=0.75, linewidths=0.7, label=name)
        axes.scatter(*points[places].T.numpy(), edgecolors=color, facecolors="none" if "-" in sign else color, **style)
    if along is not None and space_map.axes is not None:
        ends = space_map.place(torch.stack([along.start, along.start + along.vector])).tolist()
        style = dict(arrowstyle="-|>", color=INK, linewidth=2, mutation_scale=16, shrinkA=0, shrinkB=0)
        axes.annotate("", ends[1], ends[0], arrowprops=style)
        if begin is not None:
            stops = space_map.place(torch.stack([begin + reach * stop * along.vector for stop in STOPS]))
            axes.plot(*stops.T.numpy(), color=INK, linewidth=0.8, linestyle=(0, (4, 3)), marker="o", markersize=4)
            back = dict(boxstyle="round,pad=0.12", facecolor="white", edgecolor="none", alpha=0.75)
            for stop, where in zip(STOPS, stops.tolist(), strict=True):
                style = pen(8, fontweight="bold", bbox=back)
                axes.annotate(f"{reach * stop:+g}", where, (4, 5), textcoords="offset points", **style)
    axes.margins(0.04)
    axes.grid(axis="x", color=FAINT, linewidth=0.6)
    if labels:
        beside = dict(loc="upper left", bbox_to_anchor=(1.01, 1), borderaxespad=0, handletextpad=0.3)
        write_legend(axes, 8.5, markerscale=min(3, (26 / size) ** 0.5), **beside)
    return sheet.save(path)


def groups(labels: Sequence[str], count: int) -> Iterator[tuple[str, list[int], str, str]]:
    """Labels in their order, each with the indices of its examples, a colour and a sign; rare ones together, grey."""
    named = sorted(label for label, _ in Counter(labels).most_common(MOST_NAMED))
    order = sorted(named, key=lambda name: (len(name), name)) if all(name.isdecimal() for name in named) else named
    rest = [i for i in range(count) if not labels or labels[i] not in order]
    if rest:
        yield "others", rest, SOFT if labels else LINES[0], "o"
    for i, (name, color) in enumerate(zip(order, cycle(LINES), strict=False)):
        yield name, [j for j in range(count) if labels[j] == name], color, SIGNS[i // 8]
