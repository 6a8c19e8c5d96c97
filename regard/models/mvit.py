"""MViT: attention that pools (Fan et al., 2021; improved, Li et al., 2022).

Unlike swin.py: every token sees the whole image, but keys and values are pooled first; the first block of a stage pools
its queries too, which halves rows and columns, and widens the vectors.
pixels B C Y X → overlapping patches B T D → blocks → norm → mean over the last grid → labels
"""

import math
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn

from regard.nn.block import Activation, BlockConfig
from regard.nn.dropout import dropout
from regard.nn.heads import LabelHead
from regard.nn.norm import build_norm
from regard.nn.patches import Side, resample, sides
from regard.nn.pooling import Grid, PooledBlock, pooled
from regard.nn.stack import glorot
from regard.registry import register_model


@dataclass(frozen=True, kw_only=True, slots=True)
class MViTConfig:
    """Sizes of the stages and their labels; the defaults are `mvit-s`, of the improved version."""

    image: Side = 224
    """Pixels of a side that positions are learned for, or rows,columns; they are interpolated for other sizes."""
    channels: int = 3
    """Numbers of a pixel: 3 for colours, 1 for grey."""
    patch: int = 4
    """Pixels from one patch to the next; patches overlap, their side is twice that less 1."""
    dim: int = 96
    """Width of the first stage; each further one has twice that."""
    heads: int = 1
    """Attention heads of the first stage; each further one has twice as many."""
    depths: tuple[int, ...] = (1, 2, 11, 2)
    """Blocks of each stage."""
    key_stride: int = 4
    """Pooling of keys and values in the first stage; each further one has half that, down to 1."""
    position: Literal["relative", "learned"] = "relative"
    """Where a token stands: relative to each key, by row and column, or a learned vector for each place (version 1)."""
    residual: bool = True
    """Adds the pooled queries to what attention mixed; version 1 does not."""
    ffn_ratio: float = 4.0
    """Hidden width of the feed-forward layers, as a multiple of the width around them."""
    activation: Activation = "gelu"
    """Of the feed-forward layers."""
    norm_eps: float = 1e-6
    """Added to the variance under the root."""
    kernel: str = "full"
    """How weights are computed."""
    dropout: float = 0.0
    """On the embeddings and on what each part adds to the residual stream."""
    attention_dropout: float = 0.0
    """On the attention weights."""
    path_dropout: float = 0.0
    """Chance that the last block adds nothing to an example's stream; it rises from 0 at the first."""
    labels: tuple[str, ...] = ()
    """Names of the classes; without any, an image becomes a vector."""

    def __post_init__(self) -> None:
        for name in ("channels", "patch", "key_stride"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name}={getattr(self, name)} must be at least 1")
        if not self.depths or min(self.depths) < 1:
            raise ValueError(f"depths={self.depths} must have a positive number for each stage")
        if not 0 <= self.path_dropout < 1:
            raise ValueError(f"path_dropout={self.path_dropout} is not in [0, 1)")
        sides(self.image)
        self.blocks(0)

    @property
    def tokens(self) -> int:
        """Patches of an image, before any are pooled."""
        return math.prod(pooled(sides(self.image), self.patch))

    def key_strides(self, stage: int) -> int:
        """How a stage pools its keys."""
        return max(1, self.key_stride // 2**stage)

    def blocks(self, stage: int) -> BlockConfig:
        """What the blocks of a stage are."""
        dim = self.dim * 2**stage
        return BlockConfig(
            dim=dim, heads=self.heads * 2**stage, ffn_dim=int(self.ffn_ratio * dim), activation=self.activation,
            norm_eps=self.norm_eps, dropout=self.dropout, attention_dropout=self.attention_dropout,
            kernel=self.kernel, position="none",
        )  # fmt: skip


@register_model("mvit")
class MViT(nn.Module):
    """A hierarchy of pooled blocks and, for labels, its head."""

    config_class = MViTConfig
    presets: ClassVar[dict[str, dict[str, Any]]] = {
        "mvit-t": dict(depths=(1, 2, 5, 2), path_dropout=0.1),
        "mvit-s": dict(path_dropout=0.1),
        "mvit-b": dict(depths=(2, 3, 16, 3), path_dropout=0.3),
    }

    def __init__(self, config: MViTConfig) -> None:
        super().__init__()
        self.config, self.grid = config, pooled(sides(config.image), config.patch)
        width = config.dim * 2 ** (len(config.depths) - 1)
        self.blocks = nn.ModuleList(self.new_blocks())
        self.norm = build_norm("layer", width, config.norm_eps)
        glorot(self)
        self.head = LabelHead(width, len(config.labels), dropout=0.0) if config.labels else None
        size = 2 * config.patch - 1
        self.patches = nn.Conv2d(config.channels, config.dim, size, stride=config.patch, padding=size // 2)
        places = self.grid[0] * self.grid[1]
        learned = config.position == "learned"
        self.table = nn.Parameter(torch.randn(places, config.dim) * 0.02) if learned else None

    def new_blocks(self) -> list[PooledBlock]:
        config, found, grid = self.config, list[PooledBlock](), self.grid
        rates = torch.linspace(0, config.path_dropout, sum(config.depths), device="cpu").tolist()
        for stage, depth in enumerate(config.depths):
            sizes, keys = config.blocks(stage), config.key_strides(stage)
            for number in range(depth):
                first = stage > 0 and number == 0
                strides = (2 if first else 1, keys)
                found.append(
                    PooledBlock(
                        sizes, sizes.dim // 2 if first else sizes.dim, strides=strides,
                        planned=grid if config.position == "relative" else None, residual=config.residual,
                        path_dropout=rates[len(found)],
                    )
                )  # fmt: skip
                grid = pooled(grid, strides[0])
        return found

    def tokens(self, pixels: Float[Tensor, "B C Y X"]) -> tuple[Float[Tensor, "B T D"], Grid]:
        """A vector for each patch, and their grid."""
        if pixels.shape[1] != self.config.channels:
            raise ValueError(f"images have {pixels.shape[1]} channels, the model reads {self.config.channels}")
        x = self.patches(pixels)
        grid, x = (x.shape[2], x.shape[3]), x.flatten(2).mT
        if self.table is not None:
            x = x + resample(self.table, self.grid, grid)
        return dropout(x, self.config.dropout, self.training), grid

    def features(self, pixels: Float[Tensor, "B C Y X"]) -> Float[Tensor, "B T D"]:
        """A vector for each place of the last grid."""
        x, grid = self.tokens(pixels)
        for block in self.blocks:
            x, grid = block(x, grid)
        return self.norm(x)

    def embed(self, pixels: Float[Tensor, "B C Y X"]) -> Float[Tensor, "B D"]:
        """One vector for each image."""
        return self.features(pixels).mean(1)

    def forward(self, pixels: Float[Tensor, "B C Y X"]) -> Float[Tensor, "B N"]:
        """Scores over labels; without labels the vector of each image."""
        x = self.embed(pixels)
        return x if self.head is None else self.head(x)
