"""Decoding of CTC: from log-probabilities of tokens and blank for every vector to ids."""

import math
from collections import defaultdict

import numpy as np
from jaxtyping import Float, Int

Log = Float[np.ndarray, "T V"]
Hypothesis = tuple[tuple[int, ...], float]
"""Ids and their log-probability."""


def collapse(path: Int[np.ndarray, "T"], blank: int) -> tuple[list[int], list[int]]:
    """The ids of a path, repetitions merged and blanks left out, and the place where each begins."""
    starts = np.flatnonzero((path != blank) & (path != np.concatenate([[blank], path[:-1]])))
    return path[starts].tolist(), starts.tolist()


def greedy(log_probs: Log, blank: int) -> Hypothesis:
    """The ids of the most probable path, and its log-probability."""
    return tuple(collapse(log_probs.argmax(1), blank)[0]), float(log_probs.max(1).sum())


def beam_search(log_probs: Log, blank: int, beams: int, *, tokens: int = 32) -> list[Hypothesis]:
    """The most probable texts by prefix beam search, best first: all alignments of a prefix are summed.

    Of each vector only the most probable `tokens` are tried.
    """
    ends: dict[tuple[int, ...], tuple[float, float]] = {(): (0.0, -math.inf)}  # ending in blank, in a token
    for row in log_probs:
        likely = np.argpartition(-row, tokens - 1)[:tokens] if tokens < len(row) else np.arange(len(row))
        new: dict[tuple[int, ...], list[float]] = defaultdict(lambda: [-math.inf, -math.inf])
        chosen = [(int(token), float(row[token])) for token in likely if token != blank]
        for prefix, (silent, spoken) in ends.items():
            both = add(silent, spoken)
            same = new[prefix]
            same[0] = add(same[0], both + float(row[blank]))
            if prefix:
                same[1] = add(same[1], spoken + float(row[prefix[-1]]))
            for token, value in chosen:
                longer = new[(*prefix, token)]
                longer[1] = add(longer[1], value + (silent if prefix and token == prefix[-1] else both))
        best = sorted(new.items(), key=lambda item: -add(*item[1]))[:beams]
        ends = {prefix: (silent, spoken) for prefix, (silent, spoken) in best}
    return [(prefix, add(*pair)) for prefix, pair in ends.items()]


def add(a: float, b: float) -> float:
    """log(eᵃ + eᵇ)."""
    high, low = (a, b) if a > b else (b, a)
    return high if low == -math.inf else high + math.log1p(math.exp(low - high))


def align(log_probs: Log, ids: tuple[int, ...], blank: int) -> list[int]:
    """The place where each id begins on the most probable path that spells these ids (Viterbi)."""
    if not ids:
        return []
    spelled = np.full(2 * len(ids) + 1, blank)
    spelled[1::2] = ids
    skips = np.zeros(len(spelled), dtype=bool)  # a blank between two different tokens may be left out
    skips[3::2] = spelled[3::2] != spelled[1:-2:2]
    score = np.full(len(spelled), -np.inf)
    score[:2] = log_probs[0, spelled[:2]]
    back = np.zeros((len(log_probs), len(spelled)), dtype=np.int8)
    for time in range(1, len(log_probs)):
        options = np.full((3, len(spelled)), -np.inf)
        options[0] = score
        options[1, 1:] = score[:-1]
        options[2, 2:] = np.where(skips[2:], score[:-2], -np.inf)
        back[time] = options.argmax(0)
        score = options.max(0) + log_probs[time, spelled]
    state = len(spelled) - 1 - int(score[-2] > score[-1])
    if not np.isfinite(score[state]):
        raise ValueError(f"{len(log_probs)} vectors cannot spell {len(ids)} tokens; use a smaller model.subsampling")
    starts = [0] * len(ids)
    for time in range(len(log_probs) - 1, -1, -1):
        if state % 2:
            starts[state // 2] = time
        state -= int(back[time, state])
    return starts
