"""Recordings with transcripts: a table or folder of the user's, or the embedded speech; and batches of their frames."""

import math
import unicodedata
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from torch import Tensor

from regard.config import check_fractions
from regard.data.generated.espeak import check_installed
from regard.data.generated.splits import hashed
from regard.data.readers.audio_files import Recording, from_samples
from regard.data.readers.recordings import RecordedFile, list_spoken
from regard.data.sets.base import TextData
from regard.data.sets.batches import IGNORE, Batch, Stream, pad
from regard.data.sets.degrade import degraded, no_speech
from regard.data.sets.overview import SHOWN, Overview, shortened

RATE = 16_000
"""Samples a second of the embedded speech."""
VALID, TEST = 300, 1000
"""Embedded utterances for validation and for the test."""
HELD_OUT = 10
"""Percent of the user's recordings that are held out for validation, where no others are named."""
SILENT, JOINED = 24, 6
"""Of so many embedded examples one is no speech, and of so many one is several phrases with pauses."""
PAUSES, MOST_JOINED = (0.2, 1.5), 4
MASKS, WIDEST_BANDS, LONGEST_FRAMES = 2, 0.15, 0.1
"""Bands and stretches of time that are hidden in training, and the largest part of all that each takes."""


def plain_text(text: str) -> str:
    """A text as speech recognition is scored: lower case, without punctuation but for apostrophes, one space between
    words; a hyphen separates words."""
    kept = "".join(
        c if unicodedata.category(c)[0] in "LMN" or c in "'’" else " " for c in unicodedata.normalize("NFKC", text)
    )
    return " ".join(kept.lower().replace("’", "'").split())


@dataclass(frozen=True, slots=True, eq=False)
class Spoken:
    """A recording with its transcript."""

    open: Callable[[], Recording]
    text: str
    number: int
    noisy: bool = False
    """Whether it is degraded when it is read, always in the same way."""
    place: str = ""
    """The file, for errors."""
    times: tuple[tuple[float, float, str], ...] = ()
    """The seconds at which each of its phrases begins and ends, where they are known, and the phrase."""

    def recording(self) -> Recording:
        """The recording, degraded if it is to be."""
        recording = self.open()
        if not self.noisy:
            return recording
        samples = degraded(recording.samples(), recording.rate, np.random.default_rng((7, self.number)), 0.5)
        return from_samples(samples, recording.rate, recording.name)


@dataclass(frozen=True, kw_only=True, slots=True)
class SpeechConfig(TextData):
    """Where recordings with transcripts come from (nothing given: the embedded speech), and how they are read."""

    own: ClassVar[tuple[str, ...]] = ("audio",)
    reading: ClassVar[tuple[str, ...]] = ("lowercase", "plain", "longest")

    audio: str | None = None
    """A table of path and text (.tsv, .csv, .jsonl), a folder with one, or LibriSpeech's layout."""
    valid: str | None = None
    """A table or folder for validation (none: a part of the above)."""
    test: str | None = None
    """A table or folder for the final test (none: the validation recordings)."""
    languages: tuple[Literal["en", "de"], ...] = ("en", "de")
    """Languages of the embedded speech."""
    count: int = 6000
    """Phrases of the embedded speech that are trained on."""
    kind: Literal["bpe", "word", "char"] = "char"
    """Kind of tokenizer to train; characters suit CTC."""
    plain: bool = True
    """Transcripts in lower case and without punctuation, as they are scored."""
    longest: float = 30.0
    """Seconds of the longest recording that is trained on."""
    noise: float = 0.5
    """Share of recordings that get noise, and of those that get an echo, anew in every epoch."""
    masks: bool = True
    """Hide some bands and stretches of time in training (SpecAugment)."""

    def __post_init__(self) -> None:
        check_fractions(self, "noise")
        if self.count < 100 or self.longest < 1:
            raise ValueError("count must be at least 100, and longest 1 second")
        if not self.languages or len(set(self.languages)) < len(self.languages):
            raise ValueError(f"languages={self.languages} must name each language once")

    @property
    def parts(self) -> dict[str, str]:
        named = {"train": self.audio, "valid": self.valid, "test": self.test}
        return {part: source for part, source in named.items() if source}

    def listed(self, source: str) -> list[Path]:
        return [file.path for file in list_spoken(source)]

    def read(self, source: str | None, part: str = "train") -> list[Spoken]:
        """The recordings of a source, or those of a part of the embedded speech."""
        if source is not None:
            return [self.of_file(file, number) for number, file in enumerate(list_spoken(source))]
        check_installed()
        from regard.data.generated.speech import speech  # whose phrases need an extra

        if part != "train":
            spoken = speech(part, VALID if part == "valid" else TEST, self.languages)
            pairs = zip(spoken.samples, spoken.utterances, strict=True)
            return [self.embedded_one(samples, each.text, i, True) for i, (samples, each) in enumerate(pairs)]
        spoken = speech("train", self.count, self.languages)
        return self.with_others(spoken.samples, [each.text for each in spoken.utterances])

    def with_others(self, samples: list[np.ndarray], texts: list[str]) -> list[Spoken]:
        """Utterances of the training set, with some that are joined by pauses, and some sounds that are no speech."""
        examples = [self.embedded_one(x, text, i) for i, (x, text) in enumerate(zip(samples, texts, strict=True))]
        for index in range(0, len(samples), JOINED):
            number, rng = len(examples), np.random.default_rng((8, index))
            several = [
                (index + step * len(self.languages)) % len(samples) for step in range(rng.integers(2, MOST_JOINED + 1))
            ]
            pauses = [np.zeros(int(RATE * rng.uniform(*PAUSES)), dtype=np.int16) for _ in several]
            parts = [part for i, pause in zip(several, pauses, strict=True) for part in (samples[i], pause)]
            ends = np.cumsum([len(part) for part in parts]) / RATE
            starts = [0.0, *ends[1:-1:2].tolist()]
            times = tuple(zip(starts, ends[::2].tolist(), [texts[i] for i in several], strict=True))
            joined = self.embedded_one(np.concatenate(parts), " ".join(texts[i] for i in several), number)
            examples.append(replace(joined, times=tuple((a, b, self.written(text)) for a, b, text in times)))
        for _ in range(len(samples) // SILENT):
            rng = np.random.default_rng((9, len(examples)))
            sound = no_speech(int(RATE * rng.uniform(0.5, 6)), RATE, rng)
            examples.append(self.embedded_one((sound * 32767).astype(np.int16), "", len(examples)))
        return examples

    def embedded_one(self, samples: np.ndarray, text: str, number: int, noisy: bool = False) -> Spoken:
        """An utterance of the embedded speech."""
        name = f"utterance {number}"
        return Spoken(lambda: from_samples(samples, RATE, name), self.written(text), number, noisy, name)

    def of_file(self, file: RecordedFile, number: int) -> Spoken:
        """A recording of the user's."""
        return Spoken(file.open, self.written(file.text), number, False, f"{file.where}{file.path}")

    def written(self, text: str) -> str:
        """A transcript as the model learns it."""
        return plain_text(text) if self.plain else " ".join(text.split())

    def split(self) -> tuple[list[Spoken], list[Spoken]]:
        whole = self.read(self.audio)
        if self.embedded or self.valid is not None:
            return whole, self.read(self.valid, "valid")
        return hold_out(whole, HELD_OUT, str(self.audio))

    def held_out(self) -> list[Spoken]:
        if self.embedded or self.test is not None:
            return self.read(self.test, "test")
        return self.split()[1]

    def overview(self) -> list[Overview]:
        views = []
        for part, source in self.parts.items():
            files = list_spoken(source)
            empty = sum(not self.written(file.text) for file in files)
            views.append(
                Overview(
                    source=source,
                    part=part,
                    count=len(files),
                    unit="recordings",
                    about="audio with transcripts",
                    examples=[f"{file.path.name} → {shortened(file.text)}" for file in files[:SHOWN]],
                    notes=[f"{empty:,} without words: trained as silence"] if empty else [],
                )  # fmt: skip
            )
        return views


def hold_out(whole: list[Any], percent: int, source: str) -> tuple[list[Any], list[Any]]:
    """Examples for training, and the others, chosen by a hash of their numbers; at least one is held out."""
    if len(whole) < 2:
        raise ValueError(f"{source} has a single recording; give more, or others as --data.valid")
    order = sorted(whole, key=lambda each: hashed(f"held out {each.number}"))
    held = {each.number for each in order[: max(1, len(whole) * percent // 100)]}
    return [each for each in whole if each.number not in held], [each for each in whole if each.number in held]


@dataclass(frozen=True, slots=True, eq=False)
class SpokenIds:
    """A recording with its transcript as ids, and the number of its frames."""

    spoken: Spoken
    ids: list[int]
    frames: int
    epoch: int | None = None
    """The epoch, by which it is degraded; None: as it is."""

    @property
    def number(self) -> int:
        return self.spoken.number

    @property
    def sizes(self) -> tuple[int, int]:
        return len(self.ids), self.frames


@dataclass(frozen=True)
class SpokenFrames:
    """Turns recordings into batches of frames, in training with noise and masks."""

    features: Any
    """Settings that turn samples into frames: a `regard.tokens.mel.LogMel`, or a `Waveform`."""
    noise: float
    masks: bool
    seed: int = 0

    def stream(self, examples: Sequence[SpokenIds], max_frames: int) -> Stream:
        """Endless batches of these recordings, degraded anew in every epoch."""
        return Stream(
            lambda epoch: [replace(each, epoch=epoch) for each in examples], self.collate, max_frames, seed=self.seed
        )

    def frames(self, example: SpokenIds) -> Tensor:
        """The frames of a recording."""
        rate = self.features.rate
        samples = example.spoken.recording().samples(rate)
        if example.epoch is None:
            return self.features(samples)
        rng = np.random.default_rng((self.seed, example.epoch, example.number))
        frames = self.features(degraded(samples, rate, rng, self.noise))
        return masked(frames, rng) if self.masks else frames

    def collate(self, examples: Sequence[SpokenIds]) -> Batch:
        """Frames padded with zeros, and ids padded with IGNORE."""
        frames = [self.frames(example) for example in examples]
        lengths = torch.tensor([len(each) for each in frames])
        audio = torch.nn.utils.rnn.pad_sequence(frames, batch_first=True)
        targets = pad([example.ids for example in examples], IGNORE)
        return Batch({"audio": audio, "lengths": lengths}, targets, tuple(example.number for example in examples))


def masked(frames: Tensor, rng: np.random.Generator) -> Tensor:
    """Frames with some bands and some stretches of time at the mean (Park et al., 2019); samples have no bands."""
    frames = frames.clone()
    mean = frames.mean()
    for axis, share in [(1, WIDEST_BANDS), (0, LONGEST_FRAMES)][2 - frames.dim() :]:
        for _ in range(MASKS):
            width = int(rng.integers(math.ceil(frames.shape[axis] * share) + 1))
            start = int(rng.integers(frames.shape[axis] - width + 1))
            frames.narrow(axis, start, width).fill_(mean)
    return frames
