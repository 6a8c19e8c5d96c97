"""Tables of shaded cells on one sheet: outputs × tokens, layers × heads, layers × positions."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float
from torch import Tensor

from regard.inside.draw.canvas import Figure, Sheet, Target
from regard.inside.draw.matrices import (
    add_scale,
    cell_size,
    font_size,
    label_cells,
    print_texts,
    round_up,
    shade,
    write_title,
)
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


def draw_tables(tables: Sequence[Table], path: Target = None) -> Figure:
    """Draw all tables on one sheet, small ones side by side, each with its own scale."""
    sheet, left, top, low = Sheet(), 0.0, 0.0, 0.0
    for table in tables:
        if left and left + table.space[0] > WIDTH:
            left, top = 0.0, low
        draw_table(sheet, table, left + table.margins[0], top - table.margins[1] - table.size[1])
        left, low = left + table.space[0], min(low, top - table.space[1])
    return sheet.save(path)


def draw_table(sheet: Sheet, table: Table, left: float, bottom: float) -> None:
    """Draw one table with its lower left corner at that point."""
    width, height = table.size
    values = np.clip(np.nan_to_num(table.values), 0, None)
    top = table.top or round_up(float(values.max(initial=0.0)))
    axes = shade(sheet, (left, bottom, width, height), values, top)
    label_cells(axes, table.columns, table.rows, table.cell)
    if table.texts is not None:
        print_texts(axes, table.texts, values / top, font_size(table.cell[1]))
    add_scale(sheet, axes, left + width + 0.12, bottom + max(0.0, height - 1.5), min(height, 1.5))
    write_title(axes, table.title, 9.5)


def draw_on_image(
    pixels: np.ndarray, cells: PatchGrid, maps: Mapping[str, Float[Tensor, "S"]], path: Target = None, title: str = ""
) -> Figure:
    """Draw an image and, under each title, its cells lit by their weights, each map beside its largest weight."""
    weights = (np.clip(one.reshape(cells.grid).numpy(), 0, None) for one in maps.values())
    drawn = [overlay(pixels, one, cell=cells.cell) for one in weights]
    return grid_of_images([drawn], [list(maps)], path, lead=(as_rgb(pixels), title), side=2.2)
