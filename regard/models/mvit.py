"""MViT: attention that pools (Fan et al., 2021; improved, Li et al., 2022).

Unlike swin.py: every token sees the whole image, but keys and values are pooled first; the first block of a stage pools
its queries too, which halves rows and columns, and widens the vectors.
pixels B C Y X → overlapping patches B T D → blocks → norm → mean over the last grid → labels
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn

from regard.config import check_positive
from regard.models.hierarchy import Hierarchy, HierarchyConfig
from regard.nn.block import BlockConfig
from regard.nn.grids import LayerGrids, PatchGrid
from regard.nn.patches import resample, sides
from regard.nn.pooling import Grid, PooledBlock, pooled, stretch
from regard.nn.stack import glorot
from regard.registry import register_model


@dataclass(frozen=True, kw_only=True, slots=True)
class MViTConfig(HierarchyConfig):
    """Sizes of the stages and their labels; the defaults are `mvit-s`, of the improved version."""

    patch: int = 4
    """Pixels from one patch to the next; patches overlap, their side is twice that less 1."""
    heads: int = 1
    """Attention heads of the first stage; each further one has twice as many."""
    depths: tuple[int, ...] = (1, 2, 11, 2)
    key_stride: int = 4
    """Pooling of keys and values in the first stage; each further one has half that, down to 1."""
    position: Literal["relative", "learned"] = "relative"
    """Positions: relative to each key, by row and column, or a learned vector for each patch (version 1). Both are
    interpolated for other sizes."""
    residual: bool = True
    """Add the pooled queries to the attention output; version 1 does not."""
    ffn_ratio: float = 4.0
    """Hidden width of the feed-forward layers, as a multiple of the width around them."""
    norm_eps: float = 1e-6

    def __post_init__(self) -> None:
        HierarchyConfig.__post_init__(self)
        check_positive(self, "key_stride")
        self.blocks(0)

    @classmethod
    def fitting(cls, rows: int, columns: int) -> dict[str, Any]:
        """Fields that suit images of this size; the keys of every stage are pooled to the grid of the last."""
        sizes = HierarchyConfig.fitting(rows, columns)
        return sizes | dict(key_stride=2 ** (len(sizes["depths"]) - 1))

    def key_strides(self, stage: int) -> int:
        """Return the pooling stride of a stage's keys and values."""
        return max(1, self.key_stride // 2**stage)

    def blocks(self, stage: int) -> BlockConfig:
        """Return the config of a stage's blocks."""
        dim = self.dim * 2**stage
        return BlockConfig(
            dim=dim, heads=self.heads * 2**stage, ffn_dim=int(self.ffn_ratio * dim), activation=self.activation,
            norm_eps=self.norm_eps, dropout=self.dropout, attention_dropout=self.attention_dropout,
            kernel=self.kernel, position="none",
        )  # fmt: skip


@register_model("mvit")
class MViT(Hierarchy):
    """A hierarchy of pooled blocks and, for labels, its head."""

    config: MViTConfig
    config_class = MViTConfig
    presets: ClassVar[dict[str, dict[str, Any]]] = {
        "tiny": dict(patch=2, dim=48, depths=(2, 2), key_stride=2),
        "mvit-t": dict(depths=(1, 2, 5, 2), path_dropout=0.1),
        "mvit-s": dict(path_dropout=0.1),
        "mvit-b": dict(depths=(2, 3, 16, 3), path_dropout=0.3),
    }

    def __init__(self, config: MViTConfig) -> None:
        super().__init__(config)
        self.grid = pooled(sides(config.image), config.patch)
        self.blocks = nn.ModuleList(self.new_blocks())
        glorot(self.blocks)
        size = 2 * config.patch - 1
        self.patches = nn.Conv2d(config.channels, config.dim, size, stride=config.patch, padding=size // 2)
        learned = config.position == "learned"
        self.table = nn.Parameter(torch.randn(config.tokens, config.dim) * 0.02) if learned else None

    def new_blocks(self) -> list[PooledBlock]:
        config, blocks, grid = self.config, list[PooledBlock](), self.grid
        for stage, rates in enumerate(config.rates):
            sizes, keys = config.blocks(stage), config.key_strides(stage)
            for number, rate in enumerate(rates):
                first = stage > 0 and number == 0
                strides = (2 if first else 1, keys)
                blocks.append(
                    PooledBlock(
                        sizes, sizes.dim // 2 if first else sizes.dim, strides=strides,
                        planned=grid if config.position == "relative" else None, residual=config.residual,
                        path_dropout=rate,
                    )
                )  # fmt: skip
                grid = pooled(grid, strides[0])
        return blocks

    def resized(self, base: "MViT", name: str, tensor: Tensor) -> Tensor:
        """Return a tensor of the model that this one starts from; positions are interpolated to its own grids."""
        if name == "table":
            return resample(tensor.float(), base.grid, self.grid)
        relative = name.endswith((".offsets.rows", ".offsets.columns"))
        return stretch(tensor.float(), len(self.get_parameter(name))) if relative else tensor

    def tokens(self, pixels: Float[Tensor, "B C Y X"]) -> tuple[Float[Tensor, "B T D"], Grid]:
        """Return a vector for each patch, and their grid."""
        x = self.patches(pixels)
        grid, x = (x.shape[2], x.shape[3]), x.flatten(2).mT
        if self.table is not None:
            x = x + resample(self.table, self.grid, grid)
        return self.dropout(x), grid

    def layer_grids(self, patches: PatchGrid) -> Iterator[LayerGrids]:
        """The grids of each block's pooled queries and keys."""
        for block in self.blocks:
            queries, keys = (patches.coarser(stride) for stride in block.attention.strides)  # type: ignore[union-attr]
            yield LayerGrids(queries=queries, keys=keys)
            patches = queries

    def cells(self, pixels: Float[Tensor, "B C Y X"]) -> Float[Tensor, "B T D"]:
        x, grid = self.tokens(pixels)
        for block in self.blocks:
            x, grid = block(x, grid)
        return x
