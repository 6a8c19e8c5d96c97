"""From logits to tokens, for all requests of a step together: greedy, sampled, or beam search."""

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float, Int
from torch import Tensor

from regard.decode.beam import BeamRules, Beams
from regard.decode.requests import Job
from regard.decode.sample import Sampling, filter_logits, sample_token

Best = Callable[[Tensor, int, Sequence[int]], tuple[Int[Tensor, "W C"], Float[Tensor, "W C"]]]
"""(logits, count, forbidden) → the most probable tokens of each row and their log-probabilities, best first."""


@dataclass(slots=True)
class Search:
    """Jobs with the same beam search settings, in the order of the searches in `beams`."""

    beams: Beams
    jobs: list[Job]


class Chooser:
    """Chooses tokens for jobs whose logits are computed; holds the state of all running beam searches."""

    def __init__(self, best: Best) -> None:
        self.best = best
        self.searches: dict[BeamRules, Search] = {}

    def choose(self, jobs: list[Job], logits: Float[Tensor, "W V"]) -> tuple[list[Job], list[int], list[int]]:
        """Give every job new pending tokens, or finish its ticket. Return finished jobs, and origins and targets of
        forks."""
        rows, first = {}, 0
        for job in jobs:
            rows[job] = first
            first += len(job.pending) * (1 + len(job.guesses))
            if job.request.constrain is not None:
                for row, ids in enumerate(self.written(job), rows[job]):
                    job.request.constrain(ids, logits[row])
        count = max(2 * r.beams if r.beams > 1 else max(1, r.alternatives) for r in (job.request for job in jobs))
        sets = {job.request.forbidden for job in jobs if job.request.sampling is None or job.request.alternatives}
        best = {forbidden: self.best(logits, count, forbidden) for forbidden in sets}
        first_best = {forbidden: [part[:, 0].tolist() for part in parts] for forbidden, parts in best.items()}

        sampled: dict[tuple[Sampling, tuple[int, ...]], list[Job]] = defaultdict(list)
        searching: dict[BeamRules, list[Job]] = defaultdict(list)
        for job in jobs:
            request = job.request
            if request.alternatives:
                note_candidates(job, rows[job], *best[request.forbidden])
            if request.sampling is not None:
                sampled[replace(request.sampling, seed=0), request.forbidden].append(job)
            elif request.beams > 1:
                searching[request.rules].append(job)
            else:
                span = slice(rows[job], rows[job] + 1 + len(job.guesses))
                write_best(job, *(part[span] for part in first_best[request.forbidden]), vocab_size=logits.shape[1])
        for (sampling, forbidden), group in sampled.items():
            chosen = torch.tensor([rows[job] + i for job in group for i in range(1 + len(job.guesses))])
            write_sampled(group, logits[chosen.to(logits.device)], sampling, forbidden)
        done = [job for job in jobs if job.ticket.done]
        moves: tuple[list[int], list[int]] = ([], [])
        for rules, group in searching.items():
            self.join([job for job in group if not job.searching], logits)
            done += self.extend(rules, best[rules.forbidden], rows, moves)
        return done, *moves

    def written(self, job: Job) -> list[list[int]]:
        """Return the generated tokens before each row of a job's logits: one for each beam, or for each guess."""
        if job.searching:
            search = self.searches[job.request.rules]
            index = search.jobs.index(job)
            return search.beams.written[index, :, : int(search.beams.length[index])].tolist()
        sequences = [ids[len(job.request.prompt) :] for ids in job.sequences()]
        return [*sequences, *([*sequences[0], *job.guesses[:end]] for end in range(1, len(job.guesses) + 1))]

    def join(self, jobs: Sequence[Job], like: Tensor) -> None:
        """Start beam searches, or resume suspended ones."""
        for job in jobs:
            beams = job.beams or Beams(job.request.rules, [job.request.max_len], like=like)
            job.beams = None
            search = self.searches.setdefault(job.request.rules, Search(beams, []))
            if search.beams is not beams:
                search.beams.join(beams)
            search.jobs.append(job)
            job.searching = True

    def put_aside(self, job: Job) -> None:
        """Store the state of a job's search in the job, which will be suspended or is done."""
        if job.searching:
            search = self.searches[job.request.rules]
            job.beams = search.beams.only(search.jobs.index(job))
            self.leave([job], job.request.rules)

    def leave(self, jobs: Sequence[Job], rules: BeamRules) -> None:
        """Remove jobs from the running searches."""
        search = self.searches[rules]
        for job in jobs:
            job.searching = False
        stays = [index for index, job in enumerate(search.jobs) if job.searching]
        search.beams.keep(torch.tensor(stays, dtype=torch.long, device=search.beams.total.device))
        search.jobs = [search.jobs[index] for index in stays]
        if not stays:
            del self.searches[rules]

    def extend(
        self,
        rules: BeamRules,
        best: tuple[Int[Tensor, "W C"], Float[Tensor, "W C"]],
        rows: dict[Job, int],
        moves: tuple[list[int], list[int]],
    ) -> list[Job]:
        """Advance all searches with these rules by a token. Return the finished jobs; append forks of slots to
        `moves`."""
        search, W = self.searches[rules], rules.beams
        beams = [[rows[job] + (i if len(job.pending) > 1 else 0) for i in range(W)] for job in search.jobs]
        indices = torch.tensor(beams, device=best[0].device)
        ids, log_probs = (part[:, : 2 * W][indices] for part in best)
        origins, tokens, over = (part.tolist() for part in search.beams.extend(log_probs, ids))
        done = []
        for index, job in enumerate(search.jobs):
            if over[index]:
                job.ticket.finish(search.beams.hypotheses(index, job.request.n_best))
                done.append(job)
                continue
            last = len(job.pending) - 1  # at the start there is one sequence; beams of −∞ may name others
            job.pending = [[id] for id in tokens[index]]
            for slot, origin in zip(job.slots, origins[index], strict=True):
                before = job.slots[min(origin, last)]
                if slot != before:
                    moves[0].append(before)
                    moves[1].append(slot)
        if done:
            self.leave(done, rules)
        return done


def note_candidates(job: Job, row: int, ids: Int[Tensor, "W C"], log_probs: Float[Tensor, "W C"]) -> None:
    """Record the most probable tokens in each of a job's rows."""
    span = slice(row, row + 1 + len(job.guesses)), slice(job.request.alternatives)
    pairs = zip(ids[span].tolist(), log_probs[span].tolist(), strict=True)
    job.candidates = [list(zip(*pair, strict=True)) for pair in pairs]


def write_best(job: Job, ids: Sequence[int], log_probs: Sequence[float], *, vocab_size: int) -> None:
    """Write the best token and, where guesses were right, the best ones after them."""
    guesses, job.guesses = job.guesses, []
    for right, (id, log_prob) in enumerate(zip(ids, log_probs, strict=True)):
        job.write(id, log_prob)
        if job.ticket.done or right == len(guesses) or guesses[right] != id:
            break
    job.computed -= len(guesses) - right  # positions computed for wrong guesses are discarded
    job.guess(vocab_size)


def write_sampled(
    jobs: Sequence[Job], logits: Float[Tensor, "W V"], sampling: Sampling, forbidden: Sequence[int]
) -> None:
    """Write one sampled token each. A guess is accepted with its own probability, otherwise another token is sampled
    from the rest: together that is the model's distribution (Leviathan et al., 2023, for a deterministic guess)."""
    log_probs = logits.log_softmax(dim=-1)
    log_probs[:, list(forbidden)] = -torch.inf
    kept = filter_logits(log_probs, sampling)
    if not any(job.guesses for job in jobs):  # the usual case, for all at once
        noise = torch.tensor([job.noise.random() for job in jobs], dtype=torch.float64, device=kept.device)
        sampled = sample_token(kept, noise)
        chosen = log_probs.gather(1, sampled[:, None])[:, 0]
        for job, id, log_prob in zip(jobs, sampled.tolist(), chosen.tolist(), strict=True):
            job.write(id, log_prob)
            job.guess(logits.shape[1])
        return
    first = 0
    for job in jobs:
        guesses, job.guesses = job.guesses, []
        for right in range(len(guesses) + 1):
            row, taken = first + right, False
            if right < len(guesses):
                guess = guesses[right]
                taken = job.noise.random() < float(kept[row].softmax(dim=-1)[guess])
            if not taken:
                kept[row, guesses[right : right + 1]] = -torch.inf
                noise = torch.tensor([job.noise.random()], dtype=torch.float64)  # in 32 bits it could round to 1
                guess = int(sample_token(kept[row : row + 1], noise.to(kept.device)))
            job.write(guess, float(log_probs[row, guess]))
            if job.ticket.done or not taken:
                break
        job.computed -= len(guesses) - right
        first += 1 + len(guesses)
        job.guess(logits.shape[1])
