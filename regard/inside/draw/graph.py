"""Figures of graphs: nodes in the plane, attention along edges, and the nodes that a prediction rests on."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from regard.data.graph_layout import layout
from regard.inside.draw.canvas import INK, LINES, SOFT, Figure, Sheet, Target, pen, ramp, readable

EDGE = 0.55
"""Inches between joined nodes."""


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
