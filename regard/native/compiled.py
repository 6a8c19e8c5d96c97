"""Runs a program with compiled kernels, on the CPU in float32. They are built where there is a compiler."""

import ctypes
import weakref
from ctypes import c_bool, c_float, c_int64, c_void_p
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch  # loaded first: its thread pool then serves the kernels too
from jaxtyping import Float, Float32, Int32
from torch import Tensor

from regard.native import program as ops
from regard.native.program import Array, Unsupported

VERSION = 2
"""Version of the C interface: a library from older sources is not called."""
FORMATS = ["float", "int8", "int4", "bytes"]
KINDS = ["relu", "gelu", "gelu-tanh", "silu", "relu2"]
AFTER_GATHER = (ops.Norm, ops.Linear, ops.Activate, ops.Gate, ops.Unit)
"""Operations that need no position, so that they can run on the wanted rows alone."""


class _Columns(ctypes.Structure):
    _fields_ = [("first", c_void_p), ("stride", c_int64), ("width", c_int64)]


class _Matrix(ctypes.Structure):
    _fields_ = [
        ("values", c_void_p),
        ("scales", c_void_p),
        ("rows", c_int64),
        ("columns", c_int64),
        ("format", c_int64),
    ]


class _Pages(ctypes.Structure):
    _fields_ = [("first", c_void_p), ("kv_heads", c_int64), ("size", c_int64), ("head_dim", c_int64)]


class _Heads(ctypes.Structure):
    _fields_ = [
        *[(name, c_int64) for name in ("heads", "kv_heads", "head_dim")],
        ("scale", c_float),
        ("bias", c_void_p),
        *[(name, c_int64) for name in ("bias_stride", "zero")],
    ]


class _Batch(ctypes.Structure):
    ARRAYS = ["ids", "positions", "sequences", "wanted", "tables", "source_tables", "source_lengths", "begins", "ends"]
    SIZES = ["rows", "wanted_rows", "table_width", "source_width"]
    _fields_ = [*[(name, c_void_p) for name in ARRAYS], *[(name, c_int64) for name in SIZES]]


INTERFACE: dict[str, tuple[Any, list[Any]]] = {
    "version": (c_int64, []),
    "program_new": (c_void_p, [c_int64]),
    "program_free": (None, [c_void_p]),
    "program_run": (None, [c_void_p, ctypes.POINTER(_Batch), c_int64]),
    "add_embed": (None, [c_void_p, _Columns, _Matrix, c_float, c_void_p]),
    "add_norm": (None, [c_void_p, _Columns, _Columns, c_bool, c_void_p, c_void_p, c_float]),
    "add_linear": (None, [c_void_p, _Columns, _Columns, _Matrix, c_void_p, c_bool]),
    "add_activate": (None, [c_void_p, _Columns, c_int64]),
    "add_gate": (None, [c_void_p, _Columns, _Columns, c_int64]),
    "add_rotate": (None, [c_void_p, _Columns, c_int64, c_void_p, c_int64]),
    "add_unit": (None, [c_void_p, _Columns, c_int64, c_float]),
    "add_store": (None, [c_void_p, _Columns, _Columns, _Pages, c_bool]),
    "add_attend": (None, [c_void_p, _Columns, _Columns, _Heads, _Pages, c_bool]),
    "add_attend_rows": (None, [c_void_p, _Columns, _Columns, _Columns, _Columns, _Heads]),
    "add_gather": (None, [c_void_p, _Columns, _Columns]),
    "linear": (None, [_Columns, _Columns, c_int64, _Matrix, c_void_p, c_int64]),
    "best": (None, [c_void_p, *[c_int64] * 4, c_void_p, c_int64, c_void_p, c_void_p, c_int64]),
}


@cache
def _load() -> ctypes.CDLL | str:
    """Return the loaded library, or the reason why there is none."""
    again = "run `pip install` on Regard again"
    path = Path(__file__).with_name("kernels.native.so")
    if not path.exists():
        return f"the compiled kernels were not built: install a C++ compiler (g++) and {again}"
    try:
        library = ctypes.CDLL(str(path))
        for name, (result, arguments) in INTERFACE.items():
            function = getattr(library, name)
            function.restype, function.argtypes = result, arguments
    except (OSError, AttributeError) as error:
        return f"{path.name} cannot be used ({error}): {again}"
    if library.version() != VERSION:
        return f"{path.name} comes from other sources than these: {again}"
    return library


def available() -> bool:
    return not isinstance(_load(), str)


def why_not() -> str:
    """Return what is missing and the cure, in one line; empty where the kernels are available."""
    library = _load()
    return library if isinstance(library, str) else ""


def _library() -> ctypes.CDLL:
    library = _load()
    if isinstance(library, str):
        raise Unsupported(library)
    return library


def linear(
    x: Float32[Tensor, "*N K"], weight: ops.Weight, bias: Float32[Tensor, "M"] | None = None
) -> Float32[Tensor, "*N M"]:
    """x Wᵀ + b, without gradients."""
    library = _library()
    if x.shape[-1] != weight.columns:
        raise ValueError(f"x has {x.shape[-1]} columns, the matrix {weight.columns}")
    rows = x.detach().reshape(-1, weight.columns).contiguous()
    out = torch.empty(len(rows), weight.rows)
    kept: list[Tensor] = []
    library.linear(
        _Columns(_address(rows, "x", kept), weight.columns, weight.columns),
        _Columns(out.data_ptr(), weight.rows, weight.rows),
        len(rows),
        _matrix(weight, kept),
        _address(bias, "a bias", kept, weight.rows),
        torch.get_num_threads(),
    )
    return out.view(*x.shape[:-1], weight.rows)


def best(
    scores: Float32[Tensor, "W V"],
    count: int,
    forbidden: Int32[Array, "F"] | None = None,
    threads: int | None = None,
) -> tuple[Int32[Array, "W N"], Float32[Array, "W N"]]:
    """Return ids and log-probabilities of the `count` highest logits of each row, best first (ties: lower id first);
    forbidden tokens are never chosen, but keep their share of the probability."""
    library = _library()
    rows, width = scores.shape
    banned = np.zeros(0, np.int32) if forbidden is None else np.unique(forbidden).astype(np.int32)
    left = width - int(((banned >= 0) & (banned < width)).sum())
    if not 1 <= count <= left:
        raise ValueError(f"count={count} must be from 1 to {left}, the entries that are not forbidden")
    scores = scores.detach() if scores.stride(1) == 1 or width == 1 else scores.detach().contiguous()
    ids, log_probs = np.empty((rows, count), np.int32), np.empty((rows, count), np.float32)
    library.best(
        *(scores.data_ptr(), rows, scores.stride(0), width, count, banned.ctypes.data, len(banned)),
        *(ids.ctypes.data, log_probs.ctypes.data, threads or torch.get_num_threads()),
    )
    return ids, log_probs


class Compiled:
    """Runs a program in buffers of its own, one run at a time; `pages` is the pool of keys and values. Buffers grow for
    batches of more than `max_rows`."""

    def __init__(
        self,
        program: ops.Program,
        pages: Float[Tensor, "L N 2 G P K"] | None,
        *,
        max_rows: int = 64,
        threads: int | None = None,
    ) -> None:
        self.library = _library()
        self.program, self.pages = program, pages
        self.threads = threads or torch.get_num_threads()
        if self.threads < 1 or max_rows < 1:
            raise ValueError(f"threads={threads} and max_rows={max_rows} must be at least 1")
        self.reads_rows = any(isinstance(op, ops.AttendRows) for op in program.operations)
        own, source = (
            any(isinstance(op, ops.Store | ops.Attend) and op.source is from_source for op in program.operations)
            for from_source in (False, True)
        )
        self.stores_source = any(isinstance(op, ops.Store) and op.source for op in program.operations)
        self.reads_own, self.reads_source = own, source
        self.build(max_rows)

    def build(self, max_rows: int) -> None:
        """Allocate buffers for so many rows, and encode the operations with their addresses."""
        # Rows whose addresses are a multiple of 4096 apart evict each other from the cache: leave a gap.
        self.buffers = {name: torch.empty(max_rows, w + 16)[:, :w] for name, w in self.program.widths.items()}
        self.max_rows, self.max_positions, self.vocabulary = max_rows, 1 << 31, 1 << 31
        self.kept: list[Tensor] = []
        self.handle = self.library.program_new(max_rows)
        self.free = weakref.finalize(self, self.library.program_free, self.handle)
        gathered = False
        for operation in self.program.operations:
            if gathered and not isinstance(operation, AFTER_GATHER):
                raise Unsupported(
                    f"{type(operation).__name__} after Gather needs positions, which its rows no longer have"
                )
            gathered |= isinstance(operation, ops.Gather)
            name = {"AttendRows": "attend_rows"}.get(type(operation).__name__, type(operation).__name__.lower())
            arguments = getattr(self, name)(operation)
            getattr(self.library, f"add_{name}")(self.handle, *arguments)

    def run(self, batch: ops.Batch) -> Float32[Tensor, "W V"] | None:
        """Run the program; return the logits of the wanted rows, if it has any: a view that the next run overwrites."""
        self.check(batch)
        rows, wanted = len(batch.ids), len(batch.wanted)
        if max(rows, wanted) > self.max_rows:
            before = self.free
            self.build(max(rows, wanted, 2 * self.max_rows))
            before()
        begins, ends = self.spans(batch) if self.reads_rows else (batch.wanted, batch.wanted)
        named = {name: getattr(batch, name) for name in _Batch.ARRAYS[:-2]} | {"begins": begins, "ends": ends}
        arrays = {name: np.ascontiguousarray(array, np.int32) for name, array in named.items()}
        fields = _Batch(
            *(array.ctypes.data for array in arrays.values()),
            *(rows, wanted, batch.tables.shape[1], batch.source_tables.shape[1]),
        )
        self.library.program_run(self.handle, fields, self.threads)
        return self.buffers["scores"][:wanted] if "scores" in self.buffers else None

    def spans(self, batch: ops.Batch) -> tuple[Int32[Array, "R"], Int32[Array, "R"]]:
        """Return the first row of each row's sequence, and the one after its last."""
        new = np.flatnonzero(np.diff(batch.sequences, prepend=-1))
        lengths = np.diff(new, append=len(batch.sequences))
        begins = np.repeat(new, lengths).astype(np.int32)
        places = batch.positions - np.arange(len(begins))
        if (places != places[begins]).any():
            raise ValueError("rows that attend to each other must have consecutive positions")
        return begins, np.repeat(new + lengths, lengths).astype(np.int32)

    def check(self, batch: ops.Batch) -> None:
        """Check that no index points out of bounds."""
        rows, sequences = len(batch.ids), len(batch.tables)
        for name in ("positions", "sequences"):
            if len(getattr(batch, name)) != rows:
                raise ValueError(f"{rows} ids, but {len(getattr(batch, name))} {name}")
        if not len(batch.source_tables) == len(batch.source_lengths) == sequences:
            raise ValueError(
                f"{sequences} tables, but {len(batch.source_tables)} source tables "
                f"and {len(batch.source_lengths)} source lengths"
            )
        _within("ids", batch.ids, self.vocabulary)
        _within("positions", batch.positions, self.max_positions)
        _within("sequences", batch.sequences, sequences)
        _within("wanted", batch.wanted, rows)
        if self.pages is None or not rows:
            return
        last = int(batch.positions.max()) + 1
        if self.reads_own:
            self.check_pages("tables", batch.tables, last)
        if self.stores_source:
            self.check_pages("source_tables", batch.source_tables, last)
        elif self.reads_source:
            lengths = batch.source_lengths[batch.sequences]
            _within("source_lengths", lengths, self.pages.shape[1] * self.pages.shape[4] + 1)
            self.check_pages("source_tables", batch.source_tables, int(lengths.max()))

    def check_pages(self, name: str, tables: Int32[Array, "N M"], positions: int) -> None:
        """Check the pages of a table: unused entries must hold a valid page number too, which is quick to check."""
        assert self.pages is not None
        _, count, _, _, size, _ = self.pages.shape
        if positions > tables.shape[1] * size:
            raise ValueError(f"{name}: {positions} positions need more than {tables.shape[1]} pages of {size}")
        _within(name, tables, count)

    def columns(self, columns: ops.Columns, width: int | None = None) -> _Columns:
        buffer = self.buffers[columns.buffer]
        if not 0 <= columns.first <= columns.first + columns.width <= buffer.shape[1]:
            raise ValueError(f"{columns} is not within a buffer of {buffer.shape[1]} columns")
        if width is not None and columns.width != width:
            raise ValueError(f"{columns} should have {width} columns")
        return _Columns(buffer.data_ptr() + 4 * columns.first, buffer.stride(0), columns.width)

    def address(self, tensor: Tensor | None, what: str, *shape: int) -> int | None:
        return _address(tensor, what, self.kept, *shape)

    def layer(self, number: int) -> _Pages:
        if self.pages is None:
            raise ValueError("this program keeps keys and values, but no pages were given")
        first = self.address(self.pages, "pages")
        layers, count, _, kv_heads, size, head_dim = self.pages.shape
        if not 0 <= number < layers:
            raise ValueError(f"there are pages of {layers} layers, but layer {number} is wanted")
        assert first is not None
        return _Pages(first + 4 * number * count * 2 * kv_heads * size * head_dim, kv_heads, size, head_dim)

    def heads(self, sizes: ops.Heads) -> _Heads:
        if sizes.kv_heads < 1 or sizes.heads % sizes.kv_heads:
            raise ValueError(f"kv_heads={sizes.kv_heads} does not divide heads={sizes.heads}")
        stride = 0 if sizes.bias is None else sizes.bias.shape[1]
        if sizes.bias is not None:
            self.max_positions = min(self.max_positions, sizes.zero + 1)
        bias = self.address(sizes.bias, "a bias by distance", sizes.heads, stride)
        return _Heads(sizes.heads, sizes.kv_heads, sizes.head_dim, sizes.scale, bias, stride, sizes.zero)

    # One method for each operation: its arguments for the library.

    def embed(self, op: ops.Embed) -> tuple[Any, ...]:
        if op.weight.format == "bytes":
            raise Unsupported("an embedding cannot be stored as bytes; use int8")
        self.vocabulary = min(self.vocabulary, op.weight.rows)
        length = 0 if op.positions is None else len(op.positions)
        if op.positions is not None:
            self.max_positions = min(self.max_positions, length)
        table = self.address(op.positions, "a table of positions", length, op.weight.columns)
        return self.columns(op.out, op.weight.columns), _matrix(op.weight, self.kept), op.scale, table

    def norm(self, op: ops.Norm) -> tuple[Any, ...]:
        weight, bias = (self.address(t, "a norm's weight or bias", op.x.width) for t in (op.weight, op.bias))
        return self.columns(op.x), self.columns(op.out, op.x.width), op.kind == "rms", weight, bias, op.eps

    def linear(self, op: ops.Linear) -> tuple[Any, ...]:
        x, out = self.columns(op.x, op.weight.columns), self.columns(op.out, op.weight.rows)
        return x, out, _matrix(op.weight, self.kept), self.address(op.bias, "a bias", op.weight.rows), op.add

    def activate(self, op: ops.Activate) -> tuple[Any, ...]:
        if op.kind not in KINDS:
            raise Unsupported(f"activation {op.kind} has no compiled kernel; {', '.join(KINDS)} have")
        return self.columns(op.x), KINDS.index(op.kind)

    def gate(self, op: ops.Gate) -> tuple[Any, ...]:
        return self.columns(op.x, 2 * op.out.width), self.columns(op.out), KINDS.index(op.kind)

    def rotate(self, op: ops.Rotate) -> tuple[Any, ...]:
        _divides(op.head_dim, op.x.width)
        _divides(2, op.head_dim)
        length = op.angles.shape[1]
        self.max_positions = min(self.max_positions, length)
        return self.columns(op.x), op.head_dim, self.address(op.angles, "angles", 2, length, op.head_dim), length

    def unit(self, op: ops.Unit) -> tuple[Any, ...]:
        _divides(op.head_dim, op.x.width)
        return self.columns(op.x), op.head_dim, op.eps

    def store(self, op: ops.Store) -> tuple[Any, ...]:
        pages = self.layer(op.layer)
        width = pages.kv_heads * pages.head_dim
        return self.columns(op.k, width), self.columns(op.v, width), pages, op.source

    def attend(self, op: ops.Attend) -> tuple[Any, ...]:
        pages, heads, width = self.layer(op.layer), self.heads(op.heads), op.heads.heads * op.heads.head_dim
        if (pages.kv_heads, pages.head_dim) != (heads.kv_heads, heads.head_dim):
            raise ValueError(f"pages of {pages.kv_heads} × {pages.head_dim} do not fit {op.heads}")
        if op.source and op.heads.bias is not None:
            raise Unsupported("attention to a source has no bias by distance here")
        return self.columns(op.q, width), self.columns(op.out, width), heads, pages, op.source

    def attend_rows(self, op: ops.AttendRows) -> tuple[Any, ...]:
        sizes, heads = op.heads, self.heads(op.heads)
        width, kv_width = sizes.heads * sizes.head_dim, sizes.kv_heads * sizes.head_dim
        if sizes.bias is not None and sizes.bias.shape[1] < 2 * sizes.zero + 1:
            raise ValueError(f"a bias for both sides has {2 * sizes.zero + 1} columns, got {sizes.bias.shape[1]}")
        k, v = self.columns(op.k, kv_width), self.columns(op.v, kv_width)
        if k.stride != v.stride:
            raise Unsupported("keys and values of an encoder must be in one buffer")
        return self.columns(op.q, width), k, v, self.columns(op.out, width), heads

    def gather(self, op: ops.Gather) -> tuple[Any, ...]:
        return self.columns(op.x), self.columns(op.out, op.x.width)


def _address(tensor: Tensor | None, what: str, kept: list[Tensor], *shape: int) -> int | None:
    """Return the address of a tensor, which is kept alive; None for no tensor."""
    if tensor is None:
        return None
    if tensor.dtype != torch.float32 or tensor.device.type != "cpu" or not tensor.is_contiguous():
        raise Unsupported(
            f"compiled kernels read float32 in one piece on the CPU; {what} is {tensor.dtype} on {tensor.device}"
        )
    if shape and tuple(tensor.shape) != shape:
        raise ValueError(f"{what} has the shape {tuple(tensor.shape)}, expected {shape}")
    kept.append(tensor)
    return tensor.data_ptr()


def _matrix(weight: ops.Weight, kept: list[Tensor]) -> _Matrix:
    rows, columns, format_ = weight.rows, weight.columns, FORMATS.index(weight.format)
    if weight.format == "float":
        return _Matrix(_address(weight.values, "a matrix", kept, rows, columns), None, rows, columns, format_)
    dtype, shape, scaled = weight.layout
    values, scales = weight.values, weight.scales
    if values.dtype != dtype or values.device.type != "cpu" or not values.is_contiguous():
        raise Unsupported(f"a matrix of {weight.format} is {dtype} in one piece on the CPU; got {values.dtype}")
    if tuple(values.shape) != shape or scales is None:
        raise ValueError(f"a matrix of {weight.format} has the shape {shape} and scales, got {values.shape}")
    kept.append(values)
    return _Matrix(values.data_ptr(), _address(scales, "scales", kept, *scaled), rows, columns, format_)


def _within(name: str, numbers: Array, end: int) -> None:
    if numbers.size and not (numbers.min() >= 0 and numbers.max() < end):
        raise ValueError(f"{name}: {numbers.min()} … {numbers.max()} is not within 0 … {end - 1}")


def _divides(part: int, whole: int) -> None:
    if part < 1 or whole % part:
        raise ValueError(f"head_dim: {part} does not divide {whole}")
