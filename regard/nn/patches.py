"""Images to tokens: patches of pixels, and learned positions on their grid.

Pixels are B C Y X: channels, rows, columns. Pixels beyond the last whole patch are cropped at the bottom and the right.
"""

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

Side = int | tuple[int, ...]
"""One number for a square, or (rows, columns)."""


def sides(size: Side, name: str = "image") -> tuple[int, int]:
    """Return rows and columns of a size, checked to be positive."""
    both = (size, size) if isinstance(size, int) else tuple(size)
    if len(both) != 2 or min(both) < 1:
        raise ValueError(f"{name}={size} must be one positive number, or two: rows,columns")
    return both[0], both[1]


def grid_of(image: Side, patch: int) -> tuple[int, int]:
    """Return the rows and columns of patches in an image."""
    rows, columns = sides(image)
    if patch < 1 or min(rows, columns) < patch:
        cure = f"use a patch of at most {min(rows, columns)} or a larger image"
        raise ValueError(f"no patch of {patch} × {patch} pixels fits into an image of {rows} × {columns}; {cure}")
    return rows // patch, columns // patch


class PatchEmbedding(nn.Module):
    """A vector for each patch: its pixels times one matrix, as a convolution whose stride is its size."""

    def __init__(self, channels: int, patch: int, dim: int) -> None:
        super().__init__()
        self.channels, self.patch = channels, patch
        self.project = nn.Conv2d(channels, dim, patch, stride=patch)
        nn.init.xavier_uniform_(self.project.weight.detach().flatten(1))
        assert self.project.bias is not None
        nn.init.zeros_(self.project.bias)

    def forward(self, pixels: Float[Tensor, "B C Y X"]) -> Float[Tensor, "B D N M"]:
        """Return vectors on their grid of N × M patches; `.flatten(2).mT` makes tokens of them, row by row."""
        if pixels.shape[1] != self.channels:
            raise ValueError(f"images have {pixels.shape[1]} channels, the model reads {self.channels}")
        grid_of(tuple(pixels.shape[2:]), self.patch)
        return self.project(pixels)


def cut(pixels: Float[Tensor, "B C Y X"], patch: int) -> Float[Tensor, "B T P"]:
    """Return the pixels of each patch: row by row, column by column, channels innermost."""
    rows, columns = grid_of(tuple(pixels.shape[2:]), patch)
    x = pixels[:, :, : rows * patch, : columns * patch]
    x = x.unflatten(3, (columns, patch)).unflatten(2, (rows, patch))  # B C N p M p
    return x.permute(0, 2, 4, 3, 5, 1).flatten(3).flatten(1, 2)


def paste(patches: Float[Tensor, "B T P"], patch: int, grid: tuple[int, int]) -> Float[Tensor, "B C Y X"]:
    """Return the image made of these patches: the inverse of `cut`."""
    x = patches.unflatten(2, (patch, patch, -1)).unflatten(1, grid)  # B N M p p C
    return x.permute(0, 5, 1, 3, 2, 4).flatten(4).flatten(2, 3)


def resample(
    table: Float[Tensor, "T D"], old: tuple[int, int], new: tuple[int, int], *, first: int = 0
) -> Float[Tensor, "S D"]:
    """Interpolate learned positions of an `old` grid to a `new` one (bicubic); the `first` rows are kept.

    This is how a model that was trained on small images reads large ones.
    """
    if old == new:
        return table
    on_grid = table[first:].unflatten(0, old).movedim(-1, 0)[None]  # 1 D N M
    stretched = F.interpolate(on_grid, size=new, mode="bicubic", align_corners=False)
    return torch.cat([table[:first], stretched[0].flatten(1).mT])
