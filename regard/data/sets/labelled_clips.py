"""Clips with labels: a folder with a sub-folder for each class, a table, or generated clips; or clips without labels,
shown forwards or backwards; and batches of them."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
import torch

from regard.data.generated.clips import FRAMES, KINDS, PARTS, SIDE, clip
from regard.data.readers.clip_lists import ClipFile, list_clips
from regard.data.readers.clip_preprocessing import ClipPreprocessing
from regard.data.readers.clips import Clip, from_frames
from regard.data.readers.preprocessing import Preprocessing
from regard.data.sets.base import Data, Tune, check_tuning, idle_rank
from regard.data.sets.batches import Batch, Stream
from regard.data.sets.overview import Overview, counted, label_notes
from regard.data.sets.transcribed_speech import hold_out

HELD_OUT = 20
"""Percent of the user's clips that are held out for validation, where no others are named."""
USUAL, USUAL_FRAMES = 64, 16
"""Rows and columns, and frames, of the user's clips, where no others are asked for."""
SHIFT = 0.1
"""Largest part of a side by which the frames of a clip are shifted in training."""
TIMES = 2
"""Frames that are kept of the user's clips for each one that is read: which of them is read changes."""
MOST_KEPT = 2 << 30
"""Most bytes of frames that are kept in memory; more are decoded anew for each batch."""
WAYS = ("backwards", "forwards")
"""The labels of clips without labels."""

Kind = Literal["motion", "speed", "bounce", "order", "slowing"]


@dataclass(frozen=True, slots=True, eq=False)
class LabelledClip:
    """A clip that can be opened, with its label."""

    open: Any
    """Function that returns the `Clip`."""
    label: str
    number: int
    turned: bool = False
    """Whether its frames are read from the last to the first."""

    def frames(self, preprocessing: ClipPreprocessing, times: int = 1, where: float = 0.5) -> np.ndarray:
        """Its frames as bytes (frames, rows, columns, channels)."""
        frames = preprocessing.fit(self.open(), times, where)
        return frames[::-1] if self.turned else frames


def generated(kind: str, part: str, number: int) -> Clip:
    """A generated clip by its number."""
    return from_frames(clip(kind, part, number).frames, f"the {kind} clip {number}")


@dataclass(frozen=True, kw_only=True, slots=True)
class ClipsConfig(Data):
    """Where clips come from (nothing given: generated ones), which of their frames are read, and what is learned."""

    own: ClassVar[tuple[str, ...]] = ("clips",)
    reading: ClassVar[tuple[str, ...]] = ("task", "frames", "rate", "size", "channels")
    decides: ClassVar[dict[str, str]] = {
        "model.labels": "follow from the clips", "model.image": "follows from the clips; use --data.size",
        "model.channels": "follow from the clips; use --data.channels", "model.frames": "use --data.frames",
    }  # fmt: skip

    clips: str | None = None
    """A folder with a sub-folder of clips, or of folders of frames, for each class; or a table of path and label."""
    valid: str | None = None
    """A folder or table for validation (none: a part of the above)."""
    test: str | None = None
    """A folder or table for the final test (none: the validation clips)."""
    task: Literal["labels", "forwards"] = "labels"
    """Labels of the clips, or, of clips without labels, whether they are shown forwards or backwards."""
    kind: Kind = "motion"
    """Kind of generated clips: seven motions, three speeds, bouncing or not, the order of events, a loss of speed."""
    frames: int | None = None
    """Frames that are read of a clip (none: 8 of generated clips, 16 of others; with a base, as many as it reads)."""
    rate: float | None = None
    """Frames a second (none: spread evenly over the clip, however long it is)."""
    size: int | None = None
    """Rows and columns that frames are cut and resized to (none: 32 of generated clips, 64 of others)."""
    channels: int | None = None
    """1 for grey, 3 for colours (none: grey for generated clips, colours for others)."""
    shift: float = SHIFT
    """Largest translation in training, as a share of the side, the same for all frames of a clip."""
    base: str | None = None
    """A run or checkpoint whose weights to start from."""
    tune: Tune = "all"
    """The weights to train: all, the head's alone, or the head's and LoRA adapters."""
    rank: int = 8
    """Rank of the LoRA adapters."""

    def __post_init__(self) -> None:
        check_tuning(self.base, self.tune, self.rank)
        if self.channels not in (None, 1, 3):
            raise ValueError(f"channels={self.channels} must be 1 (grey) or 3 (colours)")
        if not 0 <= self.shift < 1:
            raise ValueError(f"shift={self.shift} is not a share from 0 to 1")
        if self.size is not None and not 4 <= self.size <= 1024:
            raise ValueError(f"size={self.size} is not between 4 and 1,024 pixels")
        if self.kind == "slowing" and self.task == "labels" and self.embedded:
            raise ValueError("clips of the kind slowing have one label; give --data.task forwards")
        self.preprocessing()

    @property
    def idle(self) -> dict[str, str]:
        return idle_rank(self.tune) | ({} if self.embedded else {"kind": f"clips {self.clips}"})

    @property
    def parts(self) -> dict[str, str]:
        named = {"train": self.clips, "valid": self.valid, "test": self.test}
        return {part: source for part, source in named.items() if source}

    def preprocessing(self) -> ClipPreprocessing:
        """The preprocessing of a model from scratch."""
        side = self.size or (SIDE if self.embedded else USUAL)
        channels = self.channels or (1 if self.embedded else 3)
        middle = (0.5,) * channels
        image = Preprocessing(
            channels=channels, shortest=side, crop=(side, side), filter="bilinear", mean=middle, std=(0.25,) * channels
        )
        frames = self.frames or (FRAMES if self.embedded else USUAL_FRAMES)
        return ClipPreprocessing(image=image, frames=frames, rate=self.rate)

    def files(self, source: str) -> list[ClipFile]:
        return list_clips(source, self.task == "labels")

    def listed(self, source: str) -> list[Path]:
        return [] if Path(source).is_dir() else [file.path for file in self.files(source)]

    def read(self, source: str | None, part: str = "train") -> list[LabelledClip]:
        """The clips of a source, or a part of the generated ones."""
        if source is not None:
            return [LabelledClip(file.open, file.label, number) for number, file in enumerate(self.files(source))]
        labels = KINDS[self.kind][1]
        return [
            LabelledClip(partial(generated, self.kind, part, number), labels[number % len(labels)], number)
            for number in range(PARTS[part][1])
        ]

    def split(self) -> tuple[list[LabelledClip], list[LabelledClip]]:
        """Clips for training and for validation; of the latter, where no labels are learned, each in both ways."""
        whole = self.read(self.clips)
        if self.embedded or self.valid is not None:
            return whole, self.both_ways(self.read(self.valid, "valid"))
        learned, held = hold_out(whole, HELD_OUT, str(self.clips))
        return learned, self.both_ways(held)

    def held_out(self) -> list[LabelledClip]:
        if self.embedded or self.test is not None:
            return self.both_ways(self.read(self.test, "test"))
        return self.split()[1]

    def both_ways(self, clips: Sequence[LabelledClip]) -> list[LabelledClip]:
        """Clips as they are scored: with their labels, or each forwards and backwards."""
        if self.task == "labels":
            return list(clips)
        return [replace(each, turned=not way, label=WAYS[way]) for each in clips for way in (True, False)]

    def names(self, clips: Sequence[LabelledClip]) -> tuple[str, ...]:
        """The labels that are learned from clips."""
        if self.task == "forwards":
            return WAYS
        names = tuple(sorted({each.label for each in clips}))
        if len(names) < 2:
            raise ValueError(f"{self.clips} has the one class {names[0]!r}; there is nothing to tell apart")
        return names

    def overview(self) -> list[Overview]:
        views = []
        for part, source in self.parts.items():
            files = self.files(source)
            labels = counted(file.label for file in files) if self.task == "labels" else {}
            notes = label_notes(labels, len(files), "clips") if part == "train" and labels else []
            views.append(
                Overview(
                    source=source, part=part, count=len(files), unit="clips", about="video", labels=labels, notes=notes
                )
            )
        return views


@dataclass(frozen=True, slots=True, eq=False)
class ClipExample:
    """A clip for a batch; `tokens` are those that it becomes."""

    clip: LabelledClip
    label: int
    tokens: int
    epoch: int | None = None

    @property
    def number(self) -> int:
        return self.clip.number

    @property
    def sizes(self) -> tuple[int]:
        return (self.tokens,)


class ClipFrames:
    """Turns clips into batches of frames, in training shifted, at other moments, and perhaps backwards."""

    def __init__(
        self, preprocessing: ClipPreprocessing, names: tuple[str, ...], data: ClipsConfig, tokens: int, seed: int = 0
    ) -> None:
        self.preprocessing, self.names, self.data, self.tokens, self.seed = preprocessing, names, data, tokens, seed
        self.kept: dict[int, np.ndarray] = {}
        self.bytes = 0

    def examples(self, clips: Sequence[LabelledClip]) -> list[ClipExample]:
        """Clips with the numbers of their labels; an unknown label is an error."""
        known = [name for name in {each.label for each in clips} if self.data.task == "labels"]
        if unknown := sorted(set(known) - set(self.names)):
            raise ValueError(f"the classes {', '.join(unknown)} occur in no training clip; add some")
        index = {name: i for i, name in enumerate(self.names)}
        return [ClipExample(each, index.get(each.label, 0), self.tokens) for each in clips]

    def stream(self, examples: Sequence[ClipExample], most: int) -> Stream:
        """Endless batches of these clips, changed anew in every epoch; generated clips are new ones every time."""

        def epoch(number: int) -> list[ClipExample]:
            if not self.data.embedded:
                return [replace(each, epoch=number) for each in examples]
            labels, kind = KINDS[self.data.kind][1], self.data.kind
            return [
                replace(each, epoch=number, clip=LabelledClip(
                    partial(generated, kind, "train", at), labels[at % len(labels)], each.number))
                for each in examples for at in [each.number + number * len(labels) * len(examples)]
            ]  # fmt: skip

        return Stream(epoch, self.collate, most, seed=self.seed)

    def frames(self, example: ClipExample) -> tuple[np.ndarray, int]:
        """The frames of an example as bytes, and the number of its label."""
        clip, label = example.clip, example.label
        if example.epoch is None:
            return clip.frames(self.preprocessing), label
        rng = np.random.default_rng((self.seed, example.epoch, example.number))
        if self.data.embedded:
            frames = clip.frames(self.preprocessing)
        elif self.preprocessing.rate is not None:
            frames = clip.frames(self.preprocessing, where=rng.random())
        else:
            frames = self.stored(clip)
            count = self.preprocessing.frames
            frames = frames[np.arange(count) * TIMES + rng.integers(TIMES, size=count)]
        if self.data.task == "forwards":
            label = int(rng.integers(2))
            frames = frames if label else frames[::-1]
        return shifted(frames, self.data.shift, rng), label

    def stored(self, clip: LabelledClip) -> np.ndarray:
        """More frames of a clip than are read, from memory where they fit into it."""
        if clip.number not in self.kept:
            frames = clip.frames(self.preprocessing, TIMES)
            if self.bytes + frames.nbytes > MOST_KEPT:
                return frames
            self.kept[clip.number], self.bytes = frames, self.bytes + frames.nbytes
        return self.kept[clip.number]

    def collate(self, examples: Sequence[ClipExample]) -> Batch:
        """Frames and labels of clips; with a rate, clips of unequal length are filled up with black."""
        rows = [self.frames(example) for example in examples]
        lengths = [len(frames) for frames, _ in rows]
        video = np.zeros((len(rows), max(lengths), *rows[0][0].shape[1:]), dtype=np.uint8)
        for out, (frames, _) in zip(video, rows, strict=True):
            out[: len(frames)] = frames
        inputs = {"video": torch.from_numpy(self.preprocessing.numbers(video))}
        if self.preprocessing.rate is not None:
            inputs["lengths"] = torch.tensor(lengths)
        targets = torch.tensor([label for _, label in rows])
        return Batch(inputs, targets, tuple(example.number for example in examples))


def shifted(frames: np.ndarray, share: float, rng: np.random.Generator) -> np.ndarray:
    """All frames of a clip moved by the same random number of pixels; its edges are repeated."""
    most = [round(side * share) for side in frames.shape[1:3]]
    if not any(most):
        return frames
    down, right = (int(rng.integers(-step, step + 1)) for step in most)
    rows = np.clip(np.arange(frames.shape[1]) - down, 0, frames.shape[1] - 1)
    columns = np.clip(np.arange(frames.shape[2]) - right, 0, frames.shape[2] - 1)
    return frames[:, rows][:, :, columns]
