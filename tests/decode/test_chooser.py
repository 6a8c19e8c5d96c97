"""From scores to tokens: noise at its edges, and searches that meet, part and wait."""

import numpy as np
import pytest
import torch

from regard.decode import Sampling
from regard.decode.beam import BeamRules, Beams
from regard.decode.choose import Chooser
from regard.decode.requests import Job, Request, Ticket
from regard.decode.runners import Runner
from regard.decode.sample import best_tokens, filter_logits, sample_token

WORDS = 13


def job_of(number=0, **given):
    job = Job(Ticket(Request(**dict(prompt=[1], max_len=9) | given)), number)
    job.slots, job.pending, job.computed = list(range(8 * number, 8 * number + job.request.beams)), [[]], 1
    return job


class Fixed:
    """Noise that is always the same."""

    def __init__(self, value):
        self.value = value

    def random(self):
        return self.value


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("noise, wanted", [(0.0, 1), (1 - 2**-53, 10), (1 - 2**-26, 10)])
def test_the_ends_of_the_noise_draw_the_ends_of_what_may_be_drawn(noise, wanted, dtype):
    """The largest number below 1 is not rounded to 1, which no token has."""
    job = job_of(sampling=Sampling(), forbidden=(0, 11, 12))
    job.noise = Fixed(noise)
    Chooser(Runner().best).choose([job], torch.zeros(1, WORDS, dtype=dtype))
    assert job.ticket.ids == [wanted]


def test_kinds_side_by_side_get_their_own_rows():
    """Greedy, drawn and with guesses, each with forbidden tokens of its own."""
    scores = torch.randn(7, WORDS, dtype=torch.float64)
    log_probs = scores.log_softmax(dim=-1)
    best = scores.argmax(dim=-1).tolist()
    sampling = Sampling(temperature=0.7, top_k=5, seed=2)
    jobs = [
        job_of(0),
        job_of(1, sampling=sampling, row=3),
        job_of(2, propose=lambda ids: []),
        job_of(3, forbidden=(best[5],)),
        job_of(4, sampling=sampling, row=4, forbidden=(best[6],)),
    ]
    jobs[2].guesses, jobs[2].computed = [best[2], (best[3] + 1) % WORDS], 3
    done, origins, targets = Chooser(Runner().best).choose(jobs, scores)
    assert (done, origins, targets) == ([], [], [])
    assert jobs[0].ticket.ids == best[:1]
    assert jobs[2].ticket.ids == best[2:4] and jobs[2].computed == 2, "the second guess was wrong"
    assert jobs[3].ticket.ids == [int(scores[5].argsort(descending=True)[1])]
    for job, row, banned in ((jobs[1], 1, []), (jobs[4], 6, [best[6]])):
        left = log_probs[row : row + 1].clone()
        left[:, banned] = -torch.inf
        noise = torch.tensor([np.random.default_rng([2, job.request.row]).random()])
        assert job.ticket.ids == sample_token(filter_logits(left, sampling), noise).tolist()
    for job, row in zip(jobs, (0, 1, 2, 5, 6), strict=True):
        assert job.ticket.log_probs[0] == pytest.approx(float(log_probs[row, job.ticket.ids[0]]))
        assert job.pending == [[job.ticket.ids[-1]]]


def scores_of(text):
    """A language in which every beginning has its own odds."""
    return torch.from_numpy(np.random.default_rng(list(text)).normal(size=WORDS) * 2)


def search(rules, max_len, start, jobs_at, wait_at=()):
    """Searches that begin at given times, in one chooser; some are put aside for two steps."""
    chooser = Chooser(Runner().best)
    coming = sorted(zip(jobs_at, range(len(jobs_at)), strict=True))
    jobs = [job_of(n, max_len=max_len[n], beams=rules.beams, ends=rules.ends, n_best=2) for n in range(len(jobs_at))]
    running, aside = [], []
    for time in range(60):
        while coming and coming[0][0] <= time:
            running.append(jobs[coming.pop(0)[1]])
        while aside and aside[0][0] <= time:
            job = aside.pop(0)[1]
            job.pending = [[]] * rules.beams
            running.append(job)
        for job in [job for job in running if (time, jobs.index(job)) in wait_at]:
            chooser.put_aside(job)
            running.remove(job)
            aside.append((time + 2, job))
        if not running:
            continue
        rows = []
        for job in running:
            texts = [[]]
            if job.searching:
                found = chooser.searches[rules]
                one = found.beams.only(found.jobs.index(job))
                texts = one.written[0, :, : one.length[0]].tolist()
            elif job.beams is not None:
                texts = job.beams.written[0, :, : job.beams.length[0]].tolist()
            job.pending = [[]] * len(texts)
            rows += [scores_of([start[jobs.index(job)], *text]) for text in texts]
        done, _, _ = chooser.choose(running, torch.stack(rows))
        running = [job for job in running if job not in done]
    assert not chooser.searches and all(job.ticket.done for job in jobs)
    return [[(one.ids, one.score) for one in job.ticket.result()] for job in jobs]


def test_searches_that_meet_and_wait_find_what_they_would_alone():
    rules = BeamRules(beams=3, ends=(2, 4))
    max_len, start = [7, 3, 9, 5, 1], [50, 51, 52, 53, 54]
    lone = [search(rules, [n], [s], [0])[0] for n, s in zip(max_len, start, strict=True)]
    assert search(rules, max_len, start, [0, 0, 0, 0, 0]) == lone
    assert search(rules, max_len, start, [3, 0, 1, 1, 2], wait_at={(2, 2), (3, 3), (5, 0), (5, 2)}) == lone


def test_beams_of_many_sentences_are_those_of_each():
    """Joined, kept and taken out again, with more room than some need."""
    rules = BeamRules(beams=2, ends=(2,))
    like = torch.zeros(0, dtype=torch.float64)
    both, lone = Beams(rules, [4], like=like), [Beams(rules, [n], like=like) for n in (4, 6)]
    both.join(Beams(rules, [6], like=like))
    for time in range(3):
        values = torch.stack([torch.stack([scores_of([n, time, w]) for w in range(2)]) for n in range(2)])
        log_probs, ids = best_tokens(values.log_softmax(dim=-1).flatten(0, 1), 4)
        log_probs, ids = log_probs.unflatten(0, (2, 2)), ids.unflatten(0, (2, 2))
        together = both.extend(log_probs, ids)
        for n, one in enumerate(lone):
            for part, own in zip(together, one.extend(log_probs[n : n + 1], ids[n : n + 1]), strict=True):
                assert torch.equal(part[n : n + 1], own)
    for n, one in enumerate(lone):
        assert both.only(n).written[..., :3].tolist() == one.written[..., :3].tolist()
    both.keep(torch.tensor([1]))
    assert torch.equal(both.total, lone[1].total)
