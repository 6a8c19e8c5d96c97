"""The figure of attention worked out by hand: keys, scores, weights, values and the output, side by side."""

import math
from typing import Any

import numpy as np

from regard.inside.draw.canvas import SOFT, Axes, Figure, Number, Sheet, Target, check_suffix, pen
from regard.inside.draw.matrices import label_cells, print_texts, shade, write_title
from regard.inside.explain.worked_attention import Example, Worked

CELL, GAP = 0.42, 0.3
WIDE = 0.62


def draw_worked(example: Example, worked: Worked, path: Target = None) -> Figure:
    """Draw the seven steps of one query, a row for each word; the output stands below the values."""
    check_suffix(path)
    sheet, height, left = Sheet(), len(example.words) * CELL, 0.0
    panels: list[tuple[str, Any, list[str], Number]] = []
    features = example.features
    if example.keys is not None:
        panels.append(("2 keys", np.array(example.keys), features, CELL))
    scores = "q·k" if example.keys is not None else "score"
    columns = [worked.scores, worked.scaled, worked.exponentials]
    for title, values in zip((f"3 {scores}", f"4 ÷ {worked.divisor:.3g}", "5 exp"), columns, strict=True):
        panels.append((title, np.array(values)[:, None], [], WIDE))
    panels.append(("weights", np.array(worked.weights)[:, None], [], WIDE))
    if example.values is not None:
        panels.append(("6 values", np.array(example.values), features, CELL))
    first = None
    for title, values, names, cell in panels:
        axes = add_panel(sheet, values, (left, 0, values.shape[1] * cell, height), title, names, cell)
        first = first or axes
        left += values.shape[1] * cell + GAP
    assert first is not None
    first.set_yticks(range(len(example.words)), example.words, **pen(9))
    if worked.q is not None and example.keys is not None:
        add_row(sheet, worked.q, 0, height + 0.95, f"1 query: {worked.query}")
    if worked.output is not None:
        width = len(worked.output) * CELL
        add_row(sheet, worked.output, left - GAP - width, -CELL - 0.45, "7 output")
    vectors = worked.q is not None
    sheet.place(0, height + (1.75 if vectors else 0.35), 1, 0.01).axis("off")
    write_title(sheet.figure.axes[-1], example.title if vectors else f"{example.title}; query: {worked.query}")
    return sheet.save(path)


def add_panel(
    sheet: Sheet, values: Any, box: tuple[Number, Number, Number, Number], title: str, names: list[str], cell: Number
) -> Axes:
    """Draw numbers as shaded cells with a title below them and names of columns above; hidden ones stay empty."""
    finite = np.where(np.isfinite(values), values, 0.0)
    share = np.clip(finite, 0, None) / (max(finite.max(), 1e-9) * 1.15)
    axes = shade(sheet, box, share, 1.0)
    label_cells(axes, names, [], (cell, CELL), turn=45 if names else 0)
    print_texts(axes, [[as_text(value) for value in row] for row in values], share, 8.0)
    axes.set_xlabel(title, labelpad=4, **pen(8.5, color=SOFT))
    return axes


def add_row(sheet: Sheet, values: list[float], left: Number, bottom: Number, title: str) -> None:
    """Draw a vector as one row of cells with its title at the left."""
    row = np.array(values)[None]
    share = np.clip(row, 0, None) / (max(float(row.max()), 1e-9) * 1.15)
    axes = shade(sheet, (left, bottom, row.shape[1] * CELL, CELL), share, 1.0)
    print_texts(axes, [[as_text(value) for value in values]], share, 8.0)
    axes.set_yticks([0], [title], **pen(9))


def as_text(value: float) -> str:
    """Return a number in at most five characters; nothing for a hidden one."""
    if math.isinf(value):
        return ""
    return f"{value:.2g}" if value == 0 or abs(value) >= 100 or 0 < abs(value) < 0.01 else f"{value:.2f}"
