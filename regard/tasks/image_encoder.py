"""Image models: a vector for each image, and labels."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float
from PIL import Image
from torch import Tensor

from regard.data.notices import track
from regard.data.readers.arrays import is_arrays
from regard.data.readers.image_files import list_images
from regard.data.readers.preprocessing import Preprocessing
from regard.data.readers.stored_images import Pixels
from regard.data.sets.batches import Batch
from regard.data.sets.labelled_images import ImagesConfig, LabelledImages
from regard.data.sets.unlabelled_images import UnlabelledConfig
from regard.files import same_file
from regard.hub.checkpoint import export_model
from regard.hub.preprocessor import save_preprocessing
from regard.modalities.image import IMAGE
from regard.nn.patches import sides
from regard.tasks.base import EvalSet, Example, Samples, Scored, Task, Verb, Work, register_task
from regard.tasks.baselines import IMAGES, labels_by_pixels, most_frequent
from regard.tasks.metrics import accuracy, label_scores, label_table
from regard.tasks.prepared_image import read_images
from regard.tasks.single import is_single, one_or_many
from regard.tasks.text_encoder import EMBED, Match
from regard.tasks.text_heads import Label, best_label, labels_as_json, ranked, render_labels

BATCH = 64
CHUNK = 512
"""Images that are floats at the same time."""
EMBED_IMAGES = replace(EMBED, ability="images")
ImageInput = str | Path | bytes | Image.Image | np.ndarray | Tensor
"""An image file or its bytes, an image of Pillow's, an array of bytes, or a tensor of them."""


def opened(images: Sequence[ImageInput]) -> list[Image.Image]:
    """Images in any form, as `IMAGE.read` returns them."""
    if is_single(images):
        name = repr(str(images)) if isinstance(images, str | Path) else "image"
        raise ValueError(f"images is a list; put a single one in brackets: [{name}]")
    return [IMAGE.read(image) for image in images]


@register_task("embed-images")
class ImageEncoder(Task):
    """An image model: a vector for each image. Its subclasses use the head that it was trained with."""

    inputs: ClassVar[tuple[str, ...]] = ("image",)
    verbs: ClassVar[tuple[Verb, ...]] = (EMBED_IMAGES,)
    data: ClassVar[tuple[type, ...]] = (UnlabelledConfig,)

    def __init__(self, model: Any, preprocessing: Preprocessing) -> None:
        self.model, self.preprocessing = model.eval(), preprocessing

    def pixels(self, images: Sequence[ImageInput]) -> list[np.ndarray]:
        """Images preprocessed for the model: arrays (channels, rows, columns)."""
        return [self.preprocessing(image) for image in track(opened(images), "reading images:", len(images))]

    def numbers(self, arrays: np.ndarray) -> list[np.ndarray]:
        """Normalised arrays for uint8 images (number, rows, columns, channels) of the model's own size."""
        return list(self.preprocessing.numbers(arrays))

    @torch.inference_mode()
    def outputs(self, function: Callable[[Tensor], Any], pixels: Sequence[np.ndarray]) -> list[Tensor]:
        """The result of `function` for each image; images of one size are batched together."""
        results: list[Tensor] = [torch.empty(0)] * len(pixels)
        like = next(self.model.parameters())
        sizes: dict[tuple[int, ...], list[int]] = {}
        for index, image in enumerate(pixels):
            sizes.setdefault(image.shape, []).append(index)
        groups = [same[first : first + BATCH] for same in sizes.values() for first in range(0, len(same), BATCH)]
        for group in track(groups, "images:", len(pixels), len):
            batch = torch.from_numpy(np.stack([pixels[i] for i in group])).to(like)
            for index, row in zip(group, function(batch).cpu(), strict=True):
                results[index] = row
        return results

    @one_or_many
    def embed(self, images: Sequence[ImageInput], *, normalize: bool = True) -> Float[Tensor, "N D"]:
        """A vector for each image, of length 1 if `normalize`."""
        return self.embed_pixels(self.pixels(images), normalize)

    def embed_arrays(self, arrays: Pixels, *, normalize: bool = True) -> Float[Tensor, "N D"]:
        """A vector for each uint8 image of (number, rows, columns, channels), already of the model's size."""
        return torch.cat([self.embed_pixels(self.numbers(part), normalize) for part in chunks(arrays)])

    def embed_pixels(self, pixels: Sequence[np.ndarray], normalize: bool) -> Float[Tensor, "N D"]:
        """A vector for each preprocessed image."""
        rows = self.outputs(self.model.embed, pixels)
        vectors = torch.stack(rows) if rows else torch.empty(0, self.width)
        return F.normalize(vectors, dim=-1) if normalize else vectors

    @property
    def width(self) -> int:
        """The size of an image's vector."""
        return getattr(self.model.config, "width", self.model.config.dim)

    @one_or_many
    def vectors(self, items: Sequence[Any]) -> Float[Tensor, "N D"]:
        """Vectors of length 1 for whatever the model reads: images here."""
        return self.embed(items)

    read = read_images

    def search(
        self, query: Any, corpus: str | Path | Sequence[Any], *, count: int = 5, skipped: list[str] | None = None
    ) -> list[Match]:
        """The most similar items of a folder of images, or of a list, by the cosine of their vectors.

        Files of a folder that cannot be read are errors, unless there is a list `skipped` to collect the reasons.
        """
        target = self.vectors([query])[0]
        if isinstance(corpus, (str, Path)):
            names, vectors = self.embed_folder(Path(corpus), skipped)
        else:
            names, vectors = [str(item) for item in corpus], self.vectors(corpus)
        best = (vectors @ target).topk(min(count, len(names)))
        pairs = zip(best.values.tolist(), best.indices.tolist(), strict=True)
        return [Match(score, index, names[index]) for score, index in pairs]

    def embed_folder(self, folder: Path, skipped: list[str] | None = None) -> tuple[list[str], Float[Tensor, "N D"]]:
        """The paths and vectors of all images below a folder, computed batch by batch."""
        if not folder.is_dir():
            raise ValueError(f"no such folder: {folder}; give one with images")
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
            parts.append(self.embed_pixels(pixels, True))
        return names, torch.cat(parts)

    def eval_preprocessing(self) -> Preprocessing:
        """The preprocessing of images that are scored: the model's own, resized to its size where none is stated."""
        if self.preprocessing.target is not None:
            return self.preprocessing
        return replace(self.preprocessing, size=sides(self.model.config.image), shortest=None, longest=None)

    def test_images(self, test: EvalSet, **options: Any) -> Any:
        """The preprocessed images of a test set: all of the named files, or the held-out ones of the run's own data."""
        return images_of(test, self.eval_preprocessing(), **options)

    def is_scored(self, test: EvalSet) -> bool:
        return type(self).evaluate is not ImageEncoder.evaluate

    def evaluate(self, test: EvalSet, **options: Any) -> Scored:
        raise ValueError(
            f"{test.run} has no scores of its own; fine-tune it for a task: regard finetune {test.run} "
            "--data.images …, or regard eval --probe"
        )

    def samples(self, test: EvalSet, run: Path) -> Samples:
        folder = getattr(test.data, "images", None) or "FOLDER"
        commands = [f"regard eval {run} --probe", f"regard finetune {run} --data.images {folder}"]
        images = self.test_images(replace(test, limit=5))
        return Samples(
            commands=[*commands, f"regard embed {run} image.png --out vectors.npy"],
            examples=[Example(inputs=(array,)) for array in images.pixels[:]],
        )

    def export(self, out: Path) -> None:
        export_model(self.model, out)
        save_preprocessing(out, self.preprocessing)


@register_task("classify-images")
class ImageClassifier(ImageEncoder):
    """Labels images."""

    verbs: ClassVar[tuple[Verb, ...]] = (
        Verb(
            name="classify",
            does="labels images",
            ability="images",
            as_json=labels_as_json,
            render=render_labels,
            columns=best_label,
        ),
        EMBED_IMAGES,
    )
    data: ClassVar[tuple[type, ...]] = (ImagesConfig,)

    output = "labels"

    @one_or_many
    def classify(self, images: Sequence[ImageInput]) -> list[list[Label]]:
        """All labels of each image, the most probable first."""
        return self.labelled(self.pixels(images))

    def classify_arrays(self, arrays: Pixels) -> list[list[Label]]:
        """All labels of each uint8 image of (number, rows, columns, channels), already of the model's size."""
        return [row for part in chunks(arrays) for row in self.labelled(self.numbers(part))]

    def labelled(self, pixels: Sequence[np.ndarray]) -> list[list[Label]]:
        """All labels of each preprocessed image."""
        return [ranked(logits, self.model.config.labels) for logits in self.outputs(self.model, pixels)]

    def validate(self, batches: Iterable[Batch]) -> dict[str, float]:
        return accuracy(self.model, batches)

    def evaluate(self, test: EvalSet, **options: Any) -> Scored:
        whole = self.test_images(replace(test, limit=None), part="test")
        images = at_most(whole, test.limit)
        images = images.numbered_as(self.model.config.labels, test.data.source or "the embedded digits")
        labels = [best[0].label for best in self.classify_arrays(images.pixels)]
        expected = [images.names[i] for i in images.labels]
        scores, table = label_scores(labels, expected), label_table(labels, expected)
        return Scored(
            scores=scores, outputs=labels, expected=expected, details=images.pixels, total=len(whole), **table
        )

    def work(self, test: EvalSet) -> Work:
        pixels = self.test_images(test, part="test").pixels
        return Work(run=lambda: self.classify_arrays(pixels), count=len(pixels), unit="image")

    def baselines(self, test: EvalSet, scored: Scored) -> dict[str, dict[str, float]]:
        """The most frequent label, and a linear classifier on the raw pixels of some of the training images."""
        expected = list(scored.expected)
        rows = {"most frequent label": label_scores([most_frequent(expected)] * len(expected), expected)}
        source = test.own.images
        if source is not None and not is_arrays(source) and len(test.own.files(source)) > 5 * IMAGES:
            return rows  # reading them all again would take longer than all the rest
        known = test.own.split(self.eval_preprocessing())[0].sample(IMAGES, 0)
        if len(np.unique(known.labels)) > 1:
            predicted = labels_by_pixels(known.pixels, known.labels, scored.details)
            rows["linear on pixels"] = label_scores([known.names[i] for i in predicted], expected)
        return rows

    def samples(self, test: EvalSet, run: Path) -> Samples:
        images = self.test_images(replace(test, limit=5))
        inputs = [f"an image of {images.names[i]}" for i in images.labels]
        best = [f"{row[0].label}  {row[0].probability:.0%}" for row in self.classify_arrays(images.pixels)]
        others = "" if test.own.embedded else " --data.images OTHER_FOLDER"  # with the same classes
        commands = [f"regard {self.verbs[0].name} {run} image.png", f"regard eval {run}{others}"]
        examples = [
            Example(inputs=(array,), label=images.names[label])
            for array, label in zip(images.pixels[:], images.labels, strict=True)
        ]
        return Samples(rows=list(zip(inputs, best, strict=True)), commands=commands, examples=examples)


def chunks(arrays: Pixels) -> Iterator[np.ndarray]:
    """Images in parts that take little memory as floats; at least one part."""
    for first in track(range(0, max(1, len(arrays)), CHUNK), "images:", len(arrays), lambda first: CHUNK):
        yield arrays[first : first + CHUNK]


def images_of(test: EvalSet, preprocessing: Preprocessing, **options: Any) -> Any:
    """The images of a test set: all of the named files, or what was held out of the run's own data.

    At most `limit`: a random sample of labelled images; the first of those with captions or boxes.
    """
    data = (
        replace(test.data, test=test.data.valid) if {"valid"} <= test.named and "test" not in test.named else test.data
    )
    for name, own in (("size", preprocessing.shortest or preprocessing.target), ("channels", preprocessing.channels)):
        value = getattr(data, name)
        if name in test.named and value is not None and own not in (value, (value, value)):
            raise ValueError(f"{test.run} has its own preprocessing; leave out --data.{name}")
    known = same_file(data.source, test.own.source) or test.named & {"valid", "test"}
    key = repr((preprocessing, sorted(options.items())))
    if key not in test.kept:
        if test.named & set(data.own) and not known:
            source = getattr(data, "parts", {}).get("test", data.source)  # of a folder with parts, those for the test
            test.kept[key] = data.read(source, preprocessing=preprocessing, **options)
        else:
            test.kept[key] = data.held_out(preprocessing)
    return at_most(test.share(test.kept[key]), test.limit)


def at_most(images: Any, limit: int | None) -> Any:
    """At most so many images: a random sample of labelled ones, the first of those with captions or boxes."""
    if limit is None or len(images) <= limit:
        return images
    return images.sample(limit, 0) if isinstance(images, LabelledImages) else images.take(slice(limit))
