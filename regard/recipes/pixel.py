"""Images pixel by pixel: a causal Transformer on colours in raster order, which completes the rest of an image.

regard train pixel
    scikit-learn's 8 × 8 digits in 16 greys: 800 steps, three minutes of one core, about two of two, lead to 1.732 bits
    per dimension of 360 held-out digits (each pixel's own histogram 2.377)
regard train pixel --model lstm
    as many parameters and steps, two minutes, about one of two cores: 1.769 bits
regard train pixel --data.images FOLDER --data.size 16
regard complete runs/pixel image.png --count 4 --out done.png
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from regard.config import override
from regard.cost.pixels import check_room, check_time
from regard.data.readers.preprocessing import Preprocessing
from regard.data.sets.unlabelled_images import PixelsConfig, PixelStream
from regard.models import preset
from regard.nn.positions import with_columns
from regard.objectives.next_token import next_token
from regard.recipes.lm import MODERN
from regard.registry import positions, register_recipe
from regard.runs.fit import Job, prepare, with_steps
from regard.runs.recipe import Recipe
from regard.tokens.pixel_tokenizer import PixelTokenizer
from regard.train.config import TrainConfig
from regard.train.progress import Line

TOKENS = 4096
"""Pixels in a batch, or one image."""
SHARE = 0.25
"""Most time that validation may take, as a share of the training before it."""


@register_recipe("pixel")
def pixel(data: Mapping[str, Any]) -> Recipe:
    """A small GPT on the pixels of images of the size that the data have."""
    config = override(PixelsConfig(), data, under="data.")
    pixels = PixelTokenizer.for_images(config.shape(), config.levels)
    sizes: dict[str, Any] = dict(dim=96, depth=3, ffn_dim=192, dropout=0.2)  # as many parameters as the LSTM
    sizes |= dict(max_len=len(pixels), vocab_size=pixels.vocab_size)
    return Recipe(
        name="pixel", family="gpt",
        model=preset("gpt", "tiny", **MODERN | sizes | {"position": f"grid:columns={pixels.columns}"}),
        data=PixelsConfig(),
        train=TrainConfig(
            steps=800, batch_tokens=max(TOKENS, len(pixels)), optimizer="muon", lr=3e-3, schedule="trapezoid",
            warmup=50, smoothing=0.0, eval_every=100, save_every=500,
        ),
    )  # fmt: skip


@prepare.register
def prepare_pixels(data: PixelsConfig, recipe: Recipe, out: Path, resume: bool, line: Line) -> Job:
    """Images as sequences of ids; a run that would not fit into memory, or never end, is an error before it starts."""
    pixels = PixelTokenizer.for_images(data.shape(), data.levels)
    rows = max(1, recipe.train.batch_tokens // len(pixels))
    model: dict[str, Any] = {"vocab_size": pixels.vocab_size, "max_len": len(pixels)}
    if (position := getattr(recipe.model, "position", None)) and positions[position].on_grid:
        name = position.partition(":")[0]
        model["position"] = with_columns(name, pixels.columns)
        if position not in (name, model["position"]):
            raise ValueError(
                f"position={position}, but there are {pixels.columns} columns; use --model.position {name}"
            )
    recipe = override(recipe, {f"model.{name}": value for name, value in model.items()})
    # A single image may be more than a batch of this recipe has; of smaller ones there would be no more than that.
    batch = recipe.train.batch_tokens
    shape, tokens = (pixels.rows, pixels.columns), batch if rows > 1 else min(batch, TOKENS)
    check_room(recipe.model, shape, tokens)
    images, valid = data.split()
    stream = PixelStream(
        images, Preprocessing(scale=None), data, rows, seed=recipe.train.seed, encode=pixels.encode,
        start=pixels.start,
    )  # fmt: skip
    if recipe.train.minutes is None:
        check_time(recipe.model, shape, tokens, with_steps(recipe, stream).train.steps * recipe.train.accumulate)
    # A step of training costs three passes of its images, validation one.
    most = max(1, int(3 * SHARE * recipe.train.eval_every * recipe.train.accumulate * rows))
    if len(valid) > most:
        line.say(f"validation uses {most:,} of its {len(valid):,} images, so that most of the time is training's")
        valid = valid.take(np.linspace(0, len(valid) - 1, most).astype(int))
    return Job(
        recipe=recipe, readers={"pixels": pixels}, stream=stream,
        valid=lambda: stream.once(valid, max(1, 16_384 // len(pixels))), objective=next_token,
        about=f"{len(images):,} images of {len(pixels):,} pixels in {pixels.colours:,} colours",
    )  # fmt: skip
