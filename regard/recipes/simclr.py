"""Images without labels, by recognising augmented views of each: SimCLR. A linear probe shows what it learned.

regard train simclr --train.steps 150 --probe
    scikit-learn's 8 × 8 digits: 1.3 minutes of a shared core, about 0.7 of two, then a linear classifier on its best
    layer errs in 1.9 % of 360 held-out digits, on raw pixels in 3.3 %, before training in 2.5 %
regard train simclr --data.images mnist.npz --data.norm false --train.steps 500 --probe
    eight minutes of one core, about 4 of two: 5.0 % of 10,000 others wrong with 1,000 labels, on raw pixels 12.4 %,
    before training 12.7 %
regard train simclr --data.images FOLDER
    any folder of images, or an .npz of x
regard train simclr --model swin
"""

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from regard.config import override
from regard.data.sets.image_data import preprocessing_for
from regard.data.sets.unlabelled_images import ViewsConfig, ViewStream
from regard.hub.checkpoint import save_model
from regard.models import without_labels
from regard.models.simclr import SimCLR
from regard.objectives.views import two_views
from regard.recipes.mae import pretraining, shaped, sized
from regard.registry import register_recipe
from regard.runs.fit import Job, base_preprocessing, build_new, from_base, prepare, rates_for
from regard.runs.recipe import Recipe
from regard.train.progress import Line


@register_recipe(
    "simclr", verb="contrast", asked=("embed-images", "classify-images"), tunes=("all",),
    whole="an encoder without labels",
)  # fmt: skip
def simclr(data: Mapping[str, Any]) -> Recipe:
    """Return the recipe of a small ViT trained with SimCLR, for images of the size that the data have."""
    model = sized("vit", override(ViewsConfig(), data, under="data."), pooling="mean")
    views = ViewsConfig(shift=0.15, zoom=0.3, turn=20.0, flip=model.channels == 3, colour=0.5)
    return Recipe(name="simclr", family="vit", model=model, data=views, train=pretraining(model))


@prepare.register
def prepare_views(data: ViewsConfig, recipe: Recipe, out: Path, resume: bool, line: Line) -> Job:
    """Load images with two augmented views of each; only the encoder is saved."""
    start = base_preprocessing(data, recipe.model, line)
    images, valid = data.split(start)
    if data.examples is not None:
        images = images.sample(data.examples, recipe.train.seed)
    recipe = shaped(replace(recipe, model=without_labels(recipe.model)), images)
    preprocessing = start or preprocessing_for(images)
    if data.tune != "all":
        raise ValueError("an encoder without labels has no head; it is trained as a whole: leave out --tune")
    recipe, options = from_base(recipe, data, rates_for(recipe.model))
    encoder = options.get("build", build_new)
    rows = max(2, recipe.train.batch_tokens // recipe.model.tokens)
    stream = ViewStream(images, preprocessing, data, rows, seed=recipe.train.seed)
    return Job(
        recipe=recipe, readers={"image": preprocessing}, stream=stream, valid=lambda: stream.once(valid),
        objective=partial(two_views, temperature=data.temperature), about=f"{len(images):,} images",
        build=lambda recipe: SimCLR(encoder(recipe), data.projection, norm=data.norm),
        publish=lambda model, out: save_model(model.encoder, out),
    )  # fmt: skip
