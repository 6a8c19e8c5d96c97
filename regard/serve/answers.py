"""How answers leave: whole, or as server-sent events; and what happens when nobody listens any more."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable
from contextlib import aclosing, suppress
from typing import Any, TypeVar

from fastapi import Request
from fastapi.responses import StreamingResponse
from starlette.types import Send

from regard.serve.errors import Refused

STALL = 60.0
"""Seconds that a client may leave a piece of its answer unread."""

Result = TypeVar("Result")


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


class Events(StreamingResponse):
    """Records as server-sent events. The source is closed with the connection, and by a reader who stands still."""

    media_type = "text/event-stream"

    def __init__(self, records: AsyncIterator[dict[str, Any]]) -> None:
        super().__init__(events(records), headers={"X-Accel-Buffering": "no"})  # proxies are to pass them on at once

    async def stream_response(self, send: Send) -> None:
        async with aclosing(self.body_iterator):  # type: ignore[type-var]
            await super().stream_response(patient(send))


def patient(send: Send) -> Send:
    async def wait(message: Any) -> None:
        async with asyncio.timeout(STALL):
            await send(message)

    return wait


async def events(records: AsyncIterator[dict[str, Any]]) -> AsyncIterator[bytes]:
    async with aclosing(records):  # type: ignore[type-var]
        try:
            async for record in records:
                yield event(record)
        except Refused as error:
            yield event(error.body)
    yield b"data: [DONE]\n\n"


def event(record: dict[str, Any]) -> bytes:
    return b"data: " + json.dumps(record, ensure_ascii=False, separators=(",", ":")).encode() + b"\n\n"


async def begun(request: Request, source: AsyncIterator[Result]) -> AsyncIterator[Result]:
    """The same source, with its first record already there: what is wrong by then is still an answer of its own."""
    first = await unless_gone(request, anext(source))  # type: ignore[arg-type]

    async def all_() -> AsyncIterator[Result]:
        async with aclosing(source):  # type: ignore[type-var]
            yield first
            async for record in source:
                yield record

    return all_()
