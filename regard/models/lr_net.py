"""LR-Net (Hu et al., 2019): a residual network whose neighbourhoods are mixed by attention, not by fixed kernels.

Unlike cnn_attention.py: each 3 × 3 convolution of a ResNet's bottleneck is a local relation layer, whose weights come
from the pixels (a query, keys, and a prior of the offset); 1 × 1 convolutions stay.
pixels B C Y X → maps B D Y X → stages, each with half the rows and columns and twice the width → norm → mean → labels
"""

from dataclasses import dataclass
from typing import Any, ClassVar

from jaxtyping import Float
from torch import Tensor, nn

from regard.config import check_positive
from regard.models.hierarchy import Hierarchy, HierarchyConfig
from regard.nn.convolution import ChannelNorm, LocalRelation
from regard.nn.dropout import Dropout, DropPath
from regard.nn.feedforward import ACTIVATIONS, GATED
from regard.nn.stack import glorot
from regard.registry import register_model


@dataclass(frozen=True, kw_only=True, slots=True)
class LRNetConfig(HierarchyConfig):
    """Sizes of the stages and their labels; the defaults have the stages of LR-Net-50."""

    patch: int = 4
    """Pixels from one cell of the first map to the next."""
    dim: int = 256
    """Channels of the first stage; each further one has twice as many."""
    depths: tuple[int, ...] = (3, 4, 6, 3)
    """Bottlenecks of each stage."""
    window: int = 7
    """Rows and columns of a neighbourhood."""
    share: int = 8
    """Channels that share their weights."""
    squeeze: int = 4
    """A bottleneck has one channel for so many of its stage."""

    def __post_init__(self) -> None:
        HierarchyConfig.__post_init__(self)
        check_positive(self, "window", "share", "squeeze")
        if self.window % 2 == 0:
            raise ValueError(f"window={self.window} has no middle; use {self.window + 1}")
        if self.activation in GATED:
            raise ValueError(f"activation={self.activation} has a gate, which maps do not support; use gelu or relu")

    @property
    def idle(self) -> dict[str, str]:
        """Fields without effect, and why."""
        return dict.fromkeys(("kernel", "attention_dropout"), f"window {self.window}")

    @classmethod
    def fitting(cls, rows: int, columns: int) -> dict[str, Any]:
        """Fields that suit images of this size: a fine first map, and windows that small maps can fill."""
        return HierarchyConfig.fitting(rows, columns, finest=20, blocks=1) | (
            dict(window=3) if min(rows, columns) < 20 else {}
        )


class RelationBlock(nn.Module):
    """x + a bottleneck: 1 × 1 convolution, local relations, 1 × 1 convolution, each after a norm and an activation."""

    def __init__(self, channels: int, out_channels: int, config: LRNetConfig, *, stride: int, path_dropout: float):
        super().__init__()
        self.activation, self.dropout = ACTIVATIONS[config.activation], Dropout(config.dropout)
        self.path = DropPath(path_dropout)
        inner = max(1, out_channels // config.squeeze)
        self.norms = nn.ModuleList(ChannelNorm(width, eps=config.norm_eps) for width in (channels, inner, inner))
        self.layers = nn.ModuleList(
            (
                nn.Conv2d(channels, inner, 1, bias=False),
                LocalRelation(inner, inner, config.window, stride=stride, share=config.share, bias=False),
                nn.Conv2d(inner, out_channels, 1, bias=False),
            )
        )
        same = stride == 1 and channels == out_channels
        self.skip = None if same else nn.Conv2d(channels, out_channels, 1, stride=stride, bias=False)

    def forward(self, x: Float[Tensor, "B C H W"]) -> Float[Tensor, "B N I J"]:
        y = x
        for norm, layer in zip(self.norms, self.layers, strict=True):
            y = layer(self.activation(norm(y)))
        y = self.path(self.dropout(y))
        return y + (x if self.skip is None else self.skip(x))


@register_model("lr-net")
class LRNet(Hierarchy):
    """Stages of bottlenecks with local relations and, for labels, a head."""

    config: LRNetConfig
    config_class = LRNetConfig
    presets: ClassVar[dict[str, dict[str, Any]]] = {
        "tiny": dict(patch=2, dim=64, depths=(1, 1), window=3, squeeze=2),
        "small": dict(dim=128, depths=(1, 2, 4, 1)),
        "base": dict(),
    }

    def __init__(self, config: LRNetConfig) -> None:
        super().__init__(config)
        size = 2 * config.patch + 1
        self.patches = nn.Conv2d(config.channels, config.dim, size, stride=config.patch, padding=config.patch)
        blocks = list[nn.Module]()
        for stage, rates in enumerate(config.rates):
            dim = config.dim * 2**stage
            for number, rate in enumerate(rates):
                first = stage > 0 and number == 0
                before, stride = (dim // 2, 2) if first else (dim, 1)
                blocks.append(RelationBlock(before, dim, config, stride=stride, path_dropout=rate))
        self.blocks = nn.Sequential(*blocks)
        glorot(self.blocks)

    def cells(self, pixels: Float[Tensor, "B C Y X"]) -> Float[Tensor, "B T D"]:
        return self.blocks(self.patches(pixels)).flatten(2).mT
