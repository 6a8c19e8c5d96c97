"""Figures of attention and of training, as PNG, SVG or PDF by the path's suffix. Each function returns the figure.

Cells and labels have a size in inches, and the paper grows with them: sixty tokens are as readable as five.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from jaxtyping import Float
from torch import Tensor

from regard.inside.draw.canvas import (
    FAINT,
    INK,
    LINES,
    SMALLEST_FONT,
    SOFT,
    Axes,
    Figure,
    Number,
    Sheet,
    Target,
    pen,
    quiet,
    ramp,
    readable,
)
from regard.nn.masks import Mask

GRID_CELL, SMALLEST_CELL, LARGEST_CELL = 0.13, 0.16, 0.55
MOST_NUMBERS = 12
"""Tokens up to which weights are printed in the cells."""


def draw_alignment(
    weights: Float[Tensor, "T S"],
    source_labels: Sequence[str],
    target_labels: Sequence[str],
    path: Target = None,
    title: str = "",
) -> Figure:
    """Weights as a table of shades: source above, target at the left, numbers where there is room for them."""
    check_labels(weights, source_labels, target_labels)
    values = weights.detach().cpu().numpy()
    T, S = values.shape
    cell, top, sheet = cell_size(max(T, S)), round_up(float(values.max())), Sheet()
    axes = shade(sheet, (0, 0, S * cell, T * cell), values, top)
    label_cells(axes, source_labels, target_labels, (cell, cell))
    if max(T, S) <= MOST_NUMBERS:
        print_texts(axes, as_texts(values), values / top)
    height = min(T * cell, 2.0)
    add_scale(sheet, axes, S * cell + 0.15, T * cell - height, height)
    write_title(axes, title)
    return sheet.save(path)


def check_labels(weights: Any, source_labels: Sequence[str], target_labels: Sequence[str]) -> None:
    """Raise an error for wrong labels before anything is drawn."""
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


def shade(sheet: Sheet, box: tuple[Number, Number, Number, Number], values: Any, top: Number) -> Axes:
    """Draw values from 0 to `top` as shaded cells that fill a box (left, bottom, width, height)."""
    axes, (T, S) = sheet.place(*box), values.shape
    axes.spines[:].set(color=FAINT)
    if max(T, S) <= 40:
        axes.set_xticks(np.arange(S + 1) - 0.5, minor=True)
        axes.set_yticks(np.arange(T + 1) - 0.5, minor=True)
        axes.grid(which="minor", color="#eef0f2", linewidth=0.5)
    axes.tick_params(which="both", length=0)
    axes.set(xticks=[], yticks=[])
    axes.imshow(values, cmap=ramp(), vmin=0, vmax=top, aspect="auto", interpolation="nearest")
    return axes


def label_cells(
    axes: Axes, columns: Sequence[str], rows: Sequence[str], cell: tuple[Number, Number], turn: int | None = None
) -> None:
    """Write names of columns above, turned by so many degrees (none: if necessary), and those of rows at the left."""
    size, columns = font_size(cell[0]), readable(columns)
    axes.xaxis.tick_top()
    axes.tick_params(which="major", length=2, pad=2)
    if turn is None:
        widest = max(map(len, columns)) * size * 0.62 / 72
        turn = 0 if widest < cell[0] * 0.95 else 45 if cell[0] >= 0.26 else 90
    side: dict[int, dict[str, Any]] = {0: {}, 45: dict(ha="left", rotation_mode="anchor"), 90: dict(va="bottom")}
    axes.set_xticks(range(len(columns)), columns, rotation=turn, **side[turn], **pen(size))
    axes.set_yticks(range(len(rows)), readable(rows), **pen(font_size(cell[1])))


def as_texts(values: Any) -> list[list[str]]:
    """Weights with two decimals, for cells; nothing for those near zero."""
    return [
        ["" if value < 0.005 else f"{value:.2f}".removeprefix("0") if value < 0.995 else "1" for value in row]
        for row in values
    ]


def print_texts(axes: Axes, texts: Sequence[Sequence[str]], shares: Any, size: Number = 8.0) -> None:
    """Print a text in each cell, white where the cell is dark."""
    for (row, column), share in np.ndenumerate(shares):
        if texts[row][column]:
            style = pen(size, color="white" if share > 0.42 else INK)
            axes.text(column, row, readable([texts[row][column]], 14)[0], ha="center", va="center", **style)


def round_up(largest: Number) -> Number:
    """Return the end of a colour scale: the next tenth, or hundredth where weights are small."""
    unit = 0.1 if largest > 0.2 else 0.02
    return max(math.ceil(largest / unit - 1e-6) * unit, unit)


def add_scale(sheet: Sheet, cells: Axes, left: Number, bottom: Number, height: Number) -> None:
    """Draw the scale of shaded cells."""
    axes = sheet.place(left, bottom, 0.1, height)
    bar = sheet.figure.colorbar(cells.images[0], cax=axes, ticks=np.linspace(0, cells.images[0].get_clim()[1], 3))
    bar.outline.set(linewidth=0.4, edgecolor=SOFT)  # type: ignore[operator]
    axes.tick_params(length=2, width=0.4)
    axes.set_yticklabels([f"{tick:.2f}".rstrip("0").rstrip(".") for tick in bar.get_ticks()], **pen(7.5, color=SOFT))


def write_title(axes: Axes, title: str, size: Number = 10.5) -> None:
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
) -> Figure:
    """A grid of heads (`numbers`) on one scale, a row for each layer (rows of four for one); labels at its edge."""
    alone = not isinstance(weights, Mapping)
    layers = {"": weights} if isinstance(weights, Tensor) else dict(weights)
    if not layers:
        raise ValueError("no layers to draw; run the model inside the look block first")
    target_labels = source_labels if target_labels is None else target_labels
    for each in layers.values():
        check_labels(each, source_labels or [""] * each.shape[2], target_labels or [""] * each.shape[1])
    columns = max(len(each) for each in layers.values())
    numbers = numbers or range(columns)
    columns = min(columns, 4) if alone else columns
    T, S = (max(each.shape[axis] for each in layers.values()) for axis in (1, 2))
    cell = min(0.3, max(GRID_CELL, 20.0 / (columns * S))) if source_labels else 1.3 / max(T, S)
    width, height, gap = S * cell, T * cell, 0.3 if alone else 0.18
    sheet, big = Sheet(), min(18.0, max(8.5, 5 * width))
    top = round_up(max(float(each.max()) for each in layers.values()))
    for line, (name, each) in enumerate(zip(short_names(list(layers)), layers.values(), strict=True)):
        for head, values in enumerate(each.detach().float().cpu().numpy()):
            row, column = divmod(head, columns) if alone else (line, head)
            axes = shade(sheet, (column * (width + gap), -row * (height + gap), width, height), values, top)
            above, beside = source_labels if row == 0 else None, target_labels if column == 0 else None
            label_cells(axes, above or [], beside or [], (cell, cell), turn=90)
            if row == 0 or not name:
                axes.set_title(f"head {numbers[head]}", pad=6, **pen(big, color=SOFT))
            if column == 0:
                axes.set_ylabel(name, labelpad=8, **pen(big, color=SOFT))
    add_scale(sheet, axes, columns * (width + gap), -row * (height + gap), min(height, 1.5))
    write_title(sheet.figure.axes[0], title, min(24.0, max(10.5, 2.4 * width)))
    return sheet.save(path)


def short_names(names: list[str]) -> list[str]:
    """Return the parts of dotted names in which they differ; a number alone becomes a layer."""
    parts = [name.split(".") for name in names]
    if len(names) < 2 or len({len(each) for each in parts}) > 1:
        return names
    differ = [i for i, column in enumerate(zip(*parts, strict=True)) if len(set(column)) > 1]
    kept = [".".join(each[i] for i in differ) for each in parts]
    return [f"layer {name}" if name.isdigit() else name for name in kept]


def draw_lines(
    weights: Float[Tensor, "*H T S"],
    source_labels: Sequence[str],
    target_labels: Sequence[str],
    path: Target = None,
    title: str = "",
) -> Figure:
    """Draw lines from each target token at the left to the source tokens that it attends to; a colour for each head.

    What gets less than an even share of many tokens is left out: hundreds of faint lines would hide the others.
    """
    from matplotlib.collections import LineCollection

    check_labels(weights, source_labels, target_labels)
    heads = weights.detach().cpu().reshape(-1, *weights.shape[-2:]).numpy()
    step, width = 0.21, 2.4
    rows = max(len(source_labels), len(target_labels))
    least = min(0.1, max(0.02, 1 / len(source_labels)))
    sheet = Sheet()
    axes = sheet.place(0, 0, width, rows * step)
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
    return sheet.save(path)


def draw_masks(rules: Mapping[str, Mask], path: Target = None, *, length: int = 12) -> Figure:
    """Small multiples of rules: a dark cell where the query (row) may see the key (column)."""
    side, sheet = 1.45, Sheet()
    for index, (name, rule) in enumerate(rules.items()):
        row, column = divmod(index, 4)
        box = (column * (side + 0.35), -row * (side + 0.45), side, side)
        axes = shade(sheet, box, rule.dense(length, length)[0, 0].float().cpu().numpy(), 1.35)
        axes.set_title(name, pad=4, **pen(8.5))
        if not index:
            axes.set_xlabel("key →", labelpad=2, **pen(7.5, color=SOFT))
            axes.set_ylabel("← query", labelpad=2, **pen(7.5, color=SOFT))
    return sheet.save(path)
