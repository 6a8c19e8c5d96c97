"""wav2vec 2.0: CTC from raw samples (Baevski et al., 2020).

Unlike conformer.py: convolutions read samples, not frames of a spectrogram, a wide one adds positions, and the blocks
are plain ones.
audio B T → convolutions B N C → norm, matrix B N D + convolved positions → blocks → head B N V
"""

import math
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.config import check_positive
from regard.nn.block import Activation, BlockConfig, NormPlace
from regard.nn.dropout import Dropout
from regard.nn.masks import padding
from regard.nn.norm import build_norm
from regard.nn.sample_convolutions import ConvPositions, SampleConvolutions
from regard.nn.speech_convolutions import valid_frames
from regard.nn.stack import Stack, build_position, glorot
from regard.registry import register_model


@dataclass(frozen=True, kw_only=True, slots=True)
class Wav2Vec2Config(BlockConfig):
    """Sizes of a wav2vec 2.0 model; the defaults are `base`."""

    vocab_size: int = 32
    """Entries of the vocabulary, blank among them."""
    depth: int = 12
    """Blocks."""
    dim: int = 768
    heads: int = 12
    ffn_dim: int = 3072
    activation: Activation = "gelu"
    norm_place: NormPlace = "post"
    """Norms after each part and on the blocks' input, or before each part and on their output."""
    position: str = "none"
    """A position scheme besides the convolved ones."""
    max_len: int = 1500
    """Not used: convolved positions have no end."""
    conv_channels: tuple[int, ...] = (512,) * 7
    """Channels of each convolution over samples."""
    sizes: tuple[int, ...] = (10, 3, 3, 3, 3, 2, 2)
    """Values that each of them spans."""
    strides: tuple[int, ...] = (5, 2, 2, 2, 2, 2, 2)
    """Values from one of its outputs to the next; their product is the samples of a vector."""
    conv_bias: bool = False
    """Biases in these convolutions."""
    conv_norm: Literal["first", "each"] = "first"
    """A norm of each channel over time behind the first of them, or one over the channels behind each."""
    position_size: int = 128
    """Vectors that the convolution for positions spans."""
    position_groups: int = 16
    """Groups of its channels."""
    blank: int = 0
    """The token that stands for nothing new in CTC."""

    def __post_init__(self) -> None:
        BlockConfig.__post_init__(self)
        check_positive(self, "vocab_size", "depth", "position_size", "position_groups")
        lists = (self.conv_channels, self.sizes, self.strides)
        if not self.conv_channels or len({len(each) for each in lists}) > 1 or min(map(min, lists)) < 1:
            raise ValueError(f"conv_channels, sizes and strides must be as many numbers above 0, got {lists}")
        if self.dim % self.position_groups:
            raise ValueError(f"position_groups={self.position_groups} does not divide dim={self.dim}; use 1")
        if not 0 <= self.blank < self.vocab_size:
            raise ValueError(f"blank={self.blank} is no token of a vocabulary of {self.vocab_size}")
        if self.reversible:
            raise ValueError("these blocks have no reversible layers; set reversible=false")

    @property
    def idle(self) -> dict[str, str]:
        """Fields without effect, and why."""
        return {"max_len": f"position {self.position}"} if self.position == "none" else {}

    @property
    def subsampling(self) -> int:
        """Samples from one vector to the next."""
        return math.prod(self.strides)


@register_model("wav2vec2")
class Wav2Vec2(nn.Module):
    """A token or blank for every few hundred samples."""

    config_class = Wav2Vec2Config
    task = "transcribe-ctc"
    small: ClassVar[dict[str, Any]] = dict(
        dim=32, depth=2, heads=2, ffn_dim=64, vocab_size=31, conv_channels=(6, 8), sizes=(5, 3), strides=(3, 2),
        position_size=4, position_groups=4, max_len=64,
    )  # fmt: skip
    presets: ClassVar[dict[str, dict[str, Any]]] = {
        "tiny": dict(dim=144, depth=4, heads=4, ffn_dim=576, conv_channels=(64,) * 7, position_size=32),
        "base": dict(),
        "large": dict(dim=1024, depth=24, heads=16, ffn_dim=4096),
        "xls-r-300m": dict(
            dim=1024, depth=24, heads=16, ffn_dim=4096, norm_place="pre", conv_norm="each", conv_bias=True
        ),
    }

    def __init__(self, config: Wav2Vec2Config) -> None:
        super().__init__()
        self.config = config
        self.convolutions = SampleConvolutions(
            config.conv_channels, config.sizes, config.strides, bias=config.conv_bias, each=config.conv_norm == "each"
        )
        width = config.conv_channels[-1]
        self.input_norm = build_norm("layer", width, config.norm_eps)
        self.project = nn.Linear(width, config.dim)
        self.positions = ConvPositions(config.dim, config.position_size, config.position_groups)
        self.dropout = Dropout(config.dropout)
        self.norm = build_norm(config.norm, config.dim, config.norm_eps)
        position = build_position(config)
        self.encoder = Stack(config, position, depth=config.depth, causal=False, final_norm=False)
        glorot(self.encoder)
        self.head = nn.Linear(config.dim, config.vocab_size)

    def example(self, rows: int) -> dict[str, Tensor]:
        """Samples of recordings of several lengths."""
        lengths = torch.tensor([41, 67, 19, 53, 47, 29, 31])[:rows] * self.config.subsampling
        return {"audio": torch.randn(rows, int(lengths.max())), "lengths": lengths}

    def out_lengths(self, lengths: Int[Tensor, "*B"]) -> Int[Tensor, "*B"]:
        """The number of vectors for so many samples."""
        return self.convolutions.lengths(lengths)

    def features(self, audio: Float[Tensor, "B T"], lengths: Int[Tensor, "B"]) -> Float[Tensor, "B N D"]:
        x = self.project(self.input_norm(self.convolutions(audio, lengths)))
        mask = padding(self.out_lengths(lengths))
        x = x * valid_frames(mask.lengths, x.shape[1])
        x = x + self.positions(x)
        before = self.config.norm_place == "pre"
        x = self.encoder(self.dropout(self.encoder.position.embed(x if before else self.norm(x))), mask=mask)
        return self.norm(x) if before else x

    def forward(self, audio: Float[Tensor, "B T"], lengths: Int[Tensor, "B"]) -> Float[Tensor, "B N V"]:
        return self.head(self.features(audio, lengths))

    def embed(self, audio: Float[Tensor, "B T"], lengths: Int[Tensor, "B"]) -> Float[Tensor, "B D"]:
        """Return the mean vector of each recording."""
        x = self.features(audio, lengths)
        valid = valid_frames(self.out_lengths(lengths), x.shape[1])
        return (x * valid).sum(1) / valid.sum(1).clamp(min=1)
