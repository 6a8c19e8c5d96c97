"""Pictures nobody labelled, as three ways to learn from them want them: with patches to hide, seen twice, and plain."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from regard.data.readers.arrays import has_test, is_arrays, read_arrays
from regard.data.readers.image_files import Preprocessing, list_images
from regard.data.sets.augment import centred
from regard.data.sets.batches import Batch
from regard.data.sets.labelled_images import (
    DECIDED,
    NO_LABELS,
    ImageFile,
    LabelledImages,
    ImageData,
    ImageStream,
    digits,
    every_tenth,
    list_table,
    read_listed,
    resized,
    shape_of,
    suited,
)  # fmt: skip


@dataclass(frozen=True, kw_only=True, slots=True)
class UnlabelledConfig(ImageData):
    """Where pictures come from (nothing given: the embedded digits), their size, and how training varies them."""

    images: str | None = None
    """A folder of pictures, with or without sub-folders, a .csv, .tsv or .jsonl of paths, or an .npz of x."""

    def shape(self) -> tuple[int, int, int]:
        """Rows, columns and channels that all pictures get."""
        rows, columns, channels = 8, 8, 1
        if self.images is not None and is_arrays(self.images):
            rows, columns, channels = suited(*read_arrays(Path(self.images), "train", labelled=False)[0].shape[1:])
        elif self.images is not None:
            rows, columns, channels = shape_of(list_any(self.images))
        return self.size or rows, self.size or columns, self.channels or channels

    def read(self, source: str | None, part: str = "train", how: Preprocessing | None = None) -> LabelledImages:
        """All pictures of a source, or of the embedded part, at one size; files as `how` says."""
        how = how or self.fitting()
        if source is not None and not is_arrays(source):
            pixels = read_listed(list_any(source), how, source)
        else:
            found = digits(part) if source is None else LabelledImages(*read_arrays(Path(source), part, labelled=False))
            pixels = resized(found.pixels, how)
        return LabelledImages(pixels, np.zeros(len(pixels), dtype=np.int64), ("",))

    def split(self, how: Preprocessing | None = None) -> tuple[LabelledImages, LabelledImages]:
        """Pictures for training and for validation."""
        how = how or self.fitting()
        pictures = self.read(self.images, how=how)
        if self.images is None or self.valid is not None:
            return pictures, self.read(self.valid, "valid", how)
        held = every_tenth(pictures.labels, self.images)
        return pictures.take(~held), pictures.take(held)

    def held_out(self, how: Preprocessing | None = None) -> LabelledImages:
        """The pictures for the scores at the end."""
        if self.images is None or self.test is not None:
            return self.read(self.test, "test", how)
        return self.read(self.images, "test", how) if has_test(self.images) else self.split(how)[1]


@dataclass(frozen=True, kw_only=True, slots=True)
class HiddenConfig(UnlabelledConfig):
    """Images of which patches are hidden."""

    decides: ClassVar[dict[str, str]] = DECIDED | NO_LABELS


@dataclass(frozen=True, kw_only=True, slots=True)
class ViewsConfig(UnlabelledConfig):
    """Images of which two views are compared, each strongly augmented."""

    decides: ClassVar[dict[str, str]] = DECIDED | NO_LABELS

    temperature: float = 0.2
    """Of the softmax over all views of a batch."""
    projection: int = 64
    """Width of the vectors that are compared in training, and thrown away afterwards."""

    def __post_init__(self) -> None:
        UnlabelledConfig.__post_init__(self)
        if self.temperature <= 0 or self.projection < 1:
            raise ValueError(f"temperature={self.temperature} must be above 0, projection={self.projection} at least 1")


@dataclass(frozen=True, kw_only=True, slots=True)
class PixelsConfig(UnlabelledConfig):
    """Images as sequences of colours."""

    decides: ClassVar[dict[str, str]] = {
        "model.vocab_size": "follows from the colours; use --data.levels",
        "model.max_len": "follows from the pictures; use --data.size",
    }

    levels: int | None = None
    """Values of a channel; a token is a colour of all their combinations (none: 16 for grey, 6 for colours)."""


def list_any(source: str) -> list[ImageFile]:
    """The pictures of a folder, wherever in it they lie, or of a table, each once whatever it says of them."""
    path = Path(source)
    if path.is_dir():
        return [ImageFile(one, "") for one in list_images(path)]
    return list({one.path: one for one in list_table(path, "")}.values())


@dataclass(frozen=True, kw_only=True)
class HiddenStream(ImageStream):
    """Pictures with a number for each patch: those with the largest are hidden."""

    patches: int
    """Of a picture."""

    def batches(self, epoch: int = 0, index: int = 0) -> Iterator[tuple[int, int, Batch]]:
        for epoch, index, batch in super().batches(epoch, index):  # noqa: B020  they go on from there
            yield epoch, index, self.hide(batch, epoch, index)

    def once(self, pictures: LabelledImages, rows: int | None = None) -> Iterator[Batch]:
        for number, batch in enumerate(super().once(pictures, rows)):
            yield self.hide(batch, 0, number)

    def hide(self, batch: Batch, *place: int) -> Batch:
        rng = np.random.default_rng((self.seed, *place, 1))
        noise = torch.from_numpy(rng.random((len(batch.targets), self.patches), dtype=np.float32))
        return replace(batch, inputs=batch.inputs | {"noise": noise})


class ViewStream(ImageStream):
    """Each picture of a batch twice, changed in two ways: all first views above all second ones."""

    def batches(self, epoch: int = 0, index: int = 0) -> Iterator[tuple[int, int, Batch]]:
        for epoch, index, batch in super().batches(epoch, index):  # noqa: B020  they go on from there
            rng = np.random.default_rng((self.seed, epoch, index, 1))
            second = self.view(self.bytes_of(list(batch.examples)), rng)
            yield epoch, index, replace(batch, inputs={"pixels": torch.cat([batch.inputs["pixels"], second])})

    def once(self, pictures: LabelledImages, rows: int | None = None) -> Iterator[Batch]:
        """The same two views of every picture each time."""
        rng = np.random.default_rng((self.seed, 2))
        plain = ImageStream(pictures, self.how, self.augmentation, self.rows)
        for batch in super().once(pictures, self.rows):  # as many others as in training
            views = [self.view(plain.bytes_of(list(batch.examples)), rng) for _ in range(2)]
            yield replace(batch, inputs={"pixels": torch.cat(views)})

    def view(self, bytes_: Tensor, rng: np.random.Generator) -> Tensor:
        return centred(self.augmentation.change(bytes_.float(), rng), self.how)
