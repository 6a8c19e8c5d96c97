"""A Transformer whose tokens are pixels: what it costs, and whether a machine has room for it."""

import math
import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from regard.cost.figures import Cost
from regard.cost.measure import cost
from regard.cost.report import binary_size
from regard.models.gpt import GPTConfig
from regard.nn.patches import Side, sides


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


def machine_memory() -> int | None:
    """Bytes of memory that this machine has, where the operating system reports them."""
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):
        return None


RATE = 50e9
"""FLOPs a second of training on two cores without a GPU, about: 16,384 pixels a step were measured at 64 GFLOP/s, 64
pixels at 34 of one core."""
HOURS = 3
"""Of training that are begun unasked; every recipe here is done within one."""


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
