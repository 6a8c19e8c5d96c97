"""Tables of shades one below the other: outputs × tokens, layers × heads, layers × places."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from regard.inside.canvas import INK, check_suffix, fit, new_figure, pen, place, readable, save
from regard.inside.views import add_scale, cell_size, font_size, label_cells, round_up, shade, write_title

GAP = 0.5
"""Inches between two tables, beside their labels."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """Values with their rows and columns; below zero they are paper."""

    values: np.ndarray
    rows: Sequence[str]
    columns: Sequence[str]
    texts: Sequence[Sequence[str]] | None = None
    """What stands in the cells."""
    title: str = ""
    top: float | None = None
    """The end of the scale (none: of the values)."""

    @property
    def cell(self) -> tuple[float, float]:
        """Inches: a cell with a text is wide enough for it."""
        if self.texts is None:
            side = cell_size(max(self.values.shape), 0.34)
            return side, side
        longest = max((len(text) for row in self.texts for text in row), default=1)
        return max(0.34, 0.075 * min(longest, 14) + 0.08), 0.24

    @property
    def size(self) -> tuple[float, float]:
        return self.values.shape[1] * self.cell[0], self.values.shape[0] * self.cell[1]

    @property
    def head(self) -> float:
        """Inches that its columns' labels and title need."""
        return 0.45 + 0.075 * min(24, max(map(len, self.columns), default=0))


def draw_tables(tables: Sequence[Table], path: str | Path | None = None, title: str = "") -> Any:
    """All tables on one sheet, each with its own scale."""
    if path is not None:
        check_suffix(path)
    height = sum(table.size[1] + table.head + GAP for table in tables)
    figure = new_figure(max(table.size[0] for table in tables) + 4, height + 2)
    bottom = height + 0.5
    for number, table in enumerate(tables):
        (width, tall), (cell, row) = table.size, table.cell
        bottom -= table.head + tall
        axes = place(figure, 2, bottom, width, tall)
        values = np.clip(np.nan_to_num(table.values), 0, None)
        top = table.top or round_up(float(values.max(initial=0.0)))
        image = shade(axes, values, top)
        label_cells(axes, readable(table.columns), readable(table.rows), cell)
        axes.set_yticklabels(readable(table.rows), **pen(font_size(row)))
        if table.texts is not None:
            write_cells(axes, table.texts, values / top, font_size(row))
        add_scale(figure, image, 2 + width + 0.15, bottom + max(0, tall - 1.5), min(tall, 1.5))
        write_title(axes, f"{title}\n{table.title}".strip() if number == 0 else table.title)
        bottom -= GAP
    return save(fit(figure), path)


def write_cells(axes: Any, texts: Sequence[Sequence[str]], shades: np.ndarray, size: float) -> None:
    for (row, column), share in np.ndenumerate(shades):
        text = readable([texts[row][column]], longest=14)[0] if texts[row][column] else ""
        color = "white" if share > 0.42 else INK
        axes.text(column, row, text, ha="center", va="center", **pen(size, color=color))
