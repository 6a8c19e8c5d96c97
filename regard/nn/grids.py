"""Tokens on an image: grids of square cells, and those of an attention layer's queries and keys."""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from regard.nn.pooling import Grid, pooled
from regard.nn.windows import Windows


@dataclass(frozen=True, slots=True)
class PatchGrid:
    """Square cells on an image, row by row from its upper left corner; the last ones may reach over its edges."""

    grid: Grid
    """Rows and columns."""
    cell: int
    """Pixels of a cell's side."""

    def __len__(self) -> int:
        return self.grid[0] * self.grid[1]

    @property
    def labels(self) -> list[str]:
        """Row and column of each cell, as text."""
        return [f"{row},{column}" for row in range(self.grid[0]) for column in range(self.grid[1])]

    def coarser(self, stride: int) -> "PatchGrid":
        """Return the grid after pooling with a stride."""
        return PatchGrid(pooled(self.grid, stride), self.cell * stride)

    def index_of(self, at: Grid, finer: "PatchGrid") -> int:
        """The index of the cell here that holds the cell `at` of a finer grid."""
        times = self.cell // finer.cell
        return at[0] // times * self.grid[1] + at[1] // times

    def spread(self, x: Float[Tensor, "*H S"], finer: "PatchGrid") -> Float[Tensor, "*H T"]:
        """Divide each cell's number evenly among the cells of a finer grid that it was made of."""
        if finer == self:
            return x
        times = self.cell // finer.cell
        rows, columns = (torch.arange(side) // times for side in finer.grid)
        owner = (rows[:, None] * self.grid[1] + columns).flatten()
        return (x / owner.bincount(minlength=len(self)).clamp(min=1))[..., owner]


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerGrids:
    """The grids on an image that the queries and the keys of one attention layer form."""

    queries: PatchGrid
    keys: PatchGrid
    prefix: int = 0
    """Tokens in front of the cells, on both sides, such as a class token."""
    reader: int = 0
    """With a prefix, the index of the token that reads for the whole image (-1: the last, of a pixel model)."""
    windows: Windows | None = None
    """The windows that attention is limited to, if it is."""
