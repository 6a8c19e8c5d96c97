"""Pictures and what is said of them: a table of path and caption, or the scenes drawn here."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Literal

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from regard.data.generated.scenes import Scene, stream_scenes
from regard.data.readers.image_files import Preprocessing, as_images
from regard.data.readers.image_tables import TABLES, read_table
from regard.data.sets.augment import Augmentation, centred
from regard.data.sets.base import TRAINED, TextData, idle_with
from regard.data.sets.batches import IGNORE, Batch, pad, shuffled
from regard.data.sets.labelled_images import (
    DECIDED,
    ImageFile,
    ImageData,
    Stream,
    check_room,
    every_tenth,
    read_listed,
    resized,
    shape_of,
)

HELD_OUT = 500
"""Scenes for validation; twice as many for the scores at the end."""


@dataclass(frozen=True, slots=True, eq=False)
class CaptionedImages:
    """Bytes (number, rows, columns, channels), and one caption or several of each picture."""

    pixels: np.ndarray
    captions: list[tuple[str, ...]]

    def __len__(self) -> int:
        return len(self.captions)

    def images(self) -> list[Image.Image]:
        """The images as Pillow's, as if they had been read from files."""
        return as_images(self.pixels)

    def take(self, places: slice | Sequence[int]) -> "Captioned":
        if isinstance(places, slice):
            return CaptionedImages(self.pixels[places], self.captions[places])
        return CaptionedImages(self.pixels[list(places)], [self.captions[i] for i in places])


@dataclass(frozen=True, kw_only=True, slots=True)
class CaptionsConfig(ImageData):
    """Where pictures with captions come from (nothing given: scenes drawn here), their size, and the texts' tokens."""

    reading: ClassVar[tuple[str, ...]] = ("lowercase", "max_len")
    decides: ClassVar[dict[str, str]] = DECIDED | TextData.decides

    images: str | None = None
    """A .csv, .tsv or .jsonl of path and caption; rows of the same path are several captions of one picture."""
    count: int = 10_000
    """Scenes drawn for training, where no pictures are given."""
    most: int = 3
    """Most things in a scene."""
    tokenizer: str | None = None
    """An existing tokenizer.json (none: one is trained on the captions)."""
    kind: Literal["bpe", "word", "char"] = "word"
    """Kind of tokenizer to train."""
    vocab_size: int = 4000
    """Most entries of the tokenizer to train."""
    lowercase: bool = True
    """Lower-case everything."""
    max_len: int = 64
    """Longest caption in tokens; longer ones are left out of training."""
    flip: bool = False
    """Mirror half of the pictures; wrong where captions say left or right, or name things in that order."""
    colour: float = 0.0
    """Largest change of brightness, contrast and saturation; wrong where captions name colours."""

    def __post_init__(self) -> None:
        ImageData.__post_init__(self)
        if self.count < 2 or self.max_len < 4:
            raise ValueError("count must be at least 2, and max_len 4")
        if not 1 <= self.most <= 6:
            raise ValueError(f"most={self.most}: a scene has 1 to 6 things")

    @property
    def idle(self) -> dict[str, str]:
        tokens = idle_with("tokenizer", self.tokenizer, *TRAINED)
        return tokens | idle_with("images", self.images, "count", "most")

    def shape(self) -> tuple[int, int, int]:
        """Rows, columns and channels that all pictures get."""
        rows, columns, channels = (64, 64, 3) if self.images is None else shape_of(list_captions(self.images)[0])
        return self.size or rows, self.size or columns, self.channels or channels

    def read(self, source: str, how: Preprocessing | None = None) -> CaptionedImages:
        """All pictures of a table, at one size, as `how` says."""
        listed, captions = list_captions(source)
        return CaptionedImages(read_listed(listed, how or self.fitting(), source), captions)

    def drawn(self, split: str, count: int, how: Preprocessing | None = None) -> CaptionedImages:
        """Scenes of a split; of each only pixels and captions are kept."""
        how = how or self.fitting()
        assert how.target is not None
        side = how.target[0]
        check_room("scenes", count, (side, side, how.channels))
        pixels, captions = np.empty((count, *how.target, how.channels), dtype=np.uint8), []
        for place, one in zip(pixels, stream_scenes(split, side, self.most), strict=False):
            place[:] = resized(one.pixels[None], how)[0]
            captions.append(self.said(one, split))
        return CaptionedImages(pixels, captions)

    def said(self, scene: Scene, split: str) -> tuple[str, ...]:
        """Captions of a scene."""
        return (scene.caption,)

    def split(self, how: Preprocessing | None = None) -> tuple[CaptionedImages, CaptionedImages]:
        """Pictures for training and for validation; no picture is in both, however many captions it has."""
        how = how or self.fitting()
        if self.images is None:
            return self.drawn("train", self.count, how), self.drawn("valid", HELD_OUT, how)
        found = self.read(self.images, how)
        if self.valid is not None:
            return found, self.read(self.valid, how)
        held = every_tenth(np.zeros(len(found)), self.images)
        train, valid = (found.take(np.flatnonzero(part).tolist()) for part in (~held, held))
        return train, valid

    def held_out(self, how: Preprocessing | None = None) -> CaptionedImages:
        """The pictures for the scores at the end."""
        how = how or self.fitting()
        if self.images is None:
            return self.drawn("test", 2 * HELD_OUT, how)
        return self.read(self.test, how) if self.test is not None else self.split(how)[1]


def list_captions(source: str | Path) -> tuple[list[ImageFile], list[tuple[str, ...]]]:
    """The pictures of a table, each once, and their captions; paths are relative to the table."""
    table = Path(source)
    if table.suffix.lower() not in TABLES:
        kinds = f"a table ({', '.join(TABLES)}) of path and caption"
        raise ValueError(
            f"{source}: pictures with captions are {kinds}" if table.exists() else f"no such file: {source}"
        )
    listed: dict[Path, ImageFile] = {}
    captions: dict[Path, list[str]] = {}
    for number, name, said in read_table(table, "caption"):
        path, where = table.parent / name, f"{table}, line {number}: "
        if not path.is_file():
            raise ValueError(f"{where}no such image: {path}; paths are relative to the table")
        listed.setdefault(path, ImageFile(path, "", where))
        captions.setdefault(path, []).extend(said)
    return list(listed.values()), [tuple(captions[path]) for path in listed]


@dataclass(frozen=True)
class CaptionStream(Stream):
    """Endless batches of pictures, each with one of its captions; where it stands is two numbers, so a run resumes."""

    pictures: CaptionedImages
    ids: list[list[list[int]]]
    """The captions of each picture as tokens."""
    how: Preprocessing
    augmentation: Augmentation
    marks: tuple[int, int, int]
    """What begins a caption, ends it, and fills up shorter ones."""
    rows: int
    """Pictures in a batch."""
    seed: int = 0

    def batches(self, epoch: int = 0, index: int = 0) -> Iterator[tuple[int, int, Batch]]:
        """(epoch, index of the next batch, batch), from the given place on."""
        for epoch, index, places, rng in shuffled(len(self.pictures), self.rows, self.seed, epoch, index):  # noqa: B020
            x = centred(self.augmentation.change(self.bytes_of(places).float(), rng), self.how)
            said = [self.ids[i][rng.integers(len(self.ids[i]))] for i in places]
            yield epoch, index, self.collate(x, said, places)

    def once(self, pictures: CaptionedImages, ids: list[list[list[int]]]) -> Iterator[Batch]:
        """Every given picture with each of its captions: for validation."""
        pairs = [(i, said) for i, captions in enumerate(ids) for said in captions]
        rows = max(64, self.rows)
        for some in (pairs[first : first + rows] for first in range(0, len(pairs), rows)):
            places = [i for i, _ in some]
            x = torch.from_numpy(self.how.numbers(pictures.pixels[places]))
            yield self.collate(x, [said for _, said in some], places)

    def collate(self, pixels: Tensor, said: Sequence[Sequence[int]], places: Sequence[int]) -> Batch:
        """Teacher forcing: the decoder reads <bos> y₁ … yₙ and is to write y₁ … yₙ <eos>."""
        bos, eos, fill = self.marks
        inputs = {"pixels": pixels, "target": pad([[bos, *ids] for ids in said], fill)}
        return Batch(inputs, pad([[*ids, eos] for ids in said], IGNORE), tuple(places))
