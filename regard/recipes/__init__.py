"""The recipes, one a file, headed by its command, its minutes on two CPU cores and its score."""

from regard.recipes import (  # noqa: F401  importing registers them
    bert,
    captioner,
    clip,
    detr,
    finetune,
    forecast,
    graph,
    hierarchies,
    lm,
    mae,
    pixel,
    simclr,
    skipgram,
    sound,
    speech,
    t5,
    toy,
    translate,
    video,
    vit,
)
from regard.runs.fit import fit
from regard.runs.recipe import Recipe, configure, recipe

__all__ = ["Recipe", "configure", "fit", "recipe"]
