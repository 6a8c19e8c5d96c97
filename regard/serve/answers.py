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

to_json = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode

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
    """Records as server-sent events. Their source is closed with the connection, or after `limit` seconds."""

    media_type = "text/event-stream"

    def __init__(self, records: AsyncIterator[dict[str, Any]], limit: float) -> None:
        super().__init__(events(records), headers={"X-Accel-Buffering": "no"})  # proxies are to pass them on at once
        self.limit = limit

    async def stream_response(self, send: Send) -> None:
        async with aclosing(self.body_iterator), asyncio.timeout(self.limit):  # type: ignore[type-var]
            await super().stream_response(send)


async def events(records: AsyncIterator[dict[str, Any]]) -> AsyncIterator[bytes]:
    async with aclosing(records):  # type: ignore[type-var]
        try:
            async for record in records:
                yield event(record)
        except Refused as error:
            yield event(error.body)
    yield b"data: [DONE]\n\n"


def event(record: dict[str, Any]) -> bytes:
    return b"data: " + to_json(record).encode() + b"\n\n"


async def begun(request: Request, source: AsyncIterator[Result]) -> AsyncIterator[Result]:
    """The same source, with its first record already there: what is wrong by then is still an answer of its own."""
    first = await unless_gone(request, anext(source))  # type: ignore[arg-type]

    async def all_() -> AsyncIterator[Result]:
        async with aclosing(source):  # type: ignore[type-var]
            yield first
            async for record in source:
                yield record

    return all_()
