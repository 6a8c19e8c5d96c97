"""Threads for the work of requests, so that the event loop is free; each kind of work has a bounded queue."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from regard.serve.errors import closing, full

Result = TypeVar("Result")
LONG_TEXT = 2**16
"""Characters of texts from which on they are tokenized apart from shorter ones."""

LISTENERS = 4
"""Recordings that are transcribed at once."""


class Pool:
    """A few threads, and a queue of at most `queue` calls."""

    def __init__(self, name: str, threads: int, queue: int) -> None:
        self.executor = ThreadPoolExecutor(threads, thread_name_prefix=f"regard-{name}")
        self.queue, self.pending = queue, 0

    async def run(self, work: Callable[..., Result], *args: Any) -> Result:
        if self.pending >= self.queue:
            raise full()
        self.pending += 1
        try:
            return await asyncio.get_running_loop().run_in_executor(self.executor, work, *args)
        finally:
            self.pending -= 1


class Pools:
    """All pools of a server: one worker for models without an engine, and threads that tokenize."""

    def __init__(self, queue: int) -> None:
        self.worker = Pool("worker", 1, queue)
        self.short, self.long = Pool("short", 2, queue), Pool("long", 1, queue)
        self.chat = Pool("chat", 1, queue)
        self.audio = Pool("audio", LISTENERS, queue)
        self.closed = False

    async def run(self, work: Callable[..., Result], *args: Any) -> Result:
        """The result of a function call in the worker thread, after the calls that came before."""
        return await self._run(self.worker, work, *args)

    async def tokenize(self, size: int, work: Callable[..., Result], *args: Any) -> Result:
        """The result of a function call that tokenizes `size` characters; long texts delay only each other."""
        return await self._run(self.long if size > LONG_TEXT else self.short, work, *args)

    async def render(self, work: Callable[..., Result], *args: Any) -> Result:
        """The result of a function call that renders a template, which may be slow; only other chats wait for it."""
        return await self._run(self.chat, work, *args)

    async def listen(self, work: Callable[..., Result], *args: Any) -> Result:
        """The result of a function call that transcribes a recording, whose windows an engine decodes with others'."""
        return await self._run(self.audio, work, *args)

    @property
    def tokenizing(self) -> int:
        """The number of requests that are tokenized or wait for it."""
        return self.short.pending + self.long.pending + self.chat.pending

    async def _run(self, pool: Pool, work: Callable[..., Result], *args: Any) -> Result:
        if self.closed:
            raise closing()
        return await pool.run(work, *args)
