"""Runs a program with PyTorch, on any device and in any precision: the reference for the compiled kernels."""

from collections.abc import Iterator

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from regard.native import program as ops
from regard.native.quantized import apply, rows_of
from regard.nn.feedforward import ACTIVATIONS
from regard.nn.kernels.full import repeat_heads
from regard.nn.positions import rotated


class Plain:
    """Runs a program. `pages` is the pool of keys and values, layers N 2 G P K."""

    def __init__(self, program: ops.Program, pages: Float[Tensor, "L N 2 G P K"]) -> None:
        self.program, self.pages = program, pages
        self.buffers: dict[str, Tensor] = {}

    @torch.inference_mode()
    def run(self, batch: ops.Batch) -> Float[Tensor, "W V"] | None:
        """Run the program; return the logits of the wanted rows, if it has any."""
        self.batch = batch
        self.ids, self.positions, self.sequences, self.wanted = (
            torch.from_numpy(array).long().to(self.pages.device)
            for array in (batch.ids, batch.positions, batch.sequences, batch.wanted)
        )
        for operation in self.program.operations:
            getattr(self, type(operation).__name__.lower())(operation)
        return self.buffers.get("scores")

    def read(self, columns: ops.Columns) -> Float[Tensor, "R W"]:
        return self.buffers[columns.buffer][:, columns.first : columns.first + columns.width]

    def write(self, columns: ops.Columns, values: Float[Tensor, "R W"]) -> None:
        buffer = self.buffers.get(columns.buffer)
        if buffer is None or len(buffer) != len(values):
            self.buffers[columns.buffer] = values.new_empty(len(values), self.program.widths[columns.buffer])
        self.read(columns).copy_(values)

    def split(self, columns: ops.Columns, head_dim: int) -> Float[Tensor, "R N K"]:
        return self.read(columns).unflatten(1, (-1, head_dim))

    def embed(self, op: ops.Embed) -> None:
        x = rows_of(op.weight, self.ids) * op.scale
        self.write(op.out, (x if op.positions is None else x + op.positions[self.positions]).to(self.pages.dtype))

    def norm(self, op: ops.Norm) -> None:
        x, width = self.read(op.x), (op.x.width,)
        if op.kind == "rms":
            self.write(op.out, F.rms_norm(x, width, op.weight, op.eps))
        else:
            self.write(op.out, F.layer_norm(x, width, op.weight, op.bias, op.eps))

    def linear(self, op: ops.Linear) -> None:
        y = apply(op.weight, self.read(op.x), op.bias)
        self.write(op.out, self.read(op.out) + y if op.add else y)

    def activate(self, op: ops.Activate) -> None:
        self.write(op.x, ACTIVATIONS[op.kind](self.read(op.x)))

    def gate(self, op: ops.Gate) -> None:
        gate, value = self.read(op.x).chunk(2, dim=1)
        self.write(op.out, ACTIVATIONS[op.kind](gate) * value)

    def rotate(self, op: ops.Rotate) -> None:
        cos, sin = op.angles[:, self.positions, None].to(self.pages.dtype)  # R 1 K
        self.write(op.x, rotated(self.split(op.x, op.head_dim), cos, sin).flatten(1))

    def unit(self, op: ops.Unit) -> None:
        x = self.split(op.x, op.head_dim)
        self.write(op.x, F.rms_norm(x, (op.head_dim,), None, op.eps).flatten(1))

    def gather(self, op: ops.Gather) -> None:
        self.write(op.out, self.read(op.x)[self.wanted])

    def store(self, op: ops.Store) -> None:
        pool = self.pages[op.layer]  # N 2 G P K
        tables = self.batch.source_tables if op.source else self.batch.tables
        size = pool.shape[3]
        pages = torch.from_numpy(tables[self.batch.sequences, self.batch.positions // size]).long().to(pool.device)
        for kind, columns in enumerate((op.k, op.v)):
            pool[pages, kind, :, self.positions % size] = self.split(columns, pool.shape[4])

    def attend(self, op: ops.Attend) -> None:
        out = torch.empty_like(self.read(op.q))
        for rows, sequences in self.groups():
            if op.source:
                lengths, tables = self.batch.source_lengths[sequences], self.batch.source_tables
            else:
                lengths, tables = self.batch.positions[rows[:, -1]] + 1, self.batch.tables
            k, v = self.keys(op.layer, tables[sequences], int(lengths.max(initial=0)))
            j = torch.arange(k.shape[2], device=k.device)
            i = self.positions[rows]  # N T
            if op.source:
                seen = (j < torch.from_numpy(lengths).to(j.device)[:, None])[:, None]  # N 1 S
            else:
                seen = j <= i[:, :, None]
            q = self.split(op.q, op.heads.head_dim)[rows].transpose(1, 2)  # N H T K
            bias = None
            if op.heads.bias is not None:
                distances = (j - i[:, :, None]).clamp(max=0)  # keys after the query are hidden in any case
                bias = op.heads.bias[:, op.heads.zero + distances].transpose(0, 1)
            out[rows] = mix(op.heads, q, k, v, bias, seen[:, None]).transpose(1, 2).flatten(2)
        self.write(op.out, out)

    def attendrows(self, op: ops.AttendRows) -> None:
        out = torch.empty_like(self.read(op.q))
        for rows, _ in self.groups():
            q, k, v = (self.split(c, op.heads.head_dim)[rows].transpose(1, 2) for c in (op.q, op.k, op.v))
            bias = None
            if op.heads.bias is not None:
                i = self.positions[rows]
                bias = op.heads.bias[:, op.heads.zero + i[:, None] - i[:, :, None]].transpose(0, 1)
            out[rows] = mix(op.heads, q, k, v, bias, None).transpose(1, 2).flatten(2)
        self.write(op.out, out)

    def groups(self) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Yield groups of sequences with equally many rows: their rows N T, and their rows in the tables."""
        sequences, first, counts = np.unique(self.batch.sequences, return_index=True, return_counts=True)
        for count in np.unique(counts):
            chosen = counts == count
            yield first[chosen, None] + np.arange(count), sequences[chosen]

    def keys(self, layer: int, tables: np.ndarray, length: int) -> tuple[Tensor, Tensor]:
        """Return keys and values of sequences, N G S K, as far as the longest of them reaches."""
        size = self.pages.shape[4]
        chosen = torch.from_numpy(np.ascontiguousarray(tables[:, : -(-length // size)])).long().to(self.pages.device)
        k, v = self.pages[layer][chosen].permute(2, 0, 3, 1, 4, 5).flatten(3, 4)  # 2 N G S K
        return k[:, :, :length], v[:, :, :length]


def mix(
    attention: ops.Heads,
    q: Float[Tensor, "N H T K"],
    k: Float[Tensor, "N G S K"],
    v: Float[Tensor, "N G S K"],
    bias: Float[Tensor, "N H T S"] | None,
    seen: Tensor | None,
) -> Float[Tensor, "N H T K"]:
    """Mix values with hidden ones zeroed: pages are not cleared and may hold NaN."""
    scores = q @ repeat_heads(k, attention.heads).transpose(-1, -2) * attention.scale
    if bias is not None:
        scores = scores + bias.to(scores.dtype)
    if seen is None:
        return scores.softmax(dim=-1) @ repeat_heads(v, attention.heads)
    weights = scores.masked_fill(~seen, -torch.inf).softmax(dim=-1)
    there = seen.any(dim=-2)[..., None]  # N 1 S 1
    return weights @ repeat_heads(v.masked_fill(~there, 0.0), attention.heads)
