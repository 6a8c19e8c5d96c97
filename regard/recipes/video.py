"""Video: labels of clips, by a small Transformer over tubelets.

regard train video
    seven motions of generated clips: 1,000 steps, two minutes of one core, 100 % right (from one frame: 14 %)
regard train video --data.clips FOLDER
    your own: a folder with a sub-folder of clips, or of folders of frames, for each class; or a table of path and label
regard train video --data.clips FOLDER --data.task forwards
    any clips, without labels: forwards or backwards
regard finetune CHECKPOINT --data.clips FOLDER
    from a run, or a published checkpoint
"""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from regard.config import override
from regard.data.readers.clip_preprocessing import ClipPreprocessing
from regard.data.sets.labelled_clips import ClipFrames, ClipsConfig
from regard.hub.checkpoint import load_model
from regard.hub.clip_preprocessor import load_clip_preprocessing
from regard.hub.remote import find
from regard.models import fitting, preset, without_labels
from regard.objectives.labels import text_labels
from regard.registry import models, register_recipe
from regard.runs.fit import Job, prepare
from regard.runs.recipe import Recipe, from_scratch
from regard.train.progress import Line

ROWS = 32
"""Clips of a batch."""


@register_recipe("video", verb="classify", bases=("classify-videos", "embed-videos"))
def video(data: Mapping[str, Any]) -> Recipe:
    """Return the recipe of a small Transformer over tubelets, or of the model that the data name as their base."""
    config = override(ClipsConfig(), data, under="data.")
    train = from_scratch(steps=1000, lr=2e-3, smoothing=0.0, every=250)
    if config.base is not None:
        model: Any = load_model(find(config.base))
        family, model = models.name_of(type(model)), sized(without_labels(model.config), config)
        train = replace(train, steps=500, optimizer="adamw", lr=None, schedule="linear", beta2=0.999)
    else:
        family, own = "video-vit", config.preprocessing()
        side, frames = own.image.target[0], own.frames  # type: ignore[index]
        tubelet = 2 if frames >= 8 else 1
        fields = {} if config.embedded and side == 32 else fitting(family, side, side)
        model = preset(
            family, "tiny", **fields | dict(image=side, channels=own.image.channels, frames=frames, tubelet=tubelet)
        )
    train = replace(train, batch_tokens=ROWS * model.tokens)
    return Recipe(name="video", family=family, model=model, data=ClipsConfig(base=config.base), train=train)


def sized(model: Any, data: ClipsConfig) -> Any:
    """The config of a base for clips of the size and with the frames that the user asks for."""
    changes = {"image": data.size, "frames": data.frames}
    return replace(model, **{name: value for name, value in changes.items() if value is not None})


@prepare.register
def prepare_clips(data: ClipsConfig, recipe: Recipe, out: Path, resume: bool, line: Line) -> Job:
    """Clips as frames of one size; the model gets the names of their classes."""
    clips, valid = data.split()
    names, config = data.names(clips), recipe.model
    if data.channels not in (None, config.channels):
        raise ValueError(f"{data.base} reads clips of {config.channels} channels; leave out --data.channels")
    config = replace(config, labels=names)
    recipe = replace(recipe, model=config)
    preprocessing = data.preprocessing() if data.base is None else preprocessing_of(data, config)
    frames = ClipFrames(preprocessing, names, data, config.tokens, recipe.train.seed)
    stream, held = frames.stream(frames.examples(clips), recipe.train.batch_tokens), frames.examples(valid)
    return Job(
        recipe=recipe, readers={"video": preprocessing}, stream=stream, valid=lambda: stream.once(held),
        objective=text_labels,
        about=f"{len(clips):,} clips of {len(names)} classes, {preprocessing.frames} frames of "
        f"{' × '.join(map(str, preprocessing.image.target or ()))} pixels each",
    )  # fmt: skip


def preprocessing_of(data: ClipsConfig, config: Any) -> ClipPreprocessing:
    """The preprocessing of a base, for the size and the frames that the user asks for."""
    own = load_clip_preprocessing(find(str(data.base)), config)
    image = own.image if data.size is None else own.image.at((data.size, data.size))
    return replace(own, image=image, frames=data.frames or own.frames, rate=data.rate or own.rate)
