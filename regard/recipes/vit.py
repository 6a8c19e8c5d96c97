"""Labels of images, by a Vision Transformer.

regard train vit
    scikit-learn's 8 × 8 digits: 1,500 steps, one to two minutes on two cores, 98.6 % of 360 held-out digits right
regard train vit --data.images mnist.npz
    8,000 steps, 28 minutes of one core, about 15 of two: 99.1 % of 10,000 others
regard train vit --data.images FOLDER
    a sub-folder a class; or a .csv of path and label, or an .npz of x and y. Patch and depth follow from the images
regard finetune runs/vit --data.images FOLDER --data.size 96 --tune lora
    from a run of any of these families, a published checkpoint, or a masked autoencoder's encoder
"""

import math
from collections.abc import Mapping
from dataclasses import fields, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

from regard.config import override
from regard.data.sets.image_data import image_fields, preprocessing_for
from regard.data.sets.labelled_images import ImagesConfig, ImageStream
from regard.hub.checkpoint import load_model
from regard.hub.preprocessor import load_preprocessing
from regard.hub.remote import find
from regard.models import fitting, preset, without_labels
from regard.models.parts import pretrained
from regard.nn.patches import grid_of, sides
from regard.objectives.labels import text_labels
from regard.registry import models, register_recipe
from regard.runs.fit import Job, from_base, prepare
from regard.runs.recipe import Recipe, from_scratch
from regard.train.config import TrainConfig
from regard.train.progress import Line

BATCH = 64
"""Number of images in a batch, independent of their size."""
RATES = {"all": 3e-4, "head": 4e-3, "lora": 2e-3}
"""Learning rates from trained weights; what is small or initialised to zero can take larger steps."""
FAST = "cnn-attention"
"""The recipe that learns most from scratch and in little time."""
CROP = 0.4
"""Least share of the area of random crops from the user's images, where these are larger than the model reads."""
LABELLED = ("classify-images", "embed-images", "restore-images")
"""Tasks of models that images with labels go on from."""
SCANS: dict[str, Any] = dict(shift=0.12, zoom=0.15, turn=10.0, mixup=0.4)
"""Augmentation of the digits."""
SHORT: dict[str, Any] = dict(colour=0.0, mixup=0.0, turn=0.0)
"""Augmentation that is switched off in a short run, which does not come near to overfitting."""
MANY, SPEED = 15, 500
"""Passes over the images from which on a run is not short; images per second that one core trains a small model on."""
FAST_MANY, FAST_SPEED = 30, 1000
"""MANY and SPEED of the recipe with convolutions, of which the model is smaller and the speed higher."""
FAST_STEPS = (1500, 5000)
"""Least and most steps of that recipe where no budget is set; between them, as many as FAST_MANY passes take."""
VALIDATIONS = 6
"""Validations of a run by that recipe: of many images each takes seconds."""
BUDGET = ("steps", "minutes", "epochs", "accumulate")
"""Fields that say how long a run is."""
GREY: dict[str, Any] = dict(turn=10.0)
"""Augmentation of the user's grey images: most are scans, and none lies straight."""
PHOTOS: dict[str, Any] = dict(flip=True, colour=0.2, mixup=0.2)
"""Augmentation of the user's colour images: there left and right seldom mean something."""


@register_recipe("vit", verb="classify", out="pictures", bases=LABELLED)
def vit(data: Mapping[str, Any], train: Mapping[str, Any] = MappingProxyType({})) -> Recipe:
    """Return the recipe of a small ViT, or of the image classifier that the data name as their base."""
    return image_recipe("vit", "vit", "tiny", data, train)


def image_recipe(
    name: str, family: str, size: str, data: Mapping[str, Any], budget: Mapping[str, Any] = MappingProxyType({})
) -> Recipe:
    """An image classifier for images of the size that the data have; from a base, that model's own size.

    `budget` are the fields of training that the user set; with few passes over the images they are augmented less.
    """
    config = override(ImagesConfig(), data, under="data.")
    shape, base, embedded = config.shape(), config.base, config.embedded
    train = from_scratch(steps=1500, lr=3e-3, smoothing=0.1, every=250)
    if base is not None:
        own, model = start_config(base, config.size)
        if own != family != "vit":  # which is the recipe that goes on from any of them
            raise ValueError(f"{base} is a {own}, not a {family}; use regard finetune {base}")
        family = own
        train = replace(train, epochs=10.0, optimizer="adamw", lr=None, schedule="linear", beta2=0.999)
    else:
        model = preset(family, size, **image_fields(shape), **fitting(family, *shape[:2]))
    if not embedded and base is None:  # a ViT has fewer tokens, and less built-in knowledge of images
        train = replace(train, steps=8000 if family == "vit" else 5000, eval_every=500, save_every=500)
    train = replace(train, batch_tokens=BATCH * getattr(model, "tokens", 64))
    augmented = ImagesConfig(base=base, **SCANS if embedded else PHOTOS if shape[2] == 3 else GREY)
    if not embedded and base is None:
        augmented = replace(augmented, resize="crop", crop=CROP)
        if fast := name == FAST:
            train = paced(train, config.count())
        planned = override(train, {field: budget[field] for field in BUDGET if field in budget}, under="train.")
        short = is_short(name, planned, config.count())
        augmented = replace(augmented, **SHORT) if short else augmented
        if fast:
            every = max(50, math.ceil(seen(name, planned, config.count()) / BATCH / VALIDATIONS))
            train = replace(train, smoothing=0.0 if short else 0.1, eval_every=every, save_every=every)
            augmented = replace(augmented, turn=0.0, **dict(zoom=0.0) if short else dict(mixup=PHOTOS["mixup"]))
    return Recipe(name=name, family=family, model=model, data=augmented, train=train)


def paced(train: TrainConfig, images: int) -> TrainConfig:
    """The training of the recipe with convolutions: Muon for their kernels, and steps that fit the number of images."""
    least, most = FAST_STEPS
    steps = min(most, max(least, math.ceil(FAST_MANY * images / BATCH)))
    return replace(train, steps=steps, optimizer="muon-conv", select="metric")


def is_short(name: str, train: TrainConfig, images: int) -> bool:
    """Whether a run sees its images so seldom that it does not come near to overfitting."""
    return seen(name, train, images) / max(1, images) < (FAST_MANY if name == FAST else MANY)


def seen(name: str, train: TrainConfig, images: int) -> float:
    """The images that a run sees, about; where minutes are given, at the speed of a small model on one core."""
    if train.minutes is not None:
        return 60 * train.minutes * (FAST_SPEED if name == FAST else SPEED)
    if train.epochs is not None:
        return train.epochs * images
    return float(train.steps * BATCH * train.accumulate)


def start_config(base: str, size: int | None) -> tuple[str, Any]:
    """The family and config of a checkpoint without its labels, for images of its own size or of another."""
    model: Any = pretrained(load_model(find(base)))
    family, config = models.name_of(type(model)), model.config
    if not {"image", "labels", "patch"} <= {field.name for field in fields(config)}:
        raise ValueError(f"{base} is a {family}, which labels no images; give a vit, a swin or another that does")
    config = without_labels(config)
    return family, config if size is None else replace(config, image=size)


@prepare.register
def prepare_images(data: ImagesConfig, recipe: Recipe, out: Path, resume: bool, line: Line) -> Job:
    """Load images at the model's size, and set the model's labels to their classes."""
    config = recipe.model
    start = None
    if data.base is not None:  # its preprocessing decides size and channels
        start = load_preprocessing(find(data.base), config)
        if data.channels not in (None, config.channels):
            raise ValueError(f"{data.base} reads images of {config.channels} channels; leave out --data.channels")
        data = replace(data, channels=config.channels)
        recipe = replace(recipe, data=data)
        start = start.at(sides(config.image))
        shape = (*sides(config.image), config.channels)
        if (own := replace(data, channels=None).shape()) != shape:
            before, after = (
                f"{rows} × {columns} in {'grey' if depth == 1 else 'colours'}" for rows, columns, depth in (own, shape)
            )
            line.say(f"images of {before} become {after}, as {data.base} reads them")
    resizing = start or data.preprocessing
    images, valid = data.split(resizing, crops=data.crop)
    if data.examples is not None:
        images = images.sample(data.examples, recipe.train.seed)
    assert resizing.target is not None
    config = replace(config, **image_fields((*resizing.target, resizing.channels)), labels=images.names)
    recipe = replace(recipe, model=config)
    preprocessing = start or preprocessing_for(images, resizing)
    tokens = getattr(config, "tokens", None) or int(np.prod(grid_of(config.image, getattr(config, "patch", 1))))
    rows = max(1, recipe.train.batch_tokens // tokens)
    stream = ImageStream(
        images, preprocessing, data, rows, seed=recipe.train.seed, mixup=data.mixup, cutmix=data.cutmix, crop=data.crop
    )
    if (
        data.base is None
        and not data.embedded
        and recipe.name != FAST
        and is_short(recipe.name, recipe.train, len(images))
    ):
        line.say(f"in so short a run a model with convolutions learns more: regard train {FAST}")
    recipe, options = from_base(recipe, data, RATES)
    return Job(
        recipe=recipe, readers={"image": preprocessing}, stream=stream, valid=lambda: stream.once(valid),
        objective=text_labels, about=f"{len(images):,} images of {len(images.names)} classes", **options,
    )  # fmt: skip
