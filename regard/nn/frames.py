"""From frames of sound to the vectors of an encoder: convolutions over time."""

import math

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.nn.feedforward import gelu


class FrameStem(nn.Module):
    """Two convolutions of size 3 over time, the second with stride 2, and sinusoids as Whisper spaces them."""

    waves: Tensor

    def __init__(self, mels: int, dim: int, positions: int) -> None:
        super().__init__()
        self.first = nn.Conv1d(mels, dim, 3, padding=1)
        self.second = nn.Conv1d(dim, dim, 3, stride=2, padding=1)
        self.register_buffer("waves", waves(positions, dim))  # kept with the weights: other projects read them there

    def forward(
        self, frames: Float[Tensor, "B N M"], lengths: Int[Tensor, "B"] | None = None
    ) -> Float[Tensor, "B S D"]:
        x = gelu(self.first(hidden(frames, lengths).mT))
        x = gelu(self.second(hidden(x.mT, lengths).mT)).mT
        return x + self.waves[: x.shape[1]].to(x.dtype)


def hidden(x: Float[Tensor, "B N F"], lengths: Int[Tensor, "B"] | None) -> Float[Tensor, "B N F"]:
    """Set what lies behind each length to zero, as a convolution reads it behind the end."""
    if lengths is None:
        return x
    return x.masked_fill(torch.arange(x.shape[1], device=x.device)[:, None] >= lengths[:, None, None], 0.0)


def waves(T: int, dim: int, slowest: float = 10_000.0) -> Float[Tensor, "T D"]:
    """All sines, then all cosines; unlike in the 2017 paper, the last of the waves is `slowest` times the first."""
    half = dim // 2
    rates = torch.exp(torch.arange(half, dtype=torch.float64) * (-math.log(slowest) / max(1, half - 1)))
    angles = torch.arange(T, dtype=torch.float64)[:, None] * rates
    table = torch.zeros(T, dim)
    table[:, : 2 * half] = torch.cat([angles.sin(), angles.cos()], dim=1)
    return table
