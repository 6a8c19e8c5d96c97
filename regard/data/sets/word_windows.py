"""Words with the words around them, for word vectors (Mikolov et al., 2013): frequent words are thinned out, windows
have random sizes, and noise words are drawn for each row."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, Literal

import numpy as np
import torch

from regard.data.sets.batches import IGNORE, Batch
from regard.data.sets.running_text import TextConfig

ROW = 64
"""Centre words of a row, which share their noise words."""
POWER = 0.75
"""Noise words are drawn by their frequency to this power."""
SEGMENT = 1 << 22
"""Words of a text that are thinned out at once."""
OUTSIDE = -1
"""The id of a position before the first or behind the last word."""


@dataclass(frozen=True, kw_only=True, slots=True)
class WordsConfig(TextConfig):
    """Where text comes from (nothing given: Python's documentation), its words, and what is predicted of them."""

    beside: ClassVar[tuple[str, ...]] = ("valid_text", "similarities", "analogies")
    reading: ClassVar[tuple[str, ...]] = ("lowercase", "window", "similarities", "analogies")
    decides: ClassVar[dict[str, str]] = TextConfig.decides | {"data.kind": "is word here; leave it out"}

    kind: Literal["bpe", "word", "char"] = "word"
    lowercase: bool = True
    vocab_size: int = 200_000
    """Most words of the vocabulary."""
    min_count: int = 5
    """Words that occur less often are left out."""
    window: int = 5
    """Most words between which a pair is learned; each centre word has a random window of 1 to so many."""
    negatives: int = 5
    """Noise words for each pair."""
    subsample: float = 1e-3
    """Share of the text above which a frequent word is thinned out; 0 keeps all."""
    similarities: tuple[str, ...] = ()
    """Files to score: two words and their similarity in each line, as WordSim-353 and SimLex-999."""
    analogies: tuple[str, ...] = ()
    """Files to score: four words in each line, the first to the second as the third to the last."""

    def __post_init__(self) -> None:
        TextConfig.__post_init__(self)
        for name in ("min_count", "window", "negatives"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name}={getattr(self, name)} must be at least 1")
        if self.subsample < 0:
            raise ValueError(f"subsample={self.subsample} must not be negative")


@dataclass(frozen=True)
class WordStream:
    """Endless batches of rows of centre words with their neighbours, thinned out and shuffled anew in each epoch.

    A batch has `ids` (B, window + ROW + window), OUTSIDE beyond the text, and `noise` (B, ROW); its targets are how far
    the window of each centre word reaches (B, ROW), IGNORE where there is no word.
    """

    ids: np.ndarray
    counts: np.ndarray
    """Frequency of each word, 0 for those that are left out."""
    window: int
    rows: int
    subsample: float = 0.0
    seed: int = 0

    @cached_property
    def kept(self) -> np.ndarray:
        """The probability that a word of each kind is kept: √(t/f) + t/f at a share f of the text, at most 1."""
        share = self.counts / max(1, self.counts.sum())
        if not self.subsample:
            return (share > 0).astype(np.float32)
        ratio = self.subsample / np.maximum(share, 1e-12)
        return np.where(share > 0, np.minimum(1.0, np.sqrt(ratio) + ratio), 0).astype(np.float32)

    @cached_property
    def noise(self) -> np.ndarray:
        """The cumulative distribution of noise words."""
        powers = np.cumsum(self.counts.astype(np.float64) ** POWER)
        return powers / powers[-1]

    def noise_words(self, shape: int | tuple[int, ...], rng: np.random.Generator) -> np.ndarray:
        """Noise words, drawn by their frequency to the power of POWER."""
        return np.searchsorted(self.noise, rng.random(shape), side="right")

    @property
    def segments(self) -> list[np.ndarray]:
        return [self.ids[start : start + SEGMENT] for start in range(0, len(self.ids), SEGMENT)]

    def count(self) -> int:
        """Batches of an epoch, as expected."""
        words = [float(self.kept[part].sum(dtype=np.float64)) for part in self.segments]
        return sum(max(1, round(number / (ROW * self.rows))) for number in words)

    def batches(self, epoch: int = 0, index: int = 0) -> Iterator[tuple[int, int, Batch]]:
        """(epoch, index of the next batch, batch), from a position on."""
        while True:
            position = 0
            for number in np.random.default_rng((self.seed, epoch)).permutation(len(self.segments)):
                rng = np.random.default_rng((self.seed, epoch, int(number)))
                part = self.segments[number]
                words = self.thinned(part, rng)
                starts = rng.permutation(np.arange(0, len(words), ROW))
                for first in range(0, len(starts), self.rows):
                    position += 1
                    if position > index:
                        yield epoch, position, self.batch(words, starts[first : first + self.rows], rng)
                    else:
                        self.batch(words, starts[first : first + self.rows], rng)  # the generator moves on
            epoch, index = epoch + 1, 0

    def thinned(self, words: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """The words that are kept."""
        return words[rng.random(len(words), dtype=np.float32) < self.kept[words]]

    def once(self) -> Iterator[Batch]:
        """The words of the text in order, thinned out in the same way every time: for validation."""
        rng = np.random.default_rng(self.seed)
        words = self.thinned(self.ids, rng)
        starts = np.arange(0, len(words), ROW)
        for first in range(0, len(starts), self.rows):
            yield self.batch(words, starts[first : first + self.rows], rng)

    def batch(self, words: np.ndarray, starts: np.ndarray, rng: np.random.Generator) -> Batch:
        """The rows that begin at certain words."""
        places = starts[:, None] + np.arange(-self.window, ROW + self.window)
        inside = (places >= 0) & (places < len(words))
        ids = np.where(inside, words[np.clip(places, 0, len(words) - 1)], OUTSIDE).astype(np.int64)
        reach = rng.integers(1, self.window + 1, (len(starts), ROW))
        reach[~inside[:, self.window : -self.window]] = IGNORE
        noise = self.noise_words((len(starts), ROW), rng)
        inputs = {"ids": torch.from_numpy(ids), "noise": torch.from_numpy(noise)}
        return Batch(inputs, torch.from_numpy(reach), tuple(starts.tolist()))
