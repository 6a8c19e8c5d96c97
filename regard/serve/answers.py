"""How answers leave: whole, or as server-sent events; and what happens when nobody listens any more."""

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

to_json = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode

ABORT = "regard.abort"
"""Where a request's scope has what hangs up at once."""
LAST_WORDS = 5.0
"""Seconds that an answer has to say that its time is over."""

Result = TypeVar("Result")
Record = dict[str, Any]


async def unless_gone(request: Request, work: Awaitable[Result]) -> Result:
    """The result of some work; if the client goes away, so does the work."""

    async def gone() -> None:
        while (await request.receive())["type"] != "http.disconnect":
            pass

    task, left = asyncio.ensure_future(work), asyncio.ensure_future(gone())
    try:
        await asyncio.wait({task, left}, return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            return task.result()
        raise Refused(499, "the client went away")  # nobody reads it
    finally:
        for one in (task, left):
            if not one.done():
                one.cancel()
                with suppress(asyncio.CancelledError, Exception):
                    await one


async def asked(request: Request, work: Callable[[], Result]) -> Result:
    """Work in turn with that of others, in time; a mistake of the user is an answer."""
    shelf = state_of(request).shelf
    try:
        async with asyncio.timeout(shelf.settings.timeout):
            return await unless_gone(request, shelf.read(work))
    except TimeoutError:
        raise timed_out(shelf.settings.timeout) from None
    except ValueError as error:
        raise Refused(400, str(error), param="input") from None


async def stream(request: Request, records: AsyncGenerator[Record, None], limit: float) -> Response:
    """Records as server-sent events. The first one is waited for: what is wrong by then is an answer of its own."""
    first = await unless_gone(request, anext(records))
    return Events(events(first, records), limit)


class Events(StreamingResponse):
    """The source of events is closed with the connection, or soon after `limit` seconds: some clients stop reading."""

    media_type = "text/event-stream"

    def __init__(self, source: AsyncGenerator[bytes, None], limit: float) -> None:
        super().__init__(source, headers={"X-Accel-Buffering": "no"})  # proxies are to pass them on at once
        self.source, self.limit = source, limit

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.hang_up = scope.get(ABORT, lambda: None)
        await super().__call__(scope, receive, send)

    async def stream_response(self, send: Send) -> None:
        async with aclosing(self.source):
            try:
                async with asyncio.timeout(self.limit + LAST_WORDS):
                    await super().stream_response(send)
            except TimeoutError:
                self.hang_up()
                await asyncio.sleep(0.1)  # until the server knows that nobody is there


async def events(first: Record, records: AsyncGenerator[Record, None]) -> AsyncGenerator[bytes, None]:
    """All records, or an error among them, and a mark of the end."""
    async with aclosing(records):
        yield event(first)
        try:
            async for record in records:
                yield event(record)
        except Refused as error:
            yield event(error.body)
        except Exception:
            logging.getLogger("uvicorn.error").exception("a text broke off")
            yield event(broken().body)
    yield b"data: [DONE]\n\n"


def event(record: Record) -> bytes:
    return b"data: " + to_json(record).encode() + b"\n\n"
