"""The engine: many sequences generated at once. Requests join and leave the batch at every step.

A step gives every running sequence its next token (or, of a prompt, its next tokens), runs them all through the model
together, and chooses tokens. The output of a request does not depend on the rest of the batch. Keys and values live in
pages; when those run out, the youngest request gives its own back, waits, and is read again later (`scheduler.py`).
"""

import asyncio
import itertools
import threading
from collections.abc import AsyncGenerator, Callable, Generator, Iterable, Sequence
from contextlib import suppress
from typing import Any

import torch
from torch import Tensor

from regard.config import at_least
from regard.decode.choose import Chooser
from regard.decode.driver import Driver
from regard.decode.requests import Cancelled, Full, Job, Request, Ticket, check_inputs
from regard.decode.sample import Hypothesis, evaluating
from regard.decode.scheduler import Scheduler
from regard.decode.stateful import build_runner
from regard.models.base import check_generator
from regard.native.record import is_watched

PATIENCE = 0.5
"""Seconds after which those who wait for their requests look whether they are still wanted."""


class Engine:
    """Generates token ids for any number of requests with one model.

    `submit` queues a request and returns its ticket; `step` does one step for all. `serve`, `wait` and `watch` step
    until their requests are done; only `follow` uses a thread.
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
        """`model` is a generative one (`models.base.Generator`).

        `max_batch` sequences (or beams) at once; `memory` bytes for keys and values, in pages of `page` positions; at
        most `chunk` prompt tokens in a step; `queue` requests waiting. `fast` None: compiled kernels if possible."""
        at_least(1, max_batch=max_batch, page=page, chunk=chunk, queue=queue)
        check_generator(model)
        self.model, self.max_batch, self.queue = model, max_batch, queue
        with evaluating(model):
            self.runner = build_runner(model, memory=memory, page=page, threads=threads, fast=fast)
        self.chooser = Chooser(self.runner.best)
        self.scheduler = Scheduler(self.runner, self.chooser, page=page, max_batch=max_batch, chunk=chunk)
        self.waiting, self.running = self.scheduler.waiting, self.scheduler.running
        self.pages, self.tables = self.scheduler.pages, self.scheduler.tables
        self.numbers = itertools.count()
        self.steps = 0
        self.lock = threading.RLock()
        self.busy = False
        self.driver = Driver(self)

    def submit(self, request: Request, on_token: Callable[[Ticket], Any] | None = None) -> Ticket:
        """Queue a request; `on_token` is called with its ticket at new tokens and at the end."""
        ticket = Ticket(request, on_token)
        self.check(request)
        if len(self.waiting) >= self.queue:
            raise Full(f"{len(self.waiting):,} requests are waiting, as many as queue={self.queue:,} allows")
        self.waiting.append(Job(ticket, next(self.numbers)))  # without the lock: nobody waits for a step to end
        return ticket

    def cancel(self, ticket: Ticket) -> None:
        """Cancel a request; what it holds is freed at once, or at the end of the current step."""
        self.scheduler.cancelled.append(ticket)
        if self.lock.acquire(blocking=False):
            try:
                if not self.busy:
                    self.scheduler.release_cancelled()
            finally:
                self.lock.release()

    def serve(self, requests: Iterable[Request], each: Callable[[int, Ticket], Any] | None = None) -> list[Ticket]:
        """Run all requests and return their tickets in order; `each` is called with index and ticket of a finished
        one."""
        tickets: list[Ticket] = []
        waiting: dict[int, Ticket] = {}
        source = enumerate(requests)
        more = True
        try:
            while more or waiting:
                while more and len(waiting) < min(2 * self.max_batch, self.queue):  # `requests` may be a lazy iterator
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

    def share(self, requests: Iterable[Request], gone: Callable[[], bool] = lambda: False) -> list[Ticket]:
        """Run requests together with those of other threads, and return their tickets when all are done; the driver
        steps the engine. Once `gone`, they are cancelled."""
        news = threading.Event()
        tickets = [self.submit(request, lambda ticket: news.set() if ticket.done else None) for request in requests]
        try:
            while not all(ticket.done for ticket in tickets):
                self.driver.start()
                news.wait(PATIENCE)
                news.clear()
                if gone():
                    raise Cancelled("nobody waits for the answer")
        finally:
            for ticket in tickets:
                self.cancel(ticket)
        for ticket in tickets:
            ticket.result()
        return tickets

    def wait(self, ticket: Ticket) -> list[Hypothesis]:
        """Step until this request is done and return its hypotheses."""
        try:
            while not ticket.done:
                self.step()
        except BaseException:
            self.cancel(ticket)
            raise
        return ticket.result()

    def watch(self, request: Request) -> Generator[Ticket, None, None]:
        """Yield the ticket of a request after every step, until it is done; leaving the loop cancels it."""
        ticket = self.submit(request)
        try:
            while not ticket.done:
                self.step()
                yield ticket
            ticket.result()
        finally:
            self.cancel(ticket)

    async def follow(self, requests: Sequence[Request]) -> AsyncGenerator[list[Ticket], None]:
        """Yield the tickets of requests whenever one has new tokens, until all are done. A thread steps the engine for
        all callers together; leaving the loop cancels the requests."""
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
            while any(not ticket.done or self.scheduler.holds(ticket) for ticket in tickets):  # until the step ends
                await asyncio.sleep(0.001)

    def check(self, request: Request) -> None:
        """Refuse a request that could never be served."""
        length, most = len(request.prompt) + request.max_len, self.runner.max_positions
        if length > most + 1:  # the last token generated is never read
            raise ValueError(f"prompt and output have {length:,} tokens, the model's longest is {most:,}; shorten them")
        check_inputs(request, self.model)
        if self.runner.paged and is_watched(self.model):
            raise ValueError("`look` watches layers that this engine does not run; build the engine inside `look`")
        for name, ids in request.sequences.items():
            if len(ids) > most:
                raise ValueError(f"the {name} has {len(ids):,} tokens, the model's longest is {most:,}; split it")
        source = self.runner.source_length(request)
        if source > self.runner.longest_source:
            raise ValueError(f"the input has {source:,} positions, the model's most are {self.runner.longest_source:,}")
        need = request.beams * self.pages.pages_for(length) + self.pages.pages_for(source)
        if need > self.pages.count:
            raise ValueError(f"the request needs {need:,} pages, there are {self.pages.count:,}; raise memory")
        if request.beams > self.max_batch:
            raise ValueError(f"beams={request.beams} is more than max_batch={self.max_batch}; use fewer, or raise it")
        if request.propose is not None and not self.runner.paged:
            raise ValueError("this model cannot verify guesses in one step; leave out propose")

    def step(self) -> None:
        """Do one step for all running requests. An error here fails all of them: it belongs to none in particular."""
        with self.lock, evaluating(self.model) if self.model.training else torch.inference_mode():
            self.busy, scheduler = True, self.scheduler
            try:
                scheduler.release_cancelled()
                scheduler.admit()
                scheduler.encode()
                plan = scheduler.plan()
                if plan:
                    self.steps += 1
                    logits = self.runner.run(plan, self.tables)
                    ready = scheduler.advance(plan)
                    if ready:
                        self.choose(ready, logits)
            except BaseException as error:
                tickets = [job.ticket for job in self.running]
                for job in list(self.running):
                    scheduler.release(job)
                for ticket in tickets:
                    if not ticket.done:
                        with suppress(BaseException):  # of a listener: the first error is the one to raise
                            ticket.finish(error=error)
                raise
            finally:
                self.busy = False
                scheduler.release_cancelled()

    def choose(self, ready: list[Job], logits: Tensor) -> None:
        """Choose new tokens for jobs that have read all of theirs; release those that are done."""
        done, origins, targets = self.chooser.choose(ready, logits)
        if targets:
            self.tables.fork(origins, targets)
            self.runner.fork(origins, targets)
        for job in done:
            self.scheduler.release(job)
