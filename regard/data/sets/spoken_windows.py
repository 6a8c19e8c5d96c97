"""Windows of recordings with timed transcripts, as an encoder–decoder like Whisper learns them.

A target is a timestamp, a phrase, the timestamp of its end, and so on. Of a phrase that the window's end cuts only the
beginning is said, so that the next window begins there; silence is a single timestamp.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from regard.data.sets.batches import IGNORE, Batch, Stream, pad
from regard.data.sets.degrade import degraded
from regard.data.sets.transcribed_speech import Spoken, masked

WHOLE = 0.15
"""The share of batches that are padded to the whole window, which the model is given when it transcribes. They hold as
many frames as others, so fewer recordings."""
STEP = 0.02
"""Seconds from one timestamp to the next."""


@dataclass(frozen=True, slots=True, eq=False)
class SpokenWindow:
    """A part of a recording that begins with one of its phrases, with the target that follows from it."""

    spoken: Spoken
    start: int
    """The first frame."""
    frames: int
    ids: list[int]
    epoch: int | None = None
    """The epoch, by which it is degraded; None: as it is."""

    @property
    def number(self) -> int:
        return self.spoken.number

    @property
    def sizes(self) -> tuple[int, int]:
        return len(self.ids), self.frames


@dataclass(frozen=True, kw_only=True)
class SpokenWindows:
    """Turns recordings into batches of windows, in training with noise and masks."""

    features: Any
    """Settings of frames that turn samples into them: a `regard.tokens.mel.LogMel`, whose length is a window's."""
    encode: Any
    """Function from texts to the ids of each."""
    start: int
    """The token before every target."""
    end: int
    """The token behind every target."""
    first: int
    """The timestamp 0.00; the tokens behind it are later times."""
    noise: float
    masks: bool
    seed: int = 0

    @property
    def step(self) -> float:
        """Seconds of a frame."""
        return self.features.seconds(1)

    def windows(self, recordings: Sequence[Spoken], epoch: int | None = None) -> list[SpokenWindow]:
        """A window of each recording; in an epoch of training it begins with any phrase, otherwise with the first."""
        rng = np.random.default_rng((self.seed, epoch or 0))
        phrases = [each.times or ((0.0, each.open().seconds, each.text),) for each in recordings]
        texts = iter(self.encode([f" {text}" if text else "" for times in phrases for _, _, text in times]))
        rows = []
        for spoken, times in zip(recordings, phrases, strict=True):
            ids = [next(texts) for _ in times]
            chosen = int(rng.integers(len(times))) if epoch is not None else 0
            start = round((times[chosen - 1][1] if chosen else 0.0) / self.step)
            count = min(self.features.frames(0), round(spoken.open().seconds / self.step) - start)
            target = self.target([(a, b) for a, b, _ in times[chosen:]], ids[chosen:], start, count)
            rows.append(SpokenWindow(spoken, start, count, target, epoch))
        return rows

    def target(
        self, times: Sequence[tuple[float, float]], ids: Sequence[list[int]], start: int, count: int
    ) -> list[int]:
        """The tokens of a window of `count` frames: phrases between their times."""
        begin, size, target = start * self.step, count * self.step, list[int]()
        for (a, b), phrase in zip(times, ids, strict=True):
            if a - begin >= size:
                break
            target.append(self.time(a - begin))
            if b - begin > size + self.step or not phrase:
                break
            target += [*phrase, self.time(min(b - begin, size))]
        return target

    def time(self, seconds: float) -> int:
        """The token of a time."""
        return self.first + round(max(0.0, seconds) / STEP)

    def stream(self, recordings: Sequence[Spoken], max_frames: int) -> Stream:
        """Endless batches of windows, other ones in every epoch."""
        collate = partial(self.collate, most=max_frames)
        return Stream(lambda epoch: self.windows(recordings, epoch), collate, max_frames, seed=self.seed)

    def frames(self, window: SpokenWindow) -> Tensor:
        """The frames of a window, scaled as those of the whole recording are."""
        features = replace(self.features, length=None)
        samples = window.spoken.recording().samples(features.rate)
        part = slice(window.start, window.start + window.frames)
        if window.epoch is None:
            return features(samples)[part]
        rng = np.random.default_rng((self.seed, window.epoch, window.number))
        frames = features(degraded(samples, features.rate, rng, self.noise))[part]
        return masked(frames, rng) if self.masks else frames

    def collate(self, windows: Sequence[SpokenWindow], most: int) -> Batch:
        """Frames padded with zeros, in some batches to a whole window, and targets between start and end."""
        rng = np.random.default_rng((self.seed, windows[0].epoch or 0, windows[0].number))
        whole = windows[0].epoch is not None and rng.random() < WHOLE
        if whole:
            windows = windows[: max(1, most // self.features.frames(0))]
        frames = [self.frames(window) for window in windows]
        size = self.features.frames(0) if whole else max(len(each) for each in frames)
        padded = torch.stack([F.pad(each, (0, 0, 0, size - len(each))) for each in frames])
        inputs = {
            "frames": padded,
            "lengths": torch.full((len(frames),), size),  # the padding is read, as it is in transcription
            "target": pad([[self.start, *window.ids] for window in windows], self.end),
        }
        targets = pad([[*window.ids, self.end] for window in windows], IGNORE)
        return Batch(inputs, targets, tuple(window.number for window in windows))
