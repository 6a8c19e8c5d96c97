"""Images with captions: a table of path and caption, or generated scenes; and batches of them."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from regard.data.generated.scenes import Scene, stream_scenes
from regard.data.readers.image_files import as_images
from regard.data.readers.image_lists import list_captioned
from regard.data.readers.preprocessing import Preprocessing
from regard.data.readers.stored_images import Pixels, chosen, decode_files
from regard.data.sets.augment import Augmentation, normalized
from regard.data.sets.base import TRAINED, TextData, idle_rank, idle_with
from regard.data.sets.batches import IGNORE, Batch, pad
from regard.data.sets.image_data import (
    DECIDED,
    ArrayStream,
    ImageData,
    check_memory,
    common_shape,
    resized,
)  # fmt: skip
from regard.data.sets.image_overview import caption_overviews
from regard.data.sets.overview import Overview

HELD_OUT = 500
"""Scenes for validation; twice as many for the test."""


@dataclass(frozen=True, slots=True, eq=False)
class CaptionedImages:
    """Bytes (number, rows, columns, channels), and one or more captions of each image."""

    pixels: Pixels
    captions: list[tuple[str, ...]]

    def __len__(self) -> int:
        return len(self.captions)

    @property
    def labels(self) -> np.ndarray:
        """Class indices for code that expects labels: all images have the class 0."""
        return np.zeros(len(self))

    @property
    def texts(self) -> list[str]:
        """All captions in one list."""
        return list(chain.from_iterable(self.captions))

    def grouped(self, values: Iterable[Any]) -> list[list[Any]]:
        """Values that belong to `texts`, as a list for each image."""
        flat = iter(values)
        return [list(islice(flat, len(captions))) for captions in self.captions]

    def images(self) -> list[Image.Image]:
        """The images as Pillow's, as if they had been read from files."""
        return as_images(self.pixels[:])

    def take(self, indices: Any) -> "CaptionedImages":
        """The images that a NumPy index selects, with their captions."""
        return CaptionedImages(chosen(self.pixels, indices), [self.captions[i] for i in np.arange(len(self))[indices]])


@dataclass(frozen=True, kw_only=True, slots=True)
class CaptionsConfig(ImageData):
    """Where images with captions come from (nothing given: generated scenes), their size, and the texts' tokens."""

    reading: ClassVar[tuple[str, ...]] = ("lowercase", "max_len")
    decides: ClassVar[dict[str, str]] = DECIDED | TextData.decides

    images: str | None = None
    """A table of path and caption (.csv, .tsv, .jsonl, .json also of COCO, Flickr's captions.txt), or .tar files of
    webdataset; rows of the same path are several captions of one image."""
    count: int = 10_000
    """Scenes generated for training, where no images are given."""
    most: int = 3
    """Most objects in a scene."""
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
    """Mirror half of the images; wrong where captions say left or right, or name objects in that order."""
    colour: float = 0.0
    """Largest change of brightness, contrast and saturation; wrong where captions name colours."""

    def __post_init__(self) -> None:
        ImageData.__post_init__(self)
        if self.count < 2 or self.max_len < 4:
            raise ValueError("count must be at least 2, and max_len 4")
        if not 1 <= self.most <= 6:
            raise ValueError(f"most={self.most}: a scene has 1 to 6 objects")

    @property
    def idle(self) -> dict[str, str]:
        tokens = idle_with("tokenizer", self.tokenizer, *TRAINED) | idle_with("base", self.base, *TRAINED)
        return tokens | idle_rank(self.tune) | idle_with("images", self.images, "count", "most")

    def listed(self, source: str) -> list[Path]:
        return [file.path for file in list_captioned(source)[0]]

    def own_shape(self) -> tuple[int, int, int]:
        return (64, 64, 3) if self.images is None else common_shape(list_captioned(self.images)[0])

    def read(
        self, source: str | None, part: str = "train", preprocessing: Preprocessing | None = None
    ) -> CaptionedImages:
        preprocessing = preprocessing or self.preprocessing
        if source is not None:
            files, captions = list_captioned(source)
            decoded = decode_files(files, preprocessing, source, memory=self.memory, strict=self.strict)
            return CaptionedImages(decoded.pixels, [captions[i] for i in decoded.kept])
        count = {"train": self.count, "valid": HELD_OUT, "test": 2 * HELD_OUT}[part]
        assert preprocessing.target is not None
        side = preprocessing.target[0]
        check_memory("scenes", count, (side, side, preprocessing.channels))
        pixels, captions = np.empty((count, *preprocessing.target, preprocessing.channels), dtype=np.uint8), []
        for row, scene in zip(pixels, stream_scenes(part, side, self.most), strict=False):
            row[:] = resized(scene.pixels[None], preprocessing)[0]
            captions.append(self.captions_of(scene, part))
        return CaptionedImages(pixels, captions)

    def overview(self) -> list[Overview]:
        """Summaries of the user's images and captions; no image is decoded."""
        return [] if self.images is None else list(caption_overviews(self))

    def captions_of(self, scene: Scene, part: str) -> tuple[str, ...]:
        """The captions of a generated scene."""
        return (scene.caption,)


@dataclass(frozen=True)
class CaptionStream(ArrayStream):
    """Endless batches of images, each with one of its captions; its position is two numbers, so that a run resumes."""

    images: CaptionedImages
    ids: list[list[list[int]]]
    """The captions of each image as ids."""
    preprocessing: Preprocessing
    augmentation: Augmentation
    special: tuple[int, int, int]
    """The ids of BOS, EOS and padding."""
    rows: int
    """Images in a batch."""
    seed: int = 0

    def batches(self, epoch: int = 0, index: int = 0) -> Iterator[tuple[int, int, Batch]]:
        """(epoch, index of the next batch, batch), from a position on."""
        for (epoch, index, numbers, rng), bytes_ in self.groups(epoch, index):  # noqa: B020
            x = normalized(self.augmentation.change(bytes_.float(), rng), self.preprocessing)
            captions = [self.ids[i][rng.integers(len(self.ids[i]))] for i in numbers]
            yield epoch, index, self.collate(x, captions, numbers)

    def once(self, images: CaptionedImages, ids: list[list[list[int]]]) -> Iterator[Batch]:
        """Every image with each of its captions: for validation."""
        pairs = [(i, caption) for i, captions in enumerate(ids) for caption in captions]
        rows = max(64, self.rows)
        for part in (pairs[first : first + rows] for first in range(0, len(pairs), rows)):
            indices = [i for i, _ in part]
            x = torch.from_numpy(self.preprocessing.numbers(images.pixels[indices]))
            yield self.collate(x, [caption for _, caption in part], indices)

    def collate(self, pixels: Tensor, captions: Sequence[Sequence[int]], indices: Sequence[int]) -> Batch:
        """Teacher forcing: the decoder reads <bos> y₁ … yₙ, and its targets are y₁ … yₙ <eos>."""
        bos, eos, padding = self.special
        inputs = {"pixels": pixels, "target": pad([[bos, *ids] for ids in captions], padding)}
        return Batch(inputs, pad([[*ids, eos] for ids in captions], IGNORE), tuple(indices))
