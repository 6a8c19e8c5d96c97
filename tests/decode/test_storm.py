"""Many requests at any time, some taken back: each is answered as if it were alone, and nothing is left behind."""

import gc
from pathlib import Path

import numpy as np
import pytest

from regard.decode import Sampling
from regard.decode.engine import Engine
from regard.decode.requests import Cancelled, Request
from regard.decode.speculative import Lookup
from regard.models import build, preset
from regard.native import compiled
from tests.decode.texts import check_empty, engine_for, source_of

WORDS = 31


def small_model(family):
    sizes = dict(dim=16, depth=1, vocab_size=WORDS, max_len=128, dropout=0.0)
    heads = {} if family in ("gru", "seq2seq") else dict(heads=2, ffn_dim=16)
    model = build(family, preset(family, "tiny", **sizes, **heads)).eval()
    # Where bits depend on the batch, near-ties must not.
    return model if heads and compiled.available() else model.double()


def some_requests(model, count, random):
    beginning = random.integers(WORDS, size=24).tolist()
    made = []
    for row in range(count):
        prompt = [*beginning[: random.integers(25)], *random.integers(WORDS, size=random.integers(1, 24)).tolist()]
        how = random.choice(["greedy", "drawn", "beams", "guesses"], p=[0.4, 0.3, 0.15, 0.15])
        given = dict(beams=int(random.integers(2, 5))) if how == "beams" else {}
        if how == "drawn" or (how == "guesses" and row % 2):
            given |= dict(sampling=Sampling(seed=5, temperature=0.9, top_p=0.95), row=row)
        if model.reads:
            given |= dict(inputs=source_of(prompt[: random.integers(1, 30)]))
        if how == "guesses" and hasattr(model, "parts"):
            given |= dict(propose=Lookup(3, shortest=1))
        made.append(Request(prompt=prompt, max_len=int(random.integers(1, 25)), ends=(5,), forbidden=(7,), **given))
    return made


def memory_used():
    """Bytes of this process in memory."""
    gc.collect()
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


def storm(engine, asked, random):
    """Requests come a few at a time; every tenth is taken back half way."""
    waiting, tickets = list(asked), []
    going_away = set(random.permutation(len(asked))[: len(asked) // 10].tolist())
    age: dict[int, int] = {}
    while waiting or engine.running or engine.waiting:
        for _ in range(min(len(waiting), random.integers(12))):
            tickets.append(engine.submit(waiting.pop(0)))
        for _ in range(random.integers(3)):
            engine.step()
            for number in [number for number in going_away if number < len(tickets)]:
                age[number] = age.get(number, 0) + bool(tickets[number].ids or engine.running)
                if age[number] > asked[number].max_len // 2:
                    engine.cancel(tickets[number])
                    going_away.discard(number)
    return tickets


STORMS = [("gpt", 150), ("transformer", 60), ("gru", 60)]
LONG_STORMS = [
    pytest.param(family, count, marks=pytest.mark.slow)
    for family, count in (("gpt", 1000), ("transformer", 300), ("gru", 300), ("seq2seq", 300))
]


@pytest.mark.parametrize("family, count", STORMS + LONG_STORMS)
def test_storm(family, count):
    model = small_model(family)
    engine = engine_for(model, fast=None, pages=200, max_batch=64, page=4, chunk=64)
    lone = Engine(model, max_batch=4, page=4)
    random = np.random.default_rng(3)
    storm(engine, some_requests(model, 60, random), random)
    before = memory_used()

    asked = some_requests(model, count, random)
    suspended, suspend = [], engine.scheduler.suspend
    engine.scheduler.suspend = lambda job: suspended.append(job) or suspend(job)
    most, step = [], engine.step
    engine.step = lambda: step() or most.append(sum(len(job.slots) for job in engine.running))
    tickets = storm(engine, asked, random)
    check_empty(engine)
    assert memory_used() < 1.05 * before
    assert suspended and max(most) >= (50 if family == "gpt" else 20)

    cancelled = 0
    for request, ticket in zip(asked, tickets, strict=True):
        lone.pages.clear()
        (want,) = lone.serve([request])
        if isinstance(ticket.error, Cancelled):
            cancelled += 1
            assert ticket.ids == want.ids[: len(ticket.ids)]
        else:
            assert ticket.ids == want.ids
            if getattr(lone.runner, "fast", False):
                assert ticket.result() == want.result()
            else:
                assert [one.ids for one in ticket.result()] == [one.ids for one in want.result()]
    assert count // 20 <= cancelled <= count // 10
