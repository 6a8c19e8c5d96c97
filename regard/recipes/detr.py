"""Objects in images, detected by DETR.

regard train detr
    generated scenes of up to four shapes, 64 × 64: 4,000 steps, 17 minutes of one core, about 10 of two, lead to AP50
    97.8 % and AP 83.7 % on 500 others
regard train detr --data.coco annotations.json --data.images FOLDER
    your own images; or --data.voc FOLDER. --data.size is their shorter side, --model.queries the most objects in one
regard train detr --data.base CHECKPOINT --data.coco annotations.json
    from trained weights, ours or published; their heads are initialised anew for other labels
"""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from regard.config import override
from regard.data.sets.boxed_images import BoxesConfig, BoxStream
from regard.hub.adapter import begin_from
from regard.hub.checkpoint import load_model
from regard.hub.preprocessor import load_preprocessing
from regard.hub.remote import find
from regard.models import preset
from regard.models.towers import describe_tower
from regard.nn.patches import sides
from regard.objectives.matching import matched_boxes
from regard.recipes.vit import LABELLED
from regard.registry import models, register_recipe
from regard.runs.fit import Job, prepare
from regard.runs.recipe import Recipe, from_scratch
from regard.runs.tower_bases import from_tower, tower_of, tower_rate
from regard.train.progress import Line

BATCH, LARGE = 32, 256
"""Images in a batch, and the side from which on there are fewer, for the sake of memory."""
LARGER: dict[str, Any] = dict(widths=(64, 96, 128), blocks=(1, 1, 1), queries=30)
"""Fields of a model for images that are larger than scenes."""


@register_recipe("detr", verb="detect", bases=("detect", *LABELLED), tunes=("all",), whole="a detector", out="boxes")
def detr(data: Mapping[str, Any]) -> Recipe:
    """Return the recipe of a small DETR, or of the one that the data name as their base."""
    config = override(BoxesConfig(), data, under="data.")
    base = config.base
    augmented = BoxesConfig(base=base) if config.embedded else BoxesConfig(base=base, crop=0.3, colour=0.2)
    train = from_scratch(steps=4000, lr=2e-3, warmup=200, every=500)
    tower = tower_of(base)
    if tower is not None:
        fields = dict(tower=describe_tower(tower), channels=tower.config.channels, image=config.side)
        model = preset("detr", "tiny", **fields, **{} if config.embedded else {"queries": LARGER["queries"]})
        augmented = replace(augmented, channels=model.channels)
        train = replace(train, lr=tower_rate(model.tower, train.lr))
    elif base is not None:
        model = start_config(base)
        model = replace(model, image=config.size or model.image)
        augmented = replace(augmented, channels=model.channels)
        train = replace(train, epochs=20.0, optimizer="adamw", lr=5e-5, schedule="linear", beta2=0.999)
    else:
        model = preset("detr", "tiny", **{} if config.embedded else LARGER, image=config.side)
    side = min(sides(model.image))
    images = BATCH if side <= LARGE else max(4, round(BATCH * (LARGE / side) ** 2))
    train = replace(train, batch_tokens=images * model.tokens)
    return Recipe(name="detr", family="detr", model=model, data=augmented, train=train)


def start_config(base: str) -> Any:
    """The config of a checkpoint without its labels, which follow from the data."""
    model: Any = load_model(find(base))
    family = models.name_of(type(model))
    if family != "detr":
        raise ValueError(f"{base} is a {family}, which detects no objects; give a detr")
    return replace(model.config, labels=())


@prepare.register
def prepare_boxes(data: BoxesConfig, recipe: Recipe, out: Path, resume: bool, line: Line) -> Job:
    """Prepare training on images with boxes; the model gets the names of their labels."""
    if data.base is not None:  # its preprocessing decides the size
        base = load_preprocessing(find(data.base), recipe.model)
        if data.channels != base.channels:
            raise ValueError(f"{data.base} reads images of {base.channels} channels; leave out --data.channels")
        own = base.shortest or min(base.size or (data.side,))
        # A tower's grid can be larger than it was trained with, and small objects need that.
        data = replace(data, size=data.size or (max(own, data.side) if recipe.model.tower else own))
        recipe = replace(recipe, data=data)
    preprocessing = data.preprocessing
    if data.base is not None:  # its weights were trained on pixels of that scale
        preprocessing = replace(preprocessing, scale=base.scale, mean=base.mean, std=base.std, filter=base.filter)
        if base.shortest is not None:
            longest = None if base.longest is None else round(base.longest * data.side / base.shortest)
            preprocessing = replace(preprocessing, longest=longest)
    images, valid = data.split(preprocessing)
    most = data.objects if data.embedded else images.most_objects
    if most > recipe.model.queries:
        raise ValueError(
            f"some image has {most} objects, but queries={recipe.model.queries} detect at most so many; "
            f"use --model.queries {2 * most}"
        )
    config = replace(recipe.model, image=data.side, channels=data.channels, labels=images.names)
    recipe = replace(recipe, model=config)
    rows = max(1, recipe.train.batch_tokens // config.tokens)
    stream = BoxStream(images, data, preprocessing, rows, seed=recipe.train.seed)
    options: dict[str, Any] = {}
    if data.base is not None and recipe.model.tower:
        options = from_tower(data)
    if data.base is not None and not options:
        start = find(data.base)
        options["build"] = lambda recipe: begin_from(load_model(start), recipe.model)
    return Job(
        recipe=recipe, readers={"image": preprocessing}, stream=stream, valid=lambda: stream.once(valid),
        objective=matched_boxes, about=f"{len(images):,} images, {len(images.names)} labels", **options,
    )  # fmt: skip
