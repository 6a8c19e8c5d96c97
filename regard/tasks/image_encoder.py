"""A trained model that sees: vectors of pictures, and labels."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float
from PIL import Image
from torch import Tensor

from regard.data.readers.images import Preparation, list_images, read_image
from regard.tasks.prepared import Prepared
from regard.tasks.prepared_image import read_images
from regard.tasks.text_encoder import Match
from regard.tasks.text_heads import Label

BATCH = 64
Picture = str | Path | Image.Image


def opened(pictures: Sequence[Picture]) -> list[Image.Image]:
    """Image files, or images of Pillow's, as `read_image` gives them."""
    if isinstance(pictures, (str, Path, Image.Image)):
        name = "image" if isinstance(pictures, Image.Image) else repr(str(pictures))
        raise ValueError(f"pictures is a list; put a single one in brackets: [{name}]")
    return [read_image(one) for one in pictures]


class ImageEncoder:
    """What `regard.load` returns for a model that sees: a vector for each picture."""

    inputs: ClassVar[tuple[str, ...]] = ("image",)
    answers: ClassVar[str] = "vector"
    """What the model's output is, in the words of `Prepared.answers`."""

    def __init__(self, model: Any, preparation: Preparation) -> None:
        self.model, self.preparation = model.eval(), preparation

    def pixels(self, pictures: Sequence[Picture]) -> list[np.ndarray]:
        """Image files, or images of Pillow's, as the model reads them."""
        return [self.preparation(image) for image in opened(pictures)]

    def numbers(self, arrays: np.ndarray) -> list[np.ndarray]:
        """Bytes (number, rows, columns, channels) that have their size already, as the model reads them."""
        return list(self.preparation.numbers(arrays))

    @torch.inference_mode()
    def outputs(self, function: Any, pixels: Sequence[np.ndarray]) -> list[Tensor]:
        """What `function` gives for each picture, those of one size together."""
        found: list[Tensor] = [torch.empty(0)] * len(pixels)
        like = next(self.model.parameters())
        for shape in dict.fromkeys(one.shape for one in pixels):
            places = [i for i, one in enumerate(pixels) if one.shape == shape]
            for first in range(0, len(places), BATCH):
                group = places[first : first + BATCH]
                batch = torch.from_numpy(np.stack([pixels[i] for i in group])).to(like)
                for place, row in zip(group, function(batch), strict=True):
                    found[place] = row
        return found

    def embed(self, pictures: Sequence[Picture], *, normalize: bool = True) -> Float[Tensor, "N D"]:
        """A vector for each picture, of length 1 unless told otherwise."""
        return self.embedded(self.pixels(pictures), normalize)

    def embed_arrays(self, arrays: np.ndarray, *, normalize: bool = True) -> Float[Tensor, "N D"]:
        """The same for bytes (number, rows, columns, channels) that have their size already."""
        return self.embedded(self.numbers(arrays), normalize)

    def embedded(self, pixels: Sequence[np.ndarray], normalize: bool) -> Float[Tensor, "N D"]:
        rows = self.outputs(self.model.embed, pixels)
        vectors = torch.stack(rows) if rows else torch.empty(0, self.width)
        return F.normalize(vectors, dim=-1) if normalize else vectors

    @property
    def width(self) -> int:
        return getattr(self.model.config, "width", self.model.config.dim)

    def vectors(self, words: Sequence[Picture]) -> Float[Tensor, "N D"]:
        """The same for whatever the model understands."""
        return self.embed(words)

    def read(self, *inputs: Any, **options: Any) -> Prepared:
        """One input, ready to be looked into."""
        return read_images(self, *inputs, **options)

    def search(
        self, query: Picture, corpus: str | Path | Sequence[Picture], *, count: int = 5,
        skipped: list[str] | None = None,
    ) -> list[Match]:  # fmt: skip
        """What is most like the query, by the cosine of vectors, in a folder of pictures or in a list.

        Files of a folder that cannot be read are errors, unless there is a list `skipped` for what is wrong with them.
        """
        wanted = self.vectors([query])[0]
        if isinstance(corpus, (str, Path)):
            names, vectors = self.embed_folder(Path(corpus), skipped)
        else:
            names, vectors = [str(one) for one in corpus], self.vectors(corpus)
        best = (vectors @ wanted).topk(min(count, len(names)))
        pairs = zip(best.values.tolist(), best.indices.tolist(), strict=True)
        return [Match(score, place, names[place]) for score, place in pairs]

    def embed_folder(self, folder: Path, skipped: list[str] | None = None) -> tuple[list[str], Float[Tensor, "N D"]]:
        """All pictures in a folder and those below it, a few at a time: their paths and vectors."""
        if not folder.is_dir():
            raise ValueError(f"no such folder: {folder}; give one with pictures")
        paths = list_images(folder)
        names, parts = [], []
        for first in range(0, len(paths), BATCH):
            pixels = []
            for path in paths[first : first + BATCH]:
                try:
                    pixels += self.pixels([path])
                    names.append(str(path))
                except ValueError as error:
                    if skipped is None:
                        raise
                    skipped.append(str(error))
            parts.append(self.embedded(pixels, True))
        return names, torch.cat(parts)


class ImageClassifier(ImageEncoder):
    """Labels pictures."""

    answers = "labels"

    def classify(self, pictures: Sequence[Picture], seconds: None = None) -> list[list[Label]]:
        """All labels of each picture, the likeliest first."""
        if seconds is not None:
            raise ValueError("this model labels pictures one by one; leave out the second text")
        return self.named(self.outputs(self.model, self.pixels(pictures)))

    def classify_arrays(self, arrays: np.ndarray) -> list[list[Label]]:
        """The same for bytes (number, rows, columns, channels) that have their size already."""
        return self.named(self.outputs(self.model, self.numbers(arrays)))

    def named(self, scores: Sequence[Tensor]) -> list[list[Label]]:
        labels, results = self.model.config.labels, []
        for row in scores:
            best = row.softmax(-1).sort(descending=True)
            pairs = zip(best.indices.tolist(), best.values.tolist(), strict=True)
            results.append([Label(labels[i], p) for i, p in pairs])
        return results
