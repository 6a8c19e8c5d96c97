"""CLIP: images and texts as vectors of one space (Radford et al., 2021).

Unlike vit.py: a norm before the blocks, and patches without a bias. Beside it a causal text tower, as gpt.py; its last
token, which attends to all others, gives the vector of the text. Both are projected to one width.
pixels B C Y X → patches → norm → blocks → class token → vector B E
ids B T → embed + positions → blocks → norm → last token → vector B E
"""

import dataclasses
import math
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.config import check_positive
from regard.models.vit import ImageConfig, ViT, ViTConfig
from regard.nn.block import Activation, BlockConfig
from regard.nn.convolution import ConvStem
from regard.nn.embeddings import Embedding
from regard.nn.masks import causal
from regard.nn.norm import build_norm
from regard.nn.patches import grid_of
from regard.nn.stack import Stack, build_position, glorot
from regard.registry import positions, register_model

TEMPERATURE = 0.07
"""Initial temperature."""


@dataclass(frozen=True, kw_only=True, slots=True)
class CLIPConfig(ImageConfig):
    """Sizes of the image tower, as in ViT, and of the text tower; the defaults are `vit-b/32`."""

    patch: int = 32
    activation: Activation = "quick-gelu"
    norm_eps: float = 1e-5
    vocab_size: int = 49_408
    """Entries of the vocabulary."""
    max_len: int = 77
    """Longest text in tokens; a hard limit only for learned positions."""
    text_dim: int = 512
    """Width of the text's token vectors."""
    text_depth: int = 12
    """Blocks of the text tower."""
    text_heads: int = 8
    """Attention heads of the text tower."""
    text_ffn_dim: int = 2048
    """Hidden width of the text tower's feed-forward layers."""
    embedding_dim: int = 512
    """Width of the shared embedding space."""
    stem: tuple[int, ...] = ()
    """Widths of convolutions that embed the patches, each halving the sides (none: a linear patch embedding)."""

    def __post_init__(self) -> None:
        ImageConfig.__post_init__(self)
        check_positive(self, "vocab_size", "text_depth", "embedding_dim")
        if self.stem and 2 ** len(self.stem) != self.patch:
            halved = f"{len(self.stem)} convolutions that halve an image give patches of {2 ** len(self.stem)}"
            raise ValueError(f"{halved} pixels, got patch={self.patch}; set one as the other")
        if self.head_dim is not None or self.kv_heads is not None:
            raise ValueError("both towers have their own heads; leave head_dim and kv_heads unset")
        if positions[self.position].on_grid:
            raise ValueError("position=grid is for images, and both towers have one scheme; use sinusoidal or learned")

    @property
    def tokens(self) -> int:
        """Tokens of an image."""
        return self.vision.tokens

    @property
    def vision(self) -> ViTConfig:
        """Config of the image tower: a ViT without labels."""
        return ViTConfig(**{field.name: getattr(self, field.name) for field in dataclasses.fields(ImageConfig)})

    @property
    def text(self) -> BlockConfig:
        """Config of the text tower."""
        shared = {field.name: getattr(self, field.name) for field in dataclasses.fields(BlockConfig)}
        own = dict(dim=self.text_dim, heads=self.text_heads, ffn_dim=self.text_ffn_dim)
        return BlockConfig(**shared | own)


class Stem(ConvStem):
    """A convolutional stem in place of the patch embedding (Xiao et al., 2021), which needs fewer images."""

    def forward(self, pixels: Float[Tensor, "B C Y X"]) -> Float[Tensor, "B D N M"]:
        rows, columns = grid_of(tuple(pixels.shape[2:]), self.side)
        return super().forward(pixels[:, :, : rows * self.side, : columns * self.side])


class ImageTower(ViT):
    """A ViT with a norm before the first block, which makes a bias of the patches needless."""

    def __init__(self, config: ViTConfig, stem: tuple[int, ...] = ()) -> None:
        super().__init__(config)
        if stem:
            self.patches = Stem(config.channels, stem, config.dim)  # type: ignore[assignment]  # the same grid
        else:
            self.patches.project.bias = None
        self.norm = build_norm(config.norm, config.dim, config.norm_eps)

    def tokens(self, pixels: Float[Tensor, "B C Y X"]) -> Float[Tensor, "B T D"]:
        return self.norm(super().tokens(pixels))


class TextTower(nn.Module):
    """Text tower: a causal stack of blocks."""

    def __init__(self, config: BlockConfig, vocab_size: int, depth: int) -> None:
        super().__init__()
        position, final = build_position(config), config.norm_place == "pre"
        self.stack = Stack(config, position, depth=depth, causal=True, final_norm=final)
        glorot(self)
        self.embedding = Embedding(vocab_size, config.dim, position, dropout=config.dropout, scaled=False)

    def forward(self, ids: Int[Tensor, "B T"]) -> Float[Tensor, "B T D"]:
        """Return a vector for each token. Rows are padded on the right, where the causal mask hides the padding."""
        return self.stack(self.embedding(ids), mask=causal())


@register_model("clip")
class CLIP(nn.Module):
    """An image tower, a text tower, and the similarity of their vectors."""

    config_class = CLIPConfig
    task = "match"
    presets: ClassVar[dict[str, dict[str, Any]]] = {
        "tiny": dict(
            image=64, patch=8, dim=96, depth=4, heads=4, ffn_dim=384, max_len=64, text_dim=64, text_depth=2,
            text_heads=4, text_ffn_dim=256, embedding_dim=64,
        ),
        "vit-b/32": dict(),
        "vit-b/16": dict(patch=16),
        "vit-l/14": dict(
            patch=14, dim=1024, depth=24, heads=16, ffn_dim=4096, text_dim=768, text_heads=12, text_ffn_dim=3072,
            embedding_dim=768,
        ),
    }  # fmt: skip

    def __init__(self, config: CLIPConfig) -> None:
        super().__init__()
        self.config = config
        self.vision = ImageTower(config.vision, config.stem)
        self.text = TextTower(config.text, config.vocab_size, config.text_depth)
        self.project_picture = nn.Linear(config.dim, config.embedding_dim, bias=False)
        self.project_text = nn.Linear(config.text_dim, config.embedding_dim, bias=False)
        glorot(self.project_picture)
        glorot(self.project_text)
        self.scale = nn.Parameter(torch.tensor(-math.log(TEMPERATURE)))

    def image_tower(self) -> ImageTower:
        """The part that reads images."""
        return self.vision

    def text_tower(self) -> TextTower:
        """The part that reads texts."""
        return self.text

    def axes(self) -> dict[str, int]:
        """Sizes of axes in the signature of `forward`: texts are as long as planned for."""
        return {"T": self.config.max_len}

    def cost_note(self, training: bool) -> str:
        """Return a remark on the model's cost, printed below the figures."""
        return f"texts of {self.config.max_len} tokens, one for each image"

    @property
    def temperature(self) -> Float[Tensor, ""]:
        """The divisor of similarities, e^−scale."""
        return (-self.scale).exp()

    def embed(self, pixels: Float[Tensor, "B C Y X"]) -> Float[Tensor, "B E"]:
        """Return one vector for each image."""
        return self.project_picture(self.vision.embed(pixels))

    def embed_text(self, ids: Int[Tensor, "B T"], lengths: Int[Tensor, "B"]) -> Float[Tensor, "B E"]:
        """Return one vector for each text: that of its last token, at `lengths` − 1."""
        last = torch.arange(ids.shape[0], device=ids.device), lengths - 1
        return self.project_text(self.text(ids)[last])

    def features(
        self, pixels: Float[Tensor, "B C Y X"], ids: Int[Tensor, "M T"], lengths: Int[Tensor, "M"]
    ) -> tuple[Float[Tensor, "B E"], Float[Tensor, "M E"]]:
        """Return the vectors of images and of texts."""
        return self.embed(pixels), self.embed_text(ids, lengths)

    def forward(
        self, pixels: Float[Tensor, "B C Y X"], ids: Int[Tensor, "M T"], lengths: Int[Tensor, "M"]
    ) -> Float[Tensor, "B M"]:
        """Return the similarity of each image and each text: the cosine of their vectors over the temperature."""
        images, texts = (F.normalize(x, dim=-1) for x in self.features(pixels, ids, lengths))
        return images @ texts.T / self.temperature
