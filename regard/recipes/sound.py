"""Sound: labels of recordings by a small Transformer over patches of their spectrograms.

regard train sound
    spoken digits: 600 steps, three minutes of one core; of 320 by voices that it never heard 97.8 % right, the most
    frequent label 10 %
regard train sound --data.audio FOLDER
    your own sounds: a folder with a sub-folder for each class, or a table of path and label
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from regard.data.sets.labelled_sounds import Sound, SoundExample, SoundFrames, SoundsConfig, usual_seconds
from regard.models import preset
from regard.objectives.labels import text_labels
from regard.registry import register_recipe
from regard.runs.fit import Job, prepare
from regard.runs.recipe import Recipe, from_scratch
from regard.tokens.mel import LogMel
from regard.train.progress import Line

ROWS = 64
"""Sounds of a batch."""
KALDI: dict[str, Any] = dict(style="kaldi", fft=512, preemphasis=0.97)
PATCH = 8
"""Frames and bands of a patch of a sound of about a second; longer ones have larger patches."""
MEASURED = 200
"""Sounds whose mean and deviation all are normalised by."""


@register_recipe("sound", verb="classify", bases=("classify-sounds", "embed-sounds"))
def sound(data: Mapping[str, Any]) -> Recipe:
    """Return the recipe of a small Transformer over spectrograms."""
    model = preset("spectrogram-vit", "tiny")
    train = from_scratch(steps=600, batch_tokens=ROWS * model.image[1], lr=2e-3, smoothing=0.1, every=250)
    return Recipe(name="sound", family="spectrogram-vit", model=model, data=SoundsConfig(), train=train)


@prepare.register
def prepare_sounds(data: SoundsConfig, recipe: Recipe, out: Path, resume: bool, line: Line) -> Job:
    """Sounds as frames of one length; the model gets their length and the names of their classes."""
    sounds, valid = data.split()
    names = tuple(sorted({each.label for each in sounds}))
    if len(names) < 2:
        raise ValueError(f"{data.audio} has the one class {names[0]!r}; there is nothing to tell apart")
    bands = recipe.model.image[0]
    seconds = data.seconds or usual_seconds(sounds)
    patch = PATCH if seconds <= 2 else 2 * PATCH
    columns = max(1, round(seconds * 100 / patch))
    features = measured(LogMel(**KALDI, bands=bands, length=columns * patch), sounds)
    model = replace(recipe.model, labels=names, image=(bands, columns * patch), patch=patch)
    train = replace(recipe.train, batch_tokens=recipe.train.batch_tokens // recipe.model.image[1] * model.image[1])
    recipe = replace(recipe, model=model, train=train)

    def encode(part: Sequence[Sound]) -> list[SoundExample]:
        if unknown := {each.label for each in part} - set(names):
            raise ValueError(f"the classes {', '.join(sorted(unknown))} occur in no training sound; add some")
        return [SoundExample(each, names.index(each.label), columns * patch) for each in part]

    frames = SoundFrames(features, data.noise, recipe.train.seed)
    stream = frames.stream(encode(sounds), recipe.train.batch_tokens)
    held = encode(valid)
    return Job(
        recipe=recipe, readers={"audio": features}, stream=stream, valid=lambda: stream.once(held),
        objective=text_labels,
        about=f"{len(sounds):,} sounds of {len(names)} classes, {columns * patch / 100:.1f} seconds each",
    )  # fmt: skip


def measured(features: LogMel, sounds: Sequence[Sound]) -> LogMel:
    """The settings with the mean and deviation of some of the sounds."""
    some = sounds[:: max(1, len(sounds) // MEASURED)]
    raw = replace(features, length=None, mean=0.0, std=0.5)
    frames = torch.cat([raw(each.open().samples(raw.rate, 0, 10 * raw.rate)) for each in some])
    return replace(features, mean=round(frames.mean().item(), 4), std=round(max(frames.std().item(), 1e-3), 4))
