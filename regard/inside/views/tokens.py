"""All heads of all layers at work on tokens, and the alignment of a source and a target."""

from collections.abc import Mapping, Sequence
from functools import partial
from math import log2
from typing import Any

import torch

from regard.inside.capture.weights import cross_attention, look
from regard.inside.draw.canvas import readable
from regard.inside.draw.matrices import draw_alignment, draw_heads, draw_lines, short_names
from regard.inside.views.base import Shown, View, register_view
from regard.nn.weights import find_kernels
from regard.tasks.prepared import Prepared

KINDS = ("cross", "encoder", "decoder")


@torch.no_grad()
def show_heads(prepared: Prepared, *, kind: str | None = None, lines: bool = False) -> Shown:
    """Show the weights of every head: a row is a query, a column a key; `lines` shows the last layer alone.

    `kind` is that of a decoder with a source: cross (the default), encoder or decoder.
    """
    several = len(prepared.sequences) > 1
    if kind is not None and not several:
        raise ValueError(f"a {type(prepared.model).__name__} has one kind of attention; leave out --kind")
    find_kernels(prepared.model)  # without attention an error
    kind = kind or ("cross" if several else None)
    with look(prepared.model, layers=kind if several else -1 if lines else None) as seen:
        prepared.run(prepared.inputs)
    names = seen.names_of(kind) if kind is not None else seen.names
    if not names:
        raise ValueError(f"this model has no {kind} attention to draw")
    queries, keys = (prepared.sequences[side].tokens for side in prepared.sides(names[0], seen.kind_of(names[0])))
    queries = prepared.output_names if kind == "cross" else queries  # what is written at each position
    maps = {name: seen.attention[name][0] for name in (names[-1:] if lines else names)}
    layers = [{"layer": name, "heads": one.double().numpy().round(6).tolist()} for name, one in maps.items()]
    data: dict[str, Any] = {"rows": queries, "columns": keys, "layers": layers} | ({"kind": kind} if several else {})
    if lines:
        title = f"{names[-1]}: from each token to those it attends to"
        return data, lambda path: draw_lines(maps[names[-1]], keys, queries, path, title=title)
    return data, lambda path: draw_heads(maps, keys, queries, path)


@torch.no_grad()
def show_alignment(prepared: Prepared) -> Shown:
    """Show the mean cross-attention of all layers and heads of each target token to the source."""
    weights = cross_attention(prepared.model, prepared.inputs)[0]
    rows, columns = prepared.output_names, prepared.tokens
    layers = [{"layer": "mean of all", "heads": [weights.double().numpy().round(6).tolist()]}]
    data = {"rows": rows, "columns": columns, "layers": layers}
    return data, lambda path: draw_alignment(weights, columns, rows, path)


def render_heads(data: Mapping[str, Any]) -> str:
    """A line for each head: the entropy of its weights, and the strongest of them."""
    names = short_names([one["layer"] for one in data["layers"]])
    rows, columns, width = readable(data["rows"]), readable(data["columns"]), max(5, *map(len, names))
    lines = ["what each token attends to; entropy in bits, the mean over tokens"]
    lines.append(f"{'layer':{width}}  head  entropy  weight  strongest")
    for name, layer in zip(names, data["layers"], strict=True):
        for head, weights in enumerate(layer["heads"]):
            weight, t, s = max((value, t, s) for t, row in enumerate(weights) for s, value in enumerate(row))
            front = f"{name:{width}}  {head:4}  {entropy(weights):7.2f}  {weight:6.3f}"
            lines.append(f"{front}  {rows[t]} → {columns[s]}")
    return "\n".join(lines)


def entropy(weights: Sequence[Sequence[float]]) -> float:
    """The mean entropy of rows of weights, in bits."""
    return sum(-p * log2(p) for row in weights for p in row if p > 0) / len(weights)


register_view(View(name="heads", show=show_heads, render=render_heads, options=("kind",)), False)
register_view(View(name="lines", show=partial(show_heads, lines=True), render=render_heads, options=("kind",)))
register_view(View(name="alignment", show=show_alignment, render=render_heads))
