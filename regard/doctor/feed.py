"""Checks of the batches themselves: their order, repetitions, target frequencies, and targets that equal inputs."""

import math
from collections.abc import Hashable, Iterator

import numpy as np
import torch
from torch import Tensor

from regard.data.sets.batches import IGNORE, Batch
from regard.doctor.findings import Finding

SURE = math.log(1e9)
"""Log odds above which a repeated order is no coincidence of shuffling."""
ENOUGH = 1 << 20
"""Targets that are counted to estimate their frequencies."""
FIRST = 16
"""Batches whose targets are compared with their inputs."""


class Feed:
    """Remembers the batches of two epochs and the frequencies of targets."""

    def __init__(self) -> None:
        self.epoch, self.whole = -1, False
        self.before: list[Hashable] = []
        self.now: list[Hashable] = []
        self.seen: set[Hashable] = set()
        self.again, self.odds, self.read = 0, 0.0, 0
        self.counts = np.zeros(0)

    def add(self, epoch: int, index: int, batch: Batch) -> Iterator[Finding]:
        """Yields findings about a batch."""
        if epoch != self.epoch:
            yield from self.new_epoch(epoch, index)
        digest = fingerprint(batch)
        self.again += digest in self.seen
        self.now.append(digest)
        self.seen.add(digest)
        if self.again >= 4 and self.again >= len(self.now) / 4:
            yield Finding(
                "the same batch again and again",
                f"{self.again} of the {len(self.now)} batches of epoch {epoch} so far had come before in it",
                "give each batch other examples: is the loader restarted at each step?",
                0.9,
            )
        if self.read < FIRST:
            yield from same_as_input(batch)
        self.read += 1
        if batch.labels is None and self.counts.sum() < ENOUGH:
            counts = counted(batch.targets)
            longer = max(len(counts), len(self.counts))
            self.counts = np.pad(self.counts, (0, longer - len(self.counts)))
            self.counts[: len(counts)] += counts

    def new_epoch(self, epoch: int, index: int) -> Iterator[Finding]:
        """Yields a finding if the last epoch had the order of the one before it."""
        if self.whole and self.before:
            self.odds = self.odds + math.lgamma(len(self.now) + 1) if self.now == self.before else 0.0
        if self.odds > SURE:
            yield Finding(
                "duplicated batch order",
                f"epoch {self.epoch} brought the same {len(self.now)} batches in the same order as the one before",
                "shuffle anew in each epoch: let the seed of the order depend on the epoch",
                0.9,
            )
        self.before = self.now if self.whole else []
        self.epoch, self.whole = epoch, index == 1  # a resumed run may begin in the middle of one
        self.now, self.seen, self.again = [], set(), 0

    def chooses(self, classes: int | None) -> bool:
        """Whether all targets are indices of these classes, and not always the same one."""
        return classes is not None and len(self.counts) <= classes and int(np.count_nonzero(self.counts)) > 1

    def floor(self, classes: int, smoothing: float) -> float:
        """The loss of the best constant guess: the entropy of the (smoothed) target frequencies."""
        shares = np.pad(self.counts / self.counts.sum(), (0, classes - len(self.counts)))
        shares = (1 - smoothing) * shares + smoothing / classes
        shares = shares[shares > 0]
        return float(-(shares * np.log(shares)).sum())


def counted(targets: Tensor) -> np.ndarray:
    """The count of each class among the targets, with shares of mixed ones; empty where targets are no classes."""
    if targets.dtype == torch.int64:
        return np.bincount(targets[targets != IGNORE].flatten().cpu().clamp(min=0).numpy())
    mixed = targets.dim() == 2 and targets.min() >= 0 and (targets.sum(1) - 1).abs().max() < 1e-3
    return targets.sum(0).double().cpu().numpy() if mixed else np.zeros(0)


def fingerprint(batch: Batch) -> Hashable:
    """A hash of a batch: of its examples' numbers if these differ, else of a part of its tensors."""
    if len(batch.examples) > 1 and len(set(batch.examples)) == len(batch.examples):
        return hash(batch.examples)
    return hash(tuple(excerpt(x) for x in (*batch.inputs.values(), batch.targets)))


def excerpt(x: Tensor, most: int = 512) -> bytes:
    """At most about `most` evenly spaced numbers of a tensor."""
    flat = x.detach().flatten()
    return flat[:: max(1, len(flat) // most)].cpu().numpy().tobytes()


def same_as_input(batch: Batch) -> Iterator[Finding]:
    """Yields a finding if targets are the tokens read at the same position, not those after them."""
    ids = batch.inputs.get("target", batch.inputs.get("ids"))
    if ids is None or ids.shape != batch.targets.shape or batch.targets.dtype != torch.int64 or ids.shape[1] < 2:
        return
    real = batch.targets != IGNORE
    here = (ids == batch.targets)[real].float().mean().item()
    after = (ids[:, 1:] == batch.targets[:, :-1])[real[:, :-1]].float().mean().item()
    if here > 0.9 and after < 0.5:
        yield Finding(
            "targets not shifted",
            f"{here:.0%} of the targets are the token read at the same position, {after:.0%} the one after it",
            "shift the targets: position t reads token t and predicts token t + 1",
            0.95,
        )
