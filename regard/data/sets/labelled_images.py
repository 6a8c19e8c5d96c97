"""Labelled images: a folder a class, a table of paths, arrays, or the embedded digits; and batches of them."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch

from regard.data.readers.arrays import is_arrays, read_arrays, read_classes
from regard.data.readers.image_lists import ImageFile, list_labelled, list_unlabelled
from regard.data.readers.preprocessing import Preprocessing
from regard.data.sets.augment import Augmentation, mix, normalized
from regard.data.sets.base import Tune, check_tuning, idle_rank
from regard.data.sets.batches import Batch, shuffled
from regard.data.sets.image_data import ArrayStream, ImageData, common_shape, limited, read_files, resized


@dataclass(frozen=True, slots=True, eq=False)
class LabelledImages:
    """Bytes (number, rows, columns, channels), the class index of each image, and the names of the classes."""

    pixels: np.ndarray
    labels: np.ndarray
    names: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.labels)

    def take(self, indices: Any) -> "LabelledImages":
        """The images that a NumPy index selects."""
        return LabelledImages(self.pixels[indices], self.labels[indices], self.names)

    def unlabelled(self) -> "LabelledImages":
        """The images, all with the label ""."""
        return LabelledImages(self.pixels, np.zeros(len(self), dtype=np.int64), ("",))

    def sample(self, count: int, seed: int) -> "LabelledImages":
        """A random sample with each class in proportion, but at least one image of each."""
        order = np.random.default_rng(seed).permutation(len(self))
        turn = np.empty(len(self))
        for label in range(len(self.names)):  # the first of each class, then the second of each, …
            own = order[self.labels[order] == label]
            turn[own] = np.arange(len(own)) / len(own) if len(own) else 0
        return self.take(np.sort(order[np.argsort(turn[order], kind="stable")][:count]))

    def numbered_as(self, names: tuple[str, ...], source: str) -> "LabelledImages":
        """The images with class indices into other names; a class that is not among them is an error."""
        for name in self.names:
            if name not in names:
                known = ", ".join(names[:20]) + ", …" * (len(names) > 20)
                raise ValueError(f"{source}: the class {name!r} does not occur in training; known: {known}")
        indices = np.array([names.index(name) for name in self.names])
        return LabelledImages(self.pixels, indices[self.labels], names)


def digits(split: str) -> LabelledImages:
    """Scikit-learn's 1,797 scanned digits, 8 × 8 pixels: always the same 360 for the test, and 180 for validation."""
    try:
        from sklearn.datasets import load_digits
    except ImportError:
        raise ImportError("the embedded digits come with scikit-learn: pip install 'regard[vision]'") from None
    stored = load_digits()
    order = np.random.default_rng(11).permutation(len(stored.target))
    indices = {"test": order[:360], "valid": order[360:540], "train": order[540:]}[split]
    pixels = (stored.images * (255 / 16)).round().astype(np.uint8)[..., None]
    return LabelledImages(pixels, stored.target.astype(np.int64), tuple("0123456789")).take(indices)


@dataclass(frozen=True, kw_only=True, slots=True)
class FileOrDigits(ImageData):
    """Base of the configs of images from a folder, a table or an .npz, or of the embedded digits."""

    labelled: ClassVar[bool] = True
    """Whether the labels of images are read; otherwise all have the label ""."""

    def files(self, source: str) -> list[ImageFile]:
        """The image files of a folder or a table."""
        return list_labelled(source) if self.labelled else list_unlabelled(source)

    def own_shape(self) -> tuple[int, int, int]:
        if self.images is None:
            return 8, 8, 1
        if is_arrays(self.images):
            return limited(*read_arrays(Path(self.images), "train", labelled=self.labelled)[0].shape[1:])
        return common_shape(self.files(self.images))

    def read(
        self, source: str | None, part: str = "train", preprocessing: Preprocessing | None = None
    ) -> LabelledImages:
        preprocessing = preprocessing or self.preprocessing
        if source is not None and not is_arrays(source):
            files = self.files(source)
            names = tuple(sorted({file.label for file in files}))
            pixels = read_files(files, preprocessing, source)
            return LabelledImages(pixels, np.array([names.index(file.label) for file in files]), names)
        if source is not None:
            images = LabelledImages(*read_arrays(Path(source), part, labelled=self.labelled))
        else:
            images = digits(part) if self.labelled else digits(part).unlabelled()
        return replace(images, pixels=resized(images.pixels, preprocessing))


@dataclass(frozen=True, kw_only=True, slots=True)
class ImagesConfig(FileOrDigits):
    """Where labelled images come from (nothing given: the embedded digits), and how training augments them."""

    images: str | None = None
    """A folder with a sub-folder a class, a .csv, .tsv or .jsonl of path and label, or an .npz of x and y."""
    base: str | None = None
    """A run or checkpoint whose weights to start from."""
    tune: Tune = "all"
    """The weights to train: all, the head's alone, or the head's and LoRA adapters."""
    rank: int = 8
    """Rank of the LoRA adapters."""
    examples: int | None = None
    """Train on a random sample of so many images, each class in proportion (none: all)."""
    shift: float = 0.1
    """Largest translation in training, as a share of the side."""
    zoom: float = 0.1
    """Largest change of size: 0.1 is from 90 to 110 percent."""
    mixup: float = 0.0
    """Images and labels are averaged with another's, by a weight sampled from Beta(mixup, mixup); 0 never."""
    cutmix: float = 0.0
    """A rectangle is replaced by another image's, and the label in proportion to its area; with both, either."""

    def __post_init__(self) -> None:
        FileOrDigits.__post_init__(self)
        check_tuning(self.base, self.tune, self.rank)
        if self.examples is not None and self.examples < 1:
            raise ValueError(f"examples={self.examples} must be at least 1")
        for name in ("mixup", "cutmix"):
            if getattr(self, name) < 0:
                raise ValueError(f"{name}={getattr(self, name)} must not be negative")

    @property
    def idle(self) -> dict[str, str]:
        return idle_rank(self.tune)

    def check(self, images: LabelledImages) -> None:
        if len(images.names) < 2:
            raise ValueError(f"{self.images} has only the class {images.names[0]!r}; give images of another, too")

    def split(self, preprocessing: Preprocessing | None = None) -> tuple[LabelledImages, LabelledImages]:
        images, valid = FileOrDigits.split(self, preprocessing)
        return images, valid.numbered_as(images.names, self.valid or "validation")

    def held_out(self, preprocessing: Preprocessing | None = None) -> LabelledImages:
        images = FileOrDigits.held_out(self, preprocessing)
        return images.numbered_as(images.names if self.images is None else self.names(), self.test or self.images or "")

    def names(self) -> tuple[str, ...]:
        """The classes of the user's training images."""
        assert self.images is not None
        if is_arrays(self.images):
            return read_classes(Path(self.images))
        return tuple(sorted({file.label for file in self.files(self.images)}))


@dataclass(frozen=True)
class ImageStream(ArrayStream):
    """Endless batches of images; its position is two numbers, so that a run resumes to the same batch."""

    images: LabelledImages
    preprocessing: Preprocessing
    augmentation: Augmentation
    rows: int
    """Images in a batch."""
    seed: int = 0
    mixup: float = 0.0
    cutmix: float = 0.0

    def batches(self, epoch: int = 0, index: int = 0) -> Iterator[tuple[int, int, Batch]]:
        """(epoch, index of the next batch, batch), from a position on."""
        for epoch, index, chosen, rng in shuffled(len(self.images), self.rows, self.seed, epoch, index):  # noqa: B020
            x = self.augmentation.change(self.bytes_of(chosen).float(), rng)
            labels = torch.from_numpy(self.images.labels[chosen])
            x, targets = mix(x, labels, len(self.images.names), rng, mixup=self.mixup, cutmix=self.cutmix)
            batch = Batch({"pixels": normalized(x, self.preprocessing)}, targets, tuple(chosen))
            yield epoch, index, self.finish(batch, epoch, index)

    def once(self, images: LabelledImages, rows: int | None = None) -> Iterator[Batch]:
        """Every image once, without augmentation: for validation."""
        rows = rows or max(64, self.rows)
        for number, first in enumerate(range(0, len(images), rows)):
            part = images.take(slice(first, first + rows))
            inputs = {"pixels": torch.from_numpy(self.preprocessing.numbers(part.pixels))}
            batch = Batch(inputs, torch.from_numpy(part.labels), tuple(range(first, first + len(part))))
            yield self.finish(batch, 0, number)

    def finish(self, batch: Batch, epoch: int, index: int) -> Batch:
        """The batch at this position as the objective takes it."""
        return batch
