"""Tables of shaded cells on one sheet: outputs × tokens, layers × heads, layers × positions."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float
from torch import Tensor

from regard.inside.draw.canvas import INK, check_suffix, fit, new_figure, pen, place, readable, save
from regard.inside.draw.matrices import add_scale, cell_size, font_size, label_cells, round_up, shade, write_title
from regard.inside.draw.overlays import as_rgb, grid_of_images, overlay
from regard.nn.grids import PatchGrid

GAP = 0.35
"""Inches between two tables, beside their labels."""
WIDTH = 9.0
"""Inches that tables side by side may take."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """Values with the names of their rows and columns; what is below zero is drawn as zero."""

    values: np.ndarray
    rows: Sequence[str]
    columns: Sequence[str]
    texts: Sequence[Sequence[str]] | None = None
    """Texts to print in the cells."""
    title: str = ""
    top: float | None = None
    """The end of the scale (none: the largest value, rounded up)."""

    @property
    def cell(self) -> tuple[float, float]:
        """Width and height of a cell in inches; a cell with a text is wide enough for it."""
        if self.texts is None:
            side = cell_size(max(self.values.shape), 0.34)
            return side, side
        longest = max((len(text) for row in self.texts for text in row), default=1)
        return max(0.34, 0.075 * min(longest, 14) + 0.08), 0.24

    @property
    def size(self) -> tuple[float, float]:
        return self.values.shape[1] * self.cell[0], self.values.shape[0] * self.cell[1]

    @property
    def margins(self) -> tuple[float, float]:
        """Inches for labels and title at the left and above."""
        left, above = (0.075 * min(24, max(map(len, labels), default=0)) for labels in (self.rows, self.columns))
        return left + 0.2, (above if above > self.cell[0] else 0.1) + 0.45

    @property
    def space(self) -> tuple[float, float]:
        """Width and height of the table with its margins, in inches."""
        wide = max(self.margins[0] + self.size[0] + 0.6, 0.085 * len(self.title))
        return wide + GAP, self.margins[1] + self.size[1] + GAP


def draw_tables(tables: Sequence[Table], path: str | Path | None = None) -> Any:
    """Draw all tables on one sheet, small ones side by side, each with its own scale."""
    check_suffix(path)
    lines: list[list[Table]] = [[]]
    for table in tables:
        if lines[-1] and sum(one.space[0] for one in (*lines[-1], table)) > WIDTH:
            lines.append([])
        lines[-1].append(table)
    heights = [max(table.space[1] for table in line) for line in lines]
    figure = new_figure(max(sum(table.space[0] for table in line) for line in lines) + 1, sum(heights) + 2)
    top = sum(heights) + 1
    for line, height in zip(lines, heights, strict=True):
        left = 0.5
        for table in line:
            draw_table(figure, table, left + table.margins[0], top - table.margins[1] - table.size[1])
            left += table.space[0]
        top -= height
    return save(fit(figure), path)


def draw_table(figure: Any, table: Table, left: float, bottom: float) -> None:
    """Draw one table with its lower left corner at that point."""
    (width, height), (cell, row) = table.size, table.cell
    axes = place(figure, left, bottom, width, height)
    values = np.clip(np.nan_to_num(table.values), 0, None)
    top = table.top or round_up(float(values.max(initial=0.0)))
    image = shade(axes, values, top)
    label_cells(axes, readable(table.columns), readable(table.rows), cell)
    axes.set_yticklabels(readable(table.rows), **pen(font_size(row)))
    if table.texts is not None:
        write_cells(axes, table.texts, values / top, font_size(row))
    add_scale(figure, image, left + width + 0.12, bottom + max(0.0, height - 1.5), min(height, 1.5))
    write_title(axes, table.title, 9.5)


def write_cells(axes: Any, texts: Sequence[Sequence[str]], shades: np.ndarray, size: float) -> None:
    for (row, column), share in np.ndenumerate(shades):
        text = readable([texts[row][column]], longest=14)[0] if texts[row][column] else ""
        color = "white" if share > 0.42 else INK
        axes.text(column, row, text, ha="center", va="center", **pen(size, color=color))


def draw_on_image(
    pixels: np.ndarray, cells: PatchGrid, maps: Mapping[str, Float[Tensor, "S"]], path: str | Path | None = None,
    title: str = "",
) -> Any:  # fmt: skip
    """Draw an image and, under each title, its cells lit by their weights, each map beside its largest weight."""
    drawn = [
        overlay(pixels, np.clip(one.reshape(cells.grid).numpy(), 0, None), cell=(cells.cell, cells.cell))
        for one in maps.values()
    ]
    return grid_of_images([drawn], [list(maps)], path, lead=(as_rgb(pixels), title), side=2.2)
