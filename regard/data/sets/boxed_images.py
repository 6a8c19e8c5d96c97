"""Images with boxes around their objects: generated scenes, a COCO file, a folder of VOC files; and batches of them."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from regard.config import at_least
from regard.data.generated.scenes import SEEDS, SHAPES, scene
from regard.data.notices import notify, track
from regard.data.readers.annotations import AnnotatedImage, list_coco, list_voc, voc_parts
from regard.data.readers.preprocessing import IMAGENET_MEAN, IMAGENET_STD, Preprocessing
from regard.data.readers.stored_images import DAMAGED, skipped_notice
from regard.data.readers.yolo import list_yolo, yolo_parts
from regard.data.sets.augment import Augmentation
from regard.data.sets.base import Data, idle_with
from regard.data.sets.batches import IGNORE, Batch, shuffled
from regard.data.sets.image_data import (
    AHEAD,
    DECIDED,
    ArrayStream,
    check_channels,
    check_memory,
    every_tenth,
    read_ahead,
)  # fmt: skip
from regard.data.sets.image_overview import box_overviews
from regard.data.sets.overview import Overview

LONGER = 5 / 3
"""Longest side of an image in multiples of the shorter one; longer images are made smaller."""
USUAL = 4 / 3
"""The usual ratio of the sides, by which memory is estimated."""
SIZE = 128
"""The shorter side of the user's images, unless a size is set."""
KEPT = 0.4
"""Share of an object that a crop must leave; objects of which less is left are dropped."""


@dataclass(frozen=True, slots=True, eq=False)
class BoxedImage:
    """An image (rows, columns, channels; bytes), its objects' labels, and their boxes: left, top, right, bottom."""

    pixels: np.ndarray
    labels: np.ndarray
    boxes: np.ndarray
    crowds: tuple[np.ndarray, np.ndarray] = (np.zeros(0, np.int64), np.zeros((0, 4)))
    """Labels and boxes of crowds, where the image is whole: only evaluation uses them."""

    def target(self) -> np.ndarray:
        """Label, centre (column, row), width and height of each object; all but the label in shares of the sides."""
        rows, columns = self.pixels.shape[:2]
        low, high = np.split(self.boxes / np.array([columns, rows, columns, rows]), 2, axis=1)
        return np.concatenate([self.labels[:, None], (low + high) / 2, high - low], axis=1).astype(np.float32)

    def flipped(self) -> "BoxedImage":
        """The image mirrored left to right, with its boxes."""
        boxes = self.boxes.copy()
        boxes[:, [0, 2]] = self.pixels.shape[1] - self.boxes[:, [2, 0]]
        return BoxedImage(self.pixels[:, ::-1], self.labels, boxes)

    def cropped(self, left: int, top: int, right: int, bottom: int) -> "BoxedImage":
        """A window of the image; objects that are mostly outside are dropped."""
        inside = clipped(self.boxes - [left, top, left, top], bottom - top, right - left)
        kept = area(inside) > KEPT * area(self.boxes)
        return BoxedImage(self.pixels[top:bottom, left:right], self.labels[kept], inside[kept])


def clipped(boxes: np.ndarray, rows: int, columns: int) -> np.ndarray:
    """Boxes limited to an image of this size."""
    return boxes.clip(0, [columns, rows, columns, rows])


def area(boxes: np.ndarray) -> np.ndarray:
    """The area of each box."""
    return (boxes[:, 2:] - boxes[:, :2]).clip(0).prod(1)


class SceneImages(Sequence[BoxedImage]):
    """Generated scenes by number, each made when it is first used."""

    def __init__(self, split: str, count: int, size: int, most: int) -> None:
        self.split, self.size, self.most = split, size, most
        self.known: list[BoxedImage | None] = [None] * count

    def __len__(self) -> int:
        return len(self.known)

    def __getitem__(self, number: Any) -> Any:
        if isinstance(number, slice):
            return [self[i] for i in range(*number.indices(len(self)))]
        image = self.known[number]
        if image is None:
            made = scene(np.random.default_rng((SEEDS[self.split], number)), self.size, self.most)
            labels, boxes = ([SHAPES.index(item.shape) for item in made.objects], [item.box for item in made.objects])
            image = self.known[number] = BoxedImage(made.pixels, np.array(labels), np.array(boxes))
        return image


class FileImages(Sequence[BoxedImage]):
    """Images of files by number, each decoded when it is used, since together they would not fit into memory."""

    def __init__(self, files: Sequence[AnnotatedImage], names: tuple[str, ...], preprocessing: Preprocessing) -> None:
        self.files, self.names, self.preprocessing = files, names, preprocessing

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, number: Any) -> Any:
        if isinstance(number, slice):
            return FileImages(self.files[number], self.names, self.preprocessing)
        return resize(self.files[number], self.names, self.preprocessing)

    def at(self, numbers: Sequence[int]) -> "FileImages":
        """The images of these numbers, still as files."""
        return FileImages([self.files[i] for i in numbers], self.names, self.preprocessing)


@dataclass(frozen=True, slots=True, eq=False)
class BoxedImages:
    """A set of images, and the names of their labels."""

    images: Sequence[BoxedImage]
    names: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.images)

    @property
    def most_objects(self) -> int:
        """The most objects of an image; of images that are not decoded yet, as annotated."""
        if isinstance(self.images, FileImages):
            return max(len(file.objects) for file in self.images.files)
        return max(len(image.labels) for image in self.images)

    def take(self, indices: slice | np.ndarray) -> "BoxedImages":
        """The images of a slice, or those where an array is true."""
        if isinstance(indices, slice):
            return BoxedImages(self.images[indices], self.names)
        numbers = np.flatnonzero(indices).tolist()
        images = self.images.at(numbers) if isinstance(self.images, FileImages) else [self.images[i] for i in numbers]
        return BoxedImages(images, self.names)


@dataclass(frozen=True, kw_only=True, slots=True)
class BoxesConfig(Data):
    """Where images with boxes come from (nothing given: generated scenes), their size, and how training varies them."""

    own: ClassVar[tuple[str, ...]] = ("coco", "voc", "yolo")
    decides: ClassVar[dict[str, str]] = DECIDED

    coco: str | None = None
    """A .json of COCO's kind (images, annotations, categories), or a folder with one."""
    voc: str | None = None
    """A folder of .xml files of VOC's kind, or one with a folder Annotations; its ImageSets are its parts."""
    yolo: str | None = None
    """A data.yaml of YOLO's kind, or a folder of images and labels with one or with classes.txt."""
    images: str | None = None
    """The folder of the images; those that it lacks are searched for near the annotations."""
    valid: str | None = None
    """A file or folder of the same kind for validation (nothing given: every tenth image is held out)."""
    test: str | None = None
    """A file or folder of the same kind for the test (nothing given: the images for validation)."""
    size: int | None = None
    """Pixels of the shorter side that images are resized to (none: 64 for scenes, otherwise 128)."""
    channels: int = 3
    """1 for grey, 3 for colours."""
    memory: float = 4.0
    """GiB of images that are held in memory; where they take more, each is decoded when it is used."""
    strict: bool = False
    """Stop at a damaged image file; otherwise it is skipped and counted."""
    base: str | None = None
    """A run or checkpoint whose weights to start from."""
    scenes: int = 16_000
    """Scenes generated for training."""
    objects: int = 4
    """Most objects in a scene."""
    flip: bool = True
    """Mirror half of the images."""
    crop: float = 0.0
    """Largest share of each side that training cuts off."""
    colour: float = 0.0
    """Largest change of brightness, contrast and saturation."""

    def __post_init__(self) -> None:
        if len([name for name in self.own if getattr(self, name)]) > 1:
            raise ValueError("give --data.coco, --data.voc or --data.yolo, not both")
        if self.embedded and (self.valid or self.test or self.images):
            raise ValueError("validation, test or images without training data; give --data.coco, .voc or .yolo")
        check_channels(self.channels)
        if not 0 <= self.crop < 1:
            raise ValueError(f"crop={self.crop} is not in [0, 1)")
        at_least(1, scenes=self.scenes, size=self.size)
        if not 1 <= self.objects <= 6:
            raise ValueError(f"objects={self.objects}: a scene has 1 to 6 objects")
        Augmentation(colour=self.colour)

    @property
    def source(self) -> str | None:
        """The user's annotations for training."""
        return self.coco or self.voc or self.yolo

    @property
    def layout(self) -> str:
        """The format of the user's annotations."""
        return "COCO" if self.coco else "VOC" if self.voc else "YOLO"

    @property
    def parts(self) -> dict[str, str]:
        """The sources of train, valid and test: the named ones, or those that ImageSets or data.yaml name."""
        assert self.source is not None
        parts = voc_parts(self.source) if self.voc else yolo_parts(self.source) if self.yolo else {"train": self.source}
        named = {name: getattr(self, name) for name in ("valid", "test") if getattr(self, name) is not None}
        if self.yolo:
            named = {name: yolo_parts(source).get(name, source) for name, source in named.items()}
        return parts | named

    def overview(self) -> list[Overview]:
        """Summaries of the user's annotations: counts, labels, first examples, and notes on what looks wrong."""
        return [] if self.embedded else list(box_overviews(self))

    @property
    def idle(self) -> dict[str, str]:
        return idle_with(self.layout.lower(), self.source, "scenes", "objects")

    @property
    def side(self) -> int:
        """The shorter side of an image."""
        return self.size or (64 if self.embedded else SIZE)

    @property
    def preprocessing(self) -> Preprocessing:
        """Resizing that keeps the shape of images, and ImageNet's normalisation."""
        mean, std = (row if self.channels == 3 else (sum(row) / 3,) for row in (IMAGENET_MEAN, IMAGENET_STD))
        longest = round(LONGER * self.side)
        return Preprocessing(channels=self.channels, shortest=self.side, longest=longest, mean=mean, std=std)

    def annotated(self, source: str) -> tuple[list[AnnotatedImage], tuple[str, ...]]:
        """The annotations of a source and its labels."""
        folder = None if self.images is None else Path(self.images)
        return list_yolo(source, folder) if self.yolo else (list_voc if self.voc else list_coco)(Path(source), folder)

    def listed(self, source: str) -> list[Path]:
        return [file.path for file in self.annotated(source)[0]]

    def read(self, source: str, names: tuple[str, ...] = (), preprocessing: Preprocessing | None = None) -> BoxedImages:
        """All images of a source, resized; with `names`, those of training, labels are their indices."""
        preprocessing = preprocessing or self.preprocessing
        files, labels = self.annotated(source)
        for label in labels if names else ():
            if label not in names:
                raise ValueError(f"{source}: the label {label!r} does not occur in training; known: {', '.join(names)}")
        names = names or labels
        side = preprocessing.shortest or max(preprocessing.target or (self.side,))
        read = self.readable(files, names, preprocessing, source)
        if len(files) * side * round(USUAL * side) * preprocessing.channels > self.memory * 2**30:
            notify(f"{source}: {len(files):,} images are decoded when they are used: --data.memory holds fewer")
            images = BoxedImages(FileImages([file for file, _ in read], names, preprocessing), names)
        else:
            images = BoxedImages([image for _, image in read], names)
        if not any(len(image.labels) for image in images.images):
            raise ValueError(f"{source}: not one box has an area inside of its image; correct them")
        return images

    def readable(
        self, files: Sequence[AnnotatedImage], names: tuple[str, ...], preprocessing: Preprocessing, source: str
    ) -> Iterator[tuple[AnnotatedImage, BoxedImage]]:
        """Files with their images; damaged ones are skipped and counted, unless they are many."""
        errors = list[ValueError]()
        for file in track(files, f"{source}: images", len(files)):
            try:
                image = resize(file, names, preprocessing)
            except ValueError as error:
                errors.append(error)
                if self.strict or len(errors) > DAMAGED * len(files):
                    raise errors[0] from None
            else:
                yield file, image
        skipped_notice(source, len(errors), str(*errors[:1]))

    def generated(self, split: str, count: int, preprocessing: Preprocessing | None = None) -> BoxedImages:
        """Embedded scenes of a split."""
        preprocessing = preprocessing or self.preprocessing
        if preprocessing.channels != 3:
            raise ValueError("scenes are in colour; leave channels at 3")
        side = preprocessing.shortest or self.side
        check_memory("scenes", count, (side, side, 3))
        return BoxedImages(SceneImages(split, count, side, self.objects), SHAPES)

    def split(self, preprocessing: Preprocessing | None = None) -> tuple[BoxedImages, BoxedImages]:
        """The images for training and for validation."""
        if self.source is None:
            return self.generated("train", self.scenes, preprocessing), self.generated("valid", 200, preprocessing)
        parts = self.parts
        images = self.read(parts["train"], preprocessing=preprocessing)
        if "valid" in parts:
            return images, self.read(parts["valid"], images.names, preprocessing)
        held = every_tenth(np.zeros(len(images)), self.source)
        return images.take(~held), images.take(held)

    def held_out(self, preprocessing: Preprocessing | None = None) -> BoxedImages:
        """The images for the test: the named ones, or those for validation."""
        if self.source is None:
            return self.generated("test", 500, preprocessing)
        parts = self.parts
        if "test" not in parts:
            return self.split(preprocessing)[1]
        return self.read(parts["test"], self.annotated(parts["train"])[1], preprocessing)


def resize(file: AnnotatedImage, names: tuple[str, ...], preprocessing: Preprocessing) -> BoxedImage:
    """An image and its boxes at the size of training; boxes that have no area in it are left out."""
    image = file.read()
    pixels = preprocessing.fit(image)
    ratio = np.array(pixels.shape[1::-1] * 2) / np.array(image.size * 2)

    def scaled(objects: Sequence[tuple[str, Any]]) -> tuple[np.ndarray, np.ndarray]:
        boxes = np.array([box for _, box in objects], dtype=np.float64).reshape(-1, 4)
        boxes = clipped(boxes * ratio, *pixels.shape[:2])
        labels, kept = np.array([names.index(name) for name, _ in objects], dtype=np.int64), area(boxes) > 0
        return labels[kept], boxes[kept]

    return BoxedImage(pixels, *scaled(file.objects), scaled(file.crowds))


@dataclass(frozen=True)
class BoxStream(ArrayStream):
    """Endless batches of images with boxes; its position is two numbers, so that a run resumes to the same batch."""

    images: BoxedImages
    data: BoxesConfig
    preprocessing: Preprocessing
    rows: int
    """Images in a batch."""
    seed: int = 0

    def batches(self, epoch: int = 0, index: int = 0) -> Iterator[tuple[int, int, Batch]]:
        """(epoch, index of the next batch, batch), from a position on."""
        groups = shuffled(len(self.images), self.rows, self.seed, epoch, index)
        ahead = AHEAD if isinstance(self.images.images, FileImages) else 0
        read = read_ahead(groups, lambda group: [self.images.images[i] for i in group[2]], ahead)
        for (epoch, index, chosen, rng), images in read:  # noqa: B020
            yield epoch, index, self.collate([self.vary(image, rng) for image in images], chosen, rng)

    def vary(self, image: BoxedImage, rng: np.random.Generator) -> BoxedImage:
        """The image, randomly mirrored and cropped."""
        if self.data.flip and rng.random() < 0.5:
            image = image.flipped()
        if self.data.crop:
            sides = image.pixels.shape[:2]
            rows, columns = (max(1, round(side * rng.uniform(1 - self.data.crop, 1))) for side in sides)
            top, left = (int(rng.integers(have - want + 1)) for have, want in zip(sides, (rows, columns), strict=True))
            image = image.cropped(left, top, left + columns, top + rows)
        return image

    def collate(
        self, images: Sequence[BoxedImage], indices: Sequence[int], rng: np.random.Generator | None = None
    ) -> Batch:
        """Images as one batch; with random numbers, their colours are varied."""
        light, arrays = Augmentation(colour=self.data.colour), []
        for image in images:
            bytes_ = image.pixels
            if rng is not None and self.data.colour:
                x = torch.from_numpy(np.moveaxis(bytes_, -1, 0).astype(np.float32))[None]
                bytes_ = np.moveaxis(light.relight(x, rng)[0].numpy().round().astype(np.uint8), 0, -1)
            arrays.append(self.preprocessing.numbers(bytes_))
        return Batch(padded(arrays), as_targets(images), tuple(indices))

    def once(self, images: BoxedImages, rows: int | None = None) -> Iterator[Batch]:
        """Every image once, as it is: for validation."""
        rows = rows or max(32, self.rows)
        for first in range(0, len(images), rows):
            part = images.images[first : first + rows]
            yield self.collate(part, range(first, first + len(part)))


def padded(arrays: Sequence[np.ndarray]) -> dict[str, Tensor]:
    """Images (channels, rows, columns) in one tensor padded at the bottom and right; their sizes where they differ."""
    shapes = np.array([array.shape for array in arrays])
    whole = np.zeros((len(arrays), *shapes.max(0)), dtype=np.float32)
    for row, array in zip(whole, arrays, strict=True):
        row[:, : array.shape[1], : array.shape[2]] = array
    pixels = {"pixels": torch.from_numpy(whole)}
    alike = (shapes == shapes[0]).all()
    return pixels if alike else pixels | {"sizes": torch.from_numpy(shapes[:, 1:])}


def as_targets(images: Sequence[BoxedImage]) -> Tensor:
    """B M 5: label, centre, width and height; the label is IGNORE where an image has fewer objects."""
    rows = [image.target() for image in images]
    targets = np.zeros((len(rows), max(1, max(map(len, rows))), 5), dtype=np.float32)
    targets[..., 0] = IGNORE
    for target, row in zip(targets, rows, strict=True):
        target[: len(row)] = row
    return torch.from_numpy(targets)
