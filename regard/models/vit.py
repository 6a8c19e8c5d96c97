"""ViT: an image as a sequence of patches (Dosovitskiy et al., 2021).

Unlike bert.py: tokens are patches of pixels, norms come first, and a learned class token represents the image. DeiT
(Touvron et al., 2021) has a second such token, which predicts the label of a teacher.
pixels B C Y X → patches B T D + positions → blocks → norm → the first token, or the mean → labels
"""

import math
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn

from regard.config import check_positive
from regard.nn.block import Activation, BlockConfig
from regard.nn.dropout import Dropout
from regard.nn.heads import LabelHead, Pooler
from regard.nn.patches import PatchEmbedding, Side, grid_of, resample
from regard.nn.positions import with_columns
from regard.nn.stack import Stack, build_position, glorot, init_keys_as_queries
from regard.registry import register_model


@dataclass(frozen=True, kw_only=True, slots=True)
class ImageConfig(BlockConfig):
    """Settings that every family of image patches has."""

    image: Side = 224
    """Pixels of a side that positions are learned for, or rows,columns."""
    channels: int = 3
    """Channels of a pixel: 3 for colour, 1 for grey."""
    patch: int = 16
    """Pixels of a patch's side."""
    depth: int = 12
    """Blocks."""
    dim: int = 768
    heads: int = 12
    ffn_dim: int = 3072
    activation: Activation = "gelu"
    norm_eps: float = 1e-12
    dropout: float = 0.0
    position: str = "learned"
    """Position scheme; learned positions are interpolated for images of another size."""
    max_len: int = 1024
    """Not used: the image determines the number of patches."""

    def __post_init__(self) -> None:
        BlockConfig.__post_init__(self)
        check_positive(self, "channels", "depth")
        grid_of(self.image, self.patch)

    @classmethod
    def fitting(cls, rows: int, columns: int) -> dict[str, Any]:
        """Fields that suit images of this size: about eight patches a side, and more blocks for larger images."""
        side = min(rows, columns)
        whole = [p for p in range(2, 17) if rows % p == 0 and columns % p == 0 and side // p >= 4]
        patch = min(whole, key=lambda p: abs(p - side / 8)) if whole else max(1, round(side / 8))
        return dict(patch=patch, depth=4 if side <= 16 else 6 if side <= 64 else 8)


@dataclass(frozen=True, kw_only=True, slots=True)
class ViTConfig(ImageConfig):
    """Sizes of an encoder of images and its labels; the defaults are `vit-b/16`."""

    labels: tuple[str, ...] = ()
    """Names of the classes; without any, an image becomes a vector."""
    pooling: Literal["cls", "mean"] = "cls"
    """The vector of an image: that of a learned class token, or the mean of its patches, without such a token."""
    teacher: Literal["none", "token", "head"] = "none"
    """DeiT's distillation token: none, one, or one with a head; the logits of both heads are averaged."""
    pooler: bool = False
    """A layer on the class token's vector, which published encoders without labels have."""

    def __post_init__(self) -> None:
        ImageConfig.__post_init__(self)
        if self.pooling == "mean" and (self.pooler or self.teacher != "none"):
            raise ValueError("a pooler and a teacher's token read the class token; use pooling=cls")
        if self.labels and self.pooler:
            raise ValueError("a model with labels has no pooler; set pooler=false")
        if self.teacher == "head" and not self.labels:
            raise ValueError("a teacher's head needs the names of its labels; use teacher=token without them")

    def without_labels(self) -> "ViTConfig":
        """The config to fine-tune this model with: no labels, no head for a teacher, no pooler."""
        return replace(self, labels=(), pooler=False, teacher="none" if self.teacher == "none" else "token")

    @property
    def idle(self) -> dict[str, str]:
        """Fields without effect, and why."""
        return {"max_len": f"image {self.image}"}

    @property
    def first(self) -> int:
        """Tokens before the patches."""
        return (self.pooling == "cls") + (self.teacher != "none")

    @property
    def tokens(self) -> int:
        """Tokens of an image."""
        rows, columns = grid_of(self.image, self.patch)
        return self.first + rows * columns

    @property
    def sized(self) -> "ViTConfig":
        """This config with what the image determines: the number of tokens and, for grid positions, the columns."""
        columns = grid_of(self.image, self.patch)[1]
        return replace(self, max_len=self.tokens, position=with_columns(self.position, columns))


@register_model("vit")
class ViT(nn.Module):
    """An image encoder and, for labels, its head."""

    config_class = ViTConfig
    task_names, optional_names = ("head.", "teacher_head."), ("pooler.",)
    presets: ClassVar[dict[str, dict[str, Any]]] = {
        "tiny": dict(dim=64, depth=4, heads=4, ffn_dim=256),
        "vit-ti/16": dict(dim=192, heads=3, ffn_dim=768),
        "vit-s/16": dict(dim=384, heads=6, ffn_dim=1536),
        "vit-b/16": dict(),
        "vit-b/32": dict(patch=32),
        "vit-l/16": dict(dim=1024, depth=24, heads=16, ffn_dim=4096),
        "vit-h/14": dict(patch=14, dim=1280, depth=32, heads=16, ffn_dim=5120),
        "deit-ti/16": dict(dim=192, heads=3, ffn_dim=768, teacher="token"),
        "deit-s/16": dict(dim=384, heads=6, ffn_dim=1536, teacher="token"),
        "deit-b/16": dict(teacher="token"),
    }

    def __init__(self, config: ViTConfig) -> None:
        super().__init__()
        self.config, self.grid, sized = config, grid_of(config.image, config.patch), config.sized
        final = config.norm_place == "pre"
        self.encoder = Stack(sized, build_position(sized), depth=config.depth, causal=False, final_norm=final)
        self.dropout = Dropout(config.dropout)
        labels = len(config.labels)
        self.pooler = Pooler(config.dim, activation="tanh") if config.pooler else None
        self.head = LabelHead(config.dim, labels, dropout=config.dropout) if labels else None
        teaches = config.teacher == "head"
        self.teacher_head = LabelHead(config.dim, labels, dropout=config.dropout) if teaches else None
        glorot(self)
        init_keys_as_queries(self.encoder)
        self.patches = PatchEmbedding(config.channels, config.patch, config.dim)
        self.first = nn.Parameter(torch.randn(config.first, config.dim) * 0.02) if config.first else None

    @property
    def task(self) -> str:
        return "classify-images" if self.config.labels else "embed-images"

    def resized(self, base: "ViT", name: str, tensor: Tensor) -> Tensor:
        """Return a tensor of the model that this one starts from; positions are interpolated to its own grid."""
        if name != "encoder.position.table":
            return tensor
        return resample(tensor.float(), base.grid, self.grid, first=len(tensor) - math.prod(base.grid))

    def tokens(self, pixels: Float[Tensor, "B C Y X"]) -> Float[Tensor, "B T D"]:
        """Return the tokens before the patches and a vector for each patch, with their positions."""
        x = self.patches(pixels)
        rows, columns = x.shape[2:]
        x = x.flatten(2).mT
        if self.first is not None:
            x = torch.cat([self.first.expand(x.shape[0], -1, -1), x], dim=1)
        x = self.encoder.position.embed_grid(x, (rows, columns), trained=self.grid, first=self.config.first)
        return self.dropout(x)

    def patch_vectors(self, pixels: Float[Tensor, "B C Y X"]) -> tuple[Float[Tensor, "B T D"], Float[Tensor, "B T D"]]:
        """The vectors of tokens without their positions, and with them."""
        x = self.patches(pixels).flatten(2).mT
        x = x if self.first is None else torch.cat([self.first.expand(x.shape[0], -1, -1), x], 1)
        return x, ViT.tokens(self, pixels)  # a subclass may normalise what it makes of them

    def features(self, pixels: Float[Tensor, "B C Y X"]) -> Float[Tensor, "B T D"]:
        """Return a vector for each token before the patches and for each patch."""
        return self.encoder(self.tokens(pixels))

    def pool(self, x: Float[Tensor, "B T D"]) -> Float[Tensor, "B D"]:
        """Return one vector for each image, from those of its tokens."""
        return x[:, 0] if self.config.pooling == "cls" else x.mean(1)

    def embed(self, pixels: Float[Tensor, "B C Y X"]) -> Float[Tensor, "B D"]:
        """Return one vector for each image."""
        x = self.features(pixels)
        return self.pool(x) if self.pooler is None else self.pooler(x)

    def forward(self, pixels: Float[Tensor, "B C Y X"]) -> Float[Tensor, "B N"]:
        """Return logits over labels; without labels the vector of each image."""
        if self.head is None:
            return self.embed(pixels)
        x = self.features(pixels)
        scores = self.head(self.pool(x))
        return scores if self.teacher_head is None else (scores + self.teacher_head(x[:, 1])) / 2
