"""Pictures without labels, by knowing each again when it was changed: SimCLR. A linear probe shows what it learned.

regard train simclr --train.steps 150 --probe
    scikit-learn's 8 × 8 digits: 1.3 minutes of a shared core, about 0.7 of two, then a linear classifier on
    its best layer errs in 10.6 % of 360 held-out digits, before training in 23.9 %
regard train simclr --data.images mnist.npz --train.steps 500 --probe
    eight minutes of one core, about 4 of two: 19.9 % of 10,000 others wrong with 1,000 labels, before training 48.3 %
regard train simclr --data.images FOLDER
    any folder of pictures, or an .npz of x
regard train simclr --model swin
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

from regard.data.sets.labelled_images import DECIDED, NO_LABELS, preprocessing_for
from regard.data.sets.unlabelled_images import UnlabelledConfig, ViewStream
from regard.hub.checkpoint import save_model
from regard.models import build
from regard.models.simclr import SimCLR
from regard.objectives.views import two_views
from regard.recipes.mae import BATCH, shaped, sized
from regard.registry import register_recipe
from regard.runs.fit import Job, prepare
from regard.runs.recipe import Recipe
from regard.train.config import TrainConfig
from regard.train.progress import Line


@dataclass(frozen=True, kw_only=True, slots=True)
class ViewsConfig(UnlabelledConfig):
    """Pictures that are seen twice, changed much."""

    decides: ClassVar[dict[str, str]] = DECIDED | NO_LABELS

    temperature: float = 0.2
    """Of the softmax over all views of a batch."""
    projection: int = 64
    """Width of the vectors that are compared in training, and thrown away afterwards."""

    def __post_init__(self) -> None:
        UnlabelledConfig.__post_init__(self)
        if self.temperature <= 0 or self.projection < 1:
            raise ValueError(f"temperature={self.temperature} must be above 0, projection={self.projection} at least 1")


@register_recipe("simclr")
def simclr(*, embedded: bool = True, given: Mapping[str, Any] | None = None) -> Recipe:
    model = sized("vit", ViewsConfig(), given, pooling="mean")
    colours = model.channels == 3
    return Recipe(
        name="simclr", family="vit", model=model,
        data=ViewsConfig(shift=0.15, zoom=0.3, turn=20.0, flip=colours, colour=0.5),
        train=TrainConfig(
            steps=2000, batch_tokens=BATCH * model.tokens, optimizer="muon", lr=3e-3, schedule="trapezoid", warmup=100,
            smoothing=0.0, eval_every=500, save_every=500,
        ),
    )  # fmt: skip


@prepare.register
def prepare_views(data: ViewsConfig, recipe: Recipe, out: Path, resume: bool, line: Line) -> Job:
    """Two views of each picture; only the encoder is kept."""
    pictures, valid = data.split()
    recipe = shaped(recipe, pictures)
    preparation = preprocessing_for(pictures)
    rows = max(2, recipe.train.batch_tokens // recipe.model.tokens)
    stream = ViewStream(pictures, preparation, data, rows, seed=recipe.train.seed)
    return Job(
        recipe=recipe, stream=stream, valid=lambda: stream.once(valid),
        objective=partial(two_views, temperature=data.temperature), preparation=preparation,
        about=f"{len(pictures):,} pictures",
        build=lambda recipe: SimCLR(build(recipe.family, recipe.model), data.projection),
        publish=lambda model, out: save_model(model.encoder, out),
    )  # fmt: skip
