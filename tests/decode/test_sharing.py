"""What texts have in common is read once and held once, and nobody notices."""

import numpy as np
import pytest
import torch

from regard.native.plain import Plain
from regard.native.program import Batch
from regard.native.record import record_decoder
from tests.decode.test_engine import count_rows
from tests.decode.test_engine_life import ask
from tests.decode.texts import VOCAB, check_empty, engine_for, model_of, requests_for, source_of, written_by


@pytest.mark.parametrize("case", ["gpt-1", "gru-0", "gpt+linear:chunk=4"])
def test_a_shared_beginning_is_read_once(case):
    engine = engine_for(model_of(case), chunk=300)
    beginning = np.random.default_rng(0).integers(VOCAB, size=1000).tolist()
    rows = count_rows(engine)
    engine.serve([ask(*beginning, 1, 2, 3, max_len=2)])
    first = sum(rows)
    assert first == 1004
    for others in ([4], [5] * 30, [1, 2, 3, 4]):
        rows.clear()
        (ticket,) = engine.serve([ask(*beginning, *others, max_len=2)])
        assert 2 <= sum(rows) <= 0.15 * first
    ids, log_probs = written_by(model_of(case), ticket.request)
    assert ticket.ids == ids
    np.testing.assert_allclose(ticket.log_probs, log_probs, atol=1e-9)


def test_a_beginning_that_is_being_read_is_waited_for():
    engine = engine_for(model_of("gpt-1"), chunk=100, page=16)
    beginning = np.random.default_rng(0).integers(VOCAB, size=600).tolist()
    rows = count_rows(engine)
    asked = [ask(*beginning, *tail, max_len=3) for tail in ([1], [2, 3], [1], [4] * 700)]
    tickets = engine.serve(asked)
    assert sum(rows) < 600 + 3 * 40 + 700 + 40, "read once, except by the one that is mostly of its own"
    for ticket in tickets:
        assert ticket.ids == written_by(model_of("gpt-1"), ticket.request)[0]
    check_empty(engine)


def test_a_source_is_read_once_for_all_beams_and_requests():
    engine = engine_for(model_of("transformer-0"), page=4)
    read, encode = [], engine.runner.encode
    engine.runner.encode = lambda jobs, tables: read.extend(jobs) or encode(jobs, tables)
    source, shorter = source_of(range(13)), source_of(range(12))
    tickets = engine.serve([ask(1, inputs=source, beams=3)])
    tickets += engine.serve([ask(2, inputs=source), ask(1, inputs=shorter)])
    tickets += engine.serve([ask(1, inputs=source, beams=3)])
    assert [job.ticket for job in read] == [tickets[0], tickets[2]]
    assert tickets[3].result() == tickets[0].result()


def test_pages_hold_tokens_and_nothing_else():
    """Not one page more than the tokens of each text fill; beams share some."""
    engine = engine_for(model_of("transformer-2"), page=4, chunk=7, max_batch=11)
    asked = requests_for(engine.model)
    for searches in (False, True):
        engine.pages.clear()
        for request in asked:
            if (request.beams > 1) == searches:
                engine.submit(request)
        held = []
        while engine.running or engine.waiting:
            engine.step()
            filled = [[job.computed] * len(job.slots) + [job.request.source_length] for job in engine.running]
            held.append((engine.pages.held, sum(-(-tokens // 4) for tokens in sum(filled, []))))
        assert all(pages <= needed for pages, needed in held)
        if not searches:
            assert sum(pages == needed for pages, needed in held) > len(held) // 2, "sources are shared at times"
    check_empty(engine)


@pytest.mark.parametrize("page", [1, 3, 16])
def test_pages_hold_what_texts_say(page):
    """At every step the pages of each beam are those of its own text, read afresh: no beam writes into another's."""
    model = model_of("gpt-3")
    engine = engine_for(model, page=page, max_batch=9, chunk=9)
    shape = engine.runner.pool.shape
    fresh = Plain(record_decoder(model.parts(), 64), torch.zeros(shape[0], 64, *shape[2:], dtype=torch.float64))
    tables, none = np.arange(64, dtype=np.int32)[None], np.zeros(0, dtype=np.int32)

    def keys(pool, pages, count):
        return pool[:, pages].permute(2, 0, 3, 1, 4, 5).flatten(3, 4)[:, :, :, :count]  # 2 L G S K

    for request in requests_for(model):
        engine.submit(request)
    looked = 0
    while engine.running or engine.waiting:
        engine.step()
        for job in engine.running:
            texts = [[*job.request.prompt, *job.ticket.ids]]
            if job.searching:
                search = engine.chooser.searches[job.request.rules]
                beams = search.beams.only(search.jobs.index(job))
                texts = [[*job.request.prompt, *ids] for ids in beams.written[0, :, : beams.length[0]].tolist()]
            for slot, text in zip(job.slots, texts, strict=False):
                ids = np.array(text[: job.computed], dtype=np.int32)
                fresh.run(
                    Batch(
                        ids=ids, positions=np.arange(len(ids), dtype=np.int32), sequences=ids * 0, wanted=none,
                        tables=tables, source_tables=tables, source_lengths=tables[:, 0],
                    )
                )  # fmt: skip
                there = keys(engine.runner.pool, engine.tables.own[slot, : engine.tables.counts[slot]], len(ids))
                np.testing.assert_allclose(there, keys(fresh.pages, tables[0], len(ids)), atol=1e-9)
                looked += len(texts) > 1
    assert looked > 20


def test_pages_of_wrong_guesses_are_nobody_elses():
    """A text that goes on as another was once guessed to go on is read afresh."""
    engine = engine_for(model_of("gpt-3"), page=2)
    wrong = [9, 9, 9, 9]
    request = ask(max_len=9, propose=lambda ids: wrong)
    (ticket,) = engine.serve([request])
    assert ticket.ids == written_by(engine.model, request)[0]
    rows = count_rows(engine)
    engine.serve([ask(*request.prompt, *ticket.ids, max_len=1)])
    assert rows == [2], "what was written is found again, behind guesses too"
    for length in range(8):
        later = ask(*request.prompt, *ticket.ids[:length], *wrong, max_len=2)
        (found,) = engine.serve([later])
        ids, log_probs = written_by(engine.model, later)
        assert found.ids == ids
        np.testing.assert_allclose(found.log_probs, log_probs, atol=1e-6)
