"""Attention that pools queries, keys and values on their grid (MViT: Fan et al., 2021; improved, Li et al., 2022).

Pooling queries makes the grid smaller, pooling keys and values makes attending to it cheaper.
"""

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from regard.nn.attention import Attention, AttentionConfig
from regard.nn.block import BlockConfig
from regard.nn.dropout import Dropout, DropPath
from regard.nn.feedforward import FeedForward
from regard.nn.norm import build_norm

Grid = tuple[int, int]


def pooled(grid: Grid, stride: int) -> Grid:
    """Return the rows and columns of a grid after pooling with a stride."""
    return -(-grid[0] // stride), -(-grid[1] // stride)


def stretch(table: Float[Tensor, "N K"], size: int) -> Float[Tensor, "M K"]:
    """Interpolate a table of offsets along one axis to another size."""
    return table if len(table) == size else F.interpolate(table.T[None], size=size, mode="linear")[0].T


class Pool(nn.Module):
    """A depthwise 3 × 3 convolution, with weights shared by all heads, and a norm."""

    def __init__(self, head_dim: int, stride: int, eps: float) -> None:
        super().__init__()
        self.convolve = nn.Conv2d(head_dim, head_dim, 3, stride=stride, padding=1, groups=head_dim, bias=False)
        self.norm = build_norm("layer", head_dim, eps)

    def forward(self, x: Float[Tensor, "B H T K"], grid: Grid) -> Float[Tensor, "B H S K"]:
        maps = x.flatten(0, 1).mT.unflatten(2, grid)  # B·H K Y X
        return self.norm(self.convolve(maps).flatten(2).mT.unflatten(0, x.shape[:2]))


class GridOffsets(nn.Module):
    """Decomposed relative positions: q · (row's vector + column's vector), by how far down and right the key lies.

    The products are appended to q, and one-hot vectors of row and column to each key, so that q · k includes them: the
    kernel needs no bias, and none is ever materialised for all pairs. Tables are interpolated for other grids than
    `planned`.
    """

    def __init__(self, planned: Grid, head_dim: int) -> None:
        super().__init__()
        self.rows, self.columns = (nn.Parameter(torch.randn(2 * side - 1, head_dim) * 0.02) for side in planned)

    def along(self, table: Float[Tensor, "N K"], queries: int, keys: int) -> Float[Tensor, "Q J K"]:
        """Return a vector for each pair of coordinates on one axis; the coarser axis counts in steps of the finer."""
        fine = max(queries, keys)
        table = stretch(table, 2 * fine - 1)
        i, j = torch.arange(queries, device=table.device)[:, None], torch.arange(keys, device=table.device)
        return table[(fine * keys * i + fine * queries * (keys - 1 - j)) // (queries * keys)]

    def extend(
        self, q: Float[Tensor, "B H T K"], k: Float[Tensor, "B H S K"], at: Grid, keys_at: Grid, scale: float
    ) -> tuple[Float[Tensor, "B H T E"], Float[Tensor, "B H S E"]]:
        """Return longer queries and keys, whose plain product is q · k · scale plus the positions' part."""
        on_grid = q.unflatten(2, at)  # B H Y X K
        down = torch.einsum("bhyxk,yjk->bhyxj", on_grid, self.along(self.rows, at[0], keys_at[0]))
        right = torch.einsum("bhyxk,xjk->bhyxj", on_grid, self.along(self.columns, at[1], keys_at[1]))
        rows, columns = (torch.eye(side, dtype=k.dtype, device=k.device) for side in keys_at)
        one_hot = torch.cat([rows.repeat_interleave(keys_at[1], 0), columns.repeat(keys_at[0], 1)], dim=1)
        return (
            torch.cat([on_grid, down, right], dim=-1).flatten(2, 3),
            torch.cat([k * scale, one_hot.expand(*k.shape[:3], -1)], dim=-1),
        )


class PooledAttention(Attention):
    """project → split heads → pool → positions → kernel → add the pooled queries → merge → project.

    `inputs` is the width of the input; that of the output, `dim`, may be larger.
    """

    def __init__(
        self, config: AttentionConfig, inputs: int, *, strides: tuple[int, int], planned: Grid | None, residual: bool,
        eps: float,
    ) -> None:  # fmt: skip
        super().__init__(config)
        self.query = nn.Linear(inputs, self.heads * self.head_dim)
        self.strides, self.residual = strides, residual
        whole = dict(query=strides[0], key=strides[1], value=strides[1])
        self.pools = nn.ModuleDict({name: Pool(self.head_dim, stride, eps) for name, stride in whole.items()})
        fine = pooled(planned, min(strides)) if planned is not None else None
        self.offsets = GridOffsets(fine, self.head_dim) if fine is not None else None
        self.scale = self.head_dim**-0.5 if self.offsets is None else 1.0  # `extend` scales the keys
        if self.offsets is not None and not (self.kernel.exact and self.kernel.reference):
            raise ValueError(
                f"kernel={config.kernel!r} does not keep q · k, and relative positions are part of that product; "
                "use kernel=full or position=learned"
            )

    def project(
        self, x: Float[Tensor, "B T I"], context: None = None, *, start: int = 0, grid: Grid = (1, 1)
    ) -> tuple[Float[Tensor, "B H N E"], Float[Tensor, "B H S E"], Float[Tensor, "B H S E"]]:
        q, k, v = (self.pools[name](y, grid) for name, y in zip(self.pools, super().project(x), strict=True))
        if self.offsets is not None:
            at, keys_at = (pooled(grid, stride) for stride in self.strides)
            q, k = self.offsets.extend(q, k, at, keys_at, self.head_dim**-0.5)
            v = F.pad(v, (0, sum(keys_at)))  # PyTorch's fused kernel wants values as long as keys
        return q, k, v

    def merge(self, mixed: Float[Tensor, "B H N E"], q: Float[Tensor, "B H N E"]) -> Float[Tensor, "B N D"]:
        mixed = mixed[..., : self.head_dim]
        return super().merge(mixed + q[..., : self.head_dim] if self.residual else mixed, q)


class PooledBlock(nn.Module):
    """Pooled attention and feed-forward. Where attention pools or widens, so does the residual stream."""

    def __init__(
        self, config: BlockConfig, inputs: int, *, strides: tuple[int, int], planned: Grid | None, residual: bool,
        path_dropout: float,
    ) -> None:  # fmt: skip
        super().__init__()
        self.stride = strides[0]
        self.drops = nn.ModuleDict({part: Dropout(config.dropout) for part in ("attention", "feedforward")})
        self.paths = nn.ModuleDict({part: DropPath(path_dropout) for part in self.drops})
        attention = AttentionConfig(
            dim=config.dim, heads=config.heads, context_dim=inputs, dropout=config.attention_dropout,
            kernel=config.kernel, needs=frozenset({"crosses"}),
        )  # fmt: skip
        options = dict(strides=strides, planned=planned, residual=residual, eps=config.norm_eps)
        self.attention = PooledAttention(attention, inputs, **options)  # type: ignore[arg-type]
        self.feedforward = FeedForward(config.dim, config.ffn_dim, activation=config.activation, bias=True)
        widths = dict(attention=inputs, feedforward=config.dim)
        self.norms = nn.ModuleDict({part: build_norm("layer", dim, config.norm_eps) for part, dim in widths.items()})
        self.widen = nn.Linear(inputs, config.dim) if inputs != config.dim else None

    def forward(self, x: Float[Tensor, "B T I"], grid: Grid) -> tuple[Float[Tensor, "B N D"], Grid]:
        """Return the block's output and its grid."""
        y = self.norms["attention"](x)
        x = self.skip(x if self.widen is None else self.widen(y), grid)
        x = x + self.drop(self.attention(y, grid=grid), "attention")
        x = x + self.drop(self.feedforward(self.norms["feedforward"](x)), "feedforward")
        return x, pooled(grid, self.stride)

    def skip(self, x: Float[Tensor, "B T D"], grid: Grid) -> Float[Tensor, "B N D"]:
        """Max-pool the residual stream to the grid of the pooled queries."""
        if self.stride == 1:
            return x
        size = self.stride + 1
        return F.max_pool2d(x.mT.unflatten(2, grid), size, self.stride, padding=size // 2).flatten(2).mT

    def drop(self, x: Float[Tensor, "B N D"], part: str) -> Float[Tensor, "B N D"]:
        return self.paths[part](self.drops[part](x))
