"""Attention inside shifted windows of an image (Swin), with window-relative positions, and patch merging.

Tokens are B T D, row by row; their grid of rows and columns is passed along.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.nn.block import Block, BlockConfig
from regard.nn.dropout import DropPath
from regard.nn.masks import Mask, segments
from regard.nn.norm import build_norm
from regard.nn.pooling import Grid, pooled
from regard.nn.positions import Bias, Position


@dataclass(frozen=True, slots=True)
class Windows:
    """The partition of a grid into squares of `size` × `size` tokens, after rolling it up and left by `shift`.

    Rows and columns that fill the last squares are zeros. They are attended to, as in published models.
    """

    grid: Grid
    size: int
    shift: int = 0

    @classmethod
    def fit(cls, grid: Grid, window: int, *, shifted: bool = False, within: Grid | None = None) -> "Windows":
        """Return windows for a grid, no larger than the planned one (none: that grid); a single one is not shifted."""
        side = max(1, min(within or grid))
        return cls(grid, min(side, window), window // 2 if shifted and side > window else 0)

    @property
    def filled(self) -> Grid:
        """Rows and columns including the padding."""
        rows, columns = self.grid
        return rows + -rows % self.size, columns + -columns % self.size

    @property
    def counts(self) -> Grid:
        """Rows and columns of windows."""
        return self.filled[0] // self.size, self.filled[1] // self.size

    def split(self, x: Float[Tensor, "B T D"]) -> Float[Tensor, "N W D"]:
        """Return each window as a row of the batch: those of an image in sequence, row by row."""
        x = fill(x.unflatten(1, self.grid), self.size)
        if self.shift:  # one copy, not the three of two rolls and a partition
            x = x.flatten(1, 2).index_select(1, self.order(x.device))
            return x.unflatten(1, (-1, self.size**2)).flatten(0, 1)
        x = x.unflatten(2, (-1, self.size)).unflatten(1, (-1, self.size))  # B rows size columns size D
        return x.transpose(2, 3).flatten(3, 4).flatten(0, 2)

    def join(self, x: Float[Tensor, "N W D"]) -> Float[Tensor, "B T D"]:
        """Return the grid's tokens from those of its windows: the inverse of `split`."""
        if self.shift:
            x = x.unflatten(0, (-1, math.prod(self.counts))).flatten(1, 2)
            x = x.index_select(1, self.order(x.device, back=True)).unflatten(1, self.filled)
        else:
            x = x.unflatten(1, (self.size, self.size)).unflatten(0, (-1, *self.counts))  # B rows columns size size D
            x = x.transpose(2, 3).flatten(3, 4).flatten(1, 2)
        return x[:, : self.grid[0], : self.grid[1]].flatten(1, 2)

    @cache  # noqa: B019  windows are values: there are as many as grids and sizes in use
    def order(self, device: torch.device, *, back: bool = False) -> Int[Tensor, "T"]:
        """Return the grid index of each token of the windows; for `back`, the inverse permutation."""
        with torch.inference_mode(False):  # training may later use the cached tensor
            rolled = torch.arange(math.prod(self.filled)).view(self.filled).roll((-self.shift, -self.shift), (0, 1))
            index = Windows(self.filled, self.size).split(rolled.view(1, -1, 1).double()).flatten().long()
            return (index.argsort() if back else index).to(device)

    def mask(self, batch: int, device: torch.device | None = None) -> Mask | None:
        """Return a mask that hides tokens from opposite edges, adjacent only by rolling, from each other."""
        if not self.shift:
            return None
        low, right = (torch.arange(side, device=device) >= side - self.shift for side in self.filled)
        edges = (2 * low[:, None] + right).flatten()
        regions = Windows(self.filled, self.size).split(edges[None, :, None].float())[:, :, 0].long()
        return segments(regions.repeat(batch, 1))


def fill(x: Float[Tensor, "B Y X D"], size: int) -> Float[Tensor, "B N M D"]:
    """Pad with zeros at the bottom and the right, up to multiples of `size`."""
    below, right = -x.shape[1] % size, -x.shape[2] % size
    return F.pad(x, (0, 0, 0, right, 0, below)) if below or right else x


class WindowBias(Bias):
    """A bias for each head and each offset of two tokens in a window, from a table for windows of side `window`."""

    def __init__(self, table: Float[Tensor, "N H"], window: int, size: int) -> None:
        self.table, self.window, self.size = table, window, size

    def values(self, i: Int[Tensor, "*N T 1"], j: Int[Tensor, "*N 1 S"]) -> Float[Tensor, "H *N T S"]:
        reach, size = self.window - 1, self.size
        down, right = i // size - j // size + reach, i % size - j % size + reach
        return self.table[down * (2 * self.window - 1) + right].movedim(-1, 0)


class WindowPosition(Position):
    """Window-relative positions as a bias; a window smaller than planned uses a part of the table."""

    def __init__(self, window: int, *, heads: int, head_dim: int) -> None:
        super().__init__(dim=heads * head_dim, heads=heads, head_dim=head_dim, max_len=window**2)
        self.window = window

    def numbers(self) -> Float[Tensor, "N H"]:
        """Return the bias of each offset, row by row from the upper left."""
        raise NotImplementedError

    def bias(self, *, causal: bool = False, size: int | None = None) -> Bias:
        return WindowBias(self.numbers(), self.window, size or self.window)


class LearnedOffsets(WindowPosition):
    """A learned bias for each head and offset (Liu et al., 2021)."""

    def __init__(self, window: int, **sizes: int) -> None:
        super().__init__(window, **sizes)
        self.table = nn.Parameter(torch.randn((2 * window - 1) ** 2, self.heads) * 0.02)
        self.table.pace = 10.0  # type: ignore[attr-defined]  # scores are whole numbers, weights hundredths

    def numbers(self) -> Float[Tensor, "N H"]:
        return self.table


class LogOffsets(WindowPosition):
    """A small network from an offset, on a logarithmic scale, to a bias between 0 and 16 (Liu et al., 2022).

    Offsets are normalised by the side of the windows that the network was `trained` with.
    """

    offsets: Tensor
    hidden = 512

    def __init__(self, window: int, *, trained: int = 0, **sizes: int) -> None:
        super().__init__(window, **sizes)
        steps = 8 * torch.arange(1 - window, window) / max(1, (trained or window) - 1)
        steps = steps.sign() * (steps.abs() + 1).log2() / math.log2(8)
        self.register_buffer("offsets", torch.cartesian_prod(steps, steps), persistent=False)
        self.inner = nn.Linear(2, self.hidden)
        self.outer = nn.Linear(self.hidden, self.heads, bias=False)

    def numbers(self) -> Float[Tensor, "N H"]:
        return 16 * self.outer(F.relu(self.inner(self.offsets))).sigmoid()


class KeysUnbiased(nn.Linear):
    """Projects keys without a bias and values with one: a key bias would change cosines, unlike plain products."""

    @property
    def added(self) -> Float[Tensor, "O"]:
        """The bias of keys and values together: zeros for the keys."""
        keys, values = self.bias.chunk(2)
        return torch.cat([torch.zeros_like(keys), values])

    def forward(self, x: Float[Tensor, "*N I"]) -> Float[Tensor, "*N O"]:
        return F.linear(x, self.weight, self.added)


class WindowBlock(Block):
    """Attention inside windows, and feed-forward. Post-norms are inside the residual branch, not after the sum."""

    def __init__(self, config: BlockConfig, position: WindowPosition, *, path_dropout: float = 0.0) -> None:
        super().__init__(config, position, causal=False, cross=False)
        self.position = position
        self.paths = nn.ModuleDict({part: DropPath(path_dropout) for part in self.drops})
        if self.attention.kernel.plain_keys:
            self.attention.key_value = KeysUnbiased(config.dim, self.attention.key_value.out_features)

    def forward(self, x: Float[Tensor, "B T D"], windows: Windows, mask: Mask | None) -> Float[Tensor, "B T D"]:
        bias = self.position.bias(size=windows.size)
        x = self.add(x, "attention", lambda y: windows.join(self.attention(windows.split(y), mask=mask, bias=bias)))
        return self.add(x, "feedforward", self.feedforward)

    def add(self, x: Float[Tensor, "B T D"], part: str, layer: Callable[[Tensor], Tensor]) -> Float[Tensor, "B T D"]:
        norm = self.norms[part]
        y = self.drops[part](layer(norm(x)) if self.pre else norm(layer(x)))
        return x + self.paths[part](y)


class Merge(nn.Module):
    """Patch merging: four neighbouring tokens become one of twice the width; rows and columns halve."""

    part = "merging"
    """Its name in a table of costs."""

    def __init__(self, dim: int, *, norm_first: bool) -> None:
        super().__init__()
        self.norm_first = norm_first
        self.norm = build_norm("layer", 4 * dim if norm_first else 2 * dim, 1e-5)
        self.reduce = nn.Linear(4 * dim, 2 * dim, bias=False)

    def forward(self, x: Float[Tensor, "B T D"], grid: Grid) -> Float[Tensor, "B N E"]:
        x = fill(x.unflatten(1, grid), 2).unflatten(2, (-1, 2)).unflatten(1, (-1, 2))  # B rows 2 columns 2 D
        x = x.permute(0, 1, 3, 4, 2, 5).flatten(3).flatten(1, 2)  # the two of a column first
        return self.reduce(self.norm(x)) if self.norm_first else self.norm(self.reduce(x))


class Stage(nn.Module):
    """Blocks on one grid, every second one with shifted windows; `merge` then makes the next grid."""

    def __init__(self, blocks: list[WindowBlock], merge: Merge | None, *, window: int, planned: Grid | None) -> None:
        super().__init__()
        self.blocks, self.merge = nn.ModuleList(blocks), merge
        self.window, self.planned = window, planned

    def windows(self, grid: Grid) -> tuple[Windows, Windows]:
        """Return the windows of even and of odd blocks for a grid."""
        even, odd = (Windows.fit(grid, self.window, shifted=shifted, within=self.planned) for shifted in (False, True))
        return even, odd

    def forward(self, x: Float[Tensor, "B T D"], grid: Grid) -> tuple[Float[Tensor, "B N E"], Grid]:
        """Return the stage's output and its grid."""
        cuts = self.windows(grid)
        masks = [cut.mask(x.shape[0], x.device) for cut in cuts]
        for number, block in enumerate(self.blocks):
            x = block(x, cuts[number % 2], masks[number % 2])
        if self.merge is None:
            return x, grid
        return self.merge(x, grid), pooled(grid, 2)
