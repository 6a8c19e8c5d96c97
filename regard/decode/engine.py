"""The engine: many texts written at once. Requests join and leave the batch at every step.

A step gives every running text its next row (or, where a prompt is being read, its next rows), runs them all through
the model together, and chooses tokens. What a text becomes does not depend on what else is in the batch. Keys and
values live in pages; where those run out, the youngest text gives its own back, waits, and is read again later.
"""

import asyncio
import itertools
import threading
from bisect import insort
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Iterator, Sequence
from contextlib import aclosing, suppress
from os.path import commonprefix
from typing import Any

import numpy as np
import torch
from torch import Tensor

from regard.decode.choose import Chooser
from regard.decode.driver import Driver
from regard.decode.pages import Pages, Tables, name_after, names_of
from regard.decode.requests import Cancelled, Full, Job, Request, Ticket, check_tokens
from regard.decode.sample import Hypothesis, evaluating
from regard.decode.stateful import build_runner
from regard.decode.telling import Token, Told, said
from regard.native.record import is_watched


class Engine:
    """Writes texts for any number of requests with one model.

    `submit` takes a request and returns its ticket; `step` does one step for all. `generate`, `wait` and `stream` do so
    until theirs are done, so no thread is needed unless `stream` or `follow` is used.
    """

    def __init__(
        self,
        model: Any,
        *,
        max_batch: int = 256,
        memory: int = 2**30,
        page: int = 16,
        chunk: int = 512,
        queue: int = 100_000,
        threads: int | None = None,
        fast: bool | None = None,
    ) -> None:
        """`model` has ids for words, or is what `regard.load` returns: then prompts may be texts.

        `max_batch` texts (or beams) at once; `memory` bytes for keys and values, in pages of `page` positions; at
        most `chunk` rows of prompts in a step; `queue` requests waiting. `fast` None: compiled kernels if possible."""
        for name, value in dict(max_batch=max_batch, page=page, chunk=chunk, queue=queue).items():
            if value < 1:
                raise ValueError(f"{name}={value} must be at least 1")
        self.speaker = model if hasattr(model, "request") else None
        self.model = self.speaker.model if self.speaker is not None else model
        if not hasattr(self.model, "prefill"):
            raise ValueError(
                f"{model!r:.60} does not write; give a model that does, or what regard.load returns for one"
            )
        self.max_batch, self.chunk, self.queue = max_batch, chunk, queue
        with evaluating(self.model):
            self.runner = build_runner(self.model, memory=memory, page=page, threads=threads, fast=fast)
        self.pages = Pages(self.runner.pages, page)
        self.tables = Tables(self.pages, max_batch, self.runner.max_positions)
        self.chooser = Chooser(self.runner.best)
        self.free_slots = list(range(max_batch - 1, -1, -1))
        self.waiting: deque[Job] = deque()  # both in order of arrival
        self.running: list[Job] = []
        self.numbers = itertools.count()
        self.steps = 0
        self.lock = threading.RLock()
        self.busy = False
        self.gone: deque[Ticket] = deque()
        self.driver = Driver(self)

    # What users call

    def submit(self, request: Request, on_token: Callable[[Ticket], Any] | None = None) -> Ticket:
        """Puts a request into the queue."""
        ticket = Ticket(request, on_token)
        self.check(request)
        if len(self.waiting) >= self.queue:
            raise Full(f"{len(self.waiting):,} requests are waiting, as many as queue={self.queue:,} allows")
        self.waiting.append(Job(ticket, next(self.numbers)))  # without the lock: nobody waits for a step to end
        return ticket

    def cancel(self, ticket: Ticket) -> None:
        """Takes a request back; what it held is free at once, or with the end of the step that is going on."""
        self.gone.append(ticket)
        if self.lock.acquire(blocking=False):
            try:
                if not self.busy:
                    self.let_go()
            finally:
                self.lock.release()

    def let_go(self) -> None:
        """Frees what cancelled requests held."""
        while self.gone:
            ticket = self.gone.popleft()
            for job in [job for job in (*self.running, *self.waiting) if job.ticket is ticket and not ticket.done]:
                if job.slots:
                    self.release(job)
                else:
                    self.waiting.remove(job)
                ticket.finish(error=Cancelled("the request was cancelled"))

    def generate(self, prompts: Sequence[str], **how: Any) -> list[str]:
        """What the model writes for each text, in their order; `how` are the options of its `request`."""
        if isinstance(prompts, str):
            raise ValueError(f"prompts is a list; put a single one in brackets: [{prompts!r}]")
        requests = (self.asked(prompt, row=row, **how) for row, prompt in enumerate(prompts))
        return [said(one, self.speaker, one.result()[0].ids, whole=True) for one in self.serve(requests)]

    def serve(self, requests: Iterable[Request], each: Callable[[int, Ticket], Any] | None = None) -> list[Ticket]:
        """All requests, in their order; `each` is called as one is done, with its number."""
        tickets: list[Ticket] = []
        waiting: dict[int, Ticket] = {}
        source = enumerate(requests)
        more = True
        try:
            while more or waiting:
                while more and len(waiting) < min(2 * self.max_batch, self.queue):  # the rest may still be unmade
                    number, request = next(source, (-1, None))
                    more = request is not None
                    if request is not None:
                        tickets.append(self.submit(request))
                        waiting[number] = tickets[-1]
                self.step()
                for number in [number for number, ticket in waiting.items() if ticket.done]:
                    ticket = waiting.pop(number)
                    if each is not None:
                        each(number, ticket)
        except BaseException:
            for ticket in waiting.values():
                self.cancel(ticket)
            raise
        for ticket in tickets:
            ticket.result()
        return tickets

    def wait(self, ticket: Ticket) -> list[Hypothesis]:
        """Works until that one is done."""
        try:
            while not ticket.done:
                self.step()
        except BaseException:
            self.cancel(ticket)
            raise
        return ticket.result()

    def write(self, request: Request) -> Iterator[Token]:
        """The tokens of one text, as they come."""
        ticket = self.submit(request)
        told = Told(ticket, self.speaker)
        try:
            while not ticket.done:
                self.step()
                yield from told.news()
            ticket.result()
        finally:
            self.cancel(ticket)

    async def stream(self, prompt: str | Request, **how: Any) -> AsyncIterator[Token]:
        """The same beside other work."""
        told = None
        async with aclosing(self.follow([self.asked(prompt, **how)])) as followed:
            async for (ticket,) in followed:
                told = told or Told(ticket, self.speaker)
                for token in told.news():
                    yield token
                if ticket.done:
                    ticket.result()

    async def follow(self, requests: Sequence[Request]) -> AsyncGenerator[list[Ticket], None]:
        """The tickets of requests, again whenever there is something new, until all are done. A thread drives the
        engine, for everybody together; whoever stops following takes the requests back."""
        loop, news, tickets = asyncio.get_running_loop(), asyncio.Event(), []
        try:
            for request in requests:
                tickets.append(self.submit(request, lambda _: loop.call_soon_threadsafe(news.set)))
            self.driver.start()
            over = False
            while not over:
                await news.wait()
                news.clear()
                over = all(ticket.done for ticket in tickets)
                yield tickets
        finally:
            for ticket in tickets:
                self.cancel(ticket)
            while not all(ticket.done for ticket in tickets):  # what they hold is free with the end of the step
                await asyncio.sleep(0.001)

    def asked(self, prompt: str | Request, **how: Any) -> Request:
        if isinstance(prompt, Request):
            return prompt
        if self.speaker is None:
            raise ValueError("this engine knows ids, not texts; build it with what regard.load returns")
        return self.speaker.request(prompt, **how)

    def check(self, request: Request) -> None:
        """What can never be served is refused at once."""
        length, most = len(request.prompt) + request.max_len, self.runner.max_positions
        if length > most + 1:  # the last token written is never read
            raise ValueError(f"prompt and output have {length:,} tokens, the model's longest is {most:,}; shorten them")
        check_tokens(request, self.model)
        if self.runner.paged and is_watched(self.model):
            raise ValueError("someone looks at the model, whose layers this engine does without; build one inside look")
        source = len(request.source or ())
        if source > most:
            raise ValueError(f"the source has {source:,} tokens, the model's longest is {most:,}; split it")
        need = request.beams * self.pages.pages_for(length) + self.pages.pages_for(source)
        if need > self.pages.count:
            raise ValueError(f"the request needs {need:,} pages, there are {self.pages.count:,}; raise memory")
        if request.beams > self.max_batch:
            raise ValueError(f"beams={request.beams} is more than max_batch={self.max_batch}")
        if request.propose is not None and not self.runner.paged:
            raise ValueError("guesses are checked in one step, which this model cannot do; leave them out")

    # The loop

    def step(self) -> None:
        """One step for everybody. An error here is nobody's own: it ends all that are running."""
        with self.lock, evaluating(self.model) if self.model.training else torch.inference_mode():
            self.busy = True
            try:
                self.let_go()
                self.admit()
                self.encode()
                plan = self.plan()
                if plan:
                    self.steps += 1
                    scores = self.runner.run(plan, self.tables)
                    ready = self.advance(plan)
                    if ready:
                        self.choose(ready, scores)
            except BaseException as error:
                tickets = [job.ticket for job in self.running]
                for job in list(self.running):
                    self.release(job)
                for ticket in tickets:
                    if not ticket.done:
                        with suppress(BaseException):  # a listener's own: what went wrong first is raised
                            ticket.finish(error=error)
                raise
            finally:
                self.busy = False
                self.let_go()

    def admit(self) -> None:
        """Takes up waiting requests, the oldest first, while there is room for what they have to read."""
        while self.waiting:
            job = self.waiting[0]
            request, texts = job.request, job.texts()
            source = self.pages.pages_for(len(request.source or ()))
            room = source + len(texts) * self.pages.pages_for(len(texts[0]) + 1)
            if len(self.free_slots) < request.beams or (self.running and room > self.pages.available):
                return
            # Behind the last token scores are wanted, so that is read in any case. Beams that waited are not named.
            job.names = names_of(texts[0][:-1], self.pages.size, job.seed) if len(texts) == 1 else []
            if self.runner.paged and self.is_being_read(job.names):
                return
            self.waiting.popleft()
            if request.max_len == request.force_end:
                job.ticket.finish()
            else:
                self.start(job, texts)

    def is_being_read(self, names: list[bytes]) -> bool:
        """Whether someone reads half of these pages or more just now: to wait is cheaper than to read them too."""
        for other in self.running:
            shared = len(commonprefix([names, other.names])) if other.request.beams == 1 else 0
            if other.named < shared and 2 * shared >= len(names):
                return True
        return False

    def start(self, job: Job, texts: list[list[int]]) -> None:
        """Gives a job its slots, and what is there already of texts that begin alike."""
        request, slots = job.request, [self.free_slots.pop() for _ in range(job.request.beams)]
        job.slots, job.computed, job.named, job.encoded = slots, 0, 0, True
        insort(self.running, job)
        if request.source is not None:
            names, pages = self.source_names(job), self.pages.find(self.source_names(job))
            job.encoded = len(pages) == len(names)
            if not job.encoded:
                self.pages.drop(np.array(pages, dtype=np.int64))
                pages = [self.pages.take() for _ in names]
            job.source = pages
            self.tables.source[slots, : len(pages)] = pages
            self.tables.source_lengths[slots] = len(request.source)
        if len(texts) == 1:
            known = self.pages.find(job.names) if self.runner.paged else []
            self.tables.hold(slots[0], known)
            job.named = len(known)
            job.computed = self.pages.size * (len(known) or self.runner.recall(job))
        job.pending = [[*text[job.computed :], *job.guesses] for text in texts]

    def source_names(self, job: Job) -> list[bytes]:
        """Every page of a source depends on all of it."""
        return [name_after(job.seed, [number]) for number in range(self.pages.pages_for(len(job.request.source or ())))]

    def encode(self) -> None:
        """Reads new sources, as many as fit into a chunk."""
        jobs: list[Job] = []
        rows = 0
        for job in self.running:
            rows += 0 if job.encoded else len(job.request.source or ())
            if not job.encoded and (rows <= self.chunk or not jobs):
                jobs.append(job)
        if jobs:
            self.runner.encode(jobs, self.tables)
        for job in jobs:
            job.encoded = True
            for page, name in zip(job.source, self.source_names(job), strict=True):
                self.pages.name(page, name)

    def plan(self) -> list[tuple[Job, int]]:
        """What each running text reads in this step: its next token and guesses, or a piece of what it has to read
        first. Every row gets its place in a page; where there is none left, the youngest has to wait."""
        plan: list[tuple[Job, int]] = []
        copies: list[tuple[int, int]] = []
        budget = self.chunk
        for job in list(self.running):
            sequences, count = len(job.pending), len(job.pending[0])
            reads = count > 1 + len(job.guesses) and self.runner.paged  # others read all at once
            if not job.slots or not job.encoded or (reads and budget < 1):
                continue
            if reads:
                count -= 1 + len(job.guesses) if job.guesses else 0  # those are looked at in one step
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
        """What was read is in the pages. Returns the jobs that have read all."""
        for job, count in plan:
            job.computed += count
            job.pending = [pending[count:] for pending in job.pending]
            if self.runner.paged and job.request.beams == 1:
                self.name_pages(job)
        return [job for job, _ in plan if not job.pending[0]]

    def name_pages(self, job: Job) -> None:
        """Full pages can be found by others; not those that hold guesses."""
        size, known = self.pages.size, len(job.request.prompt) + len(job.ticket.ids)
        for place in range(job.named, min(job.computed, known) // size):
            if place == len(job.names):
                text = job.texts()[0][place * size : (place + 1) * size]
                job.names.append(name_after(job.names[-1] if job.names else job.seed, text))
            self.pages.name(int(self.tables.own[job.slots[0], place]), job.names[place])
            job.named = place + 1

    def choose(self, ready: list[Job], scores: Tensor) -> None:
        """New tokens for jobs that have read all; those that are done leave."""
        done, origins, targets = self.chooser.choose(ready, scores)
        if targets:
            self.tables.fork(origins, targets)
            self.runner.fork(origins, targets)
        for job in done:
            self.release(job)

    def suspend(self, job: Job) -> None:
        """It waits with what it has written, before all who came later, and will be read again."""
        self.release(job)
        self.waiting.appendleft(job)

    def release(self, job: Job) -> None:
        """Gives back all that a job holds."""
        self.chooser.put_aside(job)
        self.running.remove(job)
        self.tables.release(job.slots)
        self.pages.drop(np.array(job.source, dtype=np.int64))
        self.runner.drop(job.slots)
        self.free_slots += job.slots
        job.slots, job.source = [], []
