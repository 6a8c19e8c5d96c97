"""The scheduler: which requests run, what each reads in a step, and which give their pages back when those run out."""

from bisect import insort
from collections import deque
from os.path import commonprefix

import numpy as np

from regard.decode.choose import Chooser
from regard.decode.pages import Pages, Tables, chain_hash, page_hashes
from regard.decode.requests import Cancelled, Job, Ticket
from regard.decode.runners import Runner


class Scheduler:
    """Queue, running batch, slots and pages of an engine. Jobs are served in order of arrival."""

    def __init__(self, runner: Runner, chooser: Chooser, *, page: int, max_batch: int, chunk: int) -> None:
        self.runner, self.chooser, self.chunk = runner, chooser, chunk
        self.pages = Pages(runner.pages, page)
        self.tables = Tables(self.pages, max_batch, runner.max_positions, runner.longest_source)
        self.free_slots = list(range(max_batch - 1, -1, -1))
        self.waiting: deque[Job] = deque()  # both in order of arrival
        self.running: list[Job] = []
        self.cancelled: deque[Ticket] = deque()

    @property
    def idle(self) -> bool:
        return not (self.waiting or self.running or self.cancelled)

    def admit(self) -> None:
        """Start waiting jobs, the oldest first, while there is room for what they have to read."""
        while self.waiting:
            job = self.waiting[0]
            request, sequences = job.request, job.sequences()
            source = self.pages.pages_for(self.runner.source_length(request))
            room = source + len(sequences) * self.pages.pages_for(len(sequences[0]) + 1)
            if len(self.free_slots) < request.beams or (self.running and room > self.pages.available):
                return
            # The last token is always read: its logits are needed. Beams that were suspended have no page hashes.
            single = len(sequences) == 1
            job.hashes = page_hashes(sequences[0][:-1], self.pages.size, job.seed) if single else []
            if self.runner.paged and self.is_being_read(job.hashes):
                return
            self.waiting.popleft()
            if request.max_len == request.force_end:
                job.ticket.finish()
            else:
                self.start(job, sequences)

    def is_being_read(self, hashes: list[bytes]) -> bool:
        """Whether a running job is reading at least half of these pages: waiting is cheaper than reading them twice."""
        for other in self.running:
            shared = len(commonprefix([hashes, other.hashes])) if other.request.beams == 1 else 0
            if other.registered < shared and 2 * shared >= len(hashes):
                return True
        return False

    def start(self, job: Job, sequences: list[list[int]]) -> None:
        """Give a job its slots and the stored pages of its source and prefix."""
        request, slots = job.request, [self.free_slots.pop() for _ in range(job.request.beams)]
        job.slots, job.computed, job.registered, job.encoded = slots, 0, 0, True
        insort(self.running, job)
        if length := self.runner.source_length(request):
            hashes = self.source_hashes(job)
            pages = self.pages.find(hashes)
            job.encoded = len(pages) == len(hashes)
            if not job.encoded:
                self.pages.drop(np.array(pages, dtype=np.int64))
                pages = [self.pages.take() for _ in hashes]
            job.source = pages
            self.tables.source[slots, : len(pages)] = pages
            self.tables.source_lengths[slots] = length
        if len(sequences) == 1:
            known = self.pages.find(job.hashes) if self.runner.paged else []
            self.tables.hold(slots[0], known)
            job.registered = len(known)
            job.computed = self.pages.size * (len(known) or self.runner.recall(job))
        job.pending = [[*ids[job.computed :], *job.guesses] for ids in sequences]

    def source_hashes(self, job: Job) -> list[bytes]:
        """Return a hash for each page of the encoded source: every page depends on the whole source."""
        pages = self.pages.pages_for(self.runner.source_length(job.request))
        return [chain_hash(job.seed, [page]) for page in range(pages)]

    def encode(self) -> None:
        """Encode the sources of started jobs, as many as fit into a chunk."""
        jobs: list[Job] = []
        rows = 0
        for job in self.running:
            rows += 0 if job.encoded else self.runner.source_length(job.request)
            if not job.encoded and (rows <= self.chunk or not jobs):
                jobs.append(job)
        if jobs:
            self.runner.encode(jobs, self.tables)
        for job in jobs:
            job.encoded = True
            for page, digest in zip(job.source, self.source_hashes(job), strict=True):
                self.pages.register(page, digest)

    def plan(self) -> list[tuple[Job, int]]:
        """Decide how many pending tokens each job reads in this step: its next token and guesses, or a chunk of its
        prompt. Every token gets a position in a page; when pages run out, the youngest job is suspended."""
        plan: list[tuple[Job, int]] = []
        copies: list[tuple[int, int]] = []
        budget = self.chunk
        for job in list(self.running):
            sequences, count = len(job.pending), len(job.pending[0])
            reads = count > 1 + len(job.guesses) and self.runner.paged  # other runners read a prompt at once
            if not job.slots or not job.encoded or (reads and budget < 1):
                continue
            if reads:
                count -= 1 + len(job.guesses) if job.guesses else 0  # guesses are verified in one step
                count = min(count, max(1, budget // sequences))
                budget -= count * sequences
            new: list[tuple[int, int]] = []
            while not self.tables.extend(job.slots[:sequences], job.computed, job.computed + count, new):
                youngest = self.running[-1]
                self.suspend(youngest)
                if youngest is job:
                    break
            else:
                plan.append((job, count))
                copies += new
        self.runner.copy(copies)
        return plan

    def advance(self, plan: list[tuple[Job, int]]) -> list[Job]:
        """Record that the planned tokens were read. Returns the jobs that have read all and get new tokens."""
        for job, count in plan:
            job.computed += count
            job.pending = [pending[count:] for pending in job.pending]
            if self.runner.paged and job.request.beams == 1:
                self.register_pages(job)
        return [job for job, _ in plan if not job.pending[0]]

    def register_pages(self, job: Job) -> None:
        """Let other requests find the full pages of a job, except those that hold guesses."""
        size, known = self.pages.size, len(job.request.prompt) + len(job.ticket.ids)
        for index in range(job.registered, min(job.computed, known) // size):
            if index == len(job.hashes):
                ids = job.sequences()[0][index * size : (index + 1) * size]
                job.hashes.append(chain_hash(job.hashes[-1] if job.hashes else job.seed, ids))
            self.pages.register(int(self.tables.own[job.slots[0], index]), job.hashes[index])
            job.registered = index + 1

    def suspend(self, job: Job) -> None:
        """Preempt a job: it waits with the tokens that it has, before all later ones, and is read again."""
        self.release(job)
        self.waiting.appendleft(job)

    def release(self, job: Job) -> None:
        """Free all that a job holds, then take it out of the batch."""
        self.chooser.put_aside(job)
        self.tables.release(job.slots)
        self.pages.drop(np.array(job.source, dtype=np.int64))
        self.runner.drop(job.slots)
        self.free_slots += job.slots
        job.slots, job.source = [], []
        self.running.remove(job)

    def holds(self, ticket: Ticket) -> bool:
        """Return whether a request still holds memory: a step that finishes its ticket releases it a moment later."""
        return any(job.ticket is ticket for job in list(self.running))

    def release_cancelled(self) -> None:
        """Free what cancelled requests hold, and finish their tickets."""
        while self.cancelled:
            ticket = self.cancelled.popleft()
            for job in [job for job in (*self.running, *self.waiting) if job.ticket is ticket and not ticket.done]:
                if job.slots:
                    self.release(job)
                else:
                    self.waiting.remove(job)
                ticket.finish(error=Cancelled("the request was cancelled"))
