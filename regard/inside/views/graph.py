"""A graph with the attention along its edges, and the nodes that a prediction rests on."""

from collections.abc import Mapping
from typing import Any

import torch

from regard.inside.capture.weights import look, matching
from regard.inside.draw.graph import draw_graph
from regard.inside.explain.effects import erasure
from regard.inside.views.base import Shown, View, register_view
from regard.tasks.graph_predictor import MOST_DRAWN
from regard.tasks.prepared import Prepared


def show_graph(
    prepared: Prepared, *, layer: int | None = None, head: int | None = None, at: int | None = None
) -> Shown:
    """Show the attention of a layer and head, or of all together, and the fall of an output without each node."""
    names = prepared.tokens
    if len(names) > MOST_DRAWN:
        fact = f"a graph of {len(names):,} nodes is too large to draw, at most {MOST_DRAWN}"
        raise ValueError(f"{fact}; give a part of it")
    chosen = prepared.select(at if at is not None or prepared.row_sequence is None else 0)
    with torch.no_grad(), look(prepared.model, layers=layer, heads=head) as seen:
        prepared.run(prepared.inputs)
    weights = torch.stack([seen.attention[name][0].mean(0) for name in seen.names]).mean(0)
    pairs = prepared.inputs["edges"][0].cpu()
    pairs = pairs[pairs[:, 0] >= 0]
    edges = [{"from": i, "to": j, "attention": round(float(weights[i, j]), 5)} for i, j in pairs.tolist()]
    fall = erasure(chosen)[0]
    nodes = [{"node": name, "importance": round(float(x), 5)} for name, x in zip(names, fall, strict=True)]
    joined = torch.eye(len(names), dtype=torch.bool)
    joined[pairs[:, 0], pairs[:, 1]] = True
    data = {
        "answer": prepared.request["answer"] if at is None else f"{names[at]}: {chosen.output_names[0]}",
        "of": ", ".join(
            [matching(layer, seen.layers)[0] if layer is not None else "all layers",
             f"head {head}" if head is not None else "mean of the heads"]
        ),
        "nodes": nodes, "edges": edges, "elsewhere": round(float(weights[~joined].sum() / len(names)), 5),
    }  # fmt: skip
    return data, lambda path: draw_graph(data, path)


def render_graph(data: Mapping[str, Any]) -> str:
    """The nodes that count most, and the edges with most attention."""
    nodes = sorted(data["nodes"], key=lambda node: -node["importance"])[:8]
    edges = sorted(data["edges"], key=lambda edge: -edge["attention"])[:8]
    names = [node["node"] for node in data["nodes"]]
    lines = [data["answer"], "fall of the output without a node:"]
    lines += [f"  {node['node']:12} {node['importance']:8.3f}" for node in nodes]
    lines += [f"attention along edges, {data['of']} ({data['elsewhere']:.0%} goes to nodes that are not joined):"]
    lines += [f"  {names[edge['from']]:>8} → {names[edge['to']]:8} {edge['attention']:.3f}" for edge in edges]
    return "\n".join(lines)


register_view(
    View(name="graph", show=show_graph, render=render_graph, options=("layer", "head", "at"), complete=False), False
)
