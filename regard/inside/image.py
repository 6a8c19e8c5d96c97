"""A single picture as a model sees it: drawn, in words, and as data."""

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from regard.inside.attribution.pictures import seen_views
from regard.inside.canvas import LINES, check_suffix
from regard.inside.captions import draw_words, word_maps
from regard.inside.capture import matching
from regard.inside.pictures import as_rgb, borders, framed, grid_of_pictures, overlay
from regard.inside.sight import At, Finding, Layer, Places, Sight, findings, see, tower
from regard.models import DETR, Captioner, Swin
from regard.nn.weights import find_kernels
from regard.tasks import ImageClassifier

QUERY, WINDOW, CUT = (86, 220, 255), (235, 235, 235), (255, 60, 40)
SHADES = " ░▒▓█"
MOST_COLUMNS = 64
"""Places side by side up to which weights are printed as shades."""


def views_of(model: Any) -> tuple[str, ...]:
    """What can be shown of a model; the first is shown unless told otherwise."""
    if isinstance(model, Captioner):
        return ("words",)
    if isinstance(model, DETR):
        return ("queries", "heads", "rollout")
    return ("heads", "rollout", "windows") if isinstance(model, Swin) else ("heads", "rollout")


def show(
    loaded: Any, picture: Any, *, view: str | None = None, layer: int | None = None, head: int | None = None,
    at: At | None = None,
) -> tuple[dict[str, Any], Callable[[str | Path | None], Any]]:  # fmt: skip
    """A view of a picture as plain data, and a function that draws it to a path (none: only returns the figure)."""
    known = views_of(loaded.model)
    view = view or known[0]
    if view not in known:
        also = dict.fromkeys((*known, *seen_views(loaded)))
        raise ValueError(f"a {type(loaded.model).__name__} has no view {view!r}; use {' or '.join(also)}")
    given = {"layer": layer, "head": head, "at": at}
    idle = {"words": ("layer", "head", "at"), "queries": ("at",), "windows": ("head", "at")}.get(view, ())
    wrong = [name for name in idle if given[name] is not None]
    if wrong:
        raise ValueError(f"the view {view} has no use for {wrong[0]}; leave it out")
    if view == "words":
        return show_words(loaded, picture)
    if view == "queries":
        found = findings(loaded, picture, layer=-1 if layer is None else layer, head=head)
        return report_findings(*found), lambda path: draw_findings(*found, path)
    sight = look_at(loaded, picture, view=view, layer=layer, head=head)
    said, label = report(sight, view=view, at=at), ""
    if isinstance(loaded, ImageClassifier):
        best = loaded.classify([picture])[0][0]
        said |= {"label": best.label, "probability": round(best.probability, 4)}
        label = f"{best.label} ({best.probability:.2f})"
    return said, lambda path: draw_image(sight, path, view=view, at=at, label=label)


def look_at(
    loaded: Any, picture: Any, *, view: str = "heads", layer: int | None = None, head: int | None = None
) -> Sight:
    """What a view needs to see of a picture: everything, one layer, one head or, for the rollout, the layers up to one.

    Layers are counted among those that read the picture.
    """
    if view != "rollout":
        return see(loaded, picture, layers=layer, head=head)
    if head is not None:
        raise ValueError("the rollout takes the mean of all heads; leave out the head, or use the view heads")
    names = list(find_kernels(tower(loaded).watched))
    last = len(names) - 1 if layer is None else names.index(matching(layer, names)[0])
    return see(loaded, picture, layers=range(last + 1))


def asker(sight: Sight, at: At | None) -> str:
    """Who looks, in words."""
    if at is not None:
        return f"patch {at[0]},{at[1]}"
    first = sight.layers[0]
    return "all places together" if not first.first else "the last pixel" if first.whole else "the class token"


def report(sight: Sight, *, view: str = "heads", at: At | None = None) -> dict[str, Any]:
    """All that is seen as plain data: weights as rows of numbers, and what can be said of each head in a line."""
    said: dict[str, Any] = {
        "view": view, "size": list(sight.pixels.shape[:2]), "patches": list(sight.patches.grid),
        "patch": sight.patches.cell, "query": list(at) if at is not None else asker(sight, at),
    }  # fmt: skip
    if view == "rollout":
        return said | {"layers": len(sight.layers)} | in_line(sight.rollout(at))
    said["layers"] = []
    for layer in sight.layers:
        one: dict[str, Any] = {"layer": layer.number, "name": layer.name, "grid": list(layer.keys.grid)}
        if (cut := layer.windows) is not None:
            one |= {"windows": list(cut.counts), "window": cut.size, "shift": cut.shift}
        if view == "heads":
            one["heads"] = in_heads(sight, layer, at)
        said["layers"].append(one)
    return said


def in_heads(sight: Sight, layer: Layer, at: At | None) -> list[dict[str, Any]]:
    asks = sight.asks(layer, at)
    entropy, looks = layer.entropy(asks), layer.looks(asks)
    return [
        {"head": head, "entropy": round(float(entropy[i]), 4),
         "in_front": round(float(looks[i, : layer.first].sum()), 6)} | in_line(weights)
        for i, (head, weights) in enumerate(zip(layer.heads, sight.maps(layer, at), strict=True))
    ]  # fmt: skip


def in_line(weights: np.ndarray) -> dict[str, Any]:
    """Where the strongest weight stands, and all of them."""
    row, column = divmod(int(weights.argmax()), weights.shape[1])
    rows = [[round(float(one), 6) for one in row] for row in weights]
    return {"strongest": [row, column], "weight": rows[row][column], "weights": rows}


def report_findings(picture: np.ndarray, places: Places, found: Sequence[Finding]) -> dict[str, Any]:
    """What a DETR's queries found, as plain data."""
    things = [
        {"query": one.query, "label": one.label, "score": round(one.score, 4),
         "box": [round(side, 2) for side in one.box]} | in_line(one.weights)
        for one in found
    ]  # fmt: skip
    return {"view": "queries", "size": list(picture.shape[:2]), "patches": list(places.grid), "patch": places.cell,
            "things": things}  # fmt: skip


def show_words(loaded: Any, picture: Any) -> tuple[dict[str, Any], Callable[[str | Path | None], Any]]:
    """The caption that a model writes, and where it looked for each word."""
    pixels = loaded.pixels([picture])
    caption = loaded.caption_pixels(pixels)[0][0]
    ((words, maps),) = word_maps(loaded, pixels, [caption.ids])
    said = {
        "view": "words", "size": list(pixels[0].shape[1:]), "patches": list(maps.shape[1:]),
        "patch": loaded.model.config.cell_side, "caption": caption.text,
        "words": [{"word": word} | in_line(one) for word, one in zip(words, maps, strict=True)],
    }  # fmt: skip
    return said, lambda path: draw_words(loaded, picture, path, caption)


def render(said: dict[str, Any]) -> str:
    """The same for a terminal: a line for each head; of a single one, or of the rollout, the places as shades."""
    rows, columns = said["size"]
    lines = [
        f"{rows} × {columns} pixels, {said['patches'][0]} × {said['patches'][1]} patches of "
        f"{said['patch']} × {said['patch']}"
        + (f": {said['label']} ({said['probability']:.2f})" if "label" in said else "")
    ]
    if said["view"] == "windows":
        return "\n".join([*lines, *map(render_windows, said["layers"])])
    if said["view"] == "words":
        lines += ["strongest  weight  word"] if said["words"] else ["no words"]
        for one in said["words"]:
            where = "{},{}".format(*one["strongest"])
            lines.append(f"{where:>9}  {one['weight']:6.3f}  {one['word']}")
        return "\n".join(lines)
    if said["view"] == "queries":
        lines += ["query  score  strongest  left top right bottom  thing"] if said["things"] else ["nothing was found"]
        for one in said["things"]:
            box, where = " ".join(f"{side:.0f}" for side in one["box"]), "{},{}".format(*one["strongest"])
            lines.append(f"{one['query']:5}  {one['score']:5.2f}  {where:>9}  {box:>21}  {one['label']}")
        return "\n".join(lines)
    who = said["query"] if isinstance(said["query"], str) else "patch {},{}".format(*said["query"])
    if said["view"] == "rollout":
        lines.append(f"rollout from {who} through {said['layers']} layers")
        lines.append("strongest: patch {},{}".format(*said["strongest"]) + f", weight {said['weight']:.4f}")
        return "\n".join([*lines, *shaded(said["weights"])])
    heads = [(one["layer"], head) for one in said["layers"] for head in one["heads"]]
    front = any(head["in_front"] for _, head in heads)
    lines.append(f"what {who} look{'' if who.startswith('all') else 's'} at; entropy in bits, places as row,column")
    lines.append(f"layer  head  entropy  strongest  weight{'  in front' if front else ''}")
    for number, head in heads:
        where, before = "{},{}".format(*head["strongest"]), f"  {head['in_front']:8.3f}" if front else ""
        entropy, weight = f"{head['entropy']:7.2f}", f"{head['weight']:6.3f}"
        lines.append(f"{number:5}  {head['head']:4}  {entropy}  {where:>9}  {weight}{before}")
    return "\n".join([*lines, *(shaded(heads[0][1]["weights"]) if len(heads) == 1 else [])])


def render_windows(one: dict[str, Any]) -> str:
    shift = f", shifted by {one['shift']}" if one["shift"] else ""
    (rows, columns), (down, right), size = one["grid"], one["windows"], one["window"]
    cut = f"{down} × {right} windows of {size} × {size}"
    return f"layer {one['layer']:<3} {rows} × {columns} places in {cut}{shift}"


def shaded(weights: list[list[float]]) -> list[str]:
    """Places as shades, two characters each; nothing where they would not fit a terminal."""
    top = max(max(row) for row in weights) or 1.0
    if len(weights[0]) > MOST_COLUMNS:
        return []
    return ["".join(2 * SHADES[math.ceil(4 * max(0.0, one) / top - 1e-9)] for one in row) for row in weights]


def draw_image(
    sight: Sight, path: str | Path | None, *, view: str = "heads", at: At | None = None, label: str = ""
) -> Any:
    """A view of a picture as a figure: heads as small multiples, the rollout as an overlay, or windows as lines.

    `label` stands over the picture itself.
    """
    if path is not None:
        check_suffix(path)
    if view == "windows":
        return draw_windows(sight, path)
    lead, who = (marked(sight, as_rgb(sight.pixels), at), label or "the picture"), asker(sight, at)
    if view == "rollout":
        weights, count = sight.rollout(at), len(sight.layers)
        shown = marked(sight, overlay(sight.pixels, weights, cell=both(sight.patches)), at)
        title = f"Attention rollout through {f'{count} layers' if count > 1 else 'one layer'}"
        how: dict[str, Any] = dict(lead=lead, side=2.8, top=float(weights.max()), title=title)
        return grid_of_pictures([[shown]], [[f"from {who}"]], path, **how)
    title = f"What {who} look{'' if who.startswith('all') else 's'} at"
    rows = [[draw_head(sight, layer, one, at) for one in sight.maps(layer, at)] for layer in sight.layers]
    tops = [[float(one.max()) for one in sight.maps(layer, at)] for layer in sight.layers]
    labels = [
        [f"head {head} ≤ {top:.2g}" for head, top in zip(layer.heads, row, strict=True)]
        for layer, row in zip(sight.layers, tops, strict=True)
    ]
    names = names_of(sight.layers)
    if len(rows) == 1:
        across = len(rows[0]) if len(rows[0]) <= 6 else 4
        rows, labels = lines_of(rows[0], across), lines_of(labels[0], across)
    columns = max(map(len, rows))
    if columns == len(rows) == 1:  # alone, it has room for a scale
        labels = [[f"{names[0]}, head {sight.layers[0].heads[0]}".replace("\n", ", ")]]
        return grid_of_pictures(rows, labels, path, lead=lead, side=2.8, top=tops[0][0], title=title)
    side = min(1.8, max(0.95, 12 / columns))
    return grid_of_pictures(rows, labels, path, names=names, lead=lead, title=title, side=side)


def lines_of(row: Sequence[Any], across: int) -> list[list[Any]]:
    return [list(row[i : i + across]) for i in range(0, len(row), across)]


def names_of(layers: Sequence[Layer]) -> list[str]:
    """What stands beside the rows."""
    grids = len({layer.keys for layer in layers}) > 1
    return [
        f"layer {layer.number}"
        + (" shifted" if layer.windows is not None and layer.windows.shift else "")
        + (f"\n{layer.keys.grid[0]} × {layer.keys.grid[1]} places" if grids else "")
        for layer in layers
    ]


def draw_head(sight: Sight, layer: Layer, weights: np.ndarray, at: At | None) -> np.ndarray:
    """The overlay of one head, its windows as lines, the patch that asks in a frame."""
    shown = overlay(sight.pixels, weights, cell=both(layer.keys))
    if layer.windows is not None and max(layer.windows.counts) > 1:
        shown = bordered(sight, shown, window_numbers(layer), layer.keys, WINDOW)
    return marked(sight, shown, at)


def draw_windows(sight: Sight, path: str | Path | None) -> Any:
    """How each layer cuts the picture, four in a row; layers that cut it alike share a panel."""
    cuts: dict[Any, list[Layer]] = {}
    for layer in sight.layers:
        cuts.setdefault(layer.windows, []).append(layer)
    panels, labels = [], []
    for cut, layers in cuts.items():
        drawn = as_rgb(sight.pixels)
        panels.append(bordered(sight, drawn, window_numbers(layers[0]), layers[0].keys, CUT, width=2))
        numbers = f"layer{'s' * (len(layers) > 1)} {', '.join(str(layer.number) for layer in layers)}"
        shift = f", shifted by {cut.shift}" if cut.shift else ""
        labels.append(f"{numbers}: {cut.size} × {cut.size} places{shift}")
    across = min(4, len(panels))
    how: dict[str, Any] = dict(side=2.6, title="Windows: only places inside the same lines see each other")
    return grid_of_pictures(lines_of(panels, across), lines_of(labels, across), path, **how)


def window_numbers(layer: Layer) -> np.ndarray:
    """The window that each place sees, from 1; what only the shift brought into one window is told apart."""
    cut = layer.windows
    assert cut is not None
    count, size = cut.counts[0] * cut.counts[1], cut.size**2
    numbers = cut.join(torch.arange(1.0, count + 1)[:, None, None].expand(count, size, 1))[0, :, 0]
    low, right = (np.arange(side) < cut.shift for side in cut.grid)
    return 4 * numbers.unflatten(0, cut.grid).numpy() + 2 * low[:, None] + right


def draw_findings(picture: np.ndarray, places: Places, found: Sequence[Finding], path: str | Path | None) -> Any:
    """The picture with all boxes, and for each of them where its query looked."""
    if path is not None:
        check_suffix(path)
    inks = [tuple(bytes.fromhex(LINES[i % len(LINES)][1:])) for i in range(len(found))]
    whole, panels = as_rgb(picture), []
    for one, ink in zip(found, inks, strict=True):
        box = one.box
        whole = framed(whole, picture.shape[:2], box, ink)
        panels.append(framed(overlay(picture, one.weights, cell=both(places)), picture.shape[:2], box, ink))
    labels = [f"{one.label} {one.score:.2f}" for one in found]
    if not found:
        return grid_of_pictures([[whole]], [["nothing was found"]], path, side=2.2)
    how: dict[str, Any] = dict(lead=(whole, "what was found"), side=2.2, title="Where each query looks for its box")
    return grid_of_pictures(lines_of(panels, 4), lines_of(labels, 4), path, **how)


def marked(sight: Sight, drawn: np.ndarray, at: At | None) -> np.ndarray:
    """A frame around the patch that asks."""
    if at is None:
        return drawn
    regions = np.zeros(sight.patches.grid)
    regions[at] = 1
    return bordered(sight, drawn, regions, sight.patches, QUERY, width=3)


def bordered(
    sight: Sight, drawn: np.ndarray, regions: np.ndarray, places: Places, colour: tuple[int, int, int], width: int = 1
) -> np.ndarray:
    """Borders of places on a picture that was drawn larger."""
    side = places.cell * drawn.shape[0] / sight.pixels.shape[0]
    return borders(drawn, regions, (side, side), colour=colour, width=width)


def both(places: Places) -> tuple[int, int]:
    return places.cell, places.cell
