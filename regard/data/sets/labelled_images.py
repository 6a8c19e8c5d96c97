"""Labelled pictures: a folder a class, a table of paths, arrays, or the embedded digits; and batches of them."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from regard.data.readers.arrays import has_test, is_arrays, read_arrays, read_classes
from regard.data.readers.image_files import Preprocessing, is_image, list_images, read_image
from regard.data.readers.image_tables import TABLES, read_table
from regard.data.sets.augment import Augmentation, centred, mix
from regard.data.sets.base import Data, Tune, check_tuning, idle_rank
from regard.data.sets.batches import Batch, shuffled

LARGEST = 64
"""Pictures of unequal or larger sizes are brought to squares of this side, unless told otherwise."""
ROOM = 1 << 32
"""Bytes that all pictures together may take."""
DECIDED = {
    "model.image": "follows from the pictures; use --data.size",
    "model.channels": "follows from the pictures; use --data.channels",
    "model.labels": "follows from the pictures; leave it out",
}
"""Fields of a model that its pictures decide, and what to say to who sets them."""
NO_LABELS = {"train.smoothing": "has no effect where nothing is labelled; leave it out"}


@dataclass(frozen=True, slots=True, eq=False)
class LabelledImages:
    """Bytes (number, rows, columns, channels), the class of each, and the names of the classes."""

    pixels: np.ndarray
    labels: np.ndarray
    names: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.labels)

    def take(self, places: Any) -> "Pictures":
        return LabelledImages(self.pixels[places], self.labels[places], self.names)

    def draw(self, count: int, seed: int) -> "Pictures":
        """So many of them, of each class its share but at least one, by the dice of a seed."""
        order = np.random.default_rng(seed).permutation(len(self))
        turn = np.empty(len(self))
        for label in range(len(self.names)):  # the first of each class, then the second of each, …
            own = order[self.labels[order] == label]
            turn[own] = np.arange(len(own)) / len(own) if len(own) else 0
        return self.take(np.sort(order[np.argsort(turn[order], kind="stable")][:count]))


@dataclass(frozen=True, slots=True)
class ImageFile:
    """One file of a set, its class, and where that was said."""

    path: Path
    label: str
    where: str = ""

    def read(self) -> Any:
        try:
            return read_image(self.path)
        except ValueError as error:
            raise ValueError(f"{self.where}{error}") from None


def list_folder(folder: Path) -> list[ImageFile]:
    """A sub-folder a class; files that are no pictures by their name are passed over."""
    inside = [one for one in sorted(folder.iterdir()) if not one.name.startswith(".")]
    classes = [one for one in inside if one.is_dir()]
    if not classes:
        raise ValueError(f"{folder} has no folders; put the pictures of each class into a folder with its name")
    files = {one: list_images(one) for one in classes}
    if not any(path.parent == one for one in classes for path in files[one]):
        parts = ", ".join(one.name for one in classes[:3])
        raise ValueError(
            f"the folders of {folder} ({parts}) hold folders, no pictures; name the one for training: "
            f"--data.images {classes[0]}, and others as --data.valid and --data.test"
        )
    if loose := [one.name for one in inside if one not in classes and is_image(one.name)]:
        count = "a picture lies" if len(loose) == 1 else f"{len(loose):,} pictures lie"
        raise ValueError(f"{folder}: {count} beside its folders ({loose[0]}); put each into the folder of its class")
    return [ImageFile(path, one.name) for one in classes for path in files[one]]


def list_table(table: Path, what: str = "label") -> list[ImageFile]:
    """Rows of path and label or, with nothing asked for, of paths; they are relative to the table."""
    if table.suffix.lower() not in TABLES or not table.exists():
        kinds = f"a folder with a folder a class, a table ({', '.join(TABLES)}) or an .npz"
        missing = f"no such {'file' if table.suffix else 'folder'}: {table}; give {kinds}"
        raise ValueError(f"{table}: pictures are {kinds}" if table.exists() else missing)
    rows = read_table(table, what)
    return [ImageFile(table.parent / path, "".join(said[:1]), f"{table}, line {number}: ") for number, path, said in rows]


def digits(split: str) -> LabelledImages:
    """Scikit-learn's 1,797 scanned digits, 8 × 8 pixels; the same 360 are always held out, and 180 for validation."""
    try:
        from sklearn.datasets import load_digits
    except ImportError:
        raise ImportError("the embedded digits come with scikit-learn: pip install 'regard[vision]'") from None
    found = load_digits()
    order = np.random.default_rng(11).permutation(len(found.target))
    places = {"test": order[:360], "valid": order[360:540], "train": order[540:]}[split]
    pixels = (found.images * (255 / 16)).round().astype(np.uint8)[..., None]
    return LabelledImages(pixels, found.target.astype(np.int64), tuple("0123456789")).take(places)


@dataclass(frozen=True, kw_only=True, slots=True)
class ImageData(Augmentation, Data):
    """Where pictures come from (nothing given: embedded ones), their size, and how training varies them."""

    own: ClassVar[tuple[str, ...]] = ("images",)
    decides: ClassVar[dict[str, str]] = DECIDED

    images: str | None = None
    """A folder, table or array of pictures."""
    valid: str | None = None
    """The same for validation (nothing given: every tenth picture is held out)."""
    test: str | None = None
    """The same for the scores at the end (nothing given: x_test of an .npz, or the pictures for validation)."""
    size: int | None = None
    """Pixels of a side that pictures are brought to (none: their own if all are alike and small, else 64)."""
    channels: int | None = None
    """1 for grey, 3 for colours (none: as the pictures are)."""

    def __post_init__(self) -> None:
        if (self.valid or self.test) and not self.images:
            raise ValueError("validation pictures without training pictures; give --data.images too")
        if self.channels not in (None, 1, 3):
            raise ValueError(f"channels={self.channels} must be 1 (grey) or 3 (colours)")
        if self.size is not None and self.size < 1:
            raise ValueError(f"size={self.size} must be at least 1")
        Augmentation.__post_init__(self)

    @property
    def source(self) -> str | None:
        """Where one's own pictures for training are."""
        return self.images

    def shape(self) -> tuple[int, int, int]:
        """Rows, columns and channels that all pictures get."""
        raise NotImplementedError

    def fitting(self) -> Preprocessing:
        """How every picture gets them."""
        rows, columns, channels = self.shape()
        return Preprocessing(channels=channels, size=(rows, columns))


@dataclass(frozen=True, kw_only=True, slots=True)
class ImagesConfig(ImageData):
    """Where labelled pictures come from (nothing given: the embedded digits), and how training varies them."""

    images: str | None = None
    """A folder with a sub-folder a class, a .csv, .tsv or .jsonl of path and label, or an .npz of x and y."""
    base: str | None = None
    """A run or checkpoint whose weights to start from."""
    tune: Tune = "all"
    """What is trained of it: everything, the head alone, or the head and LoRA adapters."""
    rank: int = 8
    """Rank of the LoRA adapters."""
    examples: int | None = None
    """Train on only so many pictures, drawn by the seed, of each class its share (none: all)."""
    shift: float = 0.1
    """Largest move in training, as a share of the side."""
    zoom: float = 0.1
    """Largest change of size: 0.1 is from 90 to 110 percent."""
    mixup: float = 0.0
    """Pictures and labels are averaged with another's, with a share drawn from Beta(mixup, mixup); 0 never."""
    cutmix: float = 0.0
    """A rectangle is replaced by another picture's, and the labels by its area, drawn alike; with both, either."""

    def __post_init__(self) -> None:
        ImageData.__post_init__(self)
        check_tuning(self.base, self.tune, self.rank)
        if self.examples is not None and self.examples < 1:
            raise ValueError(f"examples={self.examples} must be at least 1")
        for name in ("mixup", "cutmix"):
            if getattr(self, name) < 0:
                raise ValueError(f"{name}={getattr(self, name)} must not be negative")

    @property
    def idle(self) -> dict[str, str]:
        return idle_rank(self.tune)

    def shape(self) -> tuple[int, int, int]:
        """Rows, columns and channels that all pictures get."""
        if self.images is None:
            rows, columns, channels = 8, 8, 1
        elif is_arrays(self.images):
            rows, columns, channels = suited(*read_arrays(Path(self.images), "train")[0].shape[1:])
        else:
            rows, columns, channels = shape_of(list_labelled(self.images))
        return self.size or rows, self.size or columns, self.channels or channels

    def read(self, source: str | None, part: str = "train", how: Preprocessing | None = None) -> LabelledImages:
        """All pictures of a source, or of the embedded part, at one size; files as `how` says."""
        how = how or self.fitting()
        if source is None:
            found = digits(part)
            return LabelledImages(resized(found.pixels, how), found.labels, found.names)
        if is_arrays(source):
            pixels, labels, names = read_arrays(Path(source), part)
            return LabelledImages(resized(pixels, how), labels, names)
        listed = list_labelled(source)
        names = tuple(sorted({one.label for one in listed}))
        place = {name: i for i, name in enumerate(names)}
        pixels = read_listed(listed, how, source)
        return LabelledImages(pixels, np.array([place[one.label] for one in listed]), names)

    def split(self, how: Preprocessing | None = None) -> tuple[LabelledImages, LabelledImages]:
        """Pictures for training and for validation."""
        how = how or self.fitting()
        if self.images is None:
            return self.read(None, "train", how), self.read(None, "valid", how)
        pictures = self.read(self.images, how=how)
        if len(pictures.names) < 2:
            raise ValueError(f"{self.images} has only the class {pictures.names[0]!r}; give pictures of another, too")
        if self.valid is not None:
            return pictures, named_as(self.read(self.valid, "valid", how), pictures.names, self.valid)
        held = every_tenth(pictures.labels, self.images)
        return pictures.take(~held), pictures.take(held)

    def held_out(self, how: Preprocessing | None = None) -> LabelledImages:
        """The pictures for the scores at the end."""
        if self.images is None:
            return self.read(None, "test", how)
        if self.test is None and not has_test(self.images):
            return self.split(how)[1]
        source = self.test or self.images
        return named_as(self.read(source, "test", how), self.names(), source)

    def names(self) -> tuple[str, ...]:
        """The classes of one's own pictures for training."""
        assert self.images is not None
        if is_arrays(self.images):
            return read_classes(Path(self.images))
        return tuple(sorted({one.label for one in list_labelled(self.images)}))


def image_fields(shape: tuple[int, ...]) -> dict[str, Any]:
    """Rows, columns and channels of images as the fields `image` and `channels` of a model."""
    rows, columns, channels = shape
    return dict(image=rows if rows == columns else (rows, columns), channels=channels)


def shape_of(listed: Sequence[ImageFile]) -> tuple[int, int, int]:
    """Rows, columns and channels that suit all pictures of a list; a thousand of them are enough to tell."""
    sizes, channels = set(), 1
    for one in listed[:: max(1, len(listed) // 1000)]:
        image = one.read()
        sizes.add(image.size[::-1])
        channels = max(channels, 1 if image.mode == "L" else 3)
        if len(sizes) > 1 and channels == 3:
            break
    rows, columns = sizes.pop() if len(sizes) == 1 else (LARGEST, LARGEST)
    return suited(rows, columns, channels)


def suited(rows: int, columns: int, channels: int) -> tuple[int, int, int]:
    """The same where it is small."""
    return (rows, columns, channels) if max(rows, columns) <= LARGEST else (LARGEST, LARGEST, channels)


def every_tenth(labels: np.ndarray, source: str) -> np.ndarray:
    """Which pictures are held out for validation: the tenth part of each class, never its only one."""
    _, classes, counts = np.unique(labels, return_inverse=True, return_counts=True)
    order = np.argsort(classes, kind="stable")
    held = np.zeros(len(labels), dtype=bool)
    held[order[counts[classes[order]] > 1][1::10]] = True
    if not held.any():
        few = "one picture" if len(labels) < 2 else "one picture of each class"
        raise ValueError(f"{source}: {few} cannot be split; give --data.valid")
    return held


def read_listed(listed: Sequence[ImageFile], how: Preprocessing, source: str) -> np.ndarray:
    """All pictures of a list at one size, if there is room for them."""
    assert how.target is not None
    shape = (*how.target, how.channels)
    check_room(source, len(listed), shape, times=2)
    pixels = np.empty((len(listed), *shape), dtype=np.uint8)
    for i, one in enumerate(listed):
        pixels[i] = how.fit(one.read())
    return pixels


def check_room(source: str, count: int, shape: tuple[int, int, int], times: int = 1) -> None:
    """An error if so many pictures of this shape are too much to be held, twice where they are split by copying."""
    rows, columns, channels = shape
    needed = count * rows * columns * channels * times
    if needed > ROOM:
        raise ValueError(
            f"{source}: {count:,} pictures of {rows} × {columns} take {needed / 2**30:.1f} GiB, "
            f"more than {ROOM / 2**30:.0f}; lower --data.size, or use fewer"
        )


def list_labelled(source: str) -> list[ImageFile]:
    """The files of a folder or a table."""
    path = Path(source)
    return list_folder(path) if path.is_dir() else list_table(path)


def resized(pixels: np.ndarray, how: Preprocessing) -> np.ndarray:
    """Arrays brought to another size or number of channels, if they have not got it."""
    from PIL import Image

    if pixels.shape[1:] == (*(how.target or pixels.shape[1:3]), how.channels):
        return pixels
    flat = pixels[..., 0] if pixels.shape[-1] == 1 else pixels
    first = how.fit(Image.fromarray(flat[0]))
    check_room("arrays", len(pixels), first.shape, times=2)
    found = np.empty((len(pixels), *first.shape), dtype=np.uint8)
    for i, one in enumerate(flat):
        found[i] = how.fit(Image.fromarray(one))
    return found


def named_as(pictures: LabelledImages, names: tuple[str, ...], source: str) -> LabelledImages:
    """The same with the classes' numbers of another set; a class that it does not know is an error."""
    for name in pictures.names:
        if name not in names:
            known = ", ".join(names[:20]) + ", …" * (len(names) > 20)
            raise ValueError(f"{source}: the class {name!r} does not occur in training; known: {known}")
    places = np.array([names.index(name) for name in pictures.names])
    return LabelledImages(pictures.pixels, places[pictures.labels], names)


class Stream:
    """What streams of pictures at one size share."""

    pictures: Any
    rows: int

    def count(self) -> int:
        """Batches of an epoch."""
        return -(-len(self.pictures) // self.rows)

    def bytes_of(self, places: Sequence[int]) -> Tensor:
        """Some of the pictures as B C Y X; of all of them that would be a second copy."""
        return torch.from_numpy(np.ascontiguousarray(np.moveaxis(self.pictures.pixels[places], -1, 1)))


@dataclass(frozen=True)
class ImageStream(Stream):
    """Endless batches of pictures; where it stands is two numbers, so that a run resumes to the same batch."""

    pictures: LabelledImages
    how: Preprocessing
    augmentation: Augmentation
    rows: int
    """Pictures in a batch."""
    seed: int = 0
    mixup: float = 0.0
    cutmix: float = 0.0

    def batches(self, epoch: int = 0, index: int = 0) -> Iterator[tuple[int, int, Batch]]:
        """(epoch, index of the next batch, batch), from the given place on."""
        for epoch, index, places, rng in shuffled(len(self.pictures), self.rows, self.seed, epoch, index):  # noqa: B020
            x = self.augmentation.change(self.bytes_of(places).float(), rng)
            labels = torch.from_numpy(self.pictures.labels[places])
            x, targets = mix(x, labels, len(self.pictures.names), rng, mixup=self.mixup, cutmix=self.cutmix)
            yield epoch, index, Batch({"pixels": centred(x, self.how)}, targets, tuple(places))

    def once(self, pictures: LabelledImages, rows: int | None = None) -> Iterator[Batch]:
        """Every given picture once, as it is: for validation."""
        rows = rows or max(64, self.rows)
        for first in range(0, len(pictures), rows):
            part = pictures.take(slice(first, first + rows))
            inputs = {"pixels": torch.from_numpy(self.how.numbers(part.pixels))}
            yield Batch(inputs, torch.from_numpy(part.labels), tuple(range(first, first + len(part))))


def preprocessing_for(pictures: Any) -> Preprocessing:
    """Sizes as these `pixels` have them; each channel gets mean 0 and variance 1 over all of them."""
    rows, columns, channels = pictures.pixels.shape[1:]
    some: np.ndarray = pictures.pixels[:: max(1, len(pictures) // 5000)].reshape(-1, channels).T
    mean = tuple(round(float(one.mean()) / 255, 4) for one in some)
    std = tuple(round(max(0.05, float(one.std()) / 255), 4) for one in some)  # of one colour there is no spread
    return Preprocessing(channels=channels, size=(rows, columns), mean=mean, std=std)
