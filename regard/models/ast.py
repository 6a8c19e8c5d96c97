"""AST: a Transformer over overlapping patches of a spectrogram (Gong et al., 2021).

Unlike spectrogram_vit.py: patches overlap, two learned tokens come first, whose mean represents the sound, and the head
has a norm of its own.
audio B T M → image B 1 M T → patches B N D + positions → blocks → norm → the mean of two tokens → labels
"""

import math
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch
from jaxtyping import Float
from torch import Tensor, nn

from regard.config import check_positive
from regard.models.vit import ImageConfig
from regard.nn.dropout import Dropout
from regard.nn.grids import PatchGrid
from regard.nn.heads import LabelHead
from regard.nn.norm import build_norm
from regard.nn.patches import Side, resample, sides
from regard.nn.stack import Stack, build_position, glorot, init_keys_as_queries
from regard.registry import register_model


@dataclass(frozen=True, kw_only=True, slots=True)
class ASTConfig(ImageConfig):
    """Sizes of an encoder of sounds and its labels; the defaults are `ast-b/16`."""

    image: Side = (128, 1024)
    """Bands and frames that positions are learned for."""
    channels: int = 1
    """Always 1: the power of a band."""
    stride: Side = 10
    """Bands and frames from one patch to the next; fewer than `patch`: patches overlap."""
    labels: tuple[str, ...] = ()
    """Names of the classes; without any, a sound becomes a vector."""

    def __post_init__(self) -> None:
        ImageConfig.__post_init__(self)
        check_positive(self, "patch")
        sides(self.stride, "stride")
        if self.channels != 1:
            raise ValueError(f"channels={self.channels} must be 1: sound has the power of a band alone")

    @property
    def idle(self) -> dict[str, str]:
        """Fields without effect, and why."""
        return {"max_len": f"image {self.image}"}

    @property
    def first(self) -> int:
        """Tokens before the patches."""
        return 2

    @property
    def grid(self) -> tuple[int, int]:
        """Rows and columns of patches."""
        return self.grid_in(sides(self.image))

    def grid_in(self, size: tuple[int, int]) -> tuple[int, int]:
        """Rows and columns of patches in an image of that size."""
        rows, columns = ((side - self.patch) // step + 1 for side, step in zip(size, sides(self.stride), strict=True))
        return rows, columns

    @property
    def tokens(self) -> int:
        """Tokens of a sound."""
        return self.first + math.prod(self.grid)


@register_model("ast")
class AST(nn.Module):
    """An encoder of sounds of one length and, for labels, its head."""

    config_class = ASTConfig
    task_names = ("head.", "head_norm.")
    small: ClassVar[dict[str, Any]] = dict(
        dim=32, depth=2, heads=2, ffn_dim=64, image=(14, 21), patch=4, stride=(3, 2), labels=("a", "b", "c")
    )
    presets: ClassVar[dict[str, dict[str, Any]]] = {
        "tiny": dict(dim=96, depth=4, heads=4, ffn_dim=384, image=(64, 96), patch=8, stride=6),
        "ast-b/16": dict(),
    }

    def __init__(self, config: ASTConfig) -> None:
        super().__init__()
        self.config, sized = config, replace(config, max_len=config.tokens)
        self.encoder = Stack(sized, build_position(sized), depth=config.depth, causal=False, final_norm=True)
        self.dropout = Dropout(config.dropout)
        labels = len(config.labels)
        self.head_norm = build_norm(config.norm, config.dim, config.norm_eps) if labels else None
        self.head = LabelHead(config.dim, labels, dropout=0.0) if labels else None
        glorot(self)
        init_keys_as_queries(self.encoder)
        self.patches = nn.Conv2d(1, config.dim, config.patch, stride=sides(config.stride))
        self.first = nn.Parameter(torch.randn(config.first, config.dim) * 0.02)

    @property
    def task(self) -> str:
        return "classify-sounds" if self.config.labels else "embed-sounds"

    def example(self, rows: int) -> dict[str, Tensor]:
        """Frames of a few sounds."""
        bands, frames = sides(self.config.image)
        return {"audio": torch.randn(rows, frames, bands)}

    def patch_grid(self, size: tuple[int, int]) -> PatchGrid:
        """The patches of a spectrogram of that size; they overlap, so a cell is as large as the stride."""
        return PatchGrid(self.config.grid_in(size), min(sides(self.config.stride)))

    def head_names(self) -> tuple[str, ...]:
        """The beginnings of the names of the head's parameters."""
        return self.task_names

    def resized(self, base: "AST", name: str, tensor: Tensor) -> Tensor:
        """Return a tensor of the model that this one starts from; positions are interpolated to its own grid."""
        if name != "encoder.position.table":
            return tensor
        return resample(tensor.float(), base.config.grid, self.config.grid, first=self.config.first)

    def features(self, audio: Float[Tensor, "B T M"]) -> Float[Tensor, "B N D"]:
        """Return a vector for the two tokens in front and for each patch, high frequencies first as on an image."""
        x = self.patches(audio.mT[:, None])
        rows, count = x.shape[2], self.config.first
        x = torch.cat([self.first.expand(len(x), -1, -1), x.flatten(2).mT], dim=1)
        x = self.encoder.position.embed(x)  # learned positions begin with low frequencies
        patches = x[:, count:].unflatten(1, (rows, -1)).flip(1).flatten(1, 2)
        return self.encoder(self.dropout(torch.cat([x[:, :count], patches], dim=1)))

    def embed(self, audio: Float[Tensor, "B T M"]) -> Float[Tensor, "B D"]:
        """Return one vector for each sound."""
        return self.features(audio)[:, : self.config.first].mean(1)

    def forward(self, audio: Float[Tensor, "B T M"]) -> Float[Tensor, "B N"]:
        """Return logits over labels; without labels the vector of each sound."""
        x = self.embed(audio)
        return x if self.head is None or self.head_norm is None else self.head(self.head_norm(x))
