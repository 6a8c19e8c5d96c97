"""A Transformer whose tokens are pixels: what it costs, and whether a machine has room for it."""

import os
from dataclasses import dataclass
from typing import Any

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
    """Colours, and the mark of the start."""
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
    """Bytes that this machine has, where it tells."""
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
    """An error, before the first step, if training for so many would take much longer than anybody expects."""

    def hours(rows: int, columns: int) -> float:
        length = rows * columns
        flops = cost(config, batch=max(1, tokens // length), length=length, training=True).flops
        return steps * flops.training / RATE / 3600

    (rows, columns), needed = shape, hours(*shape)
    if needed <= HOURS:
        return
    size = max(shape)
    while size > 16 and hours(size, size) > HOURS:
        size //= 2
    smaller = f"--data.size {size}, " if size < max(shape) and hours(size, size) <= HOURS else ""
    raise ValueError(
        f"{steps:,} steps on {rows} × {columns} pixels, {rows * columns:,} tokens a picture, would take about "
        f"{needed:,.0f} hours, more than {HOURS}; use {smaller}--train.steps {max(1, int(steps * HOURS / needed)):d}, "
        "patches instead of pixels (regard train vit), or say how long it may take: --train.minutes"
    )


def check_room(config: Any, shape: tuple[int, int], tokens: int) -> None:
    """An error, before anything is built, if training on pictures of this shape, `tokens` of them in a batch but at
    least one picture, needs more memory than there is."""

    def needed(rows: int, columns: int) -> Any:
        length = rows * columns
        return cost(config, batch=max(1, tokens // length), length=length, training=True).memory

    room, (rows, columns), memory = machine_memory(), shape, needed(*shape)
    if room is None or memory.total <= room:
        return
    size = max(rows, columns)
    while size > 8 and needed(size, size).total > room:
        size //= 2
    smaller = f"--data.size {size}, " if needed(size, size).total <= room and size < max(rows, columns) else ""
    held = sum(memory.attention_matrices.values())
    matrices = f" (attention matrices, if they were held: {binary_size(held)} more)" if held else ""
    raise ValueError(
        f"training on {rows} × {columns} pixels, {rows * columns:,} tokens a picture, would take "
        f"{binary_size(memory.total)}{matrices}, this machine has {binary_size(room)}; use {smaller}"
        "a smaller --model.depth or --model.dim, or patches instead of pixels: regard train vit"
    )
