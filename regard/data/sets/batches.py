"""Batches of about equally many tokens, from sequences of about the same length, so that little is padding."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol, runtime_checkable

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor

IGNORE = -100
"""Target value of positions that the loss ignores."""

Ids = Sequence[int]


@dataclass(frozen=True, slots=True)
class Batch:
    """The tensors that a model's `features` takes, by name; the targets, IGNORE where padded; the examples' numbers.

    `labels` are targets of whole rows, for objectives that have both.
    """

    inputs: dict[str, Tensor]
    targets: Tensor
    examples: tuple[int, ...]
    labels: Int[Tensor, "B"] | None = None

    def to(self, device: torch.device) -> "Batch":
        """The batch on a device. To a GPU it goes from pinned memory, so that computing need not wait for it."""
        if self.targets.device == device:
            return self

        def move(tensor: Tensor) -> Tensor:
            return (tensor.pin_memory() if device.type == "cuda" else tensor).to(device, non_blocking=True)

        inputs = {name: move(tensor) for name, tensor in self.inputs.items()}
        return replace(
            self, inputs=inputs, targets=move(self.targets), labels=None if self.labels is None else move(self.labels)
        )

    @property
    def unit(self) -> str:
        """The unit that `tokens` counts."""
        return "images" if "pixels" in self.inputs else "tokens"

    @property
    def count(self) -> int:
        """Examples of the batch."""
        return len(self.examples) or len(self.targets)

    def pick(self, examples: Sequence[int], *, apart: bool = True) -> "Batch":
        """A batch of certain examples: all rows of each, as of two views of an image; the whole batch where rows cannot
        be assigned to examples. Where examples are compared, it is among themselves, or for `apart` off among all."""
        count = self.count
        every = [*self.inputs.values(), self.targets, *([] if self.labels is None else [self.labels])]
        if any(not x.dim() or len(x) % count for x in every):
            return self

        def chosen(x: Tensor) -> Tensor:
            return x.unflatten(0, (-1, count))[:, list(examples)].flatten(0, 1)

        targets = chosen(self.targets)
        if self.targets.dtype == torch.bool and apart:  # of images against texts: both axes are examples
            targets = targets[:, list(examples)]
        return replace(
            self,
            inputs={name: chosen(x) for name, x in self.inputs.items()},
            targets=targets,
            examples=tuple(self.examples[example] for example in examples) if self.examples else (),
            labels=None if self.labels is None else chosen(self.labels),
        )

    @property
    def rows(self) -> int:
        """Rows that the model computes."""
        return len(next(iter(self.inputs.values())))

    @property
    def tokens(self) -> int:
        """Tokens written, or read where nothing is written; of images, their number."""
        if "pixels" in self.inputs:
            return len(self.targets)
        if "lengths" in self.inputs and "target" not in self.inputs:
            return int(self.inputs["lengths"].sum())
        return int((self.targets != IGNORE).sum())


def pad(rows: Sequence[Ids], value: int) -> Int[Tensor, "B T"]:
    """Rows of unequal length as one tensor, filled on the right."""
    out = np.full((len(rows), max(map(len, rows), default=0)), value, dtype=np.int64)
    for i, row in enumerate(rows):
        out[i, : len(row)] = row
    return torch.from_numpy(out)


def pair_batch(
    sources: Sequence[Ids], targets: Sequence[Ids], *, bos: int, eos: int, pad_id: int, examples: Sequence[int] = ()
) -> Batch:
    """Teacher forcing: the decoder reads <bos> y₁ … yₙ, and its targets are y₁ … yₙ <eos>."""
    inputs = {
        "source": pad([[*ids, eos] for ids in sources], pad_id),
        "lengths": torch.tensor([len(ids) + 1 for ids in sources]),
        "target": pad([[bos, *ids] for ids in targets], pad_id),
    }
    return Batch(inputs, pad([[*ids, eos] for ids in targets], IGNORE), tuple(examples))


def bucket(lengths: np.ndarray, max_tokens: int, rng: np.random.Generator | None) -> list[np.ndarray]:
    """Groups of example numbers with similar lengths, each at most `max_tokens` when padded.

    `lengths` is N × sides; the longest side decides. Shuffled by `rng`, or in order of length without one.
    """
    order = np.arange(len(lengths)) if rng is None else rng.permutation(len(lengths))
    # By target length, then source length; ties stay shuffled because the sort is stable.
    order = order[np.lexsort(lengths[order].T)]
    longest = lengths.max(axis=1)
    groups: list[np.ndarray] = []
    start, widest = 0, 0
    for end, example in enumerate(order):
        widest = max(widest, int(longest[example]))
        if end > start and widest * (end + 1 - start) > max_tokens:
            groups.append(order[start:end])
            start, widest = end, int(longest[example])
    if start < len(order):
        groups.append(order[start:])
    if rng is not None:
        rng.shuffle(groups)  # type: ignore[arg-type]
    return groups


@runtime_checkable
class Example(Protocol):
    """A training example: `sizes` are the lengths of its sequences, `number` its line in the user's data."""

    @property
    def sizes(self) -> tuple[int, ...]: ...

    @property
    def number(self) -> int: ...


@dataclass(frozen=True)
class Stream:
    """Endless batches of examples; its position is two numbers, so that a run resumes to the same batch."""

    epoch: Callable[[int], Sequence[Any]]
    """The examples of an epoch, by its number."""
    collate: Callable[[Sequence[Any]], Batch]
    """Turns examples into one batch."""
    max_tokens: int
    """Most tokens in a batch, padding included."""
    seed: int = 0

    def batches(self, epoch: int = 0, index: int = 0) -> Iterator[tuple[int, int, Batch]]:
        """(epoch, index of the next batch, batch), from a position on."""
        while True:
            examples = self.epoch(epoch)
            groups = bucket(sizes_of(examples), self.max_tokens, np.random.default_rng((self.seed, epoch)))
            for position in range(index, len(groups)):
                yield epoch, position + 1, self.collate([examples[i] for i in groups[position]])
            epoch, index = epoch + 1, 0

    def count(self, epoch: int = 0) -> int:
        """Batches of an epoch."""
        return len(bucket(sizes_of(self.epoch(epoch)), self.max_tokens, np.random.default_rng((self.seed, epoch))))

    def once(self, examples: Sequence[Any]) -> Iterator[Batch]:
        """Every example once, in order of length: for validation."""
        for group in bucket(sizes_of(examples), max(4096, self.max_tokens), None):
            yield self.collate([examples[i] for i in group])


def sizes_of(examples: Sequence[Example]) -> np.ndarray:
    """The lengths of the examples' sequences (N × sides)."""
    return np.array([example.sizes for example in examples])


@dataclass(frozen=True, slots=True)
class IdPair:
    """A pair of texts as ids, without <bos> and <eos>."""

    source: Ids
    target: Ids
    number: int = 0

    @property
    def sizes(self) -> tuple[int, int]:
        return len(self.source) + 1, len(self.target) + 1


def pair_collate(*, bos: int, eos: int, pad_id: int) -> Callable[[Sequence[IdPair]], Batch]:
    """A function that turns pairs into a batch with these special tokens."""
    return lambda pairs: pair_batch(
        [pair.source for pair in pairs], [pair.target for pair in pairs],
        bos=bos, eos=eos, pad_id=pad_id, examples=[pair.number for pair in pairs],
    )  # fmt: skip


def shuffled(
    count: int, rows: int, seed: int, epoch: int, index: int
) -> Iterator[tuple[int, int, list[int], np.random.Generator]]:
    """Endless groups of indices below `count`, in a new order in each epoch, from a position on: (epoch, index of the
    next group, indices, random generator of that group)."""
    while True:
        order = np.random.default_rng((seed, epoch)).permutation(count).tolist()
        for position in range(index, -(-count // rows)):
            indices = order[position * rows : (position + 1) * rows]
            yield epoch, position + 1, indices, np.random.default_rng((seed, epoch, position))
        epoch, index = epoch + 1, 0


@dataclass(frozen=True)
class TextStream:
    """Endless batches of windows from one long text, which each epoch cuts at other positions."""

    ids: np.ndarray
    context: int
    rows: int
    seed: int = 0

    def count(self) -> int:
        """Batches of an epoch."""
        return max(1, len(self.ids) // (self.context * self.rows))

    def batches(self, epoch: int = 0, index: int = 0) -> Iterator[tuple[int, int, Batch]]:
        """(epoch, index of the next batch, batch), from a position on."""
        while True:
            rng = np.random.default_rng((self.seed, epoch))
            starts = np.arange(rng.integers(self.context), len(self.ids) - self.context, self.context)
            starts = rng.permutation(starts if len(starts) else np.zeros(1, dtype=np.int64))
            for position in range(index, -(-len(starts) // self.rows)):
                rows = starts[position * self.rows : (position + 1) * self.rows]
                yield epoch, position + 1, window_batch(self.ids, rows, self.context)
            epoch, index = epoch + 1, 0


def window_batch(ids: np.ndarray, starts: np.ndarray, context: int) -> Batch:
    """Windows of a text as a batch: the target of each position is the next token, IGNORE past the end."""
    indices = starts[:, None] + np.arange(context + 1)
    windows = ids[np.minimum(indices, len(ids) - 1)].astype(np.int64)
    targets = np.where(indices[:, 1:] < len(ids), windows[:, 1:], IGNORE)
    inputs = {"ids": torch.from_numpy(np.ascontiguousarray(windows[:, :-1]))}
    return Batch(inputs, torch.from_numpy(targets), tuple(starts.tolist()))


def text_batches(ids: np.ndarray, context: int, rows: int) -> Iterator[Batch]:
    """Batches of a text's windows without overlap, from beginning to end: for validation."""
    starts = np.arange(0, max(1, len(ids) - 1), context)
    for first in range(0, len(starts), rows):
        yield window_batch(ids, starts[first : first + rows], context)
