"""Convolutions of speech models: spectrogram frames become fewer vectors, and neighbours mix inside a block.

Frames behind a recording's end are kept at zero before every convolution, so that padding changes nothing.
"""

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from regard.nn.norm import build_norm
from regard.nn.rows import normalized


def valid_frames(lengths: Int[Tensor, "B"], count: int) -> Bool[Tensor, "B T 1"]:
    """Return which of `count` frames belong to each recording."""
    return (torch.arange(count, device=lengths.device) < lengths[:, None])[..., None]


class ConvSubsampling(nn.Module):
    """3 × 3 convolutions of stride 2 over time and frequency, and a matrix: `factor` frames become one vector.

    All but the first are separable: each channel by itself, then a product over the channels.
    """

    def __init__(self, bands: int, channels: int, dim: int, factor: int) -> None:
        super().__init__()
        count = factor.bit_length() - 1
        self.first = nn.Conv2d(1, channels, 3, stride=2, padding=1)
        self.depthwise = nn.ModuleList(
            nn.Conv2d(channels, channels, 3, stride=2, padding=1, groups=channels) for _ in range(count - 1)
        )
        self.pointwise = nn.ModuleList(nn.Conv2d(channels, channels, 1) for _ in range(count - 1))
        self.out = nn.Linear(channels * -(-bands // factor), dim)
        self.count = count

    def lengths(self, lengths: Int[Tensor, "*B"]) -> Int[Tensor, "*B"]:
        """The number of vectors for so many frames."""
        for _ in range(self.count):
            lengths = (lengths + 1) // 2
        return lengths

    def forward(self, x: Float[Tensor, "B T M"], lengths: Int[Tensor, "B"]) -> Float[Tensor, "B N D"]:
        y = (x * valid_frames(lengths, x.shape[1]))[:, None]
        y = self.hidden(self.first(y), lengths := (lengths + 1) // 2).relu()
        for depthwise, pointwise in zip(self.depthwise, self.pointwise, strict=True):
            y = self.hidden(depthwise(y), lengths := (lengths + 1) // 2)
            y = self.hidden(pointwise(y), lengths).relu()
        return self.out(y.transpose(1, 2).flatten(2))

    def hidden(self, y: Float[Tensor, "B C T M"], lengths: Int[Tensor, "B"]) -> Float[Tensor, "B C T M"]:
        """Set what lies behind the end to zero."""
        return y * valid_frames(lengths, y.shape[2])[:, None]


class FrameBatchNorm(nn.BatchNorm1d):
    """Batch norm over the frames of all recordings, without those of the padding."""

    def forward(self, x: Float[Tensor, "B T D"], valid: Bool[Tensor, "B T 1"]) -> Float[Tensor, "B T D"]:
        x = x.transpose(1, 2)
        y = normalized(self, x, valid.transpose(1, 2)) if self.training else super().forward(x)
        return y.transpose(1, 2) * valid


class ConvModule(nn.Module):
    """A Conformer's convolution: a gated product, a depthwise convolution over time, a norm, a product."""

    def __init__(self, dim: int, size: int, *, norm: str, eps: float, bias: bool) -> None:
        super().__init__()
        self.gate = nn.Linear(dim, 2 * dim, bias=bias)
        self.depthwise = nn.Conv1d(dim, dim, size, padding=size // 2, groups=dim, bias=bias)
        self.norm = FrameBatchNorm(dim) if norm == "batch" else build_norm(norm, dim, eps)
        self.out = nn.Linear(dim, dim, bias=bias)

    def forward(self, x: Float[Tensor, "B T D"], valid: Bool[Tensor, "B T 1"]) -> Float[Tensor, "B T D"]:
        y = F.glu(self.gate(x), dim=-1) * valid
        y = self.depthwise(y.transpose(1, 2)).transpose(1, 2)
        y = self.norm(y, valid) if isinstance(self.norm, FrameBatchNorm) else self.norm(y)
        return self.out(F.silu(y))
