"""Sounds with labels: a folder with a sub-folder for each class, a table, or spoken digits; and batches of frames."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch

from regard.config import check_fractions
from regard.data.generated.espeak import check_installed
from regard.data.readers.audio_files import Recording, from_samples
from regard.data.readers.recordings import list_sounds
from regard.data.sets.base import Data
from regard.data.sets.batches import Batch, Stream
from regard.data.sets.degrade import degraded
from regard.data.sets.overview import Overview, counted, label_notes
from regard.data.sets.transcribed_speech import RATE, hold_out

HELD_OUT = 20
"""Percent of the user's sounds that are held out for validation, where no others are named."""
SHIFT = 0.1
"""Largest part of a sound by which it is shifted in training."""


@dataclass(frozen=True, slots=True, eq=False)
class Sound:
    """A sound with its label."""

    open: Callable[[], Recording]
    label: str
    number: int


@dataclass(frozen=True, kw_only=True, slots=True)
class SoundsConfig(Data):
    """Where labelled sounds come from (nothing given: spoken digits), and how long they are."""

    own: ClassVar[tuple[str, ...]] = ("audio",)
    reading: ClassVar[tuple[str, ...]] = ("seconds",)
    decides: ClassVar[dict[str, str]] = {
        "model.labels": "follow from the sounds", "model.image": "follows from the sounds; use --data.seconds"
    }  # fmt: skip

    audio: str | None = None
    """A folder with a sub-folder for each class, or a table of path and label."""
    valid: str | None = None
    """A folder or table for validation (none: a part of the above)."""
    test: str | None = None
    """A folder or table for the final test (none: the validation sounds)."""
    seconds: float | None = None
    """Length that sounds are cut or padded to (none: that of nine in ten, at most 10)."""
    noise: float = 0.3
    """Share of sounds that get noise, and of those that get an echo, anew in every epoch."""
    base: str | None = None
    """A run or checkpoint whose weights to start from."""

    def __post_init__(self) -> None:
        check_fractions(self, "noise")
        if self.seconds is not None and not 0.1 <= self.seconds <= 60:
            raise ValueError(f"seconds={self.seconds} is not between 0.1 and 60")

    @property
    def parts(self) -> dict[str, str]:
        named = {"train": self.audio, "valid": self.valid, "test": self.test}
        return {part: source for part, source in named.items() if source}

    def listed(self, source: str) -> list[Path]:
        return [file.path for file in list_sounds(source)]

    def read(self, source: str | None, part: str = "train") -> list[Sound]:
        """The sounds of a source, or a part of the spoken digits."""
        if source is not None:
            return [Sound(file.open, file.text, number) for number, file in enumerate(list_sounds(source))]
        check_installed()
        from regard.data.generated.speech import digits  # whose numbers in words need an extra

        spoken = digits(part)
        return [
            Sound(lambda x=samples: from_samples(x, RATE), each.text, number)  # type: ignore[misc]
            for number, (samples, each) in enumerate(zip(spoken.samples, spoken.utterances, strict=True))
        ]

    def split(self) -> tuple[list[Sound], list[Sound]]:
        whole = self.read(self.audio)
        if self.embedded or self.valid is not None:
            return whole, self.read(self.valid, "valid")
        return hold_out(whole, HELD_OUT, str(self.audio))

    def held_out(self) -> list[Sound]:
        if self.embedded or self.test is not None:
            return self.read(self.test, "test")
        return self.split()[1]

    def overview(self) -> list[Overview]:
        views = []
        for part, source in self.parts.items():
            files = list_sounds(source)
            labels = counted(file.text for file in files)
            notes = label_notes(labels, len(files), "sounds") if part == "train" else []
            views.append(
                Overview(
                    source=source, part=part, count=len(files), unit="sounds", about="audio", labels=labels, notes=notes
                )
            )
        return views


def usual_seconds(sounds: Sequence[Sound]) -> float:
    """The length that nine in ten of these sounds do not exceed, at most 10 seconds."""
    lengths = [sound.open().seconds for sound in sounds[:: max(1, len(sounds) // 200)]]
    return float(min(10.0, max(0.1, np.quantile(lengths, 0.9))))


@dataclass(frozen=True, slots=True, eq=False)
class SoundExample:
    """A sound for a batch; all have as many frames."""

    sound: Sound
    label: int
    frames: int
    epoch: int | None = None

    @property
    def number(self) -> int:
        return self.sound.number

    @property
    def sizes(self) -> tuple[int]:
        return (self.frames,)


@dataclass(frozen=True)
class SoundFrames:
    """Turns sounds into batches of frames, in training shifted and with noise."""

    features: Any
    """Settings of frames that turn samples into them: a `regard.tokens.mel.LogMel`."""
    noise: float
    seed: int = 0

    def stream(self, examples: Sequence[SoundExample], max_frames: int) -> Stream:
        """Endless batches of these sounds, degraded anew in every epoch."""
        return Stream(
            lambda epoch: [replace(each, epoch=epoch) for each in examples], self.collate, max_frames, seed=self.seed
        )

    def samples(self, example: SoundExample) -> np.ndarray:
        """The samples of a sound, as many as the frames need."""
        rate, most = self.features.rate, int((self.features.length or 1) * self.features.hop)
        samples = example.sound.open().samples(rate, 0, most)
        if example.epoch is None:
            return samples
        rng = np.random.default_rng((self.seed, example.epoch, example.number))
        shift = int(rng.integers(int(most * SHIFT) + 1))
        return degraded(np.concatenate([np.zeros(shift, dtype=np.float32), samples])[:most], rate, rng, self.noise)

    def collate(self, examples: Sequence[SoundExample]) -> Batch:
        """Frames and labels of sounds."""
        audio = torch.stack([self.features(self.samples(example)) for example in examples])
        targets = torch.tensor([example.label for example in examples])
        return Batch({"audio": audio}, targets, tuple(example.number for example in examples))
