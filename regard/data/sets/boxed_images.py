"""Pictures with boxes around what they show: drawn scenes, a COCO file, a folder of VOC files; and batches of them."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from regard.data.generated.scenes import SEEDS, SHAPES, scene
from regard.data.readers.annotations import AnnotatedImage, list_coco, list_voc
from regard.data.readers.image_files import IMAGENET_MEAN, IMAGENET_STD, Preprocessing
from regard.data.sets.augment import Augmentation
from regard.data.sets.base import Data, idle_with
from regard.data.sets.batches import IGNORE, Batch, shuffled
from regard.data.sets.labelled_images import DECIDED, check_room, every_tenth

LONGER = 5 / 3
"""How much longer than the shorter side a picture may be, before it is made smaller."""
USUAL = 4 / 3
"""How much longer it is, as a rule."""
SIZE = 128
"""The shorter side of one's own pictures, unless told otherwise."""
KEPT = 0.4
"""Share of a thing that must be left by a crop; of less, it counts as not shown."""


@dataclass(frozen=True, slots=True, eq=False)
class BoxedImage:
    """A picture (rows, columns, channels; bytes), its things' labels, and their boxes: left, top, right, bottom."""

    pixels: np.ndarray
    labels: np.ndarray
    boxes: np.ndarray
    crowds: tuple[np.ndarray, np.ndarray] = (np.zeros(0, np.int64), np.zeros((0, 4)))
    """The same of boxes around many things at once, where the picture is whole: for scores alone."""

    def target(self) -> np.ndarray:
        """Label, centre (column, row), width and height of each thing; all but the label in shares of the sides."""
        rows, columns = self.pixels.shape[:2]
        low, high = np.split(self.boxes / np.array([columns, rows, columns, rows]), 2, axis=1)
        return np.concatenate([self.labels[:, None], (low + high) / 2, high - low], axis=1).astype(np.float32)

    def flipped(self) -> "Boxed":
        """Left and right exchanged."""
        boxes = self.boxes.copy()
        boxes[:, [0, 2]] = self.pixels.shape[1] - self.boxes[:, [2, 0]]
        return BoxedImage(self.pixels[:, ::-1], self.labels, boxes)

    def cropped(self, left: int, top: int, right: int, bottom: int) -> "Boxed":
        """A window of it; what is mostly outside is not shown."""
        inside = clipped(self.boxes - [left, top, left, top], bottom - top, right - left)
        kept = area(inside) > KEPT * area(self.boxes)
        return BoxedImage(self.pixels[top:bottom, left:right], self.labels[kept], inside[kept])


def clipped(boxes: np.ndarray, rows: int, columns: int) -> np.ndarray:
    return boxes.clip(0, [columns, rows, columns, rows])


def area(boxes: np.ndarray) -> np.ndarray:
    return (boxes[:, 2:] - boxes[:, :2]).clip(0).prod(1)


class SceneImages(Sequence[BoxedImage]):
    """Scenes by their number, drawn when they are asked for and kept."""

    def __init__(self, split: str, count: int, size: int, most: int) -> None:
        self.split, self.size, self.most = split, size, most
        self.known: list[BoxedImage | None] = [None] * count

    def __len__(self) -> int:
        return len(self.known)

    def __getitem__(self, number: Any) -> Any:
        if isinstance(number, slice):
            return [self[i] for i in range(*number.indices(len(self)))]
        found = self.known[number]
        if found is None:
            made = scene(np.random.default_rng((SEEDS[self.split], number)), self.size, self.most)
            labels = np.array([SHAPES.index(thing.shape) for thing in made.things])
            found = self.known[number] = BoxedImage(made.pixels, labels, np.array([thing.box for thing in made.things]))
        return found


@dataclass(frozen=True, slots=True, eq=False)
class BoxedImages:
    """A set of pictures, and the names of their labels."""

    pictures: Sequence[BoxedImage]
    names: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.pictures)

    def take(self, places: slice | Sequence[int]) -> "Boxes":
        if isinstance(places, slice):
            return BoxedImages(self.pictures[places], self.names)
        return BoxedImages([self.pictures[i] for i in places], self.names)


@dataclass(frozen=True, kw_only=True, slots=True)
class BoxesConfig(Data):
    """Where pictures with boxes come from (nothing given: drawn scenes), their size, and how training varies them."""

    own: ClassVar[tuple[str, ...]] = ("coco", "voc")
    decides: ClassVar[dict[str, str]] = DECIDED

    coco: str | None = None
    """A .json of COCO's kind (images, annotations, categories), or a folder with one."""
    voc: str | None = None
    """A folder of .xml files of VOC's kind, or one with a folder Annotations."""
    images: str | None = None
    """The folder of the pictures; those that it lacks are looked for near the annotations."""
    valid: str | None = None
    """The same kind of file or folder for validation (nothing given: every tenth picture is held out)."""
    test: str | None = None
    """The same for the scores at the end (nothing given: the pictures for validation)."""
    size: int | None = None
    """Pixels of the shorter side that pictures are brought to (none: 64 for scenes, otherwise 128)."""
    channels: int = 3
    """1 for grey, 3 for colours."""
    base: str | None = None
    """A run or checkpoint whose weights to start from."""
    scenes: int = 16_000
    """Scenes that are drawn for training."""
    things: int = 4
    """Most things in a scene."""
    flip: bool = True
    """Mirror half of the pictures."""
    crop: float = 0.0
    """Largest share of each side that training cuts off."""
    colour: float = 0.0
    """Largest change of brightness, contrast and saturation."""

    def __post_init__(self) -> None:
        if self.coco and self.voc:
            raise ValueError("give --data.coco or --data.voc, not both")
        if self.embedded and (self.valid or self.test or self.images):
            raise ValueError("validation, test or images without training data; give --data.coco or --data.voc too")
        if self.channels not in (1, 3):
            raise ValueError(f"channels={self.channels} must be 1 (grey) or 3 (colours)")
        if not 0 <= self.crop < 1:
            raise ValueError(f"crop={self.crop} is not in [0, 1)")
        if self.scenes < 1 or (self.size is not None and self.size < 1):
            raise ValueError("scenes and size must be at least 1")
        if not 1 <= self.things <= 6:
            raise ValueError(f"things={self.things}: a scene has 1 to 6")
        Augmentation(colour=self.colour)

    @property
    def source(self) -> str | None:
        """Where one's own annotations for training are."""
        return self.coco or self.voc

    @property
    def idle(self) -> dict[str, str]:
        return idle_with(self.own[bool(self.voc)], self.source, "scenes", "things")

    @property
    def side(self) -> int:
        """The shorter side of a picture."""
        return self.size or (64 if self.embedded else SIZE)

    @property
    def preparation(self) -> Preprocessing:
        """How pictures become numbers: their shape is kept."""
        mean, std = (one if self.channels == 3 else (sum(one) / 3,) for one in (IMAGENET_MEAN, IMAGENET_STD))
        longest = round(LONGER * self.side)
        return Preprocessing(channels=self.channels, shortest=self.side, longest=longest, mean=mean, std=std)

    def annotated(self, source: str) -> tuple[list[AnnotatedImage], tuple[str, ...]]:
        folder = None if self.images is None else Path(self.images)
        return (list_voc if self.voc else list_coco)(Path(source), folder)

    def read(self, source: str, names: tuple[str, ...] = (), how: Preprocessing | None = None) -> BoxedImages:
        """All pictures of a source, as `how` says; with `names`, labels are numbered as in training."""
        how = how or self.preparation
        listed, found = self.annotated(source)
        for name in found if names else ():
            if name not in names:
                raise ValueError(f"{source}: the label {name!r} does not occur in training; known: {', '.join(names)}")
        names = names or found
        side = how.shortest or max(how.target or (self.side,))
        check_room(source, len(listed), (side, round(USUAL * side), how.channels))
        boxes = BoxedImages([fit(one, names, how) for one in listed], names)
        if not any(len(one.labels) for one in boxes.pictures):
            raise ValueError(f"{source}: not one box has an area inside of its picture; correct them")
        return boxes

    def drawn(self, split: str, count: int, how: Preprocessing | None = None) -> BoxedImages:
        how = how or self.preparation
        if how.channels != 3:
            raise ValueError("scenes are in colour; leave channels at 3")
        side = how.shortest or self.side
        check_room("scenes", count, (side, side, 3))
        return BoxedImages(SceneImages(split, count, side, self.things), SHAPES)

    def split(self, how: Preprocessing | None = None) -> tuple[BoxedImages, BoxedImages]:
        """Pictures for training and for validation."""
        if self.source is None:
            return self.drawn("train", self.scenes, how), self.drawn("valid", 200, how)
        boxes = self.read(self.source, how=how)
        if self.valid is not None:
            return boxes, self.read(self.valid, boxes.names, how)
        held = every_tenth(np.zeros(len(boxes)), self.source)
        train, valid = (boxes.take(np.flatnonzero(part).tolist()) for part in (~held, held))
        return train, valid

    def held_out(self, how: Preprocessing | None = None) -> BoxedImages:
        """The pictures for the scores at the end."""
        if self.source is None:
            return self.drawn("test", 500, how)
        if self.test is None:
            return self.split(how)[1]
        return self.read(self.test, self.annotated(self.source)[1], how)


def fit(one: AnnotatedImage, names: tuple[str, ...], how: Preprocessing) -> BoxedImage:
    """A picture and its boxes at the size of training; boxes that have no area in it are left out."""
    image = one.read()
    pixels = how.fit(image)
    ratio = np.array(pixels.shape[1::-1] * 2) / np.array(image.size * 2)

    def fitted(things: Sequence[tuple[str, Any]]) -> tuple[np.ndarray, np.ndarray]:
        boxes = np.array([box for _, box in things], dtype=np.float64).reshape(-1, 4)
        boxes = clipped(boxes * ratio, *pixels.shape[:2])
        labels, kept = np.array([names.index(name) for name, _ in things], dtype=np.int64), area(boxes) > 0
        return labels[kept], boxes[kept]

    return BoxedImage(pixels, *fitted(one.things), fitted(one.crowds))


@dataclass(frozen=True)
class BoxStream:
    """Endless batches of pictures; where it stands is two numbers, so that a run resumes to the same batch."""

    boxes: BoxedImages
    data: BoxesConfig
    how: Preprocessing
    rows: int
    """Pictures in a batch."""
    seed: int = 0

    def count(self) -> int:
        """Batches of an epoch."""
        return -(-len(self.boxes) // self.rows)

    def batches(self, epoch: int = 0, index: int = 0) -> Iterator[tuple[int, int, Batch]]:
        """(epoch, index of the next batch, batch), from the given place on."""
        for epoch, index, places, rng in shuffled(len(self.boxes), self.rows, self.seed, epoch, index):  # noqa: B020
            changed = [self.vary(self.boxes.pictures[i], rng) for i in places]
            yield epoch, index, self.collate(changed, places, rng)

    def vary(self, one: BoxedImage, rng: np.random.Generator) -> BoxedImage:
        """Mirrored and cropped, if the dice say so."""
        if self.data.flip and rng.random() < 0.5:
            one = one.flipped()
        if self.data.crop:
            rows, columns = (max(1, round(side * rng.uniform(1 - self.data.crop, 1))) for side in one.pixels.shape[:2])
            top, left = (int(rng.integers(have - want + 1)) for have, want in zip(one.pixels.shape, (rows, columns)))  # noqa: B905
            one = one.cropped(left, top, left + columns, top + rows)
        return one

    def collate(
        self, pictures: Sequence[BoxedImage], places: Sequence[int], rng: np.random.Generator | None = None
    ) -> Batch:
        light = Augmentation(colour=self.data.colour) if rng is not None and self.data.colour else None
        arrays = []
        for one in pictures:
            bytes_ = one.pixels
            if light is not None and rng is not None:
                x = torch.from_numpy(np.moveaxis(bytes_, -1, 0).astype(np.float32))[None]
                bytes_ = np.moveaxis(light.relight(x, rng)[0].numpy().round().astype(np.uint8), 0, -1)
            arrays.append(self.how.numbers(bytes_))
        return Batch(padded(arrays), as_targets(pictures), tuple(places))

    def once(self, boxes: BoxedImages, rows: int | None = None) -> Iterator[Batch]:
        """Every given picture once, as it is: for validation."""
        rows = rows or max(32, self.rows)
        for first in range(0, len(boxes), rows):
            part = boxes.pictures[first : first + rows]
            yield self.collate(part, range(first, first + len(part)))


def padded(arrays: Sequence[np.ndarray]) -> dict[str, Tensor]:
    """Pictures (channels, rows, columns) as one tensor, zeros at the bottom and the right; and, if any, their sizes."""
    shapes = np.array([one.shape for one in arrays])
    whole = np.zeros((len(arrays), *shapes.max(0)), dtype=np.float32)
    for row, one in zip(whole, arrays, strict=True):
        row[:, : one.shape[1], : one.shape[2]] = one
    pixels = {"pixels": torch.from_numpy(whole)}
    alike = (shapes == shapes[0]).all()
    return pixels if alike else pixels | {"sizes": torch.from_numpy(shapes[:, 1:])}


def as_targets(pictures: Sequence[BoxedImage]) -> Tensor:
    """B M 5: label, centre, width and height; IGNORE for the label where a picture has fewer things."""
    rows = [one.target() for one in pictures]
    targets = np.zeros((len(rows), max(1, max(map(len, rows))), 5), dtype=np.float32)
    targets[..., 0] = IGNORE
    for target, row in zip(targets, rows, strict=True):
        target[: len(row)] = row
    return torch.from_numpy(targets)
