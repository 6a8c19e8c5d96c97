"""Decoding of CTC, against a search through all paths."""

from collections import defaultdict
from itertools import product

import numpy as np
import pytest

from regard.decode.ctc import align, beam_search, collapse, greedy


def random_log_probs(vectors, tokens, seed):
    logits = np.random.default_rng(seed).normal(size=(vectors, tokens)) * 1.5
    return logits - np.log(np.exp(logits).sum(1, keepdims=True))


def every_text(log_probs, blank):
    """The probability of each text, by summing over all paths."""
    sums = defaultdict(float)
    for path in product(range(log_probs.shape[1]), repeat=len(log_probs)):
        value = np.exp(sum(row[token] for row, token in zip(log_probs, path, strict=True)))
        sums[tuple(collapse(np.array(path), blank)[0])] += value
    return sums


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("blank", [0, 2])
def test_beam_search_finds_what_a_search_through_everything_finds(seed, blank):
    log_probs = random_log_probs(6, 3, seed)
    wanted = sorted(every_text(log_probs, blank).items(), key=lambda item: -item[1])
    found = beam_search(log_probs, blank, 200)
    assert [ids for ids, _ in found[:5]] == [ids for ids, _ in wanted[:5]]
    assert np.allclose([np.exp(value) for _, value in found[:5]], [value for _, value in wanted[:5]])
    assert sum(np.exp(value) for _, value in found) == pytest.approx(1.0)


def test_a_beam_may_be_better_than_the_best_path():
    log_probs = np.log(np.array([[0.6, 0.4], [0.6, 0.4]]))  # blank blank .36, but "1" by three paths .64
    assert greedy(log_probs, 0)[0] == ()
    assert beam_search(log_probs, 0, 4)[0][0] == (1,)
    assert beam_search(log_probs, 0, 4)[0][1] == pytest.approx(np.log(0.64))


def test_repetitions_merge_unless_blank_is_between():
    assert collapse(np.array([0, 3, 3, 0, 3, 4, 4, 0]), 0) == ([3, 3, 4], [1, 4, 5])
    assert collapse(np.array([], dtype=int), 0) == ([], [])
    assert collapse(np.array([2, 2, 1]), 2) == ([1], [2])


@pytest.mark.parametrize("seed", range(6))
def test_the_alignment_is_the_best_path_of_its_text(seed):
    log_probs, ids = random_log_probs(7, 4, seed), (1, 1, 3)
    paths = [p for p in product(range(4), repeat=7) if tuple(collapse(np.array(p), 0)[0]) == ids]
    best = max(paths, key=lambda path: sum(row[token] for row, token in zip(log_probs, path, strict=True)))
    assert align(log_probs, ids, 0) == collapse(np.array(best), 0)[1]


def test_what_cannot_be_spelled_has_no_alignment():
    with pytest.raises(ValueError, match="2 vectors cannot spell 2 tokens"):
        align(random_log_probs(2, 3, 0), (1, 1), 0)
    assert align(random_log_probs(2, 3, 0), (), 0) == []
