"""Responses, whole or as server-sent events, whose work ends when the client disconnects or the time is over."""

import asyncio
import json
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing, suppress
from typing import Any, TypeVar

from fastapi import Request, Response
from fastapi.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from regard.serve.errors import Refused, broken, timed_out
from regard.serve.state import state_of

to_json = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode

ABORT = "regard.abort"
"""The key of a request's scope for the function that closes its connection at once."""
LAST_EVENT_SECONDS = 5.0
"""Time beyond the limit in which a stream may still send its error event."""

Result = TypeVar("Result")
Record = dict[str, Any]


async def unless_gone(request: Request, work: Awaitable[Result]) -> Result:
    """The result of `work`, which is cancelled if the client disconnects."""

    async def gone() -> None:
        while (await request.receive())["type"] != "http.disconnect":
            pass

    task, left = asyncio.ensure_future(work), asyncio.ensure_future(gone())
    try:
        await asyncio.wait({task, left}, return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            return task.result()
        raise Refused(499, "the client disconnected")  # nobody reads it
    finally:
        for future in (task, left):
            if not future.done():
                future.cancel()
                with suppress(asyncio.CancelledError, Exception):
                    await future


async def within_limit(request: Request, work: Awaitable[Result]) -> Result:
    """The result of `work`, which is cancelled when the client disconnects or the server's time limit is over."""
    limit = state_of(request).settings.timeout
    try:
        async with asyncio.timeout(limit):
            return await unless_gone(request, work)
    except TimeoutError:
        raise timed_out(limit) from None


async def run_in_worker(request: Request, work: Callable[..., Result], *args: Any, param: str = "input") -> Result:
    """The result of a function call in the worker thread; its `ValueError` is a refusal that names `param`."""
    try:
        return await within_limit(request, state_of(request).store.pools.run(work, *args))
    except ValueError as error:
        raise Refused(400, str(error), param=param) from None


async def reply(work: Callable[[], Record]) -> Response:
    """The response with a JSON object, which a thread computes and writes while the event loop serves others."""
    return Response(await asyncio.to_thread(lambda: write(work())), media_type="application/json")


def write(body: Record) -> bytes:
    """A JSON object; its lists are written row by row, between which other threads have their turn."""
    fields = (
        f"{to_json(name)}:" + (f"[{','.join(map(to_json, value))}]" if isinstance(value, list) else to_json(value))
        for name, value in body.items()
    )
    return f"{{{','.join(fields)}}}".encode()


async def stream(request: Request, records: AsyncGenerator[Record, None], limit: float) -> Response:
    """A response of server-sent events. An error before the first record is a response of its own."""
    first = await unless_gone(request, anext(records))
    return Events(events(first, records), limit)


class Events(StreamingResponse):
    """Server-sent events; the source is closed with the connection, or soon after `limit` seconds: some clients stop
    reading."""

    media_type = "text/event-stream"

    def __init__(self, source: AsyncGenerator[bytes, None], limit: float) -> None:
        super().__init__(source, headers={"X-Accel-Buffering": "no"})  # proxies must not hold events back
        self.source, self.limit = source, limit

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.abort = scope.get(ABORT, lambda: None)
        await super().__call__(scope, receive, send)

    async def stream_response(self, send: Send) -> None:
        async with aclosing(self.source):
            try:
                async with asyncio.timeout(self.limit + LAST_EVENT_SECONDS):
                    await super().stream_response(send)
            except TimeoutError:
                self.abort()
                await asyncio.sleep(0.1)  # until the server has seen that the connection is closed


async def events(first: Record, records: AsyncGenerator[Record, None]) -> AsyncGenerator[bytes, None]:
    """All records as events, or an error event in their place, and the [DONE] event."""
    async with aclosing(records):
        yield event(first)
        try:
            async for record in records:
                yield event(record)
        except Refused as error:
            yield event(error.body)
        except Exception:
            logging.getLogger("uvicorn.error").exception("a stream failed")
            yield event(broken().body)
    yield b"data: [DONE]\n\n"


def event(record: Record) -> bytes:
    return b"data: " + to_json(record).encode() + b"\n\n"


def usage(read: int, generated: int | None = None) -> Record:
    """The `usage` of a response: the numbers of tokens read and, if the model generates, generated."""
    counts = {"prompt_tokens": read, "total_tokens": read + (generated or 0)}
    return counts if generated is None else counts | {"completion_tokens": generated}
