"""Swin: attention in shifted windows, and patch merging (Liu et al., 2021; version 2, 2022).

Unlike vit.py: attention stays inside windows, every second block shifts them, positions are offsets inside a window,
and between stages four tokens become one: cost grows with the area of an image, not with its square.
pixels B C Y X → patches B T D → stages, each with half the rows and columns and twice the width → norm → mean → labels
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from regard.config import check_positive
from regard.models.hierarchy import Hierarchy, HierarchyConfig
from regard.nn.block import BlockConfig, NormPlace
from regard.nn.grids import LayerGrids, PatchGrid
from regard.nn.norm import build_norm
from regard.nn.patches import PatchEmbedding, Side, grid_of, resample, sides
from regard.nn.stack import glorot
from regard.nn.windows import Grid, LearnedOffsets, LogOffsets, Merge, Stage, WindowBlock, WindowPosition, Windows
from regard.registry import register_model


@dataclass(frozen=True, kw_only=True, slots=True)
class SwinConfig(HierarchyConfig):
    """Sizes of the stages and their labels; the defaults are `swin-t`."""

    heads: tuple[int, ...] = (3, 6, 12, 24)
    """Attention heads of each stage."""
    window: int = 7
    """Tokens of a window's side."""
    ffn_ratio: float = 4.0
    """Hidden width of the feed-forward layers, as a multiple of the width around them."""
    norm_place: NormPlace = "pre"
    """Norm before each part, or after it, before the residual is added (version 2)."""
    kernel: str = "full"
    """Attention kernel: full, or cosine (version 2)."""
    offsets: Literal["learned", "log"] = "learned"
    """Window-relative positions: a learned bias for each offset, or a network on its logarithm (version 2)."""
    trained_windows: tuple[int, ...] = ()
    """Window sides of each stage that the position network was trained with, if different (0: the same)."""

    def __post_init__(self) -> None:
        HierarchyConfig.__post_init__(self)
        check_positive(self, "window")
        if len(self.depths) != len(self.heads):
            raise ValueError(f"depths={self.depths} and heads={self.heads} must have a positive number for each stage")
        if self.trained_windows and len(self.trained_windows) != len(self.depths):
            raise ValueError(
                f"trained_windows={self.trained_windows} must have a number for each of the stages, or none"
            )
        grid_of(self.image, self.patch)
        for number in range(len(self.depths)):
            self.blocks(number)

    @classmethod
    def fitting(cls, rows: int, columns: int) -> dict[str, Any]:
        """Fields that suit images of this size; a window covers the whole last grid, up to 8 tokens a side."""
        sizes = HierarchyConfig.fitting(rows, columns)
        stages, grid = len(sizes["depths"]), -(-min(rows, columns) // sizes["patch"])
        return sizes | dict(heads=tuple(3 * 2**i for i in range(stages)), window=min(8, -(-grid // 2 ** (stages - 1))))

    def blocks(self, stage: int) -> BlockConfig:
        """Return the config of a stage's blocks."""
        dim = self.dim * 2**stage
        return BlockConfig(
            dim=dim, heads=self.heads[stage], ffn_dim=int(self.ffn_ratio * dim), activation=self.activation,
            norm_place=self.norm_place, norm_eps=self.norm_eps, dropout=self.dropout,
            attention_dropout=self.attention_dropout, kernel=self.kernel, position="none", max_len=self.window**2,
        )  # fmt: skip

    def planned(self, stage: int) -> Grid | None:
        """Return the grid that a position network is built for, or None for learned offsets, which serve any grid."""
        rows = grid_of(self.image, self.patch)[0] // 2**stage
        return (rows, rows) if self.offsets == "log" else None

    def without_labels(self) -> "SwinConfig":
        """The config to fine-tune this model with; networks of offsets keep the scale of the windows they know."""
        return replace(
            self, labels=(), trained_windows=self.known_windows if self.offsets == "log" else self.trained_windows
        )

    @property
    def idle(self) -> dict[str, str]:
        """Fields without effect, and why."""
        return {"trained_windows": "offsets learned"} if self.offsets == "learned" else {}

    @property
    def known_windows(self) -> tuple[int, ...]:
        """Window sides of each stage that the position networks were trained with."""
        own = [
            Windows.fit(self.planned(stage) or (self.window,) * 2, self.window).size
            for stage in range(len(self.depths))
        ]
        return tuple(was or now for was, now in zip(self.trained_windows or [0] * len(own), own, strict=True))


V2: dict[str, Any] = dict(norm_place="post", kernel="cosine", offsets="log")
V2_SIZES: dict[str, Any] = V2 | dict(image=256, window=8)
TINY: dict[str, Any] = dict(patch=2, dim=48, depths=(2, 2), heads=(3, 6), window=4)
SMALL: dict[str, Any] = dict(depths=(2, 2, 18, 2), path_dropout=0.3)
BASE: dict[str, Any] = dict(dim=128, depths=(2, 2, 18, 2), heads=(4, 8, 16, 32), path_dropout=0.5)


@register_model("swin")
class Swin(Hierarchy):
    """A hierarchy of stages and, for labels, its head."""

    config: SwinConfig
    config_class = SwinConfig
    presets: ClassVar[dict[str, dict[str, Any]]] = {
        "tiny": TINY,
        "tiny-v2": TINY | V2,
        "swin-t": dict(path_dropout=0.2),
        "swin-s": SMALL,
        "swin-b": BASE,
        "swin-l": BASE | dict(dim=192, heads=(6, 12, 24, 48)),
        "swinv2-t": V2_SIZES | dict(path_dropout=0.2),
        "swinv2-s": V2_SIZES | SMALL,
        "swinv2-b": V2_SIZES | BASE,
    }

    def __init__(self, config: SwinConfig) -> None:
        super().__init__(config)
        last = len(config.depths) - 1
        self.stages = nn.ModuleList(self.new_stage(number, merges=number < last) for number in range(last + 1))
        glorot(self.stages)
        self.patches = PatchEmbedding(config.channels, config.patch, config.dim)
        self.patch_norm = build_norm("layer", config.dim, 1e-5)
        assert self.patches.project.bias is not None
        reach = 1 / (config.patch * config.channels**0.5)
        nn.init.uniform_(self.patches.project.bias, -reach, reach)  # the norm would reduce a single pixel to its sign

    def new_stage(self, number: int, *, merges: bool) -> Stage:
        config, sizes = self.config, self.config.blocks(number)
        return Stage(
            [WindowBlock(sizes, self.new_position(number), path_dropout=rate) for rate in config.rates[number]],
            Merge(sizes.dim, norm_first=config.norm_place == "pre") if merges else None,
            window=config.window,
            planned=config.planned(number),
        )

    def new_position(self, number: int) -> WindowPosition:
        """Return a new position scheme for a block of a stage."""
        config, sizes = self.config, self.config.blocks(number)
        options: dict[str, int] = dict(heads=sizes.heads, head_dim=sizes.head_size)
        planned = config.planned(number)
        if planned is None:
            return LearnedOffsets(config.window, **options)
        trained = config.trained_windows[number] if config.trained_windows else 0
        return LogOffsets(Windows.fit(planned, config.window).size, trained=trained, **options)

    def resized(self, base: "Swin", name: str, tensor: Tensor) -> Tensor:
        """Return a tensor of the model that this one starts from; learned offsets are interpolated to its windows."""
        if not name.endswith(".position.table"):
            return tensor
        was, now = (2 * model.config.window - 1 for model in (base, self))
        return resample(tensor.float(), (was, was), (now, now))

    def tokens(self, pixels: Float[Tensor, "B C Y X"]) -> tuple[Float[Tensor, "B T D"], Grid]:
        """Return a vector for each patch, and their grid; the image is padded with zeros to whole patches."""
        patch = self.config.patch
        x = self.patches(F.pad(pixels, (0, -pixels.shape[3] % patch, 0, -pixels.shape[2] % patch)))
        grid = (x.shape[2], x.shape[3])
        return self.dropout(self.patch_norm(x.flatten(2).mT)), grid

    def cells(self, pixels: Float[Tensor, "B C Y X"]) -> Float[Tensor, "B T D"]:
        x, grid = self.tokens(pixels)
        for stage in self.stages:
            x, grid = stage(x, grid)
        return x

    def layer_grids(self, patches: PatchGrid) -> Iterator[LayerGrids]:
        """The grid of each block, and the windows that it is cut into."""
        for stage, depth in zip(self.stages, self.config.depths, strict=True):
            cuts = stage.windows(patches.grid)  # type: ignore[operator]
            for block in range(depth):
                yield LayerGrids(queries=patches, keys=patches, windows=cuts[block % 2])
            patches = patches.coarser(2)

    def windows(self, image: Side) -> list[Windows]:
        """Return the windows of each block for an image of that size, in the order of `regard.look`'s layers."""
        return [grids.windows for grids in self.layer_grids(self.patch_grid(sides(image))) if grids.windows is not None]
