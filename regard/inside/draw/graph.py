"""Figures of graphs: nodes in the plane, attention along edges, and the nodes that a prediction rests on."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from regard.inside.draw.canvas import INK, LINES, SOFT, Figure, Sheet, Target, pen, ramp, readable

EDGE = 0.55
"""Inches between joined nodes."""
ROUNDS = 200
APART = 3.0
"""Distance at which nodes without a path between them are drawn, beyond the longest path."""


def layout(count: int, edges: Sequence[tuple[int, int]]) -> np.ndarray:
    """Positions of nodes (count × 2) whose distances are about as long as their shortest paths: stress majorisation
    (Gansner et al., 2004), from a start that is always the same."""
    hops = np.full((count, count), np.inf)
    np.fill_diagonal(hops, 0)
    for a, b in edges:
        if a != b:
            hops[a, b] = hops[b, a] = 1
    for middle in range(count):
        hops = np.minimum(hops, hops[:, middle, None] + hops[None, middle])
    longest = hops[np.isfinite(hops)].max()
    hops[~np.isfinite(hops)] = longest / 2 + APART
    weights = np.where(hops > 0, 1 / np.maximum(hops, 1) ** 2, 0)
    centred = hops**2 - (hops**2).mean(0) - (hops**2).mean(1)[:, None] + (hops**2).mean()
    values, vectors = np.linalg.eigh(-centred / 2)
    places = vectors[:, -2:] * np.sqrt(np.maximum(values[-2:], 1e-3)) if count > 1 else np.zeros((1, 2))
    places = places + 0.05 * np.stack([np.cos(np.arange(count) * 2.4), np.sin(np.arange(count) * 2.4)], axis=1)
    inverse = np.linalg.pinv(np.diag(weights.sum(1)) - weights)
    for _ in range(ROUNDS):
        apart = np.linalg.norm(places[:, None] - places[None], axis=-1)
        pull = -weights * hops / np.maximum(apart, 1e-6)
        np.fill_diagonal(pull, 0)
        np.fill_diagonal(pull, -pull.sum(1))
        places = inverse @ (pull @ places)
    return places - places.min(0)


def draw_graph(data: Mapping[str, Any], path: Target = None) -> Figure:
    """The nodes, darker the more the prediction falls without them, and edges, wider the more attention they get."""
    edges = [(edge["from"], edge["to"]) for edge in data["edges"]]
    places = EDGE * layout(len(data["nodes"]), edges)
    sheet = Sheet()
    width, height = places.max(0) + 0.6
    axes = sheet.blank(float(width) + 0.3, float(height))
    places = places + 0.3
    both: dict[tuple[int, int], float] = {}
    for (a, b), edge in zip(edges, data["edges"], strict=True):
        key = (min(a, b), max(a, b))
        both[key] = max(both.get(key, 0.0), edge["attention"])
    most = max(both.values(), default=1.0) or 1.0
    for (a, b), weight in both.items():
        axes.plot(*places[[a, b]].T, color=LINES[1], linewidth=0.5 + 4 * weight / most, alpha=0.3 + 0.6 * weight / most,
                  solid_capstyle="round", zorder=1)  # fmt: skip
    shares = np.array([node["importance"] for node in data["nodes"]]).clip(min=0)
    shares = shares / (shares.max() or 1.0)
    axes.scatter(places[:, 0], places[:, 1], s=90, c=ramp()(0.85 * shares), edgecolors=SOFT, linewidths=0.7, zorder=2)
    names = readable([node["node"] for node in data["nodes"]], 10)
    for (across, up), name in zip(places.tolist(), names, strict=True):
        axes.text(across + 0.09, up + 0.05, name, zorder=3, **pen(7, color=INK))
    answer = data["answer"]
    axes.text(0, float(height) + 0.12, answer, clip_on=False, **pen(9.5, fontweight="bold"))
    note = f"nodes: fall of the output without them; edges: attention, {data['of']}"
    axes.text(0, -0.15, note, clip_on=False, **pen(7.5, color=SOFT))
    return sheet.save(path)
