"""A text encoder of convolutions with one attention layer on top, as a user's own family.

regard --plugin convencoder train classify --model convencoder
"""

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from regard import Attention, AttentionConfig, register_model
from regard.nn.masks import padding


@dataclass(frozen=True, kw_only=True, slots=True)
class ConvEncoderConfig:
    """Sizes of the encoder."""

    vocab_size: int = 2000
    """Entries of the vocabulary."""
    max_len: int = 256
    """The longest text in tokens."""
    dim: int = 64
    """Width of the token vectors."""
    depth: int = 2
    """Convolutions."""
    heads: int = 2
    """Attention heads."""
    labels: tuple[str, ...] = ()
    """Names of the labels; without any, a text becomes a vector."""


@register_model("convencoder")
class ConvEncoder(nn.Module):
    """Embedding, convolutions, attention, and the mean of the tokens."""

    config_class = ConvEncoderConfig
    presets: ClassVar[dict[str, dict[str, Any]]] = {"tiny": {}}

    def __init__(self, config: ConvEncoderConfig) -> None:
        super().__init__()
        self.config = config
        self.embedding = nn.Embedding(config.vocab_size, config.dim)
        self.blocks = nn.ModuleList(nn.Conv1d(config.dim, config.dim, 3, padding=1) for _ in range(config.depth))
        self.norm = nn.LayerNorm(config.dim)
        self.attention = Attention(AttentionConfig(dim=config.dim, heads=config.heads))
        self.head = nn.Linear(config.dim, len(config.labels)) if config.labels else None

    @property
    def task(self) -> str:
        return "classify" if self.config.labels else "embed"

    def features(self, ids: Tensor, lengths: Tensor, types: Tensor | None = None) -> Tensor:
        inside = (torch.arange(ids.shape[1], device=ids.device) < lengths[:, None])[:, :, None]
        x = self.embedding(ids) * inside
        for block in self.blocks:
            x = (x + block(x.mT).mT.relu()) * inside
        x = self.norm(x)
        return (x + self.attention(x, mask=padding(lengths))) * inside

    def embed(self, ids: Tensor, lengths: Tensor, types: Tensor | None = None) -> Tensor:
        return self.features(ids, lengths).sum(1) / lengths[:, None]

    def forward(self, ids: Tensor, lengths: Tensor, types: Tensor | None = None) -> Tensor:
        return self.features(ids, lengths) if self.head is None else self.head(self.embed(ids, lengths))
