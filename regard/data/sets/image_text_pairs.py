"""Pictures and texts that say the same, for models that compare the two."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from regard.data.generated.scenes import COLOURS, SHAPES, Scene, SceneObject, scenes
from regard.data.readers.image_files import Preprocessing
from regard.data.sets.batches import Batch, pad
from regard.data.sets.captioned_images import CaptionedImages, CaptionsConfig, CaptionStream
from regard.data.sets.labelled_images import NO_LABELS, resized

ALONE = 1000
"""Scenes with one thing each, for the scores at the end."""
LABELS = tuple(f"a {colour} {shape}" for colour in COLOURS for shape in SHAPES)
"""What such a thing may be."""


@dataclass(frozen=True, kw_only=True, slots=True)
class PairedConfig(CaptionsConfig):
    """Where pictures with captions come from (nothing given: scenes drawn here), their size, and the texts' tokens."""

    decides: ClassVar[dict[str, str]] = CaptionsConfig.decides | NO_LABELS

    max_len: int = 64
    """Longest text in tokens; longer ones are cut."""

    def said(self, scene: Scene, split: str) -> tuple[str, ...]:
        """Of scenes for training it is also said briefly what they show, and of each thing alone.

        Full captions differ in so much that shapes would hardly matter for telling pictures apart.
        """
        return tuple(dict.fromkeys(texts_of(scene))) if split == "train" else (scene.caption,)

    def alone(self, limit: int | None = None, how: Preprocessing | None = None) -> tuple[CaptionedImages, tuple[str, ...]]:
        """Scenes of one thing each that no training saw, what it is, and everything that it might be."""
        how = how or self.fitting()
        assert how.target is not None
        found = scenes("test", min(ALONE, limit or ALONE), how.target[0], 1)
        pixels = resized(np.stack([one.pixels for one in found]), how)
        return CaptionedImages(pixels, [(name_of(one.things[0]),) for one in found]), LABELS


def texts_of(scene: Scene) -> list[str]:
    """What can be said of a scene: everything, all things without size and ground, and each of them."""
    things = [name_of(thing) for thing in scene.things]
    *first, last = things
    return [scene.caption, f"{', '.join(first)}{' and ' if first else ''}{last}", *things]


def name_of(thing: SceneObject) -> str:
    return f"a {thing.colour} {thing.shape}"


@dataclass(frozen=True)
class PairStream(CaptionStream):
    """Endless batches of pictures, each with one of its texts; these come with the tokens around them."""

    def once(self, pictures: CaptionedImages, ids: list[list[list[int]]]) -> Iterator[Batch]:
        """Every given picture with each of its texts: for validation."""
        return CaptionStream.once(replace(self, pictures=pictures, ids=ids), pictures, ids)

    def collate(self, pixels: Tensor, said: Sequence[Sequence[int]], places: Sequence[int]) -> Batch:
        """Targets B B say which texts (columns) are right for which pictures (rows): all that are said of them."""
        texts = [tuple(ids) for ids in said]
        own = [{tuple(ids) for ids in self.ids[place]} for place in places]
        inputs = {
            "pixels": pixels,
            "ids": pad(texts, self.marks[2]),
            "lengths": torch.tensor([len(text) for text in texts]),
        }
        return Batch(inputs, torch.tensor([[text in right for text in texts] for right in own]), tuple(places))
