"""Preprocessing of clips: some frames, each brought to the numbers that a model was trained on."""

from dataclasses import dataclass

import numpy as np

from regard.data.readers.clips import Clip
from regard.data.readers.preprocessing import Preprocessing

MOST_FRAMES = 4096
"""Most frames that a model reads at once."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ClipPreprocessing:
    """The frames that are taken from a clip, and the steps from each to a model's input."""

    image: Preprocessing
    """The preprocessing of each frame; all become one size."""
    frames: int = 16
    """Frames that a model reads."""
    rate: float | None = None
    """Frames a second (none: spread evenly over the clip, however long it is)."""

    def __post_init__(self) -> None:
        if not 1 <= self.frames <= MOST_FRAMES:
            raise ValueError(f"frames={self.frames} is not between 1 and {MOST_FRAMES:,}")
        if self.rate is not None and not 0 < self.rate <= 1000:
            raise ValueError(f"rate={self.rate} is not above 0 and at most 1000 frames a second")
        if self.image.target is None:
            raise ValueError("frames of clips need one size: a size, or a crop")

    def __call__(self, clip: Clip) -> np.ndarray:
        """A clip as a model reads it: float32 (frames, channels, rows, columns)."""
        return self.numbers(self.fit(clip))

    def fit(self, clip: Clip, times: int = 1, where: float = 0.5) -> np.ndarray:
        """The frames of a clip, or so many times as many, resized and cropped: bytes (frames, rows, columns, channels).
        With a rate, those of a short clip are fewer."""
        rate = None if self.rate is None else self.rate * times
        numbers = clip.sample(self.frames * times, rate, where)
        if clip.array is not None and clip.array.shape[1:] == (*(self.image.target or ()), self.image.channels):
            return clip.array[numbers]
        fitted: dict[int, np.ndarray] = {}
        for number, image in zip(numbers, clip.frames(numbers), strict=True):
            if number not in fitted:  # a short clip's are repeated
                fitted[number] = self.image.fit(image)
        return np.stack([fitted[number] for number in numbers])

    def numbers(self, bytes_: np.ndarray) -> np.ndarray:
        """Bytes (…, rows, columns, channels) scaled and normalised: float32 (…, channels, rows, columns)."""
        return self.image.numbers(bytes_)
