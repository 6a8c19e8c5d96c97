"""Pictures without labels, by hiding most of each: a masked autoencoder. A linear classifier shows what it learned.

regard train mae --train.steps 100 --probe
    scikit-learn's 8 × 8 digits: 0.5 minutes of one core, about 0.3 of two, then a linear classifier on the best layer
    errs in 12.8 % of 360 held-out digits, before training in 20.0 %
regard train mae --data.images mnist.npz --train.steps 800 --probe
    six minutes of one core, about 3 of two: 11.2 % of 10,000 others wrong with 1,000 labels, before training 43.1 %
regard train mae --data.images FOLDER
    any folder of pictures, or an .npz of x
regard complete runs/mae image.png --out done.png
    what is hidden from it, and what it makes of the rest
regard eval runs/mae --probe --labels 1000
regard finetune runs/mae --data.images FOLDER
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

from regard.config import override
from regard.data.sets.images import DECIDED, NO_LABELS, preparation_for
from regard.data.sets.unlabelled import HiddenStream, UnlabelledConfig
from regard.models import preset
from regard.objectives.pixels import masked_pixels
from regard.registry import register_recipe
from regard.runs.fit import Job, prepare
from regard.runs.recipe import Recipe, fields_of, fitting
from regard.train.config import TrainConfig
from regard.train.progress import Line

BATCH = 128
"""Pictures in a batch."""


@dataclass(frozen=True, kw_only=True, slots=True)
class HiddenConfig(UnlabelledConfig):
    """Pictures of which parts are hidden."""

    decides: ClassVar[dict[str, str]] = DECIDED | NO_LABELS


@register_recipe("mae")
def mae(*, embedded: bool = True, given: Mapping[str, Any] | None = None) -> Recipe:
    model = sized("mae", HiddenConfig(), given)
    return Recipe(
        name="mae", family="mae", model=model, data=HiddenConfig(shift=0.1, zoom=0.1),
        train=TrainConfig(
            steps=2000, batch_tokens=BATCH * model.tokens, optimizer="muon", lr=3e-3, schedule="trapezoid", warmup=100,
            smoothing=0.0, eval_every=500, save_every=500,
        ),
    )  # fmt: skip


def sized(family: str, data: Any, given: Mapping[str, Any] | None, **changes: Any) -> Any:
    """A small model for pictures of the size that `given`, fields of the data, lead to."""
    shape = override(data, given or {}).shape()
    return preset(family, "tiny", **fields_of(shape), **fitting("vit", *shape[:2]), **changes)


def shaped(recipe: Recipe, pictures: Any) -> Recipe:
    """The recipe for a model of these pictures' size."""
    return replace(recipe, model=replace(recipe.model, **fields_of(pictures.pixels.shape[1:])))


@prepare.register
def prepare_hidden(data: HiddenConfig, recipe: Recipe, out: Path, resume: bool, line: Line) -> Job:
    """Pictures at the model's size, and for each patch a number that says whether it is hidden."""
    pictures, valid = data.split()
    recipe = shaped(recipe, pictures)
    preparation, tokens = preparation_for(pictures), recipe.model.tokens
    stream = HiddenStream(
        pictures, preparation, data, max(1, recipe.train.batch_tokens // tokens),
        seed=recipe.train.seed, patches=tokens - 1,
    )  # fmt: skip
    return Job(
        recipe=recipe, stream=stream, valid=lambda: stream.once(valid), objective=masked_pixels,
        preparation=preparation, about=f"{len(pictures):,} pictures",
    )  # fmt: skip
