"""Pictures pixel by pixel: a causal Transformer on colours in raster order, which completes what it sees the top of.

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
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch

from regard.config import override
from regard.cost import Cost, binary_size, cost
from regard.data.readers.images import Preparation
from regard.data.sets.augment import Augmentation
from regard.data.sets.batches import Batch
from regard.data.sets.images import Pictures, PictureStream
from regard.data.sets.unlabelled import UnlabelledConfig
from regard.hub.checkpoint import save_model
from regard.models import preset
from regard.models.gpt import GPTConfig
from regard.nn.patches import Side, sides
from regard.objectives.next_token import next_token
from regard.recipes.lm import MODERN
from regard.registry import register_recipe
from regard.runs.fit import Job, prepare, with_steps
from regard.runs.recipe import Recipe
from regard.tasks import Painter
from regard.tokens.pixels import Pixels
from regard.train.config import TrainConfig
from regard.train.loop import evaluate
from regard.train.progress import Line

TOKENS = 4096
"""Pixels in a batch, or one picture."""
SHARE = 0.25
"""Most time that validation may take, as a share of the training before it."""
RAW = Preparation(scale=None)
"""Bytes as they are."""
RATE = 50e9
"""FLOPs a second of training on two cores without a GPU, about: 16,384 pixels a step were measured at 64 GFLOP/s, 64
pixels at 34 of one core."""
HOURS = 3
"""Of training that are begun unasked; every recipe here is done within one."""


@dataclass(frozen=True, kw_only=True, slots=True)
class PixelConfig(GPTConfig):
    """GPT on pixels as large as the first one that painted well (Chen et al., 2020): only for counting."""

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
    """What order means: here row and column."""
    dropout: float = 0.0
    """On the embeddings and on what each part adds to the residual stream."""

    @property
    def tokens(self) -> int:
        """One for each pixel."""
        rows, columns = sides(self.image)
        return rows * columns


@dataclass(frozen=True, kw_only=True, slots=True)
class PixelsConfig(UnlabelledConfig):
    """Pictures as rows of colours."""

    decides: ClassVar[dict[str, str]] = {
        "model.vocab_size": "follows from the colours; use --data.levels",
        "model.max_len": "follows from the pictures; use --data.size",
    }

    levels: int | None = None
    """Values of a channel; a token is a colour of all their combinations (none: 16 for grey, 6 for colours)."""

    def pixels(self) -> Pixels:
        """How these pictures become tokens."""
        rows, columns, channels = self.shape()
        usual = 16 if channels == 1 else 6
        levels = usual if self.levels is None else self.levels
        return Pixels(rows=rows, columns=columns, channels=channels, levels=levels)


@register_recipe("pixel")
def pixel(*, embedded: bool = True, given: Mapping[str, Any] | None = None) -> Recipe:
    size = override(PixelsConfig(), given or {}).pixels()
    sizes: dict[str, Any] = dict(dim=96, depth=3, ffn_dim=192, dropout=0.2)  # as many as the LSTM
    sizes |= dict(max_len=len(size), vocab_size=size.vocab_size)
    return Recipe(
        name="pixel", family="gpt",
        model=preset("gpt", "tiny", **MODERN | sizes | {"position": f"grid:columns={size.columns}"}),
        data=PixelsConfig(),
        train=TrainConfig(
            steps=800, batch_tokens=max(TOKENS, len(size)), optimizer="muon", lr=3e-3, schedule="trapezoid", warmup=50,
            smoothing=0.0, eval_every=100, save_every=500,
        ),
    )  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class PixelStream(PictureStream):
    """Batches of pictures as ids: each position is to say the next pixel."""

    pixels: Pixels

    def batches(self, epoch: int = 0, index: int = 0) -> Iterator[tuple[int, int, Batch]]:
        for epoch, index, batch in super().batches(epoch, index):  # noqa: B020  they go on from there
            yield epoch, index, self.told(batch)

    def once(self, pictures: Pictures, rows: int | None = None) -> Iterator[Batch]:
        yield from map(self.told, super().once(pictures, rows))

    def told(self, batch: Batch) -> Batch:
        bytes_ = np.moveaxis(batch.inputs["pixels"].round().clamp(0, 255).byte().numpy(), 1, -1)
        ids = torch.from_numpy(self.pixels.encode(bytes_))
        start = ids.new_full((len(ids), 1), self.pixels.start)
        return Batch({"ids": torch.cat([start, ids[:, :-1]], dim=1)}, ids, batch.examples)


@prepare.register
def prepare_pixels(data: PixelsConfig, recipe: Recipe, out: Path, resume: bool, line: Line) -> Job:
    """Pictures as ids; a picture is one sequence. What would not fit, or never end, is refused before it is tried."""
    size = data.pixels()
    rows = max(1, recipe.train.batch_tokens // len(size))
    model: dict[str, Any] = {"vocab_size": size.vocab_size, "max_len": len(size)}
    if str(position := getattr(recipe.model, "position", "")).startswith("grid"):
        model["position"] = f"grid:columns={size.columns}"
        if position not in ("grid", model["position"]):
            raise ValueError(f"position={position}, but there are {size.columns} columns; use --model.position grid")
    recipe = override(recipe, {f"model.{name}": value for name, value in model.items()})
    # A single picture may be more than a batch of this recipe has; of smaller ones there would be no more than that.
    batch = recipe.train.batch_tokens
    shape, tokens = (size.rows, size.columns), batch if rows > 1 else min(batch, TOKENS)
    check_room(recipe.model, shape, tokens)
    pictures, valid = data.split()
    stream = PixelStream(pictures, RAW, data, rows, seed=recipe.train.seed, pixels=size)
    if recipe.train.minutes is None:
        check_time(recipe.model, shape, tokens, with_steps(recipe, stream).train.steps * recipe.train.accumulate)
    # A step of training costs three passes of its pictures, validation one.
    most = max(1, int(3 * SHARE * recipe.train.eval_every * recipe.train.accumulate * rows))
    if len(valid) > most:
        line.say(f"validation sees {most:,} of its {len(valid):,} pictures, so that most of the time is training's")
        valid = valid.take(np.linspace(0, len(valid) - 1, most).astype(int))

    def publish(model: Any, out: Path) -> None:
        size.save(out)
        save_model(model, out)

    return Job(
        recipe=recipe, stream=stream, valid=lambda: stream.once(valid, max(1, 16_384 // len(size))),
        objective=next_token, publish=publish,
        about=f"{len(pictures):,} pictures of {len(size):,} pixels in {size.colours:,} colours",
    )  # fmt: skip


def pixel_scores(painter: Painter, pictures: Pictures, known: Pictures) -> dict[str, Any]:
    """Bits that the model needs for a number of a held-out picture, next to each pixel's own histogram."""
    size = painter.pixels
    stream = PixelStream(pictures, RAW, Augmentation(), max(1, 16_384 // len(size)), pixels=size)
    unit = math.log(2) * size.channels
    return {
        "bits_per_dimension": round(evaluate(painter.model, stream.once(pictures, stream.rows), next_token) / unit, 4),
        "histograms": round(histogram_nats(size.encode(known.pixels), size.encode(pictures.pixels), size) / unit, 4),
        "examples": len(pictures),
    }


def histogram_nats(known: np.ndarray, ids: np.ndarray, size: Pixels) -> float:
    """The mean surprise at a pixel by how often it had each colour; every colour is counted half a time more."""
    places = np.arange(len(size))
    counts = np.full((len(size), size.colours), 0.5)
    np.add.at(counts, (np.broadcast_to(places, known.shape), known), 1)
    return float(-np.log(counts[places, ids] / counts.sum(1)).mean())


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
        f"{steps:,} steps on {rows} × {columns} pixels, {rows * columns:,} tokens a picture, would take about "
        f"{needed:,.0f} hours, more than {HOURS}; use {smaller}--train.steps {max(1, int(steps * HOURS / needed)):d}, "
        "patches instead of pixels (regard train vit), or say how long it may take: --train.minutes"
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
        f"training on {rows} × {columns} pixels, {rows * columns:,} tokens a picture, would take "
        f"{binary_size(memory.total)}{matrices}, this machine has {binary_size(room)}; use {smaller}"
        "a smaller --model.depth or --model.dim, or patches instead of pixels: regard train vit"
    )


def training_cost(config: Any, shape: tuple[int, ...], tokens: int) -> Cost:
    """The cost of a step on images of this shape, `tokens` pixels of them in a batch but at least one image."""
    length = math.prod(shape)
    return cost(config, batch=max(1, tokens // length), length=length, training=True)


def smaller_size(side: int, fits: Callable[[int], bool]) -> str:
    """The option for the largest of half, a quarter, … of a side that fits, if one does."""
    sides = (side >> halvings for halvings in range(1, side.bit_length()))
    return next((f"--data.size {smaller}, " for smaller in sides if smaller >= 8 and fits(smaller)), "")
