"""Batches of about as many tokens each, from sequences of about the same length: little padding, little waste."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor

IGNORE = -100
"""Target positions that no loss counts."""

Ids = Sequence[int]


@dataclass(frozen=True, slots=True)
class Batch:
    """What a model's `features` takes, by name; the targets, IGNORE where padded; which examples these are."""

    inputs: dict[str, Tensor]
    targets: Int[Tensor, "B T"]
    examples: tuple[int, ...]


def pad(rows: Sequence[Ids], value: int) -> Int[Tensor, "B T"]:
    """Rows of unequal length as one tensor, filled on the right."""
    out = np.full((len(rows), max(map(len, rows), default=0)), value, dtype=np.int64)
    for i, row in enumerate(rows):
        out[i, : len(row)] = row
    return torch.from_numpy(out)


def pair_batch(
    sources: Sequence[Ids], targets: Sequence[Ids], *, bos: int, eos: int, pad_id: int, examples: Sequence[int] = ()
) -> Batch:
    """Teacher forcing: the decoder reads <bos> y₁ … yₙ and is to write y₁ … yₙ <eos>."""
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


@dataclass(frozen=True, slots=True)
class IdPairs:
    """Sentence pairs as ids, without <bos> and <eos>, and the number that each has in the user's data."""

    sources: Sequence[Ids]
    targets: Sequence[Ids]
    numbers: Sequence[int]

    def lengths(self) -> np.ndarray:
        return np.array([(len(s) + 1, len(t) + 1) for s, t in zip(self.sources, self.targets, strict=True)])


@dataclass(frozen=True)
class PairStream:
    """Endless batches of sentence pairs; where it stands is two numbers, so that a run resumes to the same batch."""

    epoch: Callable[[int], IdPairs]
    """The pairs of epoch e."""
    max_tokens: int
    bos: int
    eos: int
    pad_id: int
    seed: int = 0

    def batches(self, epoch: int = 0, index: int = 0) -> Iterator[tuple[int, int, Batch]]:
        """(epoch, index of the next batch, batch), from the given place on."""
        while True:
            pairs = self.epoch(epoch)
            groups = bucket(pairs.lengths(), self.max_tokens, np.random.default_rng((self.seed, epoch)))
            for position in range(index, len(groups)):
                yield epoch, position + 1, self.collate(pairs, groups[position])
            epoch, index = epoch + 1, 0

    def once(self, pairs: IdPairs) -> Iterator[Batch]:
        """Every given pair once, in order of length: for validation."""
        for group in bucket(pairs.lengths(), max(4096, self.max_tokens), None):
            yield self.collate(pairs, group)

    def collate(self, pairs: IdPairs, group: np.ndarray) -> Batch:
        return pair_batch(
            [pairs.sources[i] for i in group], [pairs.targets[i] for i in group],
            bos=self.bos, eos=self.eos, pad_id=self.pad_id, examples=[pairs.numbers[i] for i in group],
        )  # fmt: skip
