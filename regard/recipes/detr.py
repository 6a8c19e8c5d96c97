"""Things in pictures, found by DETR.

regard train detr
    drawn scenes of up to four shapes, 64 × 64: 4,000 steps, 17 minutes of one core, about 10 of two, lead to AP50
    97.8 % and AP 83.7 % on 500 others
regard train detr --data.coco annotations.json --data.images FOLDER
    your own pictures; or --data.voc FOLDER. --data.size is their shorter side, --model.queries the most things in one
regard train detr --data.base CHECKPOINT --data.coco annotations.json
    from trained weights, ours or published; their heads start anew for other labels
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
from regard.nn.patches import sides
from regard.objectives.matching import matched_boxes
from regard.registry import models, register_recipe
from regard.runs.fit import Job, prepare
from regard.runs.recipe import Recipe
from regard.train.config import TrainConfig
from regard.train.progress import Line

BATCH, LARGE = 32, 256
"""Pictures in a batch, and the side from which on there are fewer, for the sake of memory."""
OWN: dict[str, Any] = dict(widths=(64, 96, 128), blocks=(1, 1, 1), queries=30)
"""A model for pictures that are larger than scenes."""


@register_recipe("detr")
def detr(*, embedded: bool = True, base: str | None = None, given: Mapping[str, Any] | None = None) -> Recipe:
    data = BoxesConfig(base=base) if embedded else BoxesConfig(base=base, crop=0.3, colour=0.2)
    train = TrainConfig(
        steps=4000, optimizer="muon", lr=2e-3, schedule="trapezoid", warmup=200, smoothing=0.0, eval_every=500,
        save_every=500,
    )  # fmt: skip
    asked = override(BoxesConfig(), given or {})
    if base is not None:
        model = start_config(base)
        model = replace(model, image=asked.size or model.image)
        data = replace(data, channels=model.channels)
        train = replace(train, epochs=20.0, optimizer="adamw", lr=5e-5, schedule="linear", beta2=0.999)
    else:
        model = preset("detr", "tiny", **{} if embedded else OWN, image=asked.side)
    side = min(sides(model.image))
    pictures = BATCH if side <= LARGE else max(4, round(BATCH * (LARGE / side) ** 2))
    train = replace(train, batch_tokens=pictures * model.tokens)
    return Recipe(name="detr", family="detr", model=model, data=data, train=train)


def start_config(base: str) -> Any:
    """The config of a checkpoint, whose labels the data will say."""
    model: Any = load_model(find(base))
    family = models.name_of(type(model))
    if family != "detr":
        raise ValueError(f"{base} is a {family}, which finds nothing in pictures; give a detr")
    return replace(model.config, labels=())


@prepare.register
def prepare_boxes(data: BoxesConfig, recipe: Recipe, out: Path, resume: bool, line: Line) -> Job:
    """Reads the pictures; the model gets the names of what they show."""
    if data.base is not None:  # what it starts from says what it reads
        base = load_preprocessing(find(data.base), recipe.model)
        if data.channels != base.channels:
            raise ValueError(f"{data.base} reads pictures of {base.channels} channels; leave out --data.channels")
        data = replace(data, size=data.size or base.shortest or min(base.size or (data.side,)))
        recipe = replace(recipe, data=data)
    preparation = data.preparation
    if data.base is not None:  # its weights know pixels on that scale
        preparation = replace(preparation, scale=base.scale, mean=base.mean, std=base.std, filter=base.filter)
        if base.shortest is not None:
            longest = None if base.longest is None else round(base.longest * data.side / base.shortest)
            preparation = replace(preparation, longest=longest)
    boxes, valid = data.split(preparation)
    most = data.things if data.embedded else max(len(one.labels) for one in boxes.pictures)
    if most > recipe.model.queries:
        raise ValueError(
            f"some picture shows {most} things, but queries={recipe.model.queries} find at most so many; "
            f"use --model.queries {2 * most}"
        )
    config = replace(recipe.model, image=data.side, channels=data.channels, labels=boxes.names)
    recipe = replace(recipe, model=config)
    count = max(1, recipe.train.batch_tokens // config.tokens)
    stream = BoxStream(boxes, data, preparation, count, seed=recipe.train.seed)
    how: dict[str, Any] = {}
    if data.base is not None:
        start = find(data.base)
        how["build"] = lambda recipe: begin_from(load_model(start), recipe.model)
    return Job(
        recipe=recipe, stream=stream, valid=lambda: stream.once(valid), objective=matched_boxes,
        preparation=preparation, about=f"{len(boxes):,} pictures, {len(boxes.names)} labels", **how,
    )  # fmt: skip
