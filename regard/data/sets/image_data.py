"""The base of all sets of images: their config, their size, and the split into training and validation."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from regard.data.readers.arrays import has_test
from regard.data.readers.image_files import as_images
from regard.data.readers.image_lists import ImageFile
from regard.data.readers.preprocessing import Preprocessing
from regard.data.sets.augment import Augmentation
from regard.data.sets.base import Data

LARGEST = 64
"""Images of unequal or larger sizes become squares of this side, unless a size is set."""
ROOM = 1 << 32
"""Bytes that all images together may take."""
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

    def __post_init__(self) -> None:
        if (self.valid or self.test) and not self.images:
            raise ValueError("validation images without training images; give --data.images too")
        if self.channels is not None:
            check_channels(self.channels)
        if self.size is not None and self.size < 1:
            raise ValueError(f"size={self.size} must be at least 1")
        Augmentation.__post_init__(self)

    @property
    def source(self) -> str | None:
        """The user's images for training."""
        return self.images

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
        return Preprocessing(channels=channels, size=(rows, columns))

    def read(self, source: str | None, part: str = "train", preprocessing: Preprocessing | None = None) -> Any:
        """All images of a source at one size; without a source, of a part of the embedded ones."""
        raise NotImplementedError

    def check(self, images: Any) -> None:
        """Raise an error if a model cannot be trained on these images."""

    def split(self, preprocessing: Preprocessing | None = None) -> tuple[Any, Any]:
        """The images for training and for validation; no image is in both."""
        preprocessing = preprocessing or self.preprocessing
        images = self.read(self.images, "train", preprocessing)
        self.check(images)
        if self.images is None or self.valid is not None:
            return images, self.read(self.valid, "valid", preprocessing)
        held = every_tenth(images.labels, self.images)
        return images.take(~held), images.take(held)

    def held_out(self, preprocessing: Preprocessing | None = None) -> Any:
        """The images for the test: the named ones, an .npz's own test set, or those for validation."""
        if self.images is not None and self.test is None and not has_test(self.images):
            return self.split(preprocessing)[1]
        return self.read(self.test or self.images, "test", preprocessing)


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
    for file in files[:: max(1, len(files) // 1000)]:
        image = file.read()
        sizes.add(image.size[::-1])
        channels = max(channels, 1 if image.mode == "L" else 3)
        if len(sizes) > 1 and channels == 3:
            break
    rows, columns = sizes.pop() if len(sizes) == 1 else (LARGEST, LARGEST)
    return limited(rows, columns, channels)


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


def read_files(files: Sequence[ImageFile], preprocessing: Preprocessing, source: str) -> np.ndarray:
    """All images of a list as bytes (number, rows, columns, channels), if there is memory for them."""
    assert preprocessing.target is not None
    shape = (*preprocessing.target, preprocessing.channels)
    check_memory(source, len(files), shape, copies=2)
    pixels = np.empty((len(files), *shape), dtype=np.uint8)
    for i, file in enumerate(files):
        pixels[i] = preprocessing.fit(file.read())
    return pixels


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


def preprocessing_for(images: Any) -> Preprocessing:
    """The preprocessing of a set of images: its size, and each channel normalised over all of them."""
    rows, columns, channels = images.pixels.shape[1:]
    sampled: np.ndarray = images.pixels[:: max(1, len(images) // 5000)].reshape(-1, channels).T
    mean = tuple(round(float(values.mean()) / 255, 4) for values in sampled)
    std = tuple(round(max(0.05, float(values.std()) / 255), 4) for values in sampled)  # one colour alone has no spread
    return Preprocessing(channels=channels, size=(rows, columns), mean=mean, std=std)


class ArrayStream:
    """Base of the streams over images of one size."""

    images: Any
    rows: int

    def count(self) -> int:
        """Batches of an epoch."""
        return -(-len(self.images) // self.rows)

    def bytes_of(self, indices: Sequence[int]) -> Tensor:
        """Some of the images as B C Y X; of all of them that would be a second copy."""
        return torch.from_numpy(np.ascontiguousarray(np.moveaxis(self.images.pixels[indices], -1, 1)))
