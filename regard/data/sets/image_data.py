"""The base of all sets of images: their config, their size, and the split into training and validation."""

import math
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal, TypeVar

import numpy as np
import torch
from torch import Tensor

from regard.data.readers.arrays import has_test
from regard.data.readers.image_files import as_images
from regard.data.readers.image_lists import ImageFile
from regard.data.readers.parts import find_parts
from regard.data.readers.preprocessing import Preprocessing
from regard.data.readers.stored_images import DAMAGED, DiskImages
from regard.data.sets.augment import Augmentation
from regard.data.sets.base import Data, Tune, idle_rank
from regard.data.sets.batches import shuffled

Result = TypeVar("Result")

LARGEST = 64
"""Images of unequal or larger sizes become squares of this side, unless a size is set."""
ROOM = 1 << 32
"""Bytes that images which must be in memory may take together."""
AHEAD = 4
"""Batches that are read from disk before they are asked for."""
DECIDED = {
    "model.image": "follows from the images; use --data.size",
    "model.channels": "follows from the images; use --data.channels",
    "model.labels": "follows from the images; leave it out",
}
"""Model fields that follow from the images, each with the error message for a user who sets it."""
NO_LABELS = {"train.smoothing": "has no effect where nothing is labelled; leave it out"}


@dataclass(frozen=True, kw_only=True, slots=True)
class ImageData(Augmentation, Data):
    """Where images come from (nothing given: embedded ones), their size, and how training augments them."""

    own: ClassVar[tuple[str, ...]] = ("images",)
    decides: ClassVar[dict[str, str]] = DECIDED

    images: str | None = None
    """A folder, table or array of images."""
    valid: str | None = None
    """Images for validation, given in the same way (nothing given: every tenth image is held out)."""
    test: str | None = None
    """Images for the test, given in the same way (nothing given: x_test of an .npz, or the images for validation)."""
    size: int | None = None
    """Pixels of a side that images are resized to (none: their own if all are alike and small, else 64)."""
    channels: int | None = None
    """1 for grey, 3 for colours (none: as the images are)."""
    resize: Literal["squash", "crop"] = "squash"
    """Treatment of images that are not square: squashed, or resized by the shorter side and cropped."""
    memory: float = 1.0
    """GiB of decoded images that are held in memory; more are decoded into a file once and read from there."""
    strict: bool = False
    """Stop at a damaged image file; otherwise it is skipped and counted."""
    base: str | None = None
    """A run or checkpoint whose weights and preprocessing to start from."""
    tune: Tune = "all"
    """The weights to train: all, the head's alone, or the head's and LoRA adapters."""
    rank: int = 8
    """Rank of the LoRA adapters."""

    @property
    def idle(self) -> dict[str, str]:
        return idle_rank(self.tune)

    def __post_init__(self) -> None:
        if (self.valid or self.test) and not self.images:
            raise ValueError("validation images without training images; give --data.images too")
        if self.channels is not None:
            check_channels(self.channels)
        if self.size is not None and self.size < 1:
            raise ValueError(f"size={self.size} must be at least 1")
        if self.memory < 0:
            raise ValueError(f"memory={self.memory} must not be negative")
        Augmentation.__post_init__(self)

    @property
    def source(self) -> str | None:
        """The user's images for training."""
        return self.images

    @property
    def parts(self) -> dict[str, str]:
        """The sources of train, valid and test: the named ones, or those in a folder of all three."""
        parts = find_parts(self.images) if self.images is not None else {}
        return parts | {name: getattr(self, name) for name in ("valid", "test") if getattr(self, name) is not None}

    def shape(self) -> tuple[int, int, int]:
        """Rows, columns and channels that every image gets."""
        rows, columns, channels = self.own_shape()
        return self.size or rows, self.size or columns, self.channels or channels

    def own_shape(self) -> tuple[int, int, int]:
        """Rows, columns and channels that suit the images as they are."""
        raise NotImplementedError

    @property
    def preprocessing(self) -> Preprocessing:
        """The resizing that brings every image to `shape`."""
        rows, columns, channels = self.shape()
        if self.resize == "crop" and rows == columns:
            return Preprocessing(channels=channels, shortest=rows, crop=(rows, columns))
        return Preprocessing(channels=channels, size=(rows, columns))

    def read(self, source: str | None, part: str = "train", preprocessing: Preprocessing | None = None) -> Any:
        """All images of a source at one size; without a source, of a part of the embedded ones."""
        raise NotImplementedError

    def check(self, names: tuple[str, ...]) -> None:
        """Raise an error if a model cannot be trained on images of these classes."""

    def split(self, preprocessing: Preprocessing | None = None) -> tuple[Any, Any]:
        """The images for training and for validation; no image is in both."""
        preprocessing = preprocessing or self.preprocessing
        images = self.read(self.images, "train", preprocessing)
        self.check(getattr(images, "names", ()))
        if self.images is None or "valid" in self.parts:
            return images, self.read(self.parts.get("valid"), "valid", preprocessing)
        held = every_tenth(images.labels, self.images)
        return images.take(~held), images.take(held)

    def held_out(self, preprocessing: Preprocessing | None = None) -> Any:
        """The images for the test: the named ones, an .npz's own test set, or those for validation."""
        test = self.parts.get("test")
        if self.images is not None and test is None and not has_test(self.images):
            return self.split(preprocessing)[1]
        return self.read(test or self.images, "test", preprocessing)


def check_channels(channels: int) -> None:
    """Raise an error unless images are grey or in colours."""
    if channels not in (1, 3):
        raise ValueError(f"channels={channels} must be 1 (grey) or 3 (colours)")


def image_fields(shape: Sequence[int]) -> dict[str, Any]:
    """Rows, columns and channels of images as the fields `image` and `channels` of a model."""
    rows, columns, channels = shape
    return dict(image=rows if rows == columns else (rows, columns), channels=channels)


def common_shape(files: Sequence[ImageFile]) -> tuple[int, int, int]:
    """Rows, columns and channels that suit all images of a list; of many, a thousand are looked at."""
    sizes, channels = set(), 1
    failed: list[ValueError] = []
    for read, file in enumerate(files[:: max(1, len(files) // 1000)], 1):
        try:
            image = file.read()
        except ValueError as error:  # damaged files are counted when all are read
            failed.append(error)
            if len(failed) > max(1, DAMAGED * read):
                raise failed[0] from None
            continue
        sizes.add(image.size[::-1])
        channels = max(channels, 1 if image.mode == "L" else 3)
        if len(sizes) > 1 and channels == 3:
            break
    if len(failed) > DAMAGED * len(files):
        raise failed[0]
    rows, columns = sizes.pop() if len(sizes) == 1 else (LARGEST, LARGEST)
    return limited(rows, columns, channels)


def larger(preprocessing: Preprocessing, files: Sequence[ImageFile], least: float) -> Preprocessing | None:
    """A resizing that keeps the pixels that random crops of `least` of the area need, as far as images have them; None
    where they have no more than the model reads."""
    size = preprocessing.target
    if least == 1 or size is None or size[0] != size[1]:
        return None
    sides = []
    for file in files[:: max(1, len(files) // 100)]:
        try:
            sides.append(min(file.read().size))
        except ValueError:  # damaged files are counted when all are read
            continue
    side = min(math.ceil(size[0] / math.sqrt(least)), int(np.median(sides or [0])))
    return Preprocessing(channels=preprocessing.channels, size=(side, side)) if side > 1.1 * size[0] else None


def limited(rows: int, columns: int, channels: int) -> tuple[int, int, int]:
    """The shape itself, or a square of the largest side where it is larger."""
    return (rows, columns, channels) if max(rows, columns) <= LARGEST else (LARGEST, LARGEST, channels)


def every_tenth(labels: np.ndarray, source: str) -> np.ndarray:
    """Whether each image is held out for validation: the tenth part of each class, never its only one."""
    _, classes, counts = np.unique(labels, return_inverse=True, return_counts=True)
    order = np.argsort(classes, kind="stable")
    held = np.zeros(len(labels), dtype=bool)
    held[order[counts[classes[order]] > 1][1::10]] = True
    if not held.any():
        few = "one image" if len(labels) < 2 else "one image of each class"
        raise ValueError(f"{source}: {few} cannot be split; give --data.valid")
    return held


def resized(pixels: np.ndarray, preprocessing: Preprocessing) -> np.ndarray:
    """Arrays of images with the size and the channels that a preprocessing gives them."""
    if pixels.shape[1:] == (*(preprocessing.target or pixels.shape[1:3]), preprocessing.channels):
        return pixels
    first = preprocessing.fit(as_images(pixels[:1])[0])
    check_memory("arrays", len(pixels), first.shape, copies=2)
    out = np.empty((len(pixels), *first.shape), dtype=np.uint8)
    for i in range(len(pixels)):
        out[i] = preprocessing.fit(as_images(pixels[i : i + 1])[0])
    return out


def check_memory(source: str, count: int, shape: tuple[int, ...], copies: int = 1) -> None:
    """Raise an error if so many images of this shape take too much memory; a split by copying holds them twice."""
    rows, columns, channels = shape
    needed = count * rows * columns * channels * copies
    if needed > ROOM:
        raise ValueError(
            f"{source}: {count:,} images of {rows} × {columns} take {needed / 2**30:.1f} GiB, "
            f"more than {ROOM / 2**30:.0f}; lower --data.size, or use fewer"
        )


def preprocessing_for(images: Any, resizing: Preprocessing | None = None) -> Preprocessing:
    """The preprocessing of a set of images: its size or this resizing, and each channel normalised over all of them."""
    rows, columns, channels = images.pixels.shape[1:]
    sampled: np.ndarray = images.pixels[:: max(1, len(images) // 5000)].reshape(-1, channels).T
    mean = tuple(round(float(values.mean()) / 255, 4) for values in sampled)
    std = tuple(round(max(0.05, float(values.std()) / 255), 4) for values in sampled)  # one colour alone has no spread
    return replace(resizing or Preprocessing(channels=channels, size=(rows, columns)), mean=mean, std=std)


Group = tuple[int, int, list[int], np.random.Generator]
"""Epoch, index of the next batch, the numbers of a batch's images, and its random generator."""


class ArrayStream:
    """Base of the streams over images of one size."""

    images: Any
    rows: int
    seed: int

    def count(self) -> int:
        """Batches of an epoch."""
        return -(-len(self.images) // self.rows)

    def bytes_of(self, indices: Sequence[int]) -> Tensor:
        """Some of the images as B C Y X; of all of them that would be a second copy."""
        return torch.from_numpy(np.ascontiguousarray(np.moveaxis(self.images.pixels[indices], -1, 1)))

    def groups(self, epoch: int, index: int) -> Iterator[tuple[Group, Tensor]]:
        """The images of each batch, in a new order in each epoch, from a position on; from disk they are read ahead."""
        groups = shuffled(len(self.images), self.rows, self.seed, epoch, index)
        ahead = AHEAD if isinstance(self.images.pixels, DiskImages) else 0
        return read_ahead(groups, lambda group: self.bytes_of(group[2]), ahead)


def read_ahead(items: Iterator[Group], read: Callable[[Group], Result], ahead: int) -> Iterator[tuple[Group, Result]]:
    """Each item with what `read` returns for it; a thread reads so many items ahead of the one that is asked for."""
    if not ahead:
        yield from ((item, read(item)) for item in items)
        return
    pool, waiting = ThreadPoolExecutor(1), deque[tuple[Group, Future[Result]]]()
    try:
        for item in items:
            waiting.append((item, pool.submit(read, item)))
            if len(waiting) > ahead:
                item, future = waiting.popleft()
                yield item, future.result()
        for item, future in waiting:
            yield item, future.result()
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
