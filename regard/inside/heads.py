"""All heads at work on tokens: as plain data, as lines for a terminal, and as a picture."""

from collections.abc import Callable, Mapping, Sequence
from math import log2
from pathlib import Path
from typing import Any

from jaxtyping import Float
from torch import Tensor

from regard.inside.canvas import readable
from regard.inside.views import draw_heads, draw_lines, short_names

Shown = tuple[dict[str, Any], Callable[[str | Path | None], Any]]
"""Plain data, and what draws it to a path (none: only returns the figure)."""


def show_heads(
    maps: Mapping[str, Float[Tensor, "H T S"]], rows: Sequence[str], columns: Sequence[str], view: str
) -> Shown:
    """Layers by name: a row is a token that looks, a column one that is seen; `lines` shows the last layer alone."""
    if view == "lines":
        name, last = list(maps.items())[-1]
        maps = {name: last}
    layers = [{"layer": name, "heads": one.double().numpy().round(6).tolist()} for name, one in maps.items()]
    said = {"view": view, "rows": list(rows), "columns": list(columns), "layers": layers}
    if view == "lines":
        title = f"{name}: from each token to those it sees"
        return said, lambda path: draw_lines(last, columns, rows, path, title=title)
    return said, lambda path: draw_heads(maps, columns, rows, path)


def render(said: Mapping[str, Any]) -> str:
    """A line for each head: how widely it looks, and the strongest of its weights."""
    names = short_names([one["layer"] for one in said["layers"]])
    rows, columns, width = readable(said["rows"]), readable(said["columns"]), max(5, *map(len, names))
    lines = ["what each token looks at; entropy in bits, the mean over tokens", f"{'layer':{width}}  head  entropy  "]
    lines[-1] += "weight  strongest"
    for name, layer in zip(names, said["layers"], strict=True):
        for head, weights in enumerate(layer["heads"]):
            weight, t, s = max((value, t, s) for t, row in enumerate(weights) for s, value in enumerate(row))
            front = f"{name:{width}}  {head:4}  {entropy(weights):7.2f}  {weight:6.3f}"
            lines.append(f"{front}  {rows[t]} → {columns[s]}")
    return "\n".join(lines)


def entropy(weights: Sequence[Sequence[float]]) -> float:
    return sum(-p * log2(p) for row in weights for p in row if p > 0) / len(weights)
