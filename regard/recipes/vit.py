"""Labels of pictures, by a Vision Transformer.

regard train vit
    scikit-learn's 8 × 8 digits: 1,500 steps, one to two minutes on two cores, 98.6 % of 360 held-out digits right
regard train vit --data.images FOLDER
    a sub-folder a class; or a .csv of path and label, or an .npz of x and y. Patch and depth follow from the pictures
regard train vit --data.images mnist.npz --train.steps 6000
"""

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from regard.config import override
from regard.data.pictures import ImagesConfig, PictureStream, preparation_for
from regard.hub.adapter import begin_from, save_adapter, tune
from regard.hub.checkpoint import load_model
from regard.hub.remote import find
from regard.models import preset
from regard.nn.patches import grid_of
from regard.objectives.labels import text_labels
from regard.recipes.base import Recipe
from regard.recipes.run import Job, prepare
from regard.registry import models, register_recipe
from regard.train.config import TrainConfig
from regard.train.progress import Line

RATES = {"all": 3e-4, "head": 4e-3, "lora": 2e-3}
"""From trained weights; what is small or starts at zero can take larger steps."""
SCANS: dict[str, Any] = dict(shift=0.12, zoom=0.15, turn=10.0, mixup=0.4)
"""What training does to the digits."""
PHOTOS: dict[str, Any] = dict(flip=True, colour=0.2, mixup=0.2)
"""What training does to colours: there left and right seldom mean something."""


@register_recipe("vit")
def vit(*, embedded: bool = True, base: str | None = None, given: Mapping[str, Any] | None = None) -> Recipe:
    return picture_recipe("vit", "vit", embedded=embedded, base=base, given=given)


def picture_recipe(
    name: str, family: str, *, embedded: bool, base: str | None, given: Mapping[str, Any] | None
) -> Recipe:
    """A model for pictures of the size that `given`, fields of the data, lead to; from `base`, that model's own."""
    fields = {key.removeprefix("data."): value for key, value in (given or {}).items()}
    rows, columns, channels = override(ImagesConfig(), fields).shape()
    train = TrainConfig(
        steps=1500, batch_tokens=1088, optimizer="muon", lr=3e-3, schedule="trapezoid", warmup=100, eval_every=250,
        save_every=250,
    )  # fmt: skip
    if base is not None:
        family, model = start_config(base, fields)
        train = replace(train, epochs=10.0, optimizer="adamw", lr=None, schedule="linear", beta2=0.999)
    else:
        sizes = dict(image=rows if rows == columns else (rows, columns), channels=channels)
        model = preset(family, "tiny", **sizes, **fitting(family, rows, columns))
    if not embedded:  # batches of about 64 pictures, whatever their size
        train = replace(train, steps=3000, batch_tokens=64 * getattr(model, "tokens", 64))
    data = ImagesConfig(base=base, **SCANS if embedded else PHOTOS if channels == 3 else {})
    return Recipe(name=name, family=family, model=model, data=data, train=train)


def fitting(family: str, rows: int, columns: int) -> dict[str, Any]:
    """Patch and depth for pictures of this size: about eight patches a side, deeper for larger pictures."""
    if family != "vit":
        return {}
    side = min(rows, columns)
    whole = [p for p in range(2, 17) if rows % p == 0 and columns % p == 0 and side // p >= 4]
    patch = min(whole, key=lambda p: abs(p - side / 8)) if whole else max(1, round(side / 8))
    return dict(patch=patch, depth=4 if side <= 16 else 6 if side <= 64 else 8)


def start_config(base: str, fields: Mapping[str, Any]) -> tuple[str, Any]:
    """The family and config of a checkpoint, for pictures of its own size or the one that is asked for."""
    model: Any = load_model(find(base))
    family = models.name_of(type(model))
    if not {"image", "labels", "patch"} <= set(type(model.config).__dataclass_fields__):
        raise ValueError(f"{base} is a {family}, which labels no pictures; give a vit or another that does")
    changes: dict[str, Any] = dict(labels=())
    if getattr(model.config, "teacher", "none") == "head":  # nobody teaches now; the token stays
        changes["teacher"] = "token"
    if getattr(model.config, "pooler", False):
        changes["pooler"] = False
    if fields.get("size"):
        changes["image"] = int(fields["size"])
    return family, replace(model.config, **changes)


@prepare.register
def prepare_pictures(data: ImagesConfig, recipe: Recipe, out: Path, resume: bool, line: Line) -> Job:
    """Reads the pictures at the model's size; the model gets their classes."""
    config = recipe.model
    if data.base is not None:  # what it starts from says what it reads
        side = config.image if isinstance(config.image, int) else config.image[0]
        data = replace(data, size=data.size or side, channels=config.channels)
        recipe = replace(recipe, data=data)
    pictures, valid = data.split()
    rows, columns, channels = pictures.pixels.shape[1:]
    image = rows if rows == columns else (rows, columns)
    config = replace(config, image=image, channels=channels, labels=pictures.names)
    recipe = replace(recipe, model=config)
    preparation = preparation_for(pictures)
    tokens = getattr(config, "tokens", None) or int(np.prod(grid_of(image, config.patch)))
    count = max(1, recipe.train.batch_tokens // tokens)
    stream = PictureStream(pictures, preparation, data.augmentation, count, seed=recipe.train.seed)
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
