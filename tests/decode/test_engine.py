"""The engine writes what the plain model would write alone, whoever else is there and however memory is cut."""

import numpy as np
import pytest
import torch

from regard.decode.requests import Request
from regard.native import compiled
from regard.native.quantized import quantize
from tests.decode.texts import (
    BY_PAGES,
    CASES,
    SPARSE,
    build_model,
    check_empty,
    check_equal,
    check_near,
    engine_for,
    model_of,
    requests_for,
    wanted_of,
)

needs_kernels = pytest.mark.skipif(not compiled.available(), reason=compiled.why_not())


def run_all(engine):
    while engine.running or engine.waiting:
        engine.step()


def beginning(one, max_len):
    """A plain request that reads the same and begins like another."""
    return Request(prompt=[*one.prompt[:-1], 1], inputs=one.inputs, max_len=max_len)


def forget(engine):
    """As if nothing had been read before."""
    engine.pages.clear()
    getattr(engine.runner, "snapshots", {}).clear()


def count_rows(engine):
    """Tokens that the model reads from now on, by step."""
    rows, run = [], engine.runner.run

    def counted(plan, tables):
        rows.append(sum(count * len(job.pending) for job, count in plan))
        return run(plan, tables)

    engine.runner.run = counted
    return rows


def kind_of(job):
    return "beams" if job.request.beams > 1 else "drawn" if job.request.sampling else "greedy"


def watch_waiting(engine):
    """The kinds of requests that are put aside in the middle of their texts, because memory runs out."""
    suspend, kinds = engine.scheduler.suspend, set()

    def suspended(job):
        if job.ticket.ids or job.searching:
            kinds.add(kind_of(job))
        suspend(job)

    engine.scheduler.suspend = suspended
    return kinds


def interrupt(engine):
    """All have to wait. Returns their kinds."""
    jobs = engine.running[::-1]
    for job in jobs:
        type(engine.scheduler).suspend(engine.scheduler, job)
    return {kind_of(job) for job in jobs}


def pages_needed(asked, page):
    return max(r.beams * -(-(len(r.prompt) + r.max_len) // page) + -(-r.source_length // page) for r in asked)


# Ways to serve the same requests


def alone(model, asked, fast, page=16):
    """One after the other."""
    engine = engine_for(model, fast=fast, page=page, max_batch=4)
    tickets = []
    for request in asked:
        forget(engine)
        tickets += engine.serve([request])
    return engine, tickets


def together(model, asked, fast, page=4):
    """In any order, among others, while prompts are read in pieces."""
    engine = engine_for(model, fast=fast, page=page, max_batch=9, chunk=5)
    random = np.random.default_rng(8)
    every = [*asked, *requests_for(model, seed=1)]
    tickets = {}
    for number in random.permutation(len(every)):
        tickets[number] = engine.submit(every[number])
        for _ in range(random.integers(3)):
            engine.step()
    run_all(engine)
    assert all(ticket.done for ticket in tickets.values())
    return engine, [tickets[number] for number in range(len(asked))]


def tiny_pages(model, asked, fast):
    """A page holds one position."""
    engine = engine_for(model, fast=fast, page=1, max_batch=20)
    return engine, engine.serve(asked)


def after_others(model, asked, fast, page=2):
    """All begin as texts that were there before; what those had read is not read again."""
    engine = engine_for(model, fast=fast, page=page, max_batch=20)
    engine.serve(beginning(request, max_len=2) for request in asked)
    rows = count_rows(engine)
    tickets = [engine.submit(request) for request in asked]
    engine.step()
    if engine.runner.paged or engine.runner.constant:
        assert len(asked) <= rows[0] <= 2 * len(asked) < sum(len(request.prompt) for request in asked)
    run_all(engine)
    return engine, tickets


def after_waiting(model, asked, fast, page=2):
    """Memory for the largest alone. Others wait, some in the middle of their texts; at times all have to."""
    engine = engine_for(model, fast=fast, page=page, pages=pages_needed(asked, page), max_batch=20)
    by_memory, kinds = watch_waiting(engine), set()
    tickets = [engine.submit(request) for request in [*asked, *asked]]
    while engine.running or engine.waiting:
        engine.step()
        if len(kinds) < 3:
            kinds |= interrupt(engine)
    assert by_memory and len(kinds) == 3
    return engine, tickets[len(asked) :]


def crowded(model, asked, fast):
    """All of that at once."""
    engine = engine_for(model, fast=fast, page=2, pages=pages_needed(asked, 2), max_batch=20, chunk=40)
    engine.serve(beginning(one, max_len=1) for one in asked[:2])
    tickets = []
    for number, request in enumerate(asked):
        tickets.append(engine.submit(request))
        if number in (0, 4):
            engine.step()
    interrupt(engine)
    run_all(engine)
    return engine, tickets


SINGLE_WAYS = [alone, together, tiny_pages, after_others, after_waiting]
EACH_WAY = [(case, way) for case in ("gpt-3", "transformer-4", "t5-0", "gru-0") for way in SINGLE_WAYS]
RARE = [SPARSE, "transformer-6", "seq2seq-2", "seq2seq-4", "rnn-1", "gru-1"]
"""Cases that are like others, or slow."""
ALL_WAYS = [
    *((case, crowded) for case in RARE),
    *((case, way) for case in CASES for way in SINGLE_WAYS if (case, way) not in EACH_WAY),
]


def name_of(value):
    return getattr(value, "__name__", value)


def check_way(case, way):
    asked, wanted = wanted_of(case)
    engine, tickets = way(model_of(case), asked, False)
    assert engine.runner.paged == (case in BY_PAGES)
    check_equal(asked, tickets, wanted)
    check_empty(engine)


@pytest.mark.parametrize("case", [case for case in CASES if case not in RARE])
def test_tokens_are_those_of_the_plain_model(case):
    check_way(case, crowded)


@pytest.mark.parametrize("case, way", EACH_WAY, ids=name_of)
def test_tokens_are_the_same_either_way(case, way):
    check_way(case, way)


@pytest.mark.slow
@pytest.mark.parametrize("case, way", ALL_WAYS, ids=name_of)
def test_tokens_are_the_same_in_every_way(case, way):
    check_way(case, way)


@needs_kernels
@pytest.mark.parametrize("case", BY_PAGES)
def test_kernels_write_the_same_but_for_near_ties(case, way=crowded):
    asked, wanted = wanted_of(case)
    engine, tickets = way(model_of(case, torch.float32), asked, True)
    assert engine.runner.fast
    check_near(case, asked, tickets, wanted)
    check_empty(engine)


@needs_kernels
@pytest.mark.parametrize(
    "case, kind",
    [
        *((case, "float") for case in ("gpt-0", "gpt-3", "transformer-4", "t5-1")),
        *((case, kind) for case in ("gpt-3", "transformer-4") for kind in ("int8", "int4")),
    ],
)
def test_no_bit_depends_on_who_else_is_there(case, kind):
    model = build_model(case)
    if kind != "float":
        quantize(model, kind)
    asked = requests_for(model)
    _, wanted = alone(model, asked, True, page=2)
    for way in (together, after_others, after_waiting):
        _, tickets = way(model, asked, True, page=2)
        for request, ticket, want in zip(asked, tickets, wanted, strict=True):
            assert (ticket.ids, ticket.log_probs) == (want.ids, want.log_probs), (way, request)
            assert ticket.result() == want.result(), (way, request)
