"""A confusion matrix: the true label of each row, the predicted one of each column."""

from collections.abc import Sequence

import numpy as np

from regard.inside.draw.canvas import INK, Figure, Sheet, Target, pen, readable
from regard.inside.draw.matrices import cell_size, font_size, label_cells, shade, write_title

MOST = 50
"""Classes that are drawn; of more, those that are confused most often."""
MOST_COUNTS = 30
"""Classes up to which counts are printed in the cells."""
NAMED = 12
"""Confusions that are listed beside a matrix of more classes."""


def draw_confusion(labels: Sequence[str], counts: Sequence[Sequence[int]], path: Target = None) -> Figure:
    """Draw how often examples of each label were given each label: shades are shares of a row, numbers are counts."""
    table = np.array(counts, dtype=int).reshape(len(labels), len(labels))
    if not len(labels):
        raise ValueError("there are no labels to draw; score at least one example")
    names, title, wrong = readable(labels, 20), "rows: true label, columns: predicted", np.array(table)
    np.fill_diagonal(wrong, 0)
    shown = np.arange(len(labels))
    if len(labels) > MOST:
        shown = np.sort(np.argsort(-(wrong.sum(0) + wrong.sum(1)), kind="stable")[:MOST])
        title = f"the {MOST} of {len(labels):,} labels that are confused most; {title}"
    part = table[np.ix_(shown, shown)]
    shares = part / np.maximum(1, table[shown].sum(1, keepdims=True))
    size, sheet = len(shown), Sheet()
    cell = min(0.45, max(cell_size(size), 0.3 if size <= MOST_COUNTS else 0.0))
    axes = shade(sheet, (0, 0, size * cell, size * cell), shares, 1.0)
    own = [names[i] for i in shown]
    label_cells(axes, own, own, (cell, cell))
    if size <= MOST_COUNTS:
        small = font_size(cell) - 1
        for (row, column), count in np.ndenumerate(part):
            if count:
                style = pen(small, color="white" if shares[row, column] > 0.42 else INK)
                axes.text(column, row, short(int(count)), ha="center", va="center", **style)
    if len(labels) > MOST_COUNTS:
        list_confusions(sheet, size * cell + 0.2, size * cell, names, wrong, table.sum(1))
    write_title(axes, title)
    return sheet.save(path)


def list_confusions(
    sheet: Sheet, left: float, top: float, names: Sequence[str], wrong: np.ndarray, rows: np.ndarray
) -> None:
    """Write the largest confusions at the right of the matrix."""
    order = np.argsort(-wrong, axis=None, kind="stable")[:NAMED]
    lines = ["most often confused"]
    for i, j in zip(*np.unravel_index(order, wrong.shape), strict=True):
        if wrong[i, j]:
            lines.append(f"{names[i]} as {names[j]}: {wrong[i, j]:,} of {rows[i]:,}")
    axes = sheet.place(left, top - 0.2 * len(lines), 2.6, 0.2 * len(lines))
    axes.axis("off")
    for number, line in enumerate(lines):
        style = pen(8.0, fontweight="bold") if number == 0 else pen(8.0)
        axes.text(0, 1 - (number + 0.5) / len(lines), line, transform=axes.transAxes, va="center", **style)


def short(count: int) -> str:
    """A count in at most four characters."""
    return f"{count}" if count < 1000 else f"{count / 1000:.1f}k" if count < 10_000 else f"{count // 1000}k"
