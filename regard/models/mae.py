"""MAE: an image encoder that is trained to reconstruct masked patches (He et al., 2022).

Unlike vit.py: most patches are masked, and the encoder reads only the others; a light decoder, with a learned mask
token for each masked patch, predicts the pixels of all of them. After training the decoder is discarded.
pixels B C Y X → patches B T D → the visible ones → blocks → narrower, all patches → blocks → pixels of patches B T P
"""

import dataclasses
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from regard.config import check_positive
from regard.models.vit import ImageConfig, ViT, ViTConfig
from regard.nn.block import BlockConfig
from regard.nn.patches import cut, grid_of
from regard.nn.pooling import Grid
from regard.nn.stack import Stack, build_position, glorot, init_keys_as_queries
from regard.registry import register_model


@dataclass(frozen=True, kw_only=True, slots=True)
class MAEConfig(ImageConfig):
    """Sizes of the encoder, as in ViT, and of the decoder; the defaults are those of `vit-b/16`."""

    decoder_dim: int = 512
    """Width of the decoder."""
    decoder_depth: int = 8
    """Blocks of the decoder."""
    decoder_heads: int = 16
    """Attention heads of the decoder."""
    decoder_ffn_dim: int = 2048
    """Hidden width of the decoder's feed-forward layer."""
    hidden: float = 0.75
    """Fraction of the patches that are masked."""
    normalized: bool = False
    """Predict each patch's pixels normalised to mean 0 and variance 1."""

    def __post_init__(self) -> None:
        ImageConfig.__post_init__(self)
        if not 0 < self.hidden < 1:
            raise ValueError(f"hidden={self.hidden} is not in (0, 1)")
        if self.tokens < 3:
            raise ValueError(
                f"image={self.image} has one patch={self.patch}, so that none could be masked; use a smaller patch"
            )
        check_positive(self, "decoder_depth")
        if self.head_dim is not None or self.kv_heads is not None:
            raise ValueError("encoder and decoder have their own heads; leave head_dim and kv_heads unset")

    @property
    def tokens(self) -> int:
        """Tokens of an image."""
        return self.encoder.tokens

    @property
    def idle(self) -> dict[str, str]:
        """Fields without effect, and why."""
        return self.encoder.idle

    @property
    def encoder(self) -> ViTConfig:
        """Config of the encoder: a ViT without labels."""
        return ViTConfig(**{field.name: getattr(self, field.name) for field in dataclasses.fields(ImageConfig)})

    @property
    def decoder(self) -> BlockConfig:
        """Config of the decoder."""
        sizes = self.encoder.sized
        own = dict(
            dim=self.decoder_dim, heads=self.decoder_heads, ffn_dim=self.decoder_ffn_dim
        )  # fmt: skip
        shared = {field.name: getattr(sizes, field.name) for field in dataclasses.fields(BlockConfig)}
        return BlockConfig(**shared | own)

    @property
    def visible(self) -> int:
        """Patches that the encoder reads."""
        return self.seen(self.tokens - 1)

    def seen(self, patches: int) -> int:
        return max(1, int(patches * (1 - self.hidden)))


@register_model("mae")
class MAE(nn.Module):
    """A ViT and the decoder that it is trained with."""

    config_class = MAEConfig
    task = "restore-images"
    presets: ClassVar[dict[str, dict[str, Any]]] = {
        "tiny": dict(
            image=28, channels=1, patch=4, dim=96, depth=4, heads=4, ffn_dim=384, decoder_dim=64, decoder_depth=2,
            decoder_heads=4, decoder_ffn_dim=256,
        ),
        "vit-b/16": dict(),
        "vit-l/16": dict(dim=1024, depth=24, heads=16, ffn_dim=4096),
    }  # fmt: skip

    def __init__(self, config: MAEConfig) -> None:
        super().__init__()
        position = build_position(config.decoder)
        if position.rotates or position.bias() is not None:
            raise ValueError(f"position={config.position} counts from patch to patch, but most are masked; use learned")
        self.config = config
        self.vit = ViT(config.encoder)
        final = config.norm_place == "pre"
        self.narrow = nn.Linear(config.dim, config.decoder_dim)
        self.decoder = Stack(config.decoder, position, depth=config.decoder_depth, causal=False, final_norm=final)
        self.head = nn.Linear(config.decoder_dim, config.channels * config.patch**2)
        for part in (self.narrow, self.decoder, self.head):
            glorot(part)
        init_keys_as_queries(self.decoder)
        self.blank = nn.Parameter(torch.randn(config.decoder_dim) * 0.02)

    def image_tower(self) -> ViT:
        """The encoder; the decoder is for training alone."""
        return self.vit

    def pretrained(self) -> ViT:
        """The encoder, which other tasks start from."""
        return self.vit

    def axes(self) -> dict[str, int]:
        """Sizes of axes in the signature of `forward`: there is noise for each patch."""
        return {"T": self.config.tokens - 1}

    def order(self, noise: Float[Tensor, "B T"]) -> tuple[Int[Tensor, "B T"], Bool[Tensor, "B T"]]:
        """Sort patches by their noise; return the order and which are masked: all but its first."""
        order = noise.argsort(dim=1, stable=True)
        hidden = torch.ones_like(noise, dtype=torch.bool)
        return order, hidden.scatter(1, order[:, : self.config.seen(noise.shape[1])], False)

    def features(self, pixels: Float[Tensor, "B C Y X"], noise: Float[Tensor, "B T"]) -> Float[Tensor, "B S D"]:
        """Return vectors of the class token and of the visible patches, in the order of their noise."""
        first, patches = self.vit.tokens(pixels).split([1, noise.shape[1]], dim=1)
        seen = self.order(noise)[0][:, : self.config.seen(noise.shape[1])]
        return self.vit.encoder(torch.cat([first, gather_tokens(patches, seen)], dim=1))

    def forward(self, pixels: Float[Tensor, "B C Y X"], noise: Float[Tensor, "B T"]) -> Float[Tensor, "B T P"]:
        """Predict every patch's pixels; the encoder reads those with the smallest noise."""
        return self.decode(self.features(pixels, noise), noise, grid_of(tuple(pixels.shape[2:]), self.config.patch))

    def decode(self, x: Float[Tensor, "B S D"], noise: Float[Tensor, "B T"], grid: Grid) -> Float[Tensor, "B T P"]:
        """Predict every patch's pixels from `features` with the same noise; `grid` are rows and columns of patches."""
        x = self.narrow(x)
        B, T = noise.shape
        blanks = self.blank.expand(B, T + 1 - x.shape[1], -1)
        back = self.order(noise)[0].argsort(dim=1)
        x = torch.cat([x[:, :1], gather_tokens(torch.cat([x[:, 1:], blanks], dim=1), back)], dim=1)
        x = self.decoder.position.embed_grid(x, grid, trained=self.vit.grid, first=1)
        return self.head(self.decoder(x)[:, 1:])

    def targets(self, pixels: Float[Tensor, "B C Y X"]) -> Float[Tensor, "B T P"]:
        """Return the values to predict."""
        patches = cut(pixels, self.config.patch)
        if not self.config.normalized:
            return patches
        mean, spread = mean_and_std(patches)
        return (patches - mean) / spread

    def in_pixels(self, guesses: Float[Tensor, "B T P"], pixels: Float[Tensor, "B C Y X"]) -> Float[Tensor, "B T P"]:
        """Return predictions as pixels. Normalised ones lack a patch's mean and variance: they get the true ones."""
        if not self.config.normalized:
            return guesses
        mean, spread = mean_and_std(cut(pixels, self.config.patch))
        return guesses * spread + mean

    def embed(self, pixels: Float[Tensor, "B C Y X"]) -> Float[Tensor, "B D"]:
        """Return one vector for each image, without masking."""
        return self.vit.embed(pixels)


def gather_tokens(x: Float[Tensor, "B T D"], order: Int[Tensor, "B S"]) -> Float[Tensor, "B S D"]:
    return x.gather(1, order[:, :, None].expand(-1, -1, x.shape[2]))


def mean_and_std(patches: Float[Tensor, "B T P"]) -> tuple[Float[Tensor, "B T 1"], Float[Tensor, "B T 1"]]:
    """Return mean and standard deviation of each patch's pixels."""
    return patches.mean(dim=-1, keepdim=True), (patches.var(dim=-1, keepdim=True) + 1e-6).sqrt()
