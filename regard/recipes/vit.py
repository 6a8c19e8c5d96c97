"""Labels of pictures, by a Vision Transformer.

regard train vit
    scikit-learn's 8 × 8 digits: 1,500 steps, one to two minutes on two cores, 98.6 % of 360 held-out digits right
regard train vit --data.images mnist.npz
    8,000 steps, 28 minutes of one core, about 15 of two: 99.1 % of 10,000 others
regard train vit --data.images FOLDER
    a sub-folder a class; or a .csv of path and label, or an .npz of x and y. Patch and depth follow from the pictures
regard finetune runs/vit --data.images FOLDER --data.size 96 --tune lora
    from a run of any of these families, a published checkpoint, or a masked autoencoder's encoder
"""

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from regard.config import override
from regard.data.sets.labelled_images import ImagesConfig, ImageStream, preprocessing_for
from regard.hub.adapter import begin_from, encoder_of, save_adapter, tune
from regard.hub.checkpoint import load_model
from regard.hub.preprocessor import load_preprocessing
from regard.hub.remote import find
from regard.models import preset
from regard.nn.patches import grid_of, sides
from regard.objectives.labels import text_labels
from regard.registry import models, register_recipe
from regard.runs.fit import Job, prepare
from regard.runs.recipe import Recipe, fields_of, fitting
from regard.train.config import TrainConfig
from regard.train.progress import Line

BATCH = 64
"""Pictures in a batch, whatever their size."""
RATES = {"all": 3e-4, "head": 4e-3, "lora": 2e-3}
"""From trained weights; what is small or starts at zero can take larger steps."""
SCANS: dict[str, Any] = dict(shift=0.12, zoom=0.15, turn=10.0, mixup=0.4)
"""What training does to the digits."""
GREY: dict[str, Any] = dict(turn=10.0)
"""What training does to grey pictures of one's own: most are scans, and none lies straight."""
PHOTOS: dict[str, Any] = dict(flip=True, colour=0.2, mixup=0.2)
"""What training does to colours: there left and right seldom mean something."""


@register_recipe("vit")
def vit(**how: Any) -> Recipe:
    return picture_recipe("vit", "vit", **how)


def picture_recipe(
    name: str, family: str, size: str = "tiny", *, embedded: bool = True, base: str | None = None,
    given: Mapping[str, Any] | None = None,
) -> Recipe:  # fmt: skip
    """A model for pictures of the size that `given`, fields of the data, lead to; from `base`, that model's own."""
    given = given or {}
    shape = override(ImagesConfig(), given).shape()
    train = TrainConfig(
        steps=1500, optimizer="muon", lr=3e-3, schedule="trapezoid", warmup=100, eval_every=250, save_every=250
    )
    if base is not None:
        own, model = start_config(base, given)
        if own != family != "vit":  # which is the recipe that goes on from any of them
            raise ValueError(f"{base} is a {own}, not a {family}; use regard finetune {base}")
        family = own
        train = replace(train, epochs=10.0, optimizer="adamw", lr=None, schedule="linear", beta2=0.999)
    else:
        model = preset(family, size, **fields_of(shape), **fitting(family, *shape[:2]))
    if not embedded and base is None:  # a ViT has fewer tokens, and more to find out by itself
        train = replace(train, steps=8000 if family == "vit" else 5000, eval_every=500, save_every=500)
    train = replace(train, batch_tokens=BATCH * getattr(model, "tokens", 64))
    data = ImagesConfig(base=base, **SCANS if embedded else PHOTOS if shape[2] == 3 else GREY)
    return Recipe(name=name, family=family, model=model, data=data, train=train)


def start_config(base: str, fields: Mapping[str, Any]) -> tuple[str, Any]:
    """The family and config of a checkpoint, for pictures of its own size or the one that is asked for."""
    model: Any = encoder_of(load_model(find(base)))
    family, config = models.name_of(type(model)), model.config
    if not {"image", "labels", "patch"} <= set(type(config).__dataclass_fields__):
        raise ValueError(f"{base} is a {family}, which labels no pictures; give a vit, a swin or another that does")
    changes: dict[str, Any] = dict(labels=())
    if getattr(config, "teacher", "none") == "head":  # nobody teaches now; the token stays
        changes["teacher"] = "token"
    if getattr(config, "pooler", False):
        changes["pooler"] = False
    if getattr(config, "offsets", None) == "log":  # on the scale that its networks know, whatever windows come now
        changes["trained_windows"] = config.known_windows
    if fields.get("size"):
        changes["image"] = int(fields["size"])
    return family, replace(config, **changes)


@prepare.register
def prepare_pictures(data: ImagesConfig, recipe: Recipe, out: Path, resume: bool, line: Line) -> Job:
    """Reads the pictures at the model's size; the model gets their classes."""
    config = recipe.model
    start = None
    if data.base is not None:  # what it starts from says what it reads
        start = load_preprocessing(find(data.base), config)
        if data.channels not in (None, config.channels):
            raise ValueError(f"{data.base} reads pictures of {config.channels} channels; leave out --data.channels")
        data = replace(data, channels=config.channels)
        recipe = replace(recipe, data=data)
        start = start.at(sides(config.image))
        shape = (*sides(config.image), config.channels)
        if (own := replace(data, channels=None).shape()) != shape:
            kinds = [
                f"{rows} × {columns} in {'grey' if depth == 1 else 'colours'}" for rows, columns, depth in (own, shape)
            ]
            line.say(f"pictures of {kinds[0]} become {kinds[1]}, as {data.base} reads them")
    pictures, valid = data.split(start)
    if data.examples is not None:
        pictures = pictures.draw(data.examples, recipe.train.seed)
    config = replace(config, **fields_of(pictures.pixels.shape[1:]), labels=pictures.names)
    recipe = replace(recipe, model=config)
    preparation = start or preprocessing_for(pictures)
    tokens = getattr(config, "tokens", None) or int(np.prod(grid_of(config.image, config.patch)))
    count = max(1, recipe.train.batch_tokens // tokens)
    stream = ImageStream(
        pictures, preparation, data, count, seed=recipe.train.seed, mixup=data.mixup, cutmix=data.cutmix
    )
    how: dict[str, Any] = {}
    if data.base is not None:
        base = find(data.base)
        if recipe.train.lr is None:
            recipe = replace(recipe, train=replace(recipe.train, lr=RATES[data.tune]))
        how["build"] = lambda recipe: tuned(begin_from(load_model(base), recipe.model), data)
        if data.tune != "all":
            how["publish"] = partial(save_adapter, base=base, how=data.tune, rank=data.rank)
    return Job(
        recipe=recipe, stream=stream, valid=lambda: stream.once(valid), objective=text_labels,
        preparation=preparation, about=f"{len(pictures):,} pictures of {len(pictures.names)} classes", **how,
    )  # fmt: skip


def tuned(model: Any, data: ImagesConfig) -> Any:
    tune(model, data.tune, data.rank)
    return model
