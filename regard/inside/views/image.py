"""Views of an image model at work on one image: heads, rollout, windows, and the objects that queries found."""

import math
from collections.abc import Mapping, Sequence
from itertools import cycle
from typing import Any

import numpy as np
import torch
from PIL import Image

from regard.inside.capture.image import (
    At,
    ImageLayer,
    ImageWeights,
    QueryObject,
    image_cells,
    image_layers,
    image_weights,
    query_objects,
)
from regard.inside.capture.weights import matching
from regard.inside.draw.boxes import draw_boxes
from regard.inside.draw.canvas import LINES, Figure, Target
from regard.inside.draw.overlays import as_rgb, borders, framed, grid_of_images, overlay
from regard.inside.views.base import Shown, View, register_view
from regard.nn.grids import PatchGrid
from regard.tasks.prepared import Prepared

QUERY, WINDOW, CUT = (86, 220, 255), (235, 235, 235), (255, 60, 40)
SHADES = " ░▒▓█"
MOST_COLUMNS = 64
"""Cells side by side up to which weights are printed as shades."""


def show_heads(
    prepared: Prepared, *, layer: int | None = None, head: int | None = None, patch: At | None = None
) -> Shown:
    """Show the attention of each head from a patch, or for the whole image."""
    weights = image_weights(prepared, layers=layer, head=head)
    layers = [layer_data(one) | {"heads": head_data(weights, one, patch)} for one in weights.layers]
    data = header(prepared) | query_data(weights, patch) | {"layers": layers} | best_label(prepared)
    return data, lambda path: draw_heads(weights, path, patch, label_of(data))


def show_rollout(prepared: Prepared, *, layer: int | None = None, patch: At | None = None) -> Shown:
    """Show attention rollout from a patch, or for the whole image, up to a layer."""
    names = image_layers(prepared)
    last = len(names) - 1 if layer is None else names.index(matching(layer, names)[0])
    weights = image_weights(prepared, layers=range(last + 1))
    data = header(prepared) | query_data(weights, patch) | {"layers": len(weights.layers)}
    data |= strongest(weights.rollout(patch)) | best_label(prepared)
    return data, lambda path: draw_rollout(weights, path, patch, label_of(data))


def show_windows(prepared: Prepared, *, layer: int | None = None) -> Shown:
    """Show the windows that each layer's attention is limited to."""
    weights = image_weights(prepared, layers=layer)
    data = header(prepared) | {"layers": [layer_data(one) for one in weights.layers]} | best_label(prepared)
    return data, lambda path: draw_windows(weights, path)


def show_queries(prepared: Prepared, *, layer: int = -1, head: int | None = None) -> Shown:
    """Show the objects that a detector's queries found, and the attention of each query."""
    objects = query_objects(prepared, layer=layer, head=head)
    data = header(prepared) | {"objects": [object_data(one) | strongest(one.weights) for one in objects]}
    return data, lambda path: draw_queries(*image_cells(prepared), objects, path)


def show_boxes(prepared: Prepared) -> Shown:
    """Show the objects that a detector found, as boxes on the image."""
    objects, image = query_objects(prepared), Image.fromarray(image_cells(prepared)[0].squeeze())
    data = header(prepared) | {"objects": [object_data(one) for one in objects]}
    return data, lambda path: draw_boxes(image, objects, prepared.labels, path)


def header(prepared: Prepared) -> dict[str, Any]:
    """The size of an image and of its patches."""
    pixels, cells = image_cells(prepared)
    return {"size": list(pixels.shape[:2]), "patches": list(cells.grid), "patch": cells.cell}


def best_label(prepared: Prepared) -> dict[str, Any]:
    """The most probable label of an image, for a classifier."""
    if prepared.answers != "labels":
        return {}
    with torch.inference_mode():
        probabilities = prepared.logits()[0, 0].softmax(-1)
    best = int(probabilities.argmax())
    return {"label": prepared.names([best])[0], "probability": round(float(probabilities[best]), 4)}


def label_of(data: Mapping[str, Any]) -> str:
    """The label of an image and its probability, as text."""
    return f"{data['label']} ({data['probability']:.2f})" if "label" in data else ""


def query_name(weights: ImageWeights, patch: At | None) -> str:
    """The name of the query whose weights are shown."""
    if patch is not None:
        return f"patch {patch[0]},{patch[1]}"
    first = weights.layers[0]
    return "all cells together" if not first.prefix else "the last pixel" if first.reader else "the class token"


def query_data(weights: ImageWeights, patch: At | None) -> dict[str, Any]:
    """The row and column of the patch whose weights are shown, or the name of another query."""
    return {"query": query_name(weights, None) if patch is None else list(patch)}


def layer_data(layer: ImageLayer) -> dict[str, Any]:
    """The number, name, grid and windows of a layer."""
    data: dict[str, Any] = {"layer": layer.number, "name": layer.name, "grid": list(layer.keys.grid)}
    if (cut := layer.windows) is not None:
        data |= {"windows": list(cut.counts), "window": cut.size, "shift": cut.shift}
    return data


def head_data(weights: ImageWeights, layer: ImageLayer, patch: At | None) -> list[dict[str, Any]]:
    """The entropy and the weights of each head of a layer, and how much of them the prefix has."""
    queries = weights.queries(layer, patch)
    entropy, attended = layer.entropy(queries), layer.attended(queries)
    return [
        {"head": head, "entropy": round(float(entropy[i]), 4),
         "in_front": round(float(attended[i, : layer.prefix].sum()), 6)} | strongest(one)
        for i, (head, one) in enumerate(zip(layer.heads, weights.maps(layer, patch), strict=True))
    ]  # fmt: skip


def strongest(weights: np.ndarray) -> dict[str, Any]:
    """Return the cell with the largest weight, that weight, and all weights."""
    row, column = divmod(int(weights.argmax()), weights.shape[1])
    rows = [[round(float(one), 6) for one in row] for row in weights]
    return {"strongest": [row, column], "weight": rows[row][column], "weights": rows}


def object_data(detected: QueryObject) -> dict[str, Any]:
    """The query, label, score and box of an object."""
    return {"query": detected.query, "label": detected.label, "score": round(detected.score, 4),
            "box": [round(side, 2) for side in detected.box]}  # fmt: skip


def render_size(data: Mapping[str, Any]) -> str:
    """A line about the size of an image and of its patches, with its label if there is one."""
    (rows, columns), (down, right), side = data["size"], data["patches"], data["patch"]
    label = label_of(data)
    return f"{rows} × {columns} pixels, {down} × {right} patches of {side} × {side}" + (f": {label}" if label else "")


def render_objects(data: Mapping[str, Any]) -> str:
    """A line for each object that was found."""
    looks = any("strongest" in one for one in data["objects"])
    title = f"query  score  {'strongest  ' * looks}left top right bottom  object"
    lines = [render_size(data), title if data["objects"] else "nothing was found"]
    for one in data["objects"]:
        box = " ".join(f"{side:.0f}" for side in one["box"])
        cell = "{},{}  ".format(*one["strongest"]).rjust(11) if looks else ""
        lines.append(f"{one['query']:5}  {one['score']:5.2f}  {cell}{box:>21}  {one['label']}")
    return "\n".join(lines)


def query_of(data: Mapping[str, Any]) -> str:
    """The name of the query that the data are of."""
    return data["query"] if isinstance(data["query"], str) else "patch {},{}".format(*data["query"])


def render_rollout(data: Mapping[str, Any]) -> str:
    """The strongest patch of a rollout, and all of them as shades."""
    lines = [render_size(data), f"rollout from {query_of(data)} through {data['layers']} layers"]
    lines.append("strongest: patch {},{}".format(*data["strongest"]) + f", weight {data['weight']:.4f}")
    return "\n".join([*lines, *shaded(data["weights"])])


def render_heads(data: Mapping[str, Any]) -> str:
    """A line for each head; a single head's weights as shades."""
    heads = [(one["layer"], head) for one in data["layers"] for head in one["heads"]]
    front = any(head["in_front"] for _, head in heads)
    lines = [render_size(data), f"{title_of(query_of(data))}; entropy in bits, cells as row,column"]
    lines.append(f"layer  head  entropy  strongest  weight{'  in front' if front else ''}")
    for number, head in heads:
        where, before = "{},{}".format(*head["strongest"]), f"  {head['in_front']:8.3f}" if front else ""
        entropy, weight = f"{head['entropy']:7.2f}", f"{head['weight']:6.3f}"
        lines.append(f"{number:5}  {head['head']:4}  {entropy}  {where:>9}  {weight}{before}")
    return "\n".join([*lines, *(shaded(heads[0][1]["weights"]) if len(heads) == 1 else [])])


def title_of(query: str) -> str:
    """The title of weights from a query."""
    return f"what {query} attend{'' if query.startswith('all') else 's'} to"


def render_windows(data: Mapping[str, Any]) -> str:
    """A line for each layer and its windows."""
    lines = [render_size(data)]
    for one in data["layers"]:
        shift = f", shifted by {one['shift']}" if one["shift"] else ""
        (rows, columns), (down, right), size = one["grid"], one["windows"], one["window"]
        cut = f"{down} × {right} windows of {size} × {size}"
        lines.append(f"layer {one['layer']:<3} {rows} × {columns} cells in {cut}{shift}")
    return "\n".join(lines)


def shaded(weights: list[list[float]]) -> list[str]:
    """Return weights as shaded characters, two per cell; empty where they would not fit a terminal."""
    top = max(max(row) for row in weights) or 1.0
    if len(weights[0]) > MOST_COLUMNS:
        return []
    return ["".join(2 * SHADES[math.ceil(4 * max(0.0, one) / top - 1e-9)] for one in row) for row in weights]


def draw_rollout(weights: ImageWeights, path: Target, patch: At | None, label: str) -> Figure:
    """Draw an image, and beside it the rollout over it; `label` stands over the image itself."""
    rollout, count = weights.rollout(patch), len(weights.layers)
    shown = marked(weights, overlay(weights.pixels, rollout, cell=weights.patches.cell), patch)
    lead = (marked(weights, as_rgb(weights.pixels), patch), label or "the image")
    title = f"Attention rollout through {f'{count} layers' if count > 1 else 'one layer'}"
    labels, top = [[f"from {query_name(weights, patch)}"]], float(rollout.max())
    return grid_of_images([[shown]], labels, path, lead=lead, side=2.8, top=top, title=title)


def draw_heads(weights: ImageWeights, path: Target, patch: At | None, label: str) -> Figure:
    """Draw an image, and each head of each layer over it as small multiples; `label` stands over the image itself."""
    lead = (marked(weights, as_rgb(weights.pixels), patch), label or "the image")
    title = title_of(query_name(weights, patch)).capitalize()
    rows, labels, names = [], [], names_of(weights.layers)
    for layer in weights.layers:
        maps = weights.maps(layer, patch)
        rows.append([draw_head(weights, layer, one, patch) for one in maps])
        labels.append([f"head {head} ≤ {one.max():.2g}" for head, one in zip(layer.heads, maps, strict=True)])
    if len(rows) == 1:
        across = len(rows[0]) if len(rows[0]) <= 6 else 4
        rows, labels = lines_of(rows[0], across), lines_of(labels[0], across)
    columns = max(map(len, rows))
    if columns == len(rows) == 1:  # alone, it has room for a scale
        labels = [[f"{names[0]}, head {weights.layers[0].heads[0]}".replace("\n", ", ")]]
        return grid_of_images(rows, labels, path, lead=lead, side=2.8, top=float(maps.max()), title=title)
    side = min(1.8, max(0.95, 12 / columns))
    return grid_of_images(rows, labels, path, names=names, lead=lead, title=title, side=side)


def lines_of(row: Sequence[Any], across: int) -> list[list[Any]]:
    """Split a row into rows of at most `across`."""
    return [list(row[i : i + across]) for i in range(0, len(row), across)]


def names_of(layers: Sequence[ImageLayer]) -> list[str]:
    """The names beside the rows of layers."""
    grids = len({layer.keys for layer in layers}) > 1
    return [
        f"layer {layer.number}"
        + (" shifted" if layer.windows is not None and layer.windows.shift else "")
        + (f"\n{layer.keys.grid[0]} × {layer.keys.grid[1]} cells" if grids else "")
        for layer in layers
    ]


def draw_head(weights: ImageWeights, layer: ImageLayer, own: np.ndarray, patch: At | None) -> np.ndarray:
    """The overlay of one head's `own` weights, its windows as lines, the patch of the query in a frame."""
    shown = overlay(weights.pixels, own, cell=layer.keys.cell)
    if layer.windows is not None and max(layer.windows.counts) > 1:
        shown = bordered(weights, shown, window_numbers(layer), layer.keys, WINDOW)
    return marked(weights, shown, patch)


def draw_windows(weights: ImageWeights, path: Target) -> Figure:
    """Draw the windows of each layer, four in a row; layers that cut the image alike share a panel."""
    cuts: dict[Any, list[ImageLayer]] = {}
    for layer in weights.layers:
        cuts.setdefault(layer.windows, []).append(layer)
    panels, labels = [], []
    for cut, layers in cuts.items():
        drawn = as_rgb(weights.pixels)
        panels.append(bordered(weights, drawn, window_numbers(layers[0]), layers[0].keys, CUT, width=2))
        numbers = f"layer{'s' * (len(layers) > 1)} {', '.join(str(layer.number) for layer in layers)}"
        shift = f", shifted by {cut.shift}" if cut.shift else ""
        labels.append(f"{numbers}: {cut.size} × {cut.size} cells{shift}")
    across = min(4, len(panels))
    title = "Windows: only cells inside the same lines attend to each other"
    return grid_of_images(lines_of(panels, across), lines_of(labels, across), path, side=2.6, title=title)


def window_numbers(layer: ImageLayer) -> np.ndarray:
    """The number of each cell's window, from 1; cells that only the shift brought together have different ones."""
    cut = layer.windows
    assert cut is not None
    count, size = cut.counts[0] * cut.counts[1], cut.size**2
    numbers = cut.join(torch.arange(1.0, count + 1)[:, None, None].expand(count, size, 1))[0, :, 0]
    low, right = (np.arange(side) < cut.shift for side in cut.grid)
    return 4 * numbers.unflatten(0, cut.grid).numpy() + 2 * low[:, None] + right


def draw_queries(pixels: np.ndarray, cells: PatchGrid, objects: Sequence[QueryObject], path: Target) -> Figure:
    """Draw an image with the boxes of all objects, and for each of them what its query attended to."""
    whole, panels = as_rgb(pixels), []
    for one, ink in zip(objects, cycle(LINES), strict=False):
        frame = pixels.shape[:2], one.box, tuple(bytes.fromhex(ink[1:]))
        whole = framed(whole, *frame)
        panels.append(framed(overlay(pixels, one.weights, cell=cells.cell), *frame))
    if not objects:
        return grid_of_images([[whole]], [["nothing was found"]], path, side=2.2)
    labels = [f"{one.label} {one.score:.2f}" for one in objects]
    title, lead = "What each query attends to for its box", (whole, "what was found")
    return grid_of_images(lines_of(panels, 4), lines_of(labels, 4), path, lead=lead, side=2.2, title=title)


def marked(weights: ImageWeights, drawn: np.ndarray, patch: At | None) -> np.ndarray:
    """A drawn image with a frame around the patch of the query."""
    if patch is None:
        return drawn
    regions = np.zeros(weights.patches.grid)
    regions[patch] = 1
    return bordered(weights, drawn, regions, weights.patches, QUERY, width=3)


def bordered(
    weights: ImageWeights, drawn: np.ndarray, regions: np.ndarray, cells: PatchGrid, colour: tuple[int, int, int],
    width: int = 1,
) -> np.ndarray:  # fmt: skip
    """An image that was drawn larger, with borders around regions of its cells."""
    side = cells.cell * drawn.shape[0] / weights.pixels.shape[0]
    return borders(drawn, regions, side, colour=colour, width=width)


register_view(View(name="heads", show=show_heads, render=render_heads, options=("layer", "head", "patch")), True)
register_view(View(name="rollout", show=show_rollout, render=render_rollout, options=("layer", "patch")), True)
register_view(View(name="windows", show=show_windows, render=render_windows, options=("layer",)), True)
register_view(View(name="queries", show=show_queries, render=render_objects, options=("layer", "head")), True)
register_view(View(name="boxes", show=show_boxes, render=render_objects, needs_weights=False), True)
