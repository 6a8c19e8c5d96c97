"""Swin: windows that shift, and grids that halve (Liu et al., 2021; version 2, 2022).

Unlike vit.py: attention stays inside windows, every second block shifts them, positions are offsets inside a window,
and between stages four tokens become one: cost grows with the area of an image, not with its square.
pixels B C Y X → patches B T D → stages, each with half the rows and columns and twice the width → norm → mean → labels
"""

import math
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from regard.nn.block import Activation, BlockConfig, NormPlace
from regard.nn.dropout import dropout
from regard.nn.heads import LabelHead
from regard.nn.norm import build_norm
from regard.nn.patches import PatchEmbedding, Side, grid_of, sides
from regard.nn.pooling import pooled
from regard.nn.stack import glorot
from regard.nn.windows import Grid, LearnedOffsets, LogOffsets, Merge, Stage, WindowBlock, WindowPosition, Windows
from regard.registry import register_model


@dataclass(frozen=True, kw_only=True, slots=True)
class SwinConfig:
    """Sizes of the stages and their labels; the defaults are `swin-t`."""

    image: Side = 224
    """Pixels of a side that windows are planned for, or rows,columns; images of other sizes are read too."""
    channels: int = 3
    """Numbers of a pixel: 3 for colours, 1 for grey."""
    patch: int = 4
    """Pixels of a patch's side."""
    dim: int = 96
    """Width of the first stage; each further one has twice that."""
    depths: tuple[int, ...] = (2, 2, 6, 2)
    """Blocks of each stage."""
    heads: tuple[int, ...] = (3, 6, 12, 24)
    """Attention heads of each stage."""
    window: int = 7
    """Tokens of a window's side."""
    ffn_ratio: float = 4.0
    """Hidden width of the feed-forward layers, as a multiple of the width around them."""
    activation: Activation = "gelu"
    """Of the feed-forward layers."""
    norm_place: NormPlace = "pre"
    """Norm before each part, or behind it, before it is added (version 2)."""
    norm_eps: float = 1e-5
    """Added to the variance under the root."""
    kernel: str = "full"
    """How weights are computed: full, or cosine (version 2)."""
    offsets: Literal["learned", "log"] = "learned"
    """What a place in a window means: a learned number for each offset, or a network's of its logarithm (version 2)."""
    trained_windows: tuple[int, ...] = ()
    """Windows of each stage that such a network was trained with, if others (0: the same)."""
    dropout: float = 0.0
    """On the embeddings and on what each part adds to the residual stream."""
    attention_dropout: float = 0.0
    """On the attention weights."""
    path_dropout: float = 0.0
    """Chance that the last block adds nothing to an example's stream; it rises from 0 at the first."""
    labels: tuple[str, ...] = ()
    """Names of the classes; without any, an image becomes a vector."""

    def __post_init__(self) -> None:
        for name in ("channels", "window"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name}={getattr(self, name)} must be at least 1")
        if not self.depths or min(self.depths) < 1 or len(self.depths) != len(self.heads):
            raise ValueError(f"depths={self.depths} and heads={self.heads} must have a positive number for each stage")
        if self.trained_windows and len(self.trained_windows) != len(self.depths):
            raise ValueError(
                f"trained_windows={self.trained_windows} must have a number for each of the stages, or none"
            )
        if not 0 <= self.path_dropout < 1:
            raise ValueError(f"path_dropout={self.path_dropout} is not in [0, 1)")
        grid_of(self.image, self.patch)
        for number in range(len(self.depths)):
            self.blocks(number)

    def blocks(self, stage: int) -> BlockConfig:
        """What the blocks of a stage are."""
        dim = self.dim * 2**stage
        return BlockConfig(
            dim=dim, heads=self.heads[stage], ffn_dim=int(self.ffn_ratio * dim), activation=self.activation,
            norm_place=self.norm_place, norm_eps=self.norm_eps, dropout=self.dropout,
            attention_dropout=self.attention_dropout, kernel=self.kernel, position="none", max_len=self.window**2,
        )  # fmt: skip

    @property
    def tokens(self) -> int:
        """Patches of an image, before any are merged."""
        return math.prod(pooled(sides(self.image), self.patch))

    def planned(self, stage: int) -> Grid | None:
        """The grid that a network of offsets is made for; learned ones serve any."""
        rows = grid_of(self.image, self.patch)[0] // 2**stage
        return (rows, rows) if self.offsets == "log" else None


V2: dict[str, Any] = dict(norm_place="post", kernel="cosine", offsets="log", image=256, window=8)
SMALL: dict[str, Any] = dict(depths=(2, 2, 18, 2), path_dropout=0.3)
BASE: dict[str, Any] = dict(dim=128, depths=(2, 2, 18, 2), heads=(4, 8, 16, 32), path_dropout=0.5)


@register_model("swin")
class Swin(nn.Module):
    """A hierarchy of stages and, for labels, its head."""

    config_class = SwinConfig
    presets: ClassVar[dict[str, dict[str, Any]]] = {
        "swin-t": dict(path_dropout=0.2),
        "swin-s": SMALL,
        "swin-b": BASE,
        "swin-l": BASE | dict(dim=192, heads=(6, 12, 24, 48)),
        "swinv2-t": V2 | dict(path_dropout=0.2),
        "swinv2-s": V2 | SMALL,
        "swinv2-b": V2 | BASE,
    }

    def __init__(self, config: SwinConfig) -> None:
        super().__init__()
        self.config = config
        last = len(config.depths) - 1
        self.stages = nn.ModuleList(self.new_stage(number, merges=number < last) for number in range(last + 1))
        self.norm = build_norm("layer", config.dim * 2**last, config.norm_eps)
        glorot(self)
        self.head = LabelHead(config.dim * 2**last, len(config.labels), dropout=0.0) if config.labels else None
        self.patches = PatchEmbedding(config.channels, config.patch, config.dim)
        self.patch_norm = build_norm("layer", config.dim, 1e-5)

    def new_stage(self, number: int, *, merges: bool) -> Stage:
        config, sizes = self.config, self.config.blocks(number)
        before, blocks = sum(config.depths[:number]), sum(config.depths)
        rates = torch.linspace(0, config.path_dropout, blocks, device="cpu").tolist()[before:]
        return Stage(
            [WindowBlock(sizes, self.new_position(number), path_dropout=rate)
             for rate in rates[: config.depths[number]]],
            Merge(sizes.dim, norm_first=config.norm_place == "pre") if merges else None,
            window=config.window,
            planned=config.planned(number),
        )  # fmt: skip

    def new_position(self, number: int) -> WindowPosition:
        """Each block has its own."""
        config, sizes = self.config, self.config.blocks(number)
        how: dict[str, int] = dict(heads=sizes.heads, head_dim=sizes.head_size)
        planned = config.planned(number)
        if planned is None:
            return LearnedOffsets(config.window, **how)
        trained = config.trained_windows[number] if config.trained_windows else 0
        return LogOffsets(Windows.fit(planned, config.window).size, trained=trained, **how)

    def tokens(self, pixels: Float[Tensor, "B C Y X"]) -> tuple[Float[Tensor, "B T D"], Grid]:
        """A vector for each patch, and their grid; zeros fill up what the patch does not divide."""
        patch = self.config.patch
        x = self.patches(F.pad(pixels, (0, -pixels.shape[3] % patch, 0, -pixels.shape[2] % patch)))
        grid = (x.shape[2], x.shape[3])
        return dropout(self.patch_norm(x.flatten(2).mT), self.config.dropout, self.training), grid

    def features(self, pixels: Float[Tensor, "B C Y X"]) -> Float[Tensor, "B T D"]:
        """A vector for each place of the last grid."""
        x, grid = self.tokens(pixels)
        for stage in self.stages:
            x, grid = stage(x, grid)
        return self.norm(x)

    def embed(self, pixels: Float[Tensor, "B C Y X"]) -> Float[Tensor, "B D"]:
        """One vector for each image."""
        return self.features(pixels).mean(1)

    def forward(self, pixels: Float[Tensor, "B C Y X"]) -> Float[Tensor, "B N"]:
        """Scores over labels; without labels the vector of each image."""
        x = self.embed(pixels)
        return x if self.head is None else self.head(x)

    def windows(self, image: Side) -> list[Windows]:
        """How each block cuts an image of that size, in the order of `regard.look`'s layers."""
        grid, found = pooled(sides(image), self.config.patch), list[Windows]()
        for depth, stage in zip(self.config.depths, self.stages, strict=True):
            cuts = stage.windows(grid)  # type: ignore[operator]
            found += [cuts[block % 2] for block in range(depth)]
            grid = pooled(grid, 2)
        return found
