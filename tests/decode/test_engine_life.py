"""What happens to requests on their way: taking back, waiting, refusals, errors, threads and streams."""

import asyncio
import threading

import numpy as np
import pytest
import torch

from regard.decode import Sampling
from regard.decode.engine import Engine
from regard.decode.requests import Cancelled, Full, Request
from tests.decode.test_engine import interrupt, run_all
from tests.decode.texts import (
    VOCAB,
    check_empty,
    check_equal,
    engine_for,
    model_of,
    requests_for,
    source_of,
    written_by,
)


def ask(*prompt, max_len=8, **how):
    return Request(prompt=prompt or (3, 1, 4), max_len=max_len, **how)


# Taking back, refusing, failing


@pytest.mark.parametrize("case", ["gpt-1", "transformer-0", "seq2seq-0", "lstm-0"])
def test_what_is_taken_back_is_free_at_once(case):
    engine = engine_for(model_of(case), page=2, max_batch=8)
    asked = requests_for(engine.model)
    tickets = [engine.submit(request) for request in asked]
    engine.step()
    engine.step()
    assert engine.waiting and engine.running
    for ticket in tickets[1:]:
        held, done = engine.pages.held, ticket.done
        runs = any(job.ticket is ticket for job in engine.running)
        engine.cancel(ticket)
        engine.cancel(ticket)
        assert ticket.done
        if not done:
            assert (engine.pages.held < held) == runs
            with pytest.raises(Cancelled, match="cancelled"):
                ticket.result()
    engine.wait(tickets[0])
    assert tickets[0].ids == written_by(engine.model, asked[0])[0]
    engine.cancel(tickets[0])
    assert tickets[0].result()
    check_empty(engine)


def test_a_listener_may_take_back():
    """Its own request, and another, in the middle of a step."""
    engine = engine_for(model_of("gpt-1"))
    others = [engine.submit(ask(5, 6)), engine.submit(ask(7, 8, beams=2))]

    def listen(ticket):
        if len(ticket.ids) == 3 and not ticket.done:
            for one in (ticket, *others):
                engine.cancel(one)

    mine, last = engine.submit(ask(1, 2), listen), engine.submit(ask(9))
    engine.wait(last)
    assert len(mine.ids) == 3 and isinstance(mine.error, Cancelled)
    assert all(isinstance(one.error, Cancelled) for one in others)
    assert last.ids == written_by(engine.model, last.request)[0]
    check_empty(engine)


def test_who_has_to_wait_goes_before_all_who_came_later():
    engine = engine_for(model_of("gpt-1"), max_batch=3)
    tickets = [engine.submit(ask(number)) for number in range(5)]
    engine.step()
    interrupt(engine)
    assert [job.ticket for job in engine.waiting] == tickets
    engine.step()
    assert [job.ticket for job in engine.running] == tickets[:3]
    engine.scheduler.suspend(engine.running[-1])
    assert [job.ticket for job in engine.waiting] == tickets[2:]
    run_all(engine)
    check_empty(engine)


def test_a_search_that_waits_goes_on_where_it_was():
    engine = engine_for(model_of("gpt-1"))
    request = ask(max_len=12, beams=3, ends=())
    (want,) = engine.serve([request])
    ticket = engine.submit(request)
    for _ in range(8):
        engine.step()
    interrupt(engine)
    for _ in range(4):
        assert not ticket.done
        engine.step()
    check_equal([request], [ticket], [want.result()])
    check_empty(engine)


def test_the_queue_is_bounded():
    engine = engine_for(model_of("gpt-1"), queue=3, max_batch=2)
    tickets = [engine.submit(ask(number)) for number in range(3)]
    with pytest.raises(Full, match="3 requests are waiting, as many as queue=3 allows"):
        engine.submit(ask())
    engine.step()
    tickets += [engine.submit(ask(number)) for number in range(2)]
    with pytest.raises(Full):
        engine.submit(ask())
    run_all(engine)
    assert all(ticket.result() for ticket in tickets)
    assert len(engine.serve(ask(number) for number in range(17))) == 17, "it hands them over as there is room"
    check_empty(engine)


REFUSED = [
    ("gpt-1", dict(prompt=[1] * 30, max_len=20), "needs 13 pages, there are 12; raise memory"),
    ("gpt-1", dict(prompt=[1] * 9, max_len=8, beams=3), "needs 15 pages, there are 12; raise memory"),
    (
        "transformer-0",
        dict(prompt=[1], max_len=20, inputs=source_of([1] * 29)),
        "needs 14 pages, there are 12; raise memory",
    ),
    ("gpt-1", dict(prompt=[1], max_len=2, beams=6), "beams=6 is more than max_batch=5"),
    ("gpt-0", dict(prompt=[1] * 30, max_len=9), "have 39 tokens, the model's longest is 37; shorten"),
    (
        "transformer-1",
        dict(prompt=[1], max_len=3, inputs=source_of([1] * 38)),
        "source has 38 tokens.*longest is 37; split",
    ),
    ("gpt-1", dict(prompt=[1, VOCAB], max_len=3), f"prompt has the token {VOCAB}, the vocabulary has {VOCAB}"),
    ("gpt-1", dict(prompt=[-1, 2], max_len=3), "prompt has the token -1"),
    ("gru-0", dict(prompt=[1], max_len=3, forbidden=(VOCAB,)), f"forbidden has the token {VOCAB}"),
    ("t5-0", dict(prompt=[1], max_len=3, inputs=source_of([2, 99])), "source has the token 99"),
    ("gpt-1", dict(prompt=[1], max_len=3, forbidden=tuple(range(VOCAB))), "all tokens are forbidden"),
    ("gpt-1", dict(prompt=[1], max_len=3, inputs=source_of([1])), "this model reads nothing, got source; set inputs"),
    ("transformer-0", dict(prompt=[1], max_len=3), "this model reads source, got nothing; set inputs"),
    ("seq2seq-0", dict(prompt=[1], max_len=3, inputs=source_of([])), "source is empty; give at least one token"),
    ("gru-0", dict(prompt=[1], max_len=3, propose=lambda ids: [1]), "cannot verify guesses in one step"),
]


@pytest.mark.parametrize("case, request_, message", REFUSED, ids=range(len(REFUSED)))
def test_what_can_never_be_served_is_refused_and_nobody_notices(case, request_, message):
    engine = engine_for(model_of(case), page=4, pages=12, max_batch=5)
    source = dict(inputs=source_of([1, 2])) if engine.model.reads else {}
    running = engine.submit(ask(1, **source))
    engine.step()
    with pytest.raises(ValueError, match=message):
        engine.submit(Request(**request_))
    assert engine.wait(running)
    check_empty(engine)


@pytest.mark.parametrize(
    "given, message",
    [
        (dict(prompt=[], max_len=3), "the prompt has no tokens"),
        (dict(prompt=[1], max_len=0), "max_len=0 must be at least 1"),
        (dict(prompt=[1], max_len=3, beams=2, n_best=3), "n_best=3 is not between 1 and beams=2"),
        (dict(prompt=[1], max_len=3, beams=2, sampling=Sampling()), "beam search is deterministic"),
    ],
)
def test_requests_that_mean_nothing(given, message):
    with pytest.raises(ValueError, match=message):
        Request(**given)


def test_sizes_that_mean_nothing():
    for name in ("max_batch", "page", "chunk", "queue"):
        with pytest.raises(ValueError, match=f"{name}=0 must be at least 1"):
            Engine(model_of("gpt-1"), **{name: 0})
    with pytest.raises(ValueError, match="no compiled kernels for this model: GRU"):
        Engine(model_of("gru-0", torch.float32), fast=True)


def test_an_empty_text_and_a_prompt_as_long_as_memory():
    engine = engine_for(model_of("gpt-1"), page=4, pages=4)
    assert engine.wait(engine.submit(ask(max_len=1, force_end=True)))[0].ids == []
    tickets = engine.serve([ask(*[2] * 15, max_len=1), ask(*[2] * 8, max_len=8), ask(1, 2, beams=2, max_len=6)])
    assert [len(ticket.ids) for ticket in tickets[:2]] == [1, 8]
    check_empty(engine)


def fail_at(engine, number, error):
    """The runner breaks once."""
    run, calls = engine.runner.run, []

    def broken(plan, tables):
        calls.append(plan)
        if len(calls) == number:
            raise error
        return run(plan, tables)

    engine.runner.run = broken


@pytest.mark.parametrize("case", ["gpt-1", "transformer-0", "gru-0"])
def test_an_error_in_a_step_ends_the_running_and_nothing_else(case):
    engine = engine_for(model_of(case), page=2, max_batch=8)
    asked = requests_for(engine.model)
    early = engine.serve([asked[0]])
    fail_at(engine, 3, RuntimeError("broken"))
    told = []
    tickets = [engine.submit(request, lambda ticket: told.append(ticket) if ticket.done else None) for request in asked]
    with pytest.raises(RuntimeError, match="broken"):
        run_all(engine)
    failed = [ticket for ticket in tickets if ticket.error]
    waiting = [ticket for ticket in tickets if not ticket.done]
    assert failed and waiting and set(map(id, failed)) <= set(map(id, told))
    assert not engine.running and engine.pages.held == 0
    with pytest.raises(RuntimeError, match="broken"):
        engine.wait(failed[0])
    run_all(engine)
    again = engine.serve(asked)
    for ticket, want in zip(tickets, again, strict=True):
        assert ticket.error or [one.ids for one in ticket.result()] == [one.ids for one in want.result()]
    assert early[0].ids == again[0].ids
    check_empty(engine)


def test_listeners_that_fail_leave_nothing_behind():
    """Their own request ends with what went wrong, and nobody else's."""
    engine = engine_for(model_of("gpt-1"))

    def fail(ticket):
        raise OSError("the pipe is gone")

    others = [engine.submit(ask(3, max_len=1)), engine.submit(ask(4, max_len=9))]
    tickets = [engine.submit(ask(number), fail) for number in range(3)]
    engine.step()
    assert all(isinstance(ticket.error, OSError) for ticket in tickets)
    assert [len(engine.wait(other)[0].ids) for other in others] == [1, 9], "nobody else's text is lost"
    check_empty(engine)
    assert engine.serve([ask()])


def test_ctrl_c_frees_everything():
    engine = engine_for(model_of("gpt-1"), max_batch=3)

    def interrupt(*_):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        engine.serve((ask(number, max_len=4 + number) for number in range(20)), each=interrupt)
    check_empty(engine)
    fail_at(engine, 3, KeyboardInterrupt())
    with pytest.raises(KeyboardInterrupt):
        engine.serve(ask(number, beams=1 + number % 3) for number in range(20))
    check_empty(engine)
    ticket = engine.submit(ask(), interrupt)
    with pytest.raises(KeyboardInterrupt):
        engine.wait(ticket)
    check_empty(engine)
    assert engine.serve([ask()])


def test_requests_that_come_too_late_are_refused_with_the_others_taken_back():
    """The sixth is impossible: those before it give back what they hold."""
    engine = engine_for(model_of("gpt-1"), max_batch=3)
    with pytest.raises(ValueError, match="vocabulary"):
        engine.serve(ask(number if number < 5 else VOCAB) for number in range(9))
    check_empty(engine)


# Threads and streams


def test_threads_wait_side_by_side():
    engine = engine_for(model_of("gpt-1"), max_batch=4, page=2)
    asked = requests_for(engine.model)
    wanted = [ticket.result() for ticket in engine_for(engine.model, page=2).serve(asked)]
    found: dict[int, list] = {}

    def work(first):
        for number in range(first, len(asked), 2):
            found[number] = engine.wait(engine.submit(asked[number]))

    threads = [threading.Thread(target=work, args=(first,)) for first in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=240)
    for number, want in enumerate(wanted):
        assert [one.ids for one in found[number]] == [one.ids for one in want]
    check_empty(engine)


def test_write_yields_tokens_and_may_be_left():
    engine = engine_for(model_of("gpt-1"))
    ids, log_probs = written_by(engine.model, ask())
    tokens = list(engine.write(ask()))
    assert [token.id for token in tokens] == ids
    np.testing.assert_allclose([token.log_prob for token in tokens], log_probs, atol=1e-9)
    *_, ticket = engine.watch(ask())
    assert ticket.done and ticket.ids == ids
    writing = engine.write(ask())
    assert next(writing).id == ids[0] and engine.pages.held
    writing.close()
    check_empty(engine)


def test_streams_side_by_side_and_one_is_left():
    engine = engine_for(model_of("gpt-1"), max_batch=4)
    asked = [ask(number, max_len=5 + 3 * number) for number in range(6)]

    async def all_of(request):
        return [token.id async for token in engine.stream(request)]

    async def some_of(request):
        stream = engine.stream(request)
        ids = [(await anext(stream)).id for _ in range(3)]
        await stream.aclose()
        assert not any(job.request is request for job in (*engine.running, *engine.waiting))
        return ids

    async def work():
        left = some_of(ask(9, max_len=2000))
        return await asyncio.wait_for(asyncio.gather(*map(all_of, asked), left), timeout=240)

    *found, left = asyncio.run(work())
    assert found == [written_by(engine.model, request)[0] for request in asked]
    assert left == written_by(engine.model, ask(9, max_len=3))[0]
    check_empty(engine)


def test_streams_that_are_cancelled_or_break_leave_the_engine_usable():
    engine = engine_for(model_of("gpt-1"))

    async def all_of(request):
        return [token.id async for token in engine.stream(request)]

    async def cancelled():
        task = asyncio.create_task(all_of(ask(9, max_len=2000)))
        while not engine.running:
            await asyncio.sleep(0.001)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(asyncio.wait_for(cancelled(), timeout=240))
    check_empty(engine)
    fail_at(engine, 2, RuntimeError("broken"))

    async def broken():
        with pytest.raises(RuntimeError, match="broken"):
            await all_of(ask())
        return await all_of(ask())

    assert asyncio.run(asyncio.wait_for(broken(), timeout=240)) == written_by(engine.model, ask())[0]
    check_empty(engine)
