"""Convolutions over raw samples, and positions by convolution, as wav2vec 2.0 has them."""

from collections.abc import Sequence

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.nn.feedforward import gelu
from regard.nn.speech_convolutions import valid_frames


class ChannelNorm(nn.Module):
    """Each channel with mean 0 and deviation 1 over a recording, without what is padding."""

    def __init__(self, channels: int, eps: float = 1e-5) -> None:
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.ones(channels)), nn.Parameter(torch.zeros(channels))
        self.eps = eps

    def forward(self, x: Float[Tensor, "B C T"], lengths: Int[Tensor, "B"]) -> Float[Tensor, "B C T"]:
        valid = valid_frames(lengths, x.shape[2]).mT
        count = lengths.clamp(min=1)[:, None, None]
        x = x - (x * valid).sum(2, keepdim=True) / count
        variance = (x * valid).square().sum(2, keepdim=True) / count
        return x * (variance + self.eps).rsqrt() * self.weight[:, None] + self.bias[:, None]


class SampleConvolutions(nn.Module):
    """Convolutions with strides from samples to vectors, with a norm behind the first or behind `each` of them."""

    def __init__(
        self, channels: Sequence[int], sizes: Sequence[int], strides: Sequence[int], *, bias: bool, each: bool
    ) -> None:
        super().__init__()
        pairs = zip((1, *channels), channels, sizes, strides, strict=False)
        self.layers = nn.ModuleList(nn.Conv1d(a, b, size, stride=step, bias=bias) for a, b, size, step in pairs)
        self.each = each
        self.norms = nn.ModuleList(map(nn.LayerNorm, channels)) if each else nn.ModuleList([ChannelNorm(channels[0])])
        for layer in self.layers:
            nn.init.kaiming_normal_(layer.weight)  # type: ignore[arg-type]

    def lengths(self, lengths: Int[Tensor, "*B"]) -> Int[Tensor, "*B"]:
        """The number of vectors for so many samples; none where they do not fill the first."""
        for layer in self.layers:
            lengths = ((lengths - layer.kernel_size[0]) // layer.stride[0] + 1).clamp(min=0)  # type: ignore[index,operator]
        return lengths

    def forward(self, samples: Float[Tensor, "B T"], lengths: Int[Tensor, "B"]) -> Float[Tensor, "B N C"]:
        x = samples[:, None]
        for index, layer in enumerate(self.layers):
            x = layer(x)
            if self.each:
                x = self.norms[index](x.mT).mT
            elif index == 0:
                first = (lengths - layer.kernel_size[0]) // layer.stride[0] + 1  # type: ignore[index,operator]
                x = self.norms[0](x, first.clamp(min=0))
            x = gelu(x)
        return x.mT


class ConvPositions(nn.Module):
    """Vectors that say what lies around each: a wide convolution over the neighbours."""

    def __init__(self, dim: int, size: int, groups: int) -> None:
        super().__init__()
        self.conv = nn.Conv1d(dim, dim, size, padding=size // 2, groups=groups)
        nn.init.normal_(self.conv.weight, std=2 / (size * dim) ** 0.5)
        nn.init.zeros_(self.conv.bias)  # type: ignore[arg-type]

    def forward(self, x: Float[Tensor, "B N D"]) -> Float[Tensor, "B N D"]:
        return gelu(self.conv(x.mT)[..., : x.shape[1]]).mT
