"""Images with texts of the same content, for contrastive models."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from regard.data.generated.scenes import COLOURS, SHAPES, Scene, SceneObject, listed, scenes
from regard.data.readers.preprocessing import Preprocessing
from regard.data.sets.batches import Batch, pad
from regard.data.sets.captioned_images import CaptionedImages, CaptionsConfig, CaptionStream
from regard.data.sets.image_data import NO_LABELS, resized

SINGLE = 1000
"""Scenes with one object each, for zero-shot classification."""
LABELS = tuple(f"a {colour} {shape}" for colour in COLOURS for shape in SHAPES)
"""Labels of these scenes for zero-shot classification."""


@dataclass(frozen=True, kw_only=True, slots=True)
class PairedConfig(CaptionsConfig):
    """Where images with captions come from (nothing given: generated scenes), their size, and the texts' tokens."""

    decides: ClassVar[dict[str, str]] = CaptionsConfig.decides | NO_LABELS

    max_len: int = 64
    """Longest text in tokens; longer ones are cut."""

    def captions_of(self, scene: Scene, part: str) -> tuple[str, ...]:
        """The full caption of a scene; for training also the objects without size and ground, and each object alone.

        Full captions differ in so much that shapes would hardly matter for telling images apart.
        """
        return tuple(dict.fromkeys(texts_of(scene))) if part == "train" else (scene.caption,)

    def single_objects(
        self, limit: int | None = None, preprocessing: Preprocessing | None = None
    ) -> tuple[CaptionedImages, tuple[str, ...]]:
        """Test scenes of one object each, captioned by its label, and all labels."""
        preprocessing = preprocessing or self.preprocessing
        assert preprocessing.target is not None
        single = scenes("test", min(SINGLE, limit or SINGLE), preprocessing.target[0], 1)
        pixels = resized(np.stack([scene.pixels for scene in single]), preprocessing)
        return CaptionedImages(pixels, [(label_of(scene.objects[0]),) for scene in single]), LABELS


def texts_of(scene: Scene) -> list[str]:
    """The caption of a scene, its objects without size and ground, and each of them alone."""
    labels = [label_of(item) for item in scene.objects]
    return [scene.caption, listed(labels), *labels]


def label_of(item: SceneObject) -> str:
    """Colour and shape of an object, as a label of zero-shot classification."""
    return f"a {item.colour} {item.shape}"


@dataclass(frozen=True)
class PairStream(CaptionStream):
    """Endless batches of images, each with one of its texts; the texts have their special tokens already."""

    def once(self, images: CaptionedImages, ids: list[list[list[int]]]) -> Iterator[Batch]:
        """Every image with each of its texts: for validation."""
        return CaptionStream.once(replace(self, images=images, ids=ids), images, ids)

    def collate(self, pixels: Tensor, captions: Sequence[Sequence[int]], indices: Sequence[int]) -> Batch:
        """Targets B B are true where the text of a column is one of the texts of a row's image."""
        texts = [tuple(ids) for ids in captions]
        own = [{tuple(ids) for ids in self.ids[index]} for index in indices]
        inputs = {
            "pixels": pixels,
            "ids": pad(texts, self.special[2]),
            "lengths": torch.tensor([len(text) for text in texts]),
        }
        return Batch(inputs, torch.tensor([[text in right for text in texts] for right in own]), tuple(indices))
