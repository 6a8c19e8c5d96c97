"""Conformer: an encoder of speech whose blocks also convolve (Gulati et al., 2020), trained by CTC.

Unlike bert.py: frames of a spectrogram, of which convolutions make one vector of several; a block is half a
feed-forward layer, attention with relative positions, a convolution, and the other half. A decoder can be trained
beside CTC.
audio B T M → subsampling B N D → blocks → head B N V: a token or blank for every vector
"""

from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.config import check_positive
from regard.nn.block import Activation, Block, BlockConfig
from regard.nn.dropout import Dropout
from regard.nn.embeddings import Embedding, Head
from regard.nn.feedforward import FeedForward
from regard.nn.masks import causal, padding
from regard.nn.norm import build_norm
from regard.nn.positions import Position
from regard.nn.relative_attention import RelativeAttention
from regard.nn.speech_convolutions import ConvModule, ConvSubsampling, valid_frames
from regard.nn.stack import Stack, build_position, glorot
from regard.registry import register_model


@dataclass(frozen=True, kw_only=True, slots=True)
class ConformerConfig(BlockConfig):
    """Sizes of a Conformer."""

    vocab_size: int = 260
    """Entries of the vocabulary, blank among them."""
    depth: int = 16
    """Blocks."""
    dim: int = 256
    heads: int = 4
    ffn_dim: int = 1024
    activation: Activation = "silu"
    position: str = "none"
    """A position scheme besides the relative one of every block."""
    bands: int = 80
    """Mel bands of a frame."""
    subsampling: Literal[2, 4, 8] = 4
    """Frames that become one vector."""
    channels: int = 256
    """Channels of the convolutions that do so."""
    conv_size: int = 9
    """Vectors that a block's convolution spans, an odd number."""
    conv_norm: Literal["batch", "layer"] = "batch"
    """Norm inside that convolution; batch norm counts no padding."""
    scale_input: bool = False
    """The vectors are multiplied by the square root of their width first."""
    blank: int = 0
    """The token that stands for nothing new in CTC."""
    decoder_depth: int = 0
    """Blocks of a decoder that is trained beside CTC and left aside afterwards; it helps where CTC stays at blank."""
    decoder_share: float = 0.3
    """The share of its loss in the whole."""

    def __post_init__(self) -> None:
        BlockConfig.__post_init__(self)
        check_positive(self, "vocab_size", "depth", "bands", "channels", "conv_size")
        if self.conv_size % 2 == 0:
            raise ValueError(f"conv_size={self.conv_size} must be odd; use {self.conv_size + 1}")
        if not 0 <= self.blank < self.vocab_size:
            raise ValueError(f"blank={self.blank} is no token of a vocabulary of {self.vocab_size}")
        if self.decoder_depth < 0 or not 0 <= self.decoder_share < 1:
            raise ValueError("decoder_depth must not be negative, and decoder_share lies between 0 and 1")
        if self.norm_place != "pre" or self.reversible:
            raise ValueError("a Conformer has norms before each part and no reversible layers; leave both as they are")


class ConformerBlock(Block):
    """Half a feed-forward layer, attention, a convolution, and the other half; then a norm."""

    layer = RelativeAttention

    def __init__(self, config: ConformerConfig, position: Position) -> None:
        super().__init__(config, position, causal=False, cross=False)
        self.first = FeedForward(
            config.dim, config.ffn_dim, activation=config.activation, bias=config.bias, dropout=config.ffn_dropout
        )
        self.convolution = ConvModule(
            config.dim, config.conv_size, norm=config.conv_norm, eps=config.norm_eps, bias=config.bias
        )
        for part in ("first", "convolution", "out"):
            self.norms[part] = build_norm(config.norm, config.dim, config.norm_eps)
            self.drops[part] = Dropout(config.dropout if part != "out" else 0.0)

    def forward(
        self, x: Float[Tensor, "B T D"], *, mask: padding, bias: Any = None, valid: Tensor | None = None
    ) -> Float[Tensor, "B T D"]:
        valid = valid_frames(mask.lengths, x.shape[1]) if valid is None else valid
        y: Any = self.add(x, "first", lambda y: self.first(y) / 2)
        y = self.add(y, "attention", lambda y: self.attention(y, mask=mask, bias=bias))
        y = self.add(y, "convolution", lambda y: self.convolution(y, valid))
        y = self.add(y, "feedforward", lambda y: self.feedforward(y) / 2)
        return self.norms["out"](y)


@register_model("conformer")
class Conformer(nn.Module):
    """A Conformer with a token or blank for every few frames."""

    config_class = ConformerConfig
    task = "transcribe-ctc"
    small: ClassVar[dict[str, Any]] = dict(dim=32, depth=2, heads=2, ffn_dim=64, channels=4, bands=16, vocab_size=31)
    presets: ClassVar[dict[str, dict[str, Any]]] = {
        "tiny": dict(dim=144, depth=4, heads=4, ffn_dim=576, channels=32),
        "small": dict(dim=144, depth=16, heads=4, ffn_dim=576, channels=144, conv_size=31),
        "medium": dict(dim=256, depth=16, heads=4, ffn_dim=1024, conv_size=31),
        "parakeet-0.6b": dict(
            dim=1024, depth=24, heads=8, ffn_dim=4096, subsampling=8, vocab_size=1025, blank=1024, max_len=5000
        ),
    }

    def __init__(self, config: ConformerConfig) -> None:
        super().__init__()
        self.config = config
        position = build_position(config)
        self.subsampling = ConvSubsampling(config.bands, config.channels, config.dim, config.subsampling)
        self.position, self.dropout = position, Dropout(config.dropout)
        self.blocks = nn.ModuleList(ConformerBlock(config, position) for _ in range(config.depth))
        self.decoder = self.embedding = None
        if config.decoder_depth:
            written = build_position(replace(config, position="sinusoidal"))
            self.decoder = Stack(config, written, depth=config.decoder_depth, causal=True, cross=True, final_norm=True)
        glorot(self)
        self.head = nn.Linear(config.dim, config.vocab_size)
        if config.decoder_depth:
            self.embedding = Embedding(config.vocab_size, config.dim, written, dropout=config.dropout, scaled=True)
            self.decoder_head = Head(config.vocab_size, config.dim, tied=self.embedding)

    def example(self, rows: int) -> dict[str, Tensor]:
        """Frames of recordings of several lengths."""
        lengths = torch.tensor([41, 67, 19, 53, 47, 11, 29])[:rows]
        return {"audio": torch.randn(rows, 67, self.config.bands), "lengths": lengths}

    def out_lengths(self, lengths: Int[Tensor, "*B"]) -> Int[Tensor, "*B"]:
        """The number of vectors for so many frames."""
        return self.subsampling.lengths(lengths)

    def features(self, audio: Float[Tensor, "B T M"], lengths: Int[Tensor, "B"]) -> Float[Tensor, "B N D"]:
        x = self.subsampling(audio, lengths)
        x = x * self.config.dim**0.5 if self.config.scale_input else x
        x = self.dropout(self.position.embed(x))
        mask, bias = padding(self.out_lengths(lengths)), self.position.bias()
        valid = valid_frames(mask.lengths, x.shape[1])
        for block in self.blocks:
            x = block(x, mask=mask, bias=bias, valid=valid)
        return x

    def forward(self, audio: Float[Tensor, "B T M"], lengths: Int[Tensor, "B"]) -> Float[Tensor, "B N V"]:
        return self.head(self.features(audio, lengths))

    def embed(self, audio: Float[Tensor, "B T M"], lengths: Int[Tensor, "B"]) -> Float[Tensor, "B D"]:
        """Return the mean vector of each recording."""
        x = self.features(audio, lengths)
        valid = valid_frames(self.out_lengths(lengths), x.shape[1])
        return (x * valid).sum(1) / valid.sum(1).clamp(min=1)

    def written(
        self, encoded: Float[Tensor, "B N D"], lengths: Int[Tensor, "B"], target: Int[Tensor, "B T"]
    ) -> Float[Tensor, "B T D"]:
        """Return the decoder's vectors behind each of `target`; `lengths` are of frames."""
        assert self.decoder is not None and self.embedding is not None
        hidden = padding(self.out_lengths(lengths))
        return self.decoder(self.embedding(target), encoded, mask=causal(), context_mask=hidden)
