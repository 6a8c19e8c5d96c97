"""Windows of log-mel frames, from a recording of any length: only the samples of a window are in memory."""

from functools import cached_property

import torch
from jaxtyping import Float
from torch import Tensor

from regard.data.readers.audio_files import Recording
from regard.tokens.mel import LogMel

PART = 6000
"""Frames that are looked through at a time for the loudest."""
QUIETEST = -8.0
"""Logarithm of the power below which there is only the noise of a converter of 16 bits."""


class FrameWindows:
    """The frames of a recording as Whisper scales them: within eight decades below the loudest of the whole."""

    def __init__(self, recording: Recording, mel: LogMel) -> None:
        self.recording, self.mel = recording, mel
        self.length = recording.length_at(mel.rate) // mel.hop

    def log_power(self, first: int, last: int) -> Float[Tensor, "T M"]:
        """Frames before they are scaled; behind the end is silence."""
        mel, margin = self.mel, -(-self.mel.window // (2 * self.mel.hop))
        start, stop = max(0, first - margin), last + margin
        samples = torch.zeros((stop - start) * mel.hop)
        own = self.recording.samples(mel.rate, start * mel.hop, stop * mel.hop)
        samples[: len(own)] = torch.from_numpy(own)
        return mel.log(mel.power(samples))[first - start : last - start]

    @cached_property
    def loudest(self) -> float:
        """The logarithm of the greatest power."""
        parts = range(0, max(1, self.length), PART)
        return max(float(self.log_power(first, min(first + PART, self.length)).max()) for first in parts)

    def window(self, first: int, count: int, size: int) -> Float[Tensor, "T M"] | None:
        """`count` frames from `first` on, padded with zeros to `size`; None where all is silent."""
        power = self.log_power(first, first + count)
        if power.max() < QUIETEST:
            return None
        frames = torch.zeros(size, power.shape[1])
        frames[:count] = (power.clamp(min=self.loudest - 8) + 4) / 4
        return frames
