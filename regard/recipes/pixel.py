"""Images pixel by pixel: a causal Transformer on colours in raster order, which completes the rest of an image.

regard train pixel
    scikit-learn's 8 × 8 digits in 16 greys: 800 steps, three minutes of one core, about two of two, lead to 1.732 bits
    per dimension of 360 held-out digits (each pixel's own histogram 2.377)
regard train pixel --model lstm
    as many parameters and steps, two minutes, about one of two cores: 1.769 bits
regard train pixel --data.images FOLDER --data.size 16
regard complete runs/pixel image.png --count 4 --out done.png
"""

import math
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from regard.config import override
from regard.cost import Cost, binary_size, cost
from regard.data.readers.preprocessing import Preprocessing
from regard.data.sets.unlabelled_images import PixelsConfig, PixelStream
from regard.models import preset
from regard.models.gpt import GPTConfig
from regard.nn.patches import Side, sides
from regard.nn.positions import with_columns
from regard.objectives.next_token import next_token
from regard.recipes.lm import MODERN
from regard.registry import positions, register_recipe
from regard.runs.fit import Job, prepare, with_steps
from regard.runs.recipe import Recipe, from_scratch
from regard.tokens.pixel_tokenizer import PixelTokenizer
from regard.train.progress import Line

TOKENS = 4096
"""Most pixels in a batch; a batch has at least one image."""
SHARE = 0.25
"""Most time that validation may take, as a share of the training before it."""
RATE = 50e9
"""FLOPs a second of training on two cores without a GPU, about: 16,384 pixels a step were measured at 64 GFLOP/s, 64
pixels at 34 of one core."""
HOURS = 3
"""Most hours of training that are allowed; a longer run is refused with a smaller setting as the cure."""


@dataclass(frozen=True, kw_only=True, slots=True)
class PixelConfig(GPTConfig):
    """Sizes of Image GPT (Chen et al., 2020), for `regard cost` only."""

    image: Side = 32
    """Pixels of a side, or rows,columns."""
    vocab_size: int = 513
    """Colours, and the token of the start."""
    depth: int = 48
    """Blocks."""
    dim: int = 1536
    """Width of the token vectors."""
    heads: int = 16
    """Attention heads."""
    ffn_dim: int = 6144
    """Hidden width of the feed-forward layer."""
    position: str = "grid"
    """Position scheme: sinusoids of row and column."""
    dropout: float = 0.0
    """On the embeddings and on what each part adds to the residual stream."""

    @property
    def tokens(self) -> int:
        """Tokens of an image: one for each pixel."""
        rows, columns = sides(self.image)
        return rows * columns


@register_recipe("pixel", verb="complete", bases=("generate-pixels",))
def pixel(data: Mapping[str, Any]) -> Recipe:
    """Return the recipe of a small GPT on pixels, for images of the size that the data have."""
    config = override(PixelsConfig(), data, under="data.")
    pixels = PixelTokenizer.for_images(config.shape(), config.levels)
    sizes: dict[str, Any] = dict(dim=96, depth=3, ffn_dim=192, dropout=0.2)  # as many parameters as the LSTM
    sizes |= dict(max_len=len(pixels), vocab_size=pixels.vocab_size)
    return Recipe(
        name="pixel", family="gpt",
        model=preset("gpt", "tiny", **MODERN | sizes | {"position": f"grid:columns={pixels.columns}"}),
        data=PixelsConfig(),
        train=from_scratch(
            steps=800, batch_tokens=max(TOKENS, len(pixels)), lr=3e-3, warmup=50, every=100, save_every=500
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


def machine_memory() -> int | None:
    """Bytes of memory that this machine has, where the operating system reports them."""
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):
        return None


def check_time(config: Any, shape: tuple[int, int], tokens: int, steps: int) -> None:
    """Raise an error, before the first step, if training for `steps` would take much longer than anybody expects."""

    def hours(*shape: int) -> float:
        return steps * training_cost(config, shape, tokens).flops.training / RATE / 3600

    (rows, columns), needed = shape, hours(*shape)
    if needed <= HOURS:
        return
    smaller = smaller_size(max(shape), lambda side: hours(side, side) <= HOURS)
    raise ValueError(
        f"{steps:,} steps on {rows} × {columns} pixels, {rows * columns:,} tokens an image, would take about "
        f"{needed:,.0f} hours, more than {HOURS}; use {smaller}--train.steps {max(1, int(steps * HOURS / needed)):d}, "
        "patches instead of pixels (regard train vit), or set a time limit: --train.minutes"
    )


def check_room(config: Any, shape: tuple[int, int], tokens: int) -> None:
    """Raise an error, before anything is built, if training on images of this shape needs more memory than there is."""
    room, (rows, columns), memory = machine_memory(), shape, training_cost(config, shape, tokens).memory
    if room is None or memory.total <= room:
        return
    smaller = smaller_size(
        max(shape), lambda side: training_cost(config, (side, side), tokens).memory.total <= (room or 0)
    )
    held = sum(memory.attention_matrices.values())
    matrices = f" (attention matrices, if they were held: {binary_size(held)} more)" if held else ""
    raise ValueError(
        f"training on {rows} × {columns} pixels, {rows * columns:,} tokens an image, would take "
        f"{binary_size(memory.total)}{matrices}, this machine has {binary_size(room)}; use {smaller}"
        "a smaller --model.depth or --model.dim, or patches instead of pixels: regard train vit"
    )


def training_cost(config: Any, shape: tuple[int, ...], tokens: int) -> Cost:
    """The cost of a step on images of this shape, `tokens` pixels of them in a batch but at least one image."""
    length = math.prod(shape)
    return cost(config, batch=max(1, tokens // length), length=length, training=True)


def smaller_size(side: int, fits: Callable[[int], bool]) -> str:
    """Return the option for the largest of half, a quarter, … of a side for which `fits` is true; empty if there is
    none."""
    sides = (side >> halvings for halvings in range(1, side.bit_length()))
    return next((f"--data.size {smaller}, " for smaller in sides if smaller >= 8 and fits(smaller)), "")
