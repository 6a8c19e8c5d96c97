"""DETR: object detection as set prediction, without anchors or non-maximum suppression (Carion et al., 2020).

Unlike transformer.py: the source is a ResNet's feature map, the target a fixed number of learned queries that are
decoded in parallel; positions are added to queries and keys in every layer, and no mask hides any but padding.
pixels B C Y X → ResNet → cells B S D → encoder;  queries Q D → decoder (cross) B Q D → labels and boxes B Q N
"""

import math
from dataclasses import dataclass
from typing import Any, ClassVar, cast

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from regard.config import check_positive
from regard.models.towers import FeatureMap, Tower
from regard.nn.block import Activation, BlockConfig, NormPlace
from regard.nn.dropout import Dropout
from regard.nn.grids import PatchGrid
from regard.nn.heads import BoxHead, LabelHead
from regard.nn.masks import valid_keys
from regard.nn.patches import Side, sides
from regard.nn.positioned import PositionedStack, grid_sinusoids, valid_cells
from regard.nn.resnet import ResNet, halved
from regard.nn.stack import glorot
from regard.registry import register_model


@dataclass(frozen=True, kw_only=True, slots=True)
class DETRConfig(FeatureMap):
    """Sizes of the ResNet, of encoder and decoder, and the labels; the defaults are `detr-r50`."""

    image: Side = 800
    """Pixels of a side that costs are computed for, or rows,columns; images of any size are read."""
    channels: int = 3
    """Channels of a pixel: 3 for colour, 1 for grey."""
    stem: int = 64
    """Width of the ResNet's first convolution."""
    widths: tuple[int, ...] = (256, 512, 1024, 2048)
    """Widths of its stages; rows and columns are a quarter of the image's in the first, and halve in each other."""
    blocks: tuple[int, ...] = (3, 4, 6, 3)
    """Residual blocks of each stage."""
    bottleneck: bool = True
    """Blocks of three convolutions, the middle one narrow; otherwise of two."""
    frozen: bool = True
    """Frozen batch norms in the ResNet, as published; otherwise they are trained."""
    tower: str = ""
    """A trained image model in place of the ResNet: its family and config as JSON."""
    queries: int = 100
    """Number of object queries: most objects that are detected in an image."""
    contents: bool = False
    """Learned initial contents of the queries; published models have zeros, useless to the first self-attention."""
    dim: int = 256
    """Width of the token vectors."""
    depth: int = 6
    """Blocks of the encoder."""
    decoder_depth: int = 6
    """Blocks of the decoder."""
    heads: int = 8
    """Attention heads."""
    ffn_dim: int = 2048
    """Hidden width of the feed-forward layers."""
    activation: Activation = "relu"
    """Activation of the feed-forward layers."""
    norm_place: NormPlace = "post"
    """Norm before each part, or after its residual as published."""
    kernel: str = "full"
    """Attention kernel."""
    dropout: float = 0.1
    """Dropout on the cells and on the output of each part."""
    attention_dropout: float = 0.0
    """Dropout on the attention weights."""
    ffn_dropout: float = 0.0
    """Dropout on the feed-forward layers' hidden units."""
    labels: tuple[str, ...] = ()
    """Names of the object classes."""

    def __post_init__(self) -> None:
        check_positive(self, "channels", "stem", "queries", "depth", "decoder_depth")
        if not self.widths or len(self.widths) != len(self.blocks) or min(*self.widths, *self.blocks) < 1:
            raise ValueError(f"widths={self.widths} and blocks={self.blocks} must have a positive number a stage")
        if self.bottleneck and min(self.widths) < 4:
            raise ValueError(f"bottlenecks are a quarter of widths={self.widths}; use at least 4, or bottleneck=false")
        if self.dim % 4:
            raise ValueError(
                f"positions need a width divisible by 4, got dim={self.dim}; use {self.dim + -self.dim % 4}"
            )
        sides(self.image)
        self.layers  # noqa: B018  its own checks

    @property
    def layers(self) -> BlockConfig:
        """Config of the blocks of encoder and decoder."""
        return BlockConfig(
            dim=self.dim, heads=self.heads, ffn_dim=self.ffn_dim, activation=self.activation,
            norm_place=self.norm_place, dropout=self.dropout, attention_dropout=self.attention_dropout,
            ffn_dropout=self.ffn_dropout, kernel=self.kernel, position="none", max_len=max(self.queries, self.tokens),
        )  # fmt: skip

    def convolved(self, size: tuple[int, int]) -> PatchGrid:
        halvings = len(self.blocks) + 1
        return PatchGrid((halved(size[0], halvings), halved(size[1], halvings)), 2**halvings)

    @property
    def tokens(self) -> int:
        """Cells of the feature map."""
        return math.prod(self.grid)


@register_model("detr")
class DETR(nn.Module):
    """A ResNet, an encoder of its cells, and a decoder of queries that each predict one object, or none."""

    config_class = DETRConfig
    task = "detect"
    presets: ClassVar[dict[str, dict[str, Any]]] = {
        "tiny": dict(
            bottleneck=False, frozen=False, dropout=0.0, image=64, stem=32, widths=(64, 96), blocks=(1, 1), queries=10,
            dim=96, depth=2, decoder_depth=3, heads=4, ffn_dim=256,
        ),
        "detr-r18": dict(widths=(64, 128, 256, 512), blocks=(2, 2, 2, 2), bottleneck=False),
        "detr-r50": dict(),
        "detr-r101": dict(blocks=(3, 4, 23, 3)),
    }  # fmt: skip
    small: ClassVar[dict[str, Any]] = presets["tiny"] | dict(contents=True, image=37, widths=(8, 12), dim=24, depth=1)

    def __init__(self, config: DETRConfig) -> None:
        super().__init__()
        self.config, dim = config, config.dim
        options: dict[str, Any] = dict(bottleneck=config.bottleneck, frozen=config.frozen)
        self.dropout, pre = Dropout(config.dropout), config.norm_place == "pre"
        self.encoder = PositionedStack(config.layers, depth=config.depth, cross=False, final_norm=pre)
        self.decoder = PositionedStack(config.layers, depth=config.decoder_depth, cross=True, final_norm=True)
        self.head = LabelHead(dim, len(config.labels) + 1, dropout=0.0)  # the last is "no object"
        self.box = BoxHead(dim)
        glorot(self)
        for layer in (self.head.out, cast(nn.Linear, self.box.layers[-1])):
            layer.weight.detach().mul_(0.1)  # initially all labels are equally probable, and all boxes equal
        self.backbone: nn.Module = Tower(config.tower, dim) if config.tower else ResNet(
            config.channels, config.stem, config.widths, config.blocks, **options)  # fmt: skip
        self.project = nn.Identity() if config.tower else nn.Conv2d(config.widths[-1], dim, 1)
        self.queries = nn.Parameter(torch.randn(config.queries, dim))
        self.contents = nn.Parameter(torch.randn(config.queries, dim) * 0.02) if config.contents else None

    def image_tower(self) -> PositionedStack:
        """The encoder of the feature map's cells."""
        return self.encoder

    def patch_grid(self, size: tuple[int, int]) -> PatchGrid:
        """The cells of the feature map of an image of that size."""
        return self.config.cells(size)

    def states(
        self, pixels: Float[Tensor, "B C Y X"], sizes: Int[Tensor, "B 2"] | None = None
    ) -> Float[Tensor, "L B Q D"]:
        """Return the queries after each block of the decoder."""
        memory, real = self.encode(pixels, sizes)
        where = grid_sinusoids(real, self.config.dim, memory.dtype)
        x = self.queries.new_zeros(()) if self.contents is None else self.contents
        x = x.expand(pixels.shape[0], *self.queries.shape)
        mask = None if sizes is None else valid_keys(real.flatten(1))
        inputs = dict(positions=self.queries[None], context_positions=where, context_mask=mask)
        return self.decoder(x, memory, every=True, **inputs)

    def encode(
        self, pixels: Float[Tensor, "B C Y X"], sizes: Int[Tensor, "B 2"] | None = None
    ) -> tuple[Float[Tensor, "B S D"], Bool[Tensor, "#B N M"]]:
        """Return a vector for each cell of the feature map, and which cells belong to the image."""
        x = self.project(self.backbone(pixels))
        grid, x = x.shape[2:], self.dropout(x.flatten(2).mT)
        everywhere = x.new_ones(1, *grid, dtype=torch.bool)
        real = everywhere if sizes is None else valid_cells(pixels, sizes, grid)
        mask = None if sizes is None else valid_keys(real.flatten(1))
        return self.encoder(x, positions=grid_sinusoids(real, self.config.dim, x.dtype), mask=mask), real

    def features(
        self, pixels: Float[Tensor, "B C Y X"], sizes: Int[Tensor, "B 2"] | None = None
    ) -> Float[Tensor, "B Q D"]:
        """Return a vector for each query."""
        return self.states(pixels, sizes)[-1]

    def embed(self, pixels: Float[Tensor, "B C Y X"]) -> Float[Tensor, "B D"]:
        """Return one vector for each image: the mean of its cells."""
        return self.encode(pixels)[0].mean(1)

    def answers(self, x: Float[Tensor, "*N D"]) -> Float[Tensor, "*N C"]:
        """Return the predictions of queries: a logit for each label, one for "no object", and four box coordinates."""
        return torch.cat([self.head(x), self.box(x)], dim=-1)

    def forward(
        self, pixels: Float[Tensor, "B C Y X"], sizes: Int[Tensor, "B 2"] | None = None
    ) -> Float[Tensor, "B Q N"]:
        """Return the predictions of all queries; `apart` splits them into logits and boxes.

        `sizes` are rows and columns of each image, where smaller ones are padded with zeros at the bottom and the
        right. Boxes are relative to the image's own sides.
        """
        return self.answers(self.features(pixels, sizes))
