"""Log-mel frames: the tokens of sound. A frame is the logarithm of the power of a short stretch of samples in bands of
pitch; ten milliseconds further on begins the next. Models of raw samples have `Waveform` instead."""

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

Style = Literal["whisper", "nemo", "kaldi"]
MOST_BANDS, MOST_POINTS, MOST_OVERLAP, MOST_VALUES = 1024, 8192, 64, 1 << 26
"""Most bands, points of a Fourier transform and frames over one sample, and samples or numbers that a recording is
padded to: published models have 128, 512, 4 and 480,000, and no weight has these sizes."""
PIECE = 4096
"""Frames that are computed at a time, so that hours of audio take little memory."""
WHISPER_FLOOR, NEMO_FLOOR, KALDI_FLOOR = 1e-10, 2.0**-24, 2.0**-23
"""The least power whose logarithm is taken; NeMo's is added instead."""
NEMO_EPSILON = 1e-5
"""Added to the standard deviation of a band."""
SLANEY, SLANEY_STEP = 3 / 200, math.log(6.4) / 27
"""Slaney's mels: so many for each hertz below 1 kHz, which is 15, and the logarithm of the ratio of two above."""


@dataclass(frozen=True, kw_only=True, slots=True)
class LogMel:
    """Settings of log-mel frames, and the function from samples to frames.

    The three styles differ in how frames are cut and scaled. whisper: centred on their time, edges mirrored, log10
    with a range of eight decades below the loudest. nemo: centred, edges silent, each band with mean 0 and deviation 1
    over the recording. kaldi: from the first sample on, each frame without its mean, bands scaled by fixed numbers.
    """

    style: Style = "whisper"
    rate: int = 16_000
    """Samples a second."""
    bands: int = 80
    """Mel bands: the size of a frame."""
    window: int = 400
    """Samples of a frame."""
    hop: int = 160
    """Samples from one frame to the next."""
    fft: int = 400
    """Points of the Fourier transform, at least `window`."""
    preemphasis: float = 0.0
    """The part of the previous sample that is subtracted from each."""
    length: int | None = None
    """Frames that every recording is padded with silence, or cut, to; None: as many as it has."""
    mean: float = 0.0
    """Subtracted from each number, in the style of kaldi."""
    std: float = 0.5
    """Half of the divisor after that."""

    def __post_init__(self) -> None:
        if min(self.rate, self.bands, self.hop, 1 if self.length is None else self.length) < 1 or self.std <= 0:
            raise ValueError("rate, bands, hop, length and std must be above 0")
        if self.bands > MOST_BANDS or self.fft > min(MOST_POINTS, MOST_OVERLAP * self.hop):
            raise ValueError(
                f"bands={self.bands} may be at most {MOST_BANDS}, fft={self.fft} at most {MOST_POINTS} and "
                f"{MOST_OVERLAP} times hop={self.hop}; use fewer"
            )
        if (self.length or 1) * max(self.hop, self.bands) > MOST_VALUES:
            raise ValueError(
                f"length={self.length} with hop={self.hop} and bands={self.bands} is too large; at most "
                f"{MOST_VALUES:,} samples or numbers are computed"
            )
        if not 2 <= self.window <= self.fft or self.bands > self.fft // 2:
            raise ValueError(
                f"window={self.window} must be 2 or more and at most fft={self.fft}, and bands={self.bands} at most "
                "half of that"
            )

    def frames(self, samples: int) -> int:
        """The number of frames of so many samples."""
        return self.length or self.own_frames(samples)

    def own_frames(self, samples: int) -> int:
        """The number of frames before any padding; at least one."""
        return 1 + max(0, samples - self.window) // self.hop if self.style == "kaldi" else max(1, samples // self.hop)

    def seconds(self, frame: int | float) -> float:
        """The time at which a frame begins."""
        return frame * self.hop / self.rate

    @torch.no_grad()
    def __call__(self, samples: Float[np.ndarray, "N"] | Float[Tensor, "N"]) -> Float[Tensor, "T M"]:
        """Mono samples at `rate` as frames."""
        x = torch.as_tensor(samples, dtype=torch.float32)
        if self.style == "whisper" and self.length is not None:
            x = fitted(x, self.length * self.hop)
        mel = self.log(self.power(x))[: self.length]
        if self.style == "whisper":
            return (torch.maximum(mel, mel.max() - 8) + 4) / 4
        if self.style == "nemo":
            std = mel.std(0) if len(mel) > 1 else torch.zeros(self.bands)
            mel = (mel - mel.mean(0)) / (std + NEMO_EPSILON)
        if self.length is not None:
            mel = fitted(mel, self.length)
        return mel if self.style == "nemo" else (mel - self.mean) / (2 * self.std)

    def log(self, power: Float[Tensor, "T M"]) -> Float[Tensor, "T M"]:
        """The logarithm of each number, as the style has it."""
        if self.style == "whisper":
            return power.clamp(min=WHISPER_FLOOR).log10()
        return (power + NEMO_FLOOR).log() if self.style == "nemo" else power.clamp(min=KALDI_FLOOR).log()

    def power(self, x: Float[Tensor, "N"]) -> Float[Tensor, "T M"]:
        """The power of each frame in each band."""
        count = self.own_frames(len(x))
        if self.style == "nemo" and len(x):
            x = torch.cat([x[:1], x[1:] - self.preemphasis * x[:-1]])
        dtype = torch.float64 if self.style == "kaldi" else torch.float32  # its floor is low: rounding would be seen
        window = torch.hann_window(self.window, periodic=self.style == "whisper", dtype=dtype)
        if self.style != "kaldi":  # a frame is centred on its time
            around, sides = (self.fft // 2,) * 2, self.fft - self.window
            x = fitted(x, max(len(x), around[0] + 1))
            x = F.pad(x[None], around, mode="reflect" if self.style == "whisper" else "constant")[0]
            window = F.pad(window, (sides // 2, sides - sides // 2))
        filters = mel_filters(self.style, self.rate, self.bands, self.fft)
        frames = fitted(x, max(len(x), len(window))).unfold(0, len(window), self.hop)[:count]
        parts = []
        for part in frames.split(PIECE):
            if self.style == "kaldi":
                part = part.to(dtype) - part.to(dtype).mean(1, keepdim=True)
                part = part - self.preemphasis * torch.cat([part[:, :1], part[:, :-1]], 1)
            spectrum = torch.view_as_real(torch.fft.rfft(part * window, n=self.fft))
            parts.append(spectrum.square().sum(-1).float() @ filters)
        return torch.cat(parts)


def fitted(x: Tensor, length: int) -> Tensor:
    """The first dimension cut, or padded with zeros, to a length."""
    return x[:length] if len(x) >= length else torch.cat([x, x.new_zeros(length - len(x), *x.shape[1:])])


@lru_cache(maxsize=16)
def mel_filters(style: Style, rate: int, bands: int, fft: int) -> Float[Tensor, "F M"]:
    """The weight of each frequency in each band: triangles that are equally wide in pitch.

    Kaldi's are of height 1 and straight in mel, from 20 Hz on; the others' are of area 1 and straight in hertz, in
    Slaney's mel: linear below 1 kHz, logarithmic above.
    """
    hertz = np.linspace(0, rate / 2, fft // 2 + 1)
    if style == "kaldi":
        place: np.ndarray = 1127 * np.log1p(hertz / 700)
        corners = np.linspace(1127 * math.log1p(20 / 700), place[-1], bands + 2)
    else:
        place = hertz
        top = min(rate / 2, 8000) if style == "whisper" else rate / 2
        mels = np.linspace(0, SLANEY * top if top < 1000 else 15 + math.log(top / 1000) / SLANEY_STEP, bands + 2)
        corners = np.where(mels < 15, mels / SLANEY, 1000 * np.exp((mels - 15) * SLANEY_STEP))
    low, middle, high = corners[:-2], corners[1:-1], corners[2:]
    rising, falling = (place[:, None] - low) / (middle - low), (high - place[:, None]) / (high - middle)
    weights = np.minimum(rising, falling).clip(0)
    return torch.from_numpy(weights if style == "kaldi" else weights * (2 / (high - low))).float()


@dataclass(frozen=True, kw_only=True, slots=True)
class Waveform:
    """Settings of raw samples as the input of a model, and the function that scales them."""

    rate: int = 16_000
    """Samples a second."""
    normalize: bool = True
    """Whether each recording is scaled to mean 0 and deviation 1."""

    def frames(self, samples: int) -> int:
        """The number of samples: each one is a frame."""
        return samples

    def seconds(self, frame: int | float) -> float:
        """The time of a sample."""
        return frame / self.rate

    def __call__(self, samples: Float[np.ndarray, "N"] | Float[Tensor, "N"]) -> Float[Tensor, "N"]:
        """Mono samples at `rate` as a model reads them."""
        x = torch.as_tensor(samples, dtype=torch.float32)
        return (x - x.mean()) / (x.var(correction=0) + 1e-7).sqrt() if self.normalize else x
