"""Lecture 000: tokens, comparisons, order."""

from collections import Counter

import torch

from regard.doctor.laws import close, differs
from regard.nn.attention import Attention, AttentionConfig
from regard.nn.kernels import Full
from regard.nn.positions import Position, Sinusoidal

PHRASE = "The transformer generalized to unseen words."


def test_the_phrase_has_44_characters():
    assert len(PHRASE) == 44


def test_frequent_pairs_are_not_from_this_phrase_alone():
    """th, ed and un occur once in it: such merges come from a corpus. The pairs that occur twice are others."""
    text = PHRASE.lower().rstrip(".").replace(" ", "_")
    counts = Counter(a + b for a, b in zip(text, text[1:], strict=False))
    assert [counts[pair] for pair in ("th", "ed", "un")] == [1, 1, 1]
    assert {pair for pair, count in counts.items() if count == 2} == {"_t", "ra", "ns", "or", "er", "en"}
    assert max(counts.values()) == 2


def test_comparisons_grow_with_the_square():
    comparisons = {}
    for n in (100, 200):
        q, k, v = torch.randn(3, 1, 1, n, 2)
        comparisons[n] = Full(heads=1, head_dim=2)(q, k, v, weights=True)[1].numel()
    assert comparisons == {100: 10_000, 200: 40_000}


def test_self_attention_alone_does_not_know_the_order():
    """ "dog bites man" and "man bites dog": the same three vectors, in another order, unless positions are added."""
    layer = Attention(AttentionConfig(dim=12, heads=3)).double()
    words = torch.randn(1, 3, 12, dtype=torch.float64)
    swapped = words[:, [2, 1, 0]]
    sizes = dict(dim=12, heads=3, head_dim=4, max_len=5)
    nowhere, somewhere = Position(**sizes), Sinusoidal(**sizes)
    close(layer(nowhere.embed(swapped)), layer(nowhere.embed(words))[:, [2, 1, 0]], "without positions")
    differs(layer(somewhere.embed(swapped)), layer(somewhere.embed(words))[:, [2, 1, 0]], "with positions")
