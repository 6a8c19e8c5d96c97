"""Figures of attention and of training, as PNG, SVG or PDF by the path's suffix. Each function returns the figure.

Cells and labels have a size in inches, and the paper grows with them: sixty tokens are as readable as five.
"""

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from jaxtyping import Float
from torch import Tensor

from regard.inside.draw.canvas import (
    FAINT,
    INK,
    LINES,
    SMALLEST_FONT,
    SOFT,
    Number,
    Target,
    check_suffix,
    fit,
    new_figure,
    pen,
    place,
    quiet,
    ramp,
    readable,
    save,
)
from regard.nn.masks import Mask

if TYPE_CHECKING:
    import matplotlib.axes
    import matplotlib.figure
    import matplotlib.image

GRID_CELL, SMALLEST_CELL, LARGEST_CELL = 0.13, 0.16, 0.55
MOST_NUMBERS = 12
"""Tokens up to which weights are printed in the cells."""


def draw_alignment(
    weights: Float[Tensor, "T S"],
    source_labels: Sequence[str],
    target_labels: Sequence[str],
    path: Target = None,
    title: str = "",
) -> "matplotlib.figure.Figure":
    """Weights as a table of shades: source above, target at the left, numbers where there is room for them."""
    start(weights, source_labels, target_labels, path)
    values = weights.detach().cpu().numpy()
    T, S = values.shape
    cell = cell_size(max(T, S))
    figure = new_figure(S * cell + 3, T * cell + 3)
    axes = place(figure, 1.5, 1.5, S * cell, T * cell)
    top = round_up(float(values.max()))
    image = shade(axes, values, top)
    label_cells(axes, readable(source_labels), readable(target_labels), cell)
    if max(T, S) <= MOST_NUMBERS:
        print_numbers(axes, values, top)
    height = min(T * cell, 2.0)
    add_scale(figure, image, 1.5 + S * cell + 0.15, 1.5 + T * cell - height, height)
    write_title(axes, title)
    return save(fit(figure), path)


def start(weights: Any, source_labels: Sequence[str], target_labels: Sequence[str], path: Target) -> None:
    """Raise an error for wrong paths or labels before anything is drawn."""
    check_suffix(path)
    T, S = weights.shape[-2:]
    if (len(target_labels), len(source_labels)) != (T, S):
        raise ValueError(
            f"weights are {T} × {S} (target × source), got {len(target_labels)} target labels and "
            f"{len(source_labels)} source labels; cut padding off both or neither"
        )
    if not T or not S:
        raise ValueError(f"weights are {T} × {S}: there is nothing to draw; give at least one token on each side")


def cell_size(tokens: int, largest: Number = LARGEST_CELL) -> Number:
    """Return a cell's size in inches: large for few tokens, for many the smallest with a readable label."""
    return min(largest, max(SMALLEST_CELL, 7.0 / tokens))


def font_size(cell: Number) -> Number:
    """Return the font size in points that fits a cell's height."""
    return max(SMALLEST_FONT, min(10.0, cell * 72 * 0.62))


def shade(axes: "matplotlib.axes.Axes", values: Any, top: Number) -> "matplotlib.image.AxesImage":
    T, S = values.shape
    axes.spines[:].set(color=FAINT)
    if max(T, S) <= 40:
        axes.set_xticks(np.arange(S + 1) - 0.5, minor=True)
        axes.set_yticks(np.arange(T + 1) - 0.5, minor=True)
        axes.grid(which="minor", color="#eef0f2", linewidth=0.5)
    axes.tick_params(which="both", length=0)
    axes.set(xticks=[], yticks=[])
    return axes.imshow(values, cmap=ramp(), vmin=0, vmax=top, aspect="auto", interpolation="nearest")


def label_cells(axes: "matplotlib.axes.Axes", source: Sequence[str], target: Sequence[str], cell: Number) -> None:
    """Write source tokens above, rotated where necessary, and target tokens at the left."""
    size = font_size(cell)
    axes.xaxis.tick_top()
    axes.tick_params(which="major", length=2, pad=2)
    widest = max(map(len, source)) * size * 0.62 / 72
    turn = 0 if widest < cell * 0.95 else 45 if cell >= 0.26 else 90
    side: dict[str, Any] = (
        {} if turn == 0 else dict(ha="left", rotation_mode="anchor") if turn == 45 else dict(va="bottom")
    )
    axes.set_xticks(range(len(source)), source, rotation=turn, **side, **pen(size))
    axes.set_yticks(range(len(target)), target, **pen(size))


def print_numbers(axes: "matplotlib.axes.Axes", values: Any, top: Number) -> None:
    for (t, s), value in np.ndenumerate(values):
        text = f"{value:.2f}".removeprefix("0") if value < 0.995 else "1"
        if value >= 0.005:
            color = "white" if value > 0.42 * top else INK
            axes.text(s, t, text, ha="center", va="center", **pen(8, color=color))


def round_up(largest: Number) -> Number:
    """Return the end of a colour scale: the next tenth, or hundredth where weights are small."""
    unit = 0.1 if largest > 0.2 else 0.02
    return max(math.ceil(largest / unit - 1e-6) * unit, unit)


def add_scale(
    figure: "matplotlib.figure.Figure",
    image: "matplotlib.image.AxesImage",
    left: Number,
    bottom: Number,
    height: Number,
) -> None:
    axes = place(figure, left, bottom, 0.1, height)
    bar = figure.colorbar(image, cax=axes, ticks=np.linspace(0, image.get_clim()[1], 3))
    bar.outline.set(linewidth=0.4, edgecolor=SOFT)  # type: ignore[operator]
    axes.tick_params(length=2, width=0.4)
    axes.set_yticklabels([f"{tick:.2f}".rstrip("0").rstrip(".") for tick in bar.get_ticks()], **pen(7.5, color=SOFT))


def write_title(axes: "matplotlib.axes.Axes", title: str, size: Number = 10.5) -> None:
    """Write a title above the axes and their labels."""
    if not title:
        return
    with quiet():
        above = (axes.get_tightbbox().y1 - axes.bbox.y1) / axes.figure.dpi  # type: ignore[union-attr]
    axes.annotate(title, (0, 1), (0, above * 72 + size), xycoords="axes fraction",
                  textcoords="offset points", annotation_clip=False, **pen(size, fontweight="bold"))  # fmt: skip


def draw_heads(
    weights: Float[Tensor, "H T S"] | Mapping[str, Float[Tensor, "H T S"]],
    source_labels: Sequence[str] | None = None,
    target_labels: Sequence[str] | None = None,
    path: Target = None,
    title: str = "",
    numbers: Sequence[int] | None = None,
) -> "matplotlib.figure.Figure":
    """A grid of heads (`numbers`) on one scale, a row for each layer (rows of four for one); labels at its edge."""
    alone = not isinstance(weights, Mapping)
    layers = {"": weights} if isinstance(weights, Tensor) else dict(weights)
    if not layers:
        raise ValueError("no layers to draw; run the model inside the look block first")
    target_labels = source_labels if target_labels is None else target_labels
    for each in layers.values():
        start(each, source_labels or [""] * each.shape[2], target_labels or [""] * each.shape[1], path)
    columns = max(len(each) for each in layers.values())
    numbers = numbers or range(columns)
    columns = min(columns, 4) if alone else columns
    T, S = (max(each.shape[axis] for each in layers.values()) for axis in (1, 2))
    cell = min(0.3, max(GRID_CELL, 20.0 / (columns * S))) if source_labels else 1.3 / max(T, S)
    panels = [
        (head // columns if alone else row, head % columns if alone else head, name, numbers[head], values)
        for row, (name, each) in enumerate(zip(short_names(list(layers)), layers.values(), strict=True))
        for head, values in enumerate(each.detach().float().cpu().numpy())
    ]
    figure = draw_panels(panels, source_labels, target_labels, cell, (S * cell, T * cell), gap=0.3 if alone else 0.18)
    write_title(figure.axes[0], title, min(24.0, max(10.5, 2.4 * S * cell)))
    return save(fit(figure), path)


def short_names(names: list[str]) -> list[str]:
    """Return the parts of dotted names in which they differ; a number alone becomes a layer."""
    parts = [name.split(".") for name in names]
    if len(names) < 2 or len({len(each) for each in parts}) > 1:
        return names
    differ = [i for i, column in enumerate(zip(*parts, strict=True)) if len(set(column)) > 1]
    kept = [".".join(each[i] for i in differ) for each in parts]
    return [f"layer {name}" if name.isdigit() else name for name in kept]


def draw_panels(
    panels: Sequence[tuple[int, int, str, int, Any]],
    source: Sequence[str] | None,
    target: Sequence[str] | None,
    cell: Number,
    size: tuple[Number, Number],
    gap: Number,
) -> "matplotlib.figure.Figure":
    """Draw heads at their row and column. Source labels stand on the first row only, target labels at the first
    column."""
    (width, height), big = size, min(18.0, max(8.5, 5 * size[0]))
    rows, columns = 1 + max(panel[0] for panel in panels), 1 + max(panel[1] for panel in panels)
    figure = new_figure(columns * (width + gap) + 3, rows * (height + gap) + 3)
    top = round_up(max(float(panel[4].max()) for panel in panels))
    for row, column, name, head, values in panels:
        axes = place(figure, 1.5 + column * (width + gap), 1.5 + (rows - 1 - row) * (height + gap), width, height)
        image = shade(axes, values, top)
        if source is not None and row == 0:
            label_side(axes, "x", source, cell, rotation=90, va="bottom")
        if target is not None and column == 0:
            label_side(axes, "y", target, cell)
        if row == 0 or not name:
            axes.set_title(f"head {head}", pad=6, **pen(big, color=SOFT))
        if column == 0:
            axes.set_ylabel(name, labelpad=8, **pen(big, color=SOFT))
    add_scale(figure, image, 1.5 + columns * (width + gap), 1.5, min(height, 1.5))
    return figure


def label_side(
    axes: "matplotlib.axes.Axes", side: Literal["x", "y"], labels: Sequence[str], cell: Number, **turn: Any
) -> None:
    axes.tick_params(axis=side, which="major", length=2, pad=2, top=side == "x", labeltop=side == "x", bottom=False,
                     labelbottom=False)  # fmt: skip
    ticks = axes.set_xticks if side == "x" else axes.set_yticks
    ticks(range(len(labels)), readable(labels), **turn, **pen(font_size(cell)))


def draw_lines(
    weights: Float[Tensor, "*H T S"],
    source_labels: Sequence[str],
    target_labels: Sequence[str],
    path: Target = None,
    title: str = "",
) -> "matplotlib.figure.Figure":
    """Draw lines from each target token at the left to the source tokens that it attends to; a colour for each head.

    What gets less than an even share of many tokens is left out: hundreds of faint lines would hide the others.
    """
    from matplotlib.collections import LineCollection

    start(weights, source_labels, target_labels, path)
    heads = weights.detach().cpu().reshape(-1, *weights.shape[-2:]).numpy()
    step, width = 0.21, 2.4
    rows = max(len(source_labels), len(target_labels))
    least = min(0.1, max(0.02, 1 / len(source_labels)))
    figure = new_figure(width + 4, rows * step + 2)
    axes = place(figure, 2, 1, width, rows * step)
    axes.set(xlim=(0, 1), ylim=(rows - 0.5, -0.5))
    axes.axis("off")
    for head, values in enumerate(heads):
        pairs = [(t, s) for t, s in np.ndindex(*values.shape) if values[t, s] >= least]
        strength = [float(values[pair]) for pair in pairs]
        axes.add_collection(
            LineCollection(
                [[(0, t), (1, s)] for t, s in pairs],
                colors=LINES[head % len(LINES)],
                alpha=strength,
                linewidths=[0.4 + 2.2 * each for each in strength],
                capstyle="round",
            )  # fmt: skip
        )
    for x, labels, side in ((-0.03, target_labels, "right"), (1.03, source_labels, "left")):
        for y, label in enumerate(readable(labels)):
            axes.text(x, y, label, ha=side, va="center", **pen(9))
    write_title(axes, title)
    return save(fit(figure), path)


def draw_masks(rules: Mapping[str, Mask], path: Target = None, *, length: int = 12) -> "matplotlib.figure.Figure":
    """Small multiples of rules: a dark cell where the query (row) may see the key (column)."""
    check_suffix(path)
    columns, side = min(4, len(rules)), 1.45
    rows = math.ceil(len(rules) / columns)
    figure = new_figure(columns * (side + 0.35) + 1, rows * (side + 0.45) + 1)
    for place_of, (name, rule) in enumerate(rules.items()):
        row, column = divmod(place_of, columns)
        axes = place(figure, 0.5 + column * (side + 0.35), 0.5 + (rows - 1 - row) * (side + 0.45), side, side)
        shade(axes, rule.dense(length, length)[0, 0].float().cpu().numpy(), 1.35)
        axes.set_title(name, pad=4, **pen(8.5))
        if not place_of:
            axes.set_xlabel("key →", labelpad=2, **pen(7.5, color=SOFT))
            axes.set_ylabel("← query", labelpad=2, **pen(7.5, color=SOFT))
    return save(fit(figure), path)
