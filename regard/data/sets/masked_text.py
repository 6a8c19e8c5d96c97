"""Text with masked words, which an encoder predicts (Devlin et al., 2019)."""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from regard.data.sets.batches import IGNORE
from regard.data.sets.running_text import TextConfig


@dataclass(frozen=True, kw_only=True, slots=True)
class MaskedConfig(TextConfig):
    """Where text comes from, and how much of it is masked."""

    reading: ClassVar[tuple[str, ...]] = ("lowercase", "max_len", "rate", "whole_words")

    rate: float = 0.15
    """Share of the tokens that are predicted."""
    whole_words: bool = True
    """Mask all tokens of a word, or none."""
    next_sentence: bool = True
    """Also predict whether the second of two stretches of text follows the first."""
    max_len: int = 128
    """Tokens of an example, with both stretches."""

    def __post_init__(self) -> None:
        TextConfig.__post_init__(self)
        if not 0 < self.rate < 1:
            raise ValueError(f"rate={self.rate} is not between 0 and 1")
        if self.max_len < 8:
            raise ValueError(f"max_len={self.max_len} is too short for two stretches of text; use 8 or more")


SENTENCE_END = re.compile(r"(?<=[.!?:])\s+|(?<=[。！？])|\n")


def sentences(text: str) -> list[str]:
    """The sentences of a text, cut behind full stops and at the ends of lines; white space is joined."""
    return [joined for part in SENTENCE_END.split(text) if (joined := " ".join(part.split()))]


def stretches(texts: Sequence[str], lengths: Sequence[int], room: int) -> list[str]:
    """Neighbouring sentences joined into stretches of at most `room` tokens."""
    groups: list[list[str]] = [[]]
    used = 0
    for text, length in zip(texts, lengths, strict=True):
        if groups[-1] and used + length > room:
            groups.append([])
            used = 0
        groups[-1].append(text)
        used += length
    return [" ".join(group) for group in groups if group]


def pair_up(parts: Sequence[str], rng: np.random.Generator) -> list[tuple[str, str, int]]:
    """Each stretch paired with the next (0) or, half of the time, with a random other one (1)."""
    pairs = []
    for i in range(len(parts) - 1):
        other = int(rng.integers(len(parts)))
        far = rng.random() < 0.5 and other != i + 1
        pairs.append((parts[i], parts[other if far else i + 1], int(far)))
    return pairs


def hide(
    ids: Sequence[int],
    words: Sequence[tuple[int, int] | None],
    rng: np.random.Generator,
    *,
    rate: float,
    mask: int,
    ordinary: np.ndarray,
) -> tuple[list[int], list[int]]:
    """Ids with some masked, and the targets: the true id there, IGNORE elsewhere.

    `words` are the words that tokens belong to (None: a special token, never masked). Of the chosen words 80 % become
    the mask token, 10 % a random token of `ordinary`, and 10 % stay, so that every token must be understood.
    """
    sizes = Counter(word for word in words if word is not None)
    known, goal, covered = list(sizes), max(1, round(rate * sizes.total())), 0
    chosen: set[tuple[int, int]] = set()
    for i in rng.permutation(len(known)):
        if covered >= goal:
            break
        chosen.add(known[i])
        covered += sizes[known[i]]
    fate = {word: rng.random() for word in sorted(chosen)}
    shown, targets = list(ids), [IGNORE] * len(ids)
    for i, word in enumerate(words):
        if word is not None and word in chosen:
            targets[i] = ids[i]
            if fate[word] < 0.8:
                shown[i] = mask
            elif fate[word] < 0.9:
                shown[i] = int(ordinary[rng.integers(len(ordinary))])
    return shown, targets
