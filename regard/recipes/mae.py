"""Images without labels, by hiding most of each: a masked autoencoder. A linear classifier shows what it learned.

regard train mae --train.steps 500 --probe
    scikit-learn's 8 × 8 digits: 1.5 minutes of one core, then a linear classifier on the best layer errs in 2.5 % of
    360 held-out digits, on raw pixels in 3.3 %, before training in 3.1 %
regard train mae --data.images mnist.npz --train.steps 800 --probe
    six minutes of one core, about 3 of two: 5.9 % of 10,000 others wrong with 1,000 labels, on raw pixels 12.4 %,
    before training 11.9 %
regard train mae --data.images FOLDER
    any folder of images, or an .npz of x
regard complete runs/mae image.png --out done.png
    the image with most patches hidden, and as the model restores it
regard eval runs/mae --probe --labels 1000
regard finetune runs/mae --data.images FOLDER
"""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from regard.config import override
from regard.data.sets.image_data import image_fields, preprocessing_for
from regard.data.sets.unlabelled_images import HiddenConfig, HiddenStream
from regard.models import fitting, preset
from regard.objectives.pixels import masked_pixels
from regard.registry import register_recipe
from regard.runs.fit import Job, base_preprocessing, prepare
from regard.runs.recipe import Recipe, from_scratch
from regard.train.config import TrainConfig
from regard.train.progress import Line

BATCH = 128
"""Images in a batch."""


@register_recipe("mae", verb="restore", asked=("restore-images",), tunes=("all",), whole="an autoencoder")
def mae(data: Mapping[str, Any]) -> Recipe:
    """Return the recipe of a small masked autoencoder for images of the size that the data have."""
    model = sized("mae", override(HiddenConfig(), data, under="data."))
    return Recipe(
        name="mae", family="mae", model=model, data=HiddenConfig(shift=0.1, zoom=0.1), train=pretraining(model)
    )


def sized(family: str, data: Any, **changes: Any) -> Any:
    """The config of a small model for images of the size that the data have."""
    shape = data.shape()
    return preset(family, "tiny", **image_fields(shape), **fitting(family, *shape[:2]), **changes)


def pretraining(model: Any) -> TrainConfig:
    """The training of an image encoder without labels."""
    return from_scratch(steps=2000, batch_tokens=BATCH * model.tokens, lr=3e-3, every=500)


def shaped(recipe: Recipe, images: Any) -> Recipe:
    """Return the recipe with a model config for images of this size."""
    return replace(recipe, model=replace(recipe.model, **image_fields(images.pixels.shape[1:])))


@prepare.register
def prepare_hidden(data: HiddenConfig, recipe: Recipe, out: Path, resume: bool, line: Line) -> Job:
    """Images at the model's size, and for each patch a random number that decides whether it is hidden."""
    start = base_preprocessing(data, recipe.model, line)
    images, valid = data.split(start)
    recipe = shaped(recipe, images)
    preprocessing, tokens = start or preprocessing_for(images), recipe.model.tokens
    stream = HiddenStream(
        images, preprocessing, data, max(1, recipe.train.batch_tokens // tokens), seed=recipe.train.seed,
        patches=tokens - 1,
    )  # fmt: skip
    return Job(
        recipe=recipe, readers={"image": preprocessing}, stream=stream, valid=lambda: stream.once(valid),
        objective=masked_pixels, about=f"{len(images):,} images",
    )  # fmt: skip
