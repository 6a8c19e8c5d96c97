"""A decoding step as a short program: operations on rows, recorded once from the modules of a model.

A row is one token of one sequence, at its position. Rows of many sequences are processed together, and several of one
where a prompt is read; no row's result depends on the others in the batch. Buffers hold a vector for each row; keys and
values live in pages, which a table lists for each sequence. `plain.py` runs a program with PyTorch, `compiled.py` with
compiled kernels.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import torch
from jaxtyping import Float, Int32
from torch import Tensor

Array = np.ndarray
Activation = Literal["relu", "gelu", "gelu-tanh", "quick-gelu", "silu", "relu2"]
GATES: dict[str, Activation] = {"swiglu": "silu", "geglu": "gelu", "geglu-tanh": "gelu-tanh"}


class Unsupported(ValueError):  # noqa: N818
    """The model cannot be recorded as a program; it still decodes through `prefill` and `step`."""


@dataclass(frozen=True, slots=True)
class Columns:
    """A range of columns of a buffer, which an operation reads or writes in every row."""

    buffer: str
    first: int
    width: int


@dataclass(frozen=True, slots=True)
class Weight:
    """A matrix of `rows` × `columns`, in floating point, in 16 bits or as integers with scales."""

    values: Tensor
    rows: int
    columns: int
    format: Literal["float", "bfloat16", "bfloat16-weights", "int8", "int4", "bytes"] = "float"
    scales: Tensor | None = None

    @property
    def layout(self) -> tuple[torch.dtype, tuple[int, ...], tuple[int, ...]]:
        """Type and shape of the integers, with columns padded to a multiple of 32, and the shape of their scales."""
        padded = -(-self.columns // 32) * 32
        if self.format == "int8":
            return torch.int8, (self.rows, padded), (self.rows,)
        if self.format == "int4":
            return torch.uint8, (self.rows, padded // 2), (self.rows, padded // 32)
        return torch.int8, (-(-self.rows // 32), padded // 4 + 1, 32, 4), (self.rows,)


@dataclass(frozen=True, slots=True)
class Embed:
    """out = weight[id] · scale + positions[position]."""

    out: Columns
    weight: Weight
    scale: float
    positions: Tensor | None


@dataclass(frozen=True, slots=True)
class Norm:
    """out = (x − mean) / √(variance + ε) · weight + bias; for `rms` without mean and bias."""

    x: Columns
    out: Columns
    kind: Literal["layer", "rms"]
    weight: Tensor
    bias: Tensor | None
    eps: float


@dataclass(frozen=True, slots=True)
class Linear:
    """out = x weightᵀ + bias; with `add`, added to what is there."""

    x: Columns
    out: Columns
    weight: Weight
    bias: Tensor | None
    add: bool = False


@dataclass(frozen=True, slots=True)
class Activate:
    """x = kind(x)."""

    x: Columns
    kind: Activation


@dataclass(frozen=True, slots=True)
class Gate:
    """out = kind(first half of x) · second half."""

    x: Columns
    out: Columns
    kind: Activation


@dataclass(frozen=True, slots=True)
class Rotate:
    """Rotates pairs (i, i + K/2) of every head by the angles of the row's position: x · cos + roll(x, K/2) · sin."""

    x: Columns
    head_dim: int
    angles: Float[Tensor, "2 T K"]
    """Cosines and sines; those of the first half are negative."""


@dataclass(frozen=True, slots=True)
class Unit:
    """Normalises every head separately: x = x / √(mean x² + ε)."""

    x: Columns
    head_dim: int
    eps: float


@dataclass(frozen=True, slots=True)
class Store:
    """Writes each row's key and value into a layer's pages, at its position in the sequence or in the source."""

    k: Columns
    v: Columns
    layer: int
    source: bool = False


@dataclass(frozen=True, slots=True)
class Heads:
    """Attention of a layer: softmax(q·kᵀ · scale + bias) · v, head h with the keys of h · kv_heads / heads."""

    heads: int
    kv_heads: int
    head_dim: int
    scale: float
    bias: Float[Tensor, "H N"] | None = None
    """A bias for each head and distance: that of key j for query i is in column zero + j − i."""
    zero: int = 0


@dataclass(frozen=True, slots=True)
class Attend:
    """Attention of one query a row over the pages of its sequence, up to its own position; or over its source."""

    q: Columns
    out: Columns
    heads: Heads
    layer: int
    source: bool = False


@dataclass(frozen=True, slots=True)
class AttendRows:
    """Attention of one query a row over all rows of its sequence in this batch (an encoder)."""

    q: Columns
    k: Columns
    v: Columns
    out: Columns
    heads: Heads


@dataclass(frozen=True, slots=True)
class Gather:
    """Copies the wanted rows; later operations work on those alone."""

    x: Columns
    out: Columns


Operation = Embed | Norm | Linear | Activate | Gate | Rotate | Unit | Store | Attend | AttendRows | Gather


@dataclass(frozen=True, slots=True)
class Batch:
    """The rows of one run. Tables list the pages of each sequence in order."""

    ids: Int32[Array, "R"]
    positions: Int32[Array, "R"]
    sequences: Int32[Array, "R"]
    """The row of the tables that each row belongs to; rows of one sequence are adjacent, in order."""
    wanted: Int32[Array, "W"]
    """Rows that `Gather` copies."""
    tables: Int32[Array, "N M"]
    """Unused entries hold any valid page number."""
    source_tables: Int32[Array, "N L"]
    source_lengths: Int32[Array, "N"]


@dataclass(slots=True)
class Program:
    """Operations in order, and the width of each buffer. Logits are in the buffer `scores`, a row for each wanted."""

    operations: list[Operation] = field(default_factory=list)
    widths: dict[str, int] = field(default_factory=dict)
    tables: dict[Any, Any] = field(default_factory=dict)
    """Tensors that several layers share, made once."""

    def columns(self, buffer: str, width: int) -> Columns:
        """Return a buffer of at least that width, from its first column."""
        self.widths[buffer] = max(width, self.widths.get(buffer, 0))
        return Columns(buffer, 0, width)

    def once(self, make: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        key = (make, *map(id, arguments), *options.items())
        if key not in self.tables:
            self.tables[key] = arguments, make(*arguments, **options)  # an id is valid while its object lives
        return self.tables[key][1]

    def add(self, *operations: Operation) -> None:
        self.operations += operations
