"""A CNN with attention: convolutions are local, self-attention on their feature maps is global.

Unlike swin.py: tokens are the cells of a feature map of residual blocks (He et al., 2016), and self-attention is
inserted between those of the last stages (Wang et al., 2018); positions come from the convolutions. Without attention,
a plain CNN.
pixels B C Y X → maps B D Y X → stages, each with half the rows and columns and twice the width → norm → mean → labels
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from jaxtyping import Float
from torch import Tensor, nn

from regard.models.hierarchy import Hierarchy, HierarchyConfig
from regard.nn.attention import AttentionConfig
from regard.nn.convolution import ImageAttention, ResidualBlock
from regard.nn.feedforward import GATED
from regard.nn.grids import LayerGrids, PatchGrid
from regard.nn.stack import glorot
from regard.registry import register_model


@dataclass(frozen=True, kw_only=True, slots=True)
class CNNAttentionConfig(HierarchyConfig):
    """Sizes of the stages and their labels."""

    patch: int = 4
    """Pixels from one cell of the first feature map to the next."""
    dim: int = 64
    """Channels of the first stage; each further one has twice as many."""
    depths: tuple[int, ...] = (2, 2, 2, 2)
    """Residual blocks of each stage."""
    attention: int = 1
    """Number of stages, from the last, with self-attention after each block; 0 is a plain CNN."""
    heads: int = 8
    """Attention heads in the last stage."""

    def __post_init__(self) -> None:
        HierarchyConfig.__post_init__(self)
        if not 0 <= self.attention <= len(self.depths):
            raise ValueError(f"attention={self.attention} is no number of stages; there are {len(self.depths)}")
        if self.activation in GATED:
            raise ValueError(
                f"activation={self.activation} has a gate, which convolutions do not support; use gelu or relu"
            )
        for stage in range(len(self.depths)):
            self.attention_for(stage)

    @classmethod
    def fitting(cls, rows: int, columns: int) -> dict[str, Any]:
        """Fields that suit images of this size: every pixel of a small one, and one residual block a stage.

        Cells of single pixels are worth more than channels: with a side of up to 40 there are half as many of these.
        """
        if 20 <= min(rows, columns) <= max(rows, columns) <= 40:
            return dict(patch=1, depths=(1, 1, 1), dim=16)
        return HierarchyConfig.fitting(rows, columns, finest=20, blocks=1)

    @property
    def idle(self) -> dict[str, str]:
        """Fields without effect, and why."""
        return {} if self.attention else dict.fromkeys(("heads", "kernel", "attention_dropout"), "attention 0")

    def attention_for(self, stage: int) -> AttentionConfig | None:
        """Return the attention config of a stage's blocks, or None: heads have one size throughout."""
        before = len(self.depths) - 1 - stage
        if before >= self.attention:
            return None
        sizes: dict[str, Any] = dict(dim=self.dim * 2**stage, heads=max(1, self.heads // 2**before))
        return AttentionConfig(**sizes, dropout=self.attention_dropout, kernel=self.kernel)


@register_model("cnn-attention")
class CNNAttention(Hierarchy):
    """Stages of convolutions, attention in the last of them and, for labels, a head."""

    config: CNNAttentionConfig
    config_class = CNNAttentionConfig
    presets: ClassVar[dict[str, dict[str, Any]]] = {
        "tiny": dict(patch=2, dim=32, depths=(1, 1), heads=4),
        "cnn-18": dict(attention=0),
        "cnn-attention-18": dict(),
    }

    def __init__(self, config: CNNAttentionConfig) -> None:
        super().__init__(config)
        size = 2 * config.patch + 1
        self.patches = nn.Conv2d(config.channels, config.dim, size, stride=config.patch, padding=config.patch)
        self.blocks = nn.Sequential(*(layer for stage in range(len(config.depths)) for layer in self.new_stage(stage)))
        glorot(self.blocks)

    def new_stage(self, number: int) -> list[nn.Module]:
        config, layers, dim = self.config, list[nn.Module](), self.config.dim * 2**number
        for block, rate in enumerate(config.rates[number]):
            first = number > 0 and block == 0
            options: dict[str, Any] = dict(
                stride=2 if first else 1, activation=config.activation, eps=config.norm_eps, dropout=config.dropout,
                path_dropout=rate,
            )  # fmt: skip
            layers.append(ResidualBlock(dim // 2 if first else dim, dim, **options))
            if (attention_for := config.attention_for(number)) is not None:
                layers.append(ImageAttention(attention_for))
        return layers

    def layer_grids(self, patches: PatchGrid) -> Iterator[LayerGrids]:
        """The grid of each attention layer, behind the convolutions before it."""
        for block in self.blocks:
            if isinstance(block, ResidualBlock):
                patches = patches.coarser(block.convolutions[0].stride[0])  # type: ignore[index, arg-type]
            if isinstance(block, ImageAttention):
                yield LayerGrids(queries=patches, keys=patches)

    def cells(self, pixels: Float[Tensor, "B C Y X"]) -> Float[Tensor, "B T D"]:
        pixels = pixels.contiguous(memory_format=torch.channels_last)  # a seventh faster on a CPU
        return self.blocks(self.patches(pixels)).flatten(2).mT
