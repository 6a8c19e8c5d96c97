"""Labelled images: a folder a class, a table of paths, arrays, or the embedded digits; and batches of them."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from regard.data.readers.arrays import count_arrays, is_arrays, read_arrays, read_classes
from regard.data.readers.image_lists import ImageFile, list_labelled, list_unlabelled
from regard.data.readers.preprocessing import Preprocessing
from regard.data.readers.stored_images import Pixels, chosen, decode_files
from regard.data.sets.augment import Augmentation, mix, normalized
from regard.data.sets.base import check_tuning
from regard.data.sets.batches import Batch
from regard.data.sets.image_data import ArrayStream, ImageData, common_shape, every_tenth, larger, limited, resized
from regard.data.sets.image_overview import label_overviews
from regard.data.sets.overview import Overview


@dataclass(frozen=True, slots=True, eq=False)
class LabelledImages:
    """Bytes (number, rows, columns, channels), the class index of each image, and the names of the classes."""

    pixels: Pixels
    labels: np.ndarray
    names: tuple[str, ...]
    ratios: np.ndarray | None = None
    """Columns of each original by its rows, where the images are to be cropped."""

    def __len__(self) -> int:
        return len(self.labels)

    def take(self, indices: Any) -> "LabelledImages":
        """The images that a NumPy index selects."""
        ratios = None if self.ratios is None else self.ratios[indices]
        return LabelledImages(chosen(self.pixels, indices), self.labels[indices], self.names, ratios)

    def unlabelled(self) -> "LabelledImages":
        """The images, all with the label ""."""
        return replace(self, labels=np.zeros(len(self), dtype=np.int64), names=("",))

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
        return replace(self, labels=indices[self.labels], names=names)


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

    def listed(self, source: str) -> list[Path]:
        return [] if is_arrays(source) or Path(source).is_dir() else [file.path for file in self.files(source)]

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
            return self.decode(self.files(source), preprocessing, source)
        if source is not None:
            images = LabelledImages(*read_arrays(Path(source), part, labelled=self.labelled))
        else:
            images = digits(part) if self.labelled else digits(part).unlabelled()
        return replace(images, pixels=resized(images.pixels[:], preprocessing))

    def decode(
        self, files: Sequence[ImageFile], preprocessing: Preprocessing, source: str, names: tuple[str, ...] = (),
        reduced: bool = False,
    ) -> LabelledImages:  # fmt: skip
        """The images of a list; their class indices are into `names`, or their own names."""
        names = names or tuple(sorted({file.label for file in files}))
        index = {name: i for i, name in enumerate(names)}
        decoded = decode_files(files, preprocessing, source, memory=self.memory, strict=self.strict, reduced=reduced)
        labels = np.array([index[file.label] for file in files], dtype=np.int64)[decoded.kept]
        return LabelledImages(decoded.pixels, labels, names, decoded.ratios)

    def split(self, preprocessing: Preprocessing | None = None, *, crops: float = 1.0) -> tuple[Any, Any]:
        """The images for training and for validation; no image is in both. With `crops` below 1 those for training have
        the pixels that random crops of this share of the area need, where the originals have them."""
        preprocessing = preprocessing or self.preprocessing
        if self.images is None or is_arrays(self.images):
            return ImageData.split(self, preprocessing)
        files = self.files(self.images)
        names = tuple(sorted({file.label for file in files}))
        self.check(names)
        held = np.zeros(len(files), dtype=bool)
        valid = self.parts.get("valid")
        if valid is None:
            held = every_tenth(np.array([file.label for file in files]), self.images)
        learned = [file for file, out in zip(files, held, strict=True) if not out]
        finer = larger(preprocessing, learned, crops)
        images = self.decode(learned, finer or preprocessing, self.images, names, reduced=finer is not None)
        if valid is not None:
            return images, self.read(valid, "valid", preprocessing)
        others = [file for file, out in zip(files, held, strict=True) if out]
        return images, self.decode(others, preprocessing, self.images, names)


@dataclass(frozen=True, kw_only=True, slots=True)
class ImagesConfig(FileOrDigits):
    """Where labelled images come from (nothing given: the embedded digits), and how training augments them."""

    images: str | None = None
    """A folder with a sub-folder a class (or with train, val and test folders of these), a table of path and label, an
    .npz of x and y, IDX files, or .tar files of webdataset."""
    examples: int | None = None
    """Train on a random sample of so many images, each class in proportion (none: all)."""
    shift: float = 0.1
    """Largest translation in training, as a share of the side."""
    zoom: float = 0.1
    """Largest change of size: 0.1 is from 90 to 110 percent."""
    crop: float = 1.0
    """Least share of the area of random crops in training, from originals larger than the model's size; 1 never crops.
    """
    mixup: float = 0.0
    """Images and labels are averaged with another's, by a weight sampled from Beta(mixup, mixup); 0 never."""
    cutmix: float = 0.0
    """A rectangle is replaced by another image's, and the label in proportion to its area; with both, either."""

    def __post_init__(self) -> None:
        FileOrDigits.__post_init__(self)
        check_tuning(self.base, self.tune, self.rank)
        if self.examples is not None and self.examples < 1:
            raise ValueError(f"examples={self.examples} must be at least 1")
        if not 0 < self.crop <= 1:
            raise ValueError(f"crop={self.crop} must be above 0 and at most 1")
        for name in ("mixup", "cutmix"):
            if getattr(self, name) < 0:
                raise ValueError(f"{name}={getattr(self, name)} must not be negative")

    def overview(self) -> list[Overview]:
        """Summaries of the user's images and labels; no image is decoded."""
        return [] if self.images is None else list(label_overviews(self))

    def check(self, names: tuple[str, ...]) -> None:
        if len(names) < 2:
            raise ValueError(f"{self.images} has only the class {names[0]!r}; give images of another, too")

    def split(
        self, preprocessing: Preprocessing | None = None, *, crops: float = 1.0
    ) -> tuple[LabelledImages, LabelledImages]:
        images, valid = FileOrDigits.split(self, preprocessing, crops=crops)
        return images, valid.numbered_as(images.names, self.valid or "validation")

    def held_out(self, preprocessing: Preprocessing | None = None) -> LabelledImages:
        images = FileOrDigits.held_out(self, preprocessing)
        return images.numbered_as(images.names if self.images is None else self.names(), self.test or self.images or "")

    def count(self) -> int:
        """The number of the user's images."""
        assert self.images is not None
        return count_arrays(Path(self.images)) if is_arrays(self.images) else len(self.files(self.images))

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
    crop: float = 1.0
    """Least share of the area of random crops, where the images have more pixels than the model reads."""

    def batches(self, epoch: int = 0, index: int = 0) -> Iterator[tuple[int, int, Batch]]:
        """(epoch, index of the next batch, batch), from a position on."""
        for (epoch, index, numbers, rng), bytes_ in self.groups(epoch, index):  # noqa: B020
            x = self.augmented(bytes_.float(), numbers, rng)
            labels = torch.from_numpy(self.images.labels[numbers])
            x, targets = mix(x, labels, len(self.images.names), rng, mixup=self.mixup, cutmix=self.cutmix)
            batch = Batch({"pixels": normalized(x, self.preprocessing)}, targets, tuple(numbers))
            yield epoch, index, self.finish(batch, epoch, index)

    def augmented(self, x: Tensor, numbers: list[int], rng: np.random.Generator) -> Tensor:
        """The images of a batch, randomly augmented, at the model's size."""
        size = self.preprocessing.target
        if self.crop == 1 or size is None or tuple(x.shape[2:]) == size or self.images.ratios is None:
            return self.augmentation.change(x, rng)
        ratios = self.images.ratios[numbers]
        return self.augmentation.cropped(x, rng, size=size, least=self.crop, ratios=ratios)

    def once(self, images: LabelledImages, rows: int | None = None) -> Iterator[Batch]:
        """Every image once, without augmentation: for validation."""
        rows = rows or max(64, self.rows)
        for number, first in enumerate(range(0, len(images), rows)):
            part = images.take(slice(first, first + rows))
            inputs = {"pixels": torch.from_numpy(self.preprocessing.numbers(part.pixels[:]))}
            batch = Batch(inputs, torch.from_numpy(part.labels), tuple(range(first, first + len(part))))
            yield self.finish(batch, 0, number)

    def finish(self, batch: Batch, epoch: int, index: int) -> Batch:
        """The batch at this position as the objective takes it."""
        return batch
