"""Images without labels, for three objectives: hidden patches, two augmented views, and pixels as tokens."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from regard.config import at_least
from regard.data.sets.augment import normalized
from regard.data.sets.batches import Batch
from regard.data.sets.image_data import DECIDED, NO_LABELS
from regard.data.sets.labelled_images import FileOrDigits, ImageStream, LabelledImages


@dataclass(frozen=True, kw_only=True, slots=True)
class UnlabelledConfig(FileOrDigits):
    """Where images come from (nothing given: the embedded digits), their size, and how training augments them."""

    labelled: ClassVar[bool] = False

    images: str | None = None
    """A folder of images, with or without sub-folders, a .csv, .tsv or .jsonl of paths, or an .npz of x."""


@dataclass(frozen=True, kw_only=True, slots=True)
class HiddenConfig(UnlabelledConfig):
    """Images of which patches are hidden."""

    decides: ClassVar[dict[str, str]] = DECIDED | NO_LABELS


@dataclass(frozen=True, kw_only=True, slots=True)
class ViewsConfig(UnlabelledConfig):
    """Images of which two views are compared, each strongly augmented."""

    decides: ClassVar[dict[str, str]] = DECIDED | NO_LABELS
    absent: ClassVar[dict[str, Any]] = {"norm": False}

    examples: int | None = None
    """Train on a random sample of so many images (none: all)."""
    temperature: float = 0.2
    """Temperature of the softmax over all views of a batch."""
    projection: int = 64
    """Width of the vectors that are compared in training, and thrown away afterwards."""
    norm: bool = True
    """Whether a batch norm follows each linear layer of the head that makes those vectors."""

    def __post_init__(self) -> None:
        UnlabelledConfig.__post_init__(self)
        at_least(1, examples=self.examples)
        if self.temperature <= 0 or self.projection < 1:
            raise ValueError(f"temperature={self.temperature} must be above 0, projection={self.projection} at least 1")


@dataclass(frozen=True, kw_only=True, slots=True)
class PixelsConfig(UnlabelledConfig):
    """Images as sequences of colours."""

    decides: ClassVar[dict[str, str]] = {
        "model.vocab_size": "follows from the colours; use --data.levels",
        "model.max_len": "follows from the images; use --data.size",
    }

    levels: int | None = None
    """Values of a channel; a token is a colour of all their combinations (none: 16 for grey, 6 for colours)."""


@dataclass(frozen=True, kw_only=True)
class HiddenStream(ImageStream):
    """Batches of images with a random number for each patch: the patches with the largest are hidden."""

    patches: int
    """Patches of an image."""

    def finish(self, batch: Batch, epoch: int, index: int) -> Batch:
        """Return the batch with reproducible random numbers for each patch, seeded by its position in the stream."""
        rng = np.random.default_rng((self.seed, epoch, index, 1))
        noise = torch.from_numpy(rng.random((len(batch.targets), self.patches), dtype=np.float32))
        return replace(batch, inputs=batch.inputs | {"noise": noise})


class ViewStream(ImageStream):
    """Batches with two augmented views of each image: all first views above all second ones."""

    def batches(self, epoch: int = 0, index: int = 0) -> Iterator[tuple[int, int, Batch]]:
        for epoch, index, batch in super().batches(epoch, index):  # noqa: B020  they go on from there
            rng = np.random.default_rng((self.seed, epoch, index, 1))
            second = self.view(self.bytes_of(list(batch.examples)), rng)
            yield epoch, index, replace(batch, inputs={"pixels": torch.cat([batch.inputs["pixels"], second])})

    def once(self, images: LabelledImages, rows: int | None = None) -> Iterator[Batch]:
        """Two views of every image, the same in every call."""
        rng = np.random.default_rng((self.seed, 2))
        plain = ImageStream(images, self.preprocessing, self.augmentation, self.rows)
        for batch in super().once(images, self.rows):  # as many others as in training
            views = [self.view(plain.bytes_of(list(batch.examples)), rng) for _ in range(2)]
            yield replace(batch, inputs={"pixels": torch.cat(views)})

    def view(self, bytes_: Tensor, rng: np.random.Generator) -> Tensor:
        """An augmented view of each image, normalised."""
        return normalized(self.augmentation.change(bytes_.float(), rng), self.preprocessing)


@dataclass(frozen=True, kw_only=True)
class PixelStream(ImageStream):
    """Batches of images as ids: the target of each position is the next pixel."""

    encode: Callable[[np.ndarray], np.ndarray]
    """Bytes (number, rows, columns, channels) as ids."""
    start: int
    """The id before the first pixel."""

    def finish(self, batch: Batch, epoch: int, index: int) -> Batch:
        """A batch of pixels as a batch of ids."""
        bytes_ = np.moveaxis(batch.inputs["pixels"].round().clamp(0, 255).byte().numpy(), 1, -1)
        ids = torch.from_numpy(self.encode(bytes_))
        start = ids.new_full((len(ids), 1), self.start)
        return Batch({"ids": torch.cat([start, ids[:, :-1]], dim=1)}, ids, batch.examples)
