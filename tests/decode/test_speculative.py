"""Guesses change how soon a text is there, never the text."""

from collections import Counter

import numpy as np
import pytest
import torch

from regard.decode import Sampling
from regard.decode.engine import Engine
from regard.decode.requests import Request
from regard.decode.speculative import Draft, Lookup
from regard.models import build, preset
from regard.native.compiled import available

WORDS = 29


def model(seed=0, **changes):
    torch.manual_seed(seed)
    sizes = dict(dim=24, heads=2, ffn_dim=40, depth=2, vocab_size=WORDS, max_len=128) | changes
    return build("gpt", preset("gpt", "tiny", **sizes)).eval()


def copying(seed, count):
    """Prompts that say the same thing twice and begin it a third time."""
    noise = np.random.default_rng(seed)
    for _ in range(count):
        phrase = noise.integers(WORDS, size=noise.integers(3, 9)).tolist()
        yield [*phrase, *phrase, *phrase[: noise.integers(1, len(phrase) + 1)]]


def test_lookup_finds_the_latest_place_of_the_longest_ending():
    assert Lookup(count=3)([1, 2, 3, 4, 9, 2, 3, 5, 6, 1, 2, 3]) == [4, 9, 2], "three words before two"
    assert Lookup(count=2)([7, 8, 1, 7, 8, 2, 7, 8]) == [2, 7], "the latest of equals"
    assert Lookup()([1, 2, 3]) == [] == Lookup()([5])
    assert Lookup(count=4, shortest=1)([3, 3]) == [3]
    with pytest.raises(ValueError, match="count=0"):
        Lookup(0)


@pytest.mark.parametrize("fast", [False, pytest.param(True, marks=pytest.mark.skipif(not available(), reason="none"))])
def test_greedy_texts_are_the_same(fast):
    """For 200 prompts with compiled kernels, in which a row is the same to the last bit in any company; for fewer with
    PyTorch, in float64."""
    large, small, count = (model(), model(depth=1), 200) if fast else (model().double(), model(depth=1).double(), 12)
    prompts = list(copying(1, count))
    how = dict(max_len=24 if fast else 10, ends=(3,))
    wanted = [ticket.ids for ticket in Engine(large, fast=fast).serve(Request(prompt=p, **how) for p in prompts)]
    assert len({tuple(ids) for ids in wanted}) > count // 4
    for propose, some in ((Lookup(shortest=1), count), (Draft(small, fast=fast), count // 8)):
        engine = Engine(large, fast=fast, page=4)
        found = engine.serve(Request(prompt=p, propose=propose, **how) for p in prompts[:some])
        assert [ticket.ids for ticket in found] == wanted[:some]
        assert engine.pages.held == 0


def test_guesses_that_are_right_save_steps():
    """A model that always says the next letter: behind a prompt that did so, nearly all guesses are right."""
    large = model()
    with torch.no_grad():  # the head reads the embedding of the last token, turned by one
        large.embedding.weight.copy_(torch.eye(WORDS, 24) * 50)
        large.head.weight = torch.nn.Parameter(torch.roll(torch.eye(WORDS, 24), 1, dims=0))
        for name, weight in large.decoder.named_parameters():
            if "out." in name or "down." in name:
                weight.zero_()
    prompt, steps = [*range(20), *range(20), 0, 1], []
    engine = Engine(large)
    run = engine.runner.run
    engine.runner.run = lambda *args: (steps.append(1), run(*args))[1]
    (ticket,) = engine.serve([Request(prompt=prompt, max_len=18, propose=Lookup(count=8))])
    assert ticket.ids == list(range(2, 20)), "what followed 0 1 before"
    assert len(steps) <= 4


def test_drawn_texts_have_the_distribution_of_the_model():
    """A chi-square test over all pairs of tokens, on 2,000 texts with guesses, some right and some wrong."""
    small = model(vocab_size=7, dim=16, depth=1)
    sampling = Sampling(temperature=1.7, top_p=0.97)
    engine = Engine(small, max_batch=256)
    prompt, count = [1, 2, 3, 1, 2], 2000

    def pairs(propose, seed):
        how = dict(prompt=prompt, max_len=2, sampling=Sampling(temperature=1.7, top_p=0.97, seed=seed))
        requests = (Request(row=row, propose=propose, **how) for row in range(count))
        return Counter(tuple(ticket.ids) for ticket in engine.serve(requests))

    from regard.decode import filter_logits

    def chances(ids):
        with torch.no_grad():
            scores = small(torch.tensor([ids]))[:, -1]
        return filter_logits(scores.log_softmax(-1), sampling).double().softmax(-1)[0].numpy()

    first = chances(prompt)
    expected = np.concatenate([first[a] * chances([*prompt, a]) for a in range(7)])
    told = expected > 0
    for seed, propose in enumerate([None, lambda ids: [int(first.argmax()), 4], lambda ids: [int(first.argmin())] * 3]):
        found = pairs(propose, seed)
        observed = np.array([found[a, b] for a in range(7) for b in range(7)])
        assert observed[~told].sum() == 0, "what the filters remove is never drawn"
        kept = expected[told] * count
        chi = ((observed[told] - kept) ** 2 / kept).sum()
        freedom = told.sum() - 1
        assert chi < freedom + 4 * (2 * freedom) ** 0.5, f"guesses {seed}: {chi:.1f} for {freedom} degrees of freedom"


def test_guesses_need_a_model_that_scores_several_tokens_at_once():
    torch.manual_seed(0)
    lstm = build("lstm", preset("lstm", "tiny", vocab_size=WORDS, dim=8))
    with pytest.raises(ValueError, match="cannot verify guesses in one step; leave out propose"):
        Engine(lstm).submit(Request(prompt=[1], max_len=3, propose=Lookup()))
    with pytest.raises(ValueError, match="one beam"):
        Request(prompt=[1], max_len=3, beams=2, propose=Lookup())
