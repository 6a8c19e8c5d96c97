"""What every request passes before it is read, and every answer before it leaves."""

import asyncio
import hashlib
import hmac
import re
from collections.abc import Callable
from typing import Any

from starlette.datastructures import Headers, MutableHeaders
from starlette.middleware.cors import CORSMiddleware
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from regard.serve.errors import Refused
from regard.serve.settings import Settings

HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
        "font-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
}
DOCS_STYLE = "style-src 'self' 'unsafe-inline'"
"""The description's page sets styles of its own; it shows nothing that a model wrote."""
LOCAL = ("localhost", "127.0.0.1", "[::1]")
BODY_SECONDS = 60.0
"""That a request may take to arrive."""
DRAINED = 16
"""A body that is too large is read and thrown away up to this many times the limit: only then is the answer seen."""


class Guard:
    """Names, keys, sizes and headers, around an application."""

    def __init__(self, app: ASGIApp, settings: Settings, count: Callable[[Scope, int], Any]) -> None:
        self.app, self.settings, self.count = app, settings, count
        self.keys = [digest(key.strip()) for key in settings.api_keys]
        checks_names = settings.is_local or settings.hosts
        known = (*LOCAL, settings.host, f"[{settings.host}]", *settings.hosts)
        self.names = {name.lower() for name in known} if checks_names else None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return

        async def sealed(message: Message) -> None:
            if message["type"] == "http.response.start":
                seal(scope["path"], MutableHeaders(scope=message))
                self.count(scope, message["status"])
            await send(message)

        try:
            headers = Headers(scope=scope)
            self.check_name(headers)
            self.check_key(scope, headers)
            body = await self.read(scope, headers, receive)
        except Refused as error:
            await shared(error.response, self.settings)(scope, receive, sealed)
            return
        if body is None:  # the client left while it was sending
            return
        await self.app(scope, replay(body, receive), sealed)

    def check_name(self, headers: Headers) -> None:
        """A page elsewhere can make a browser call this machine by another name, and read what it answers."""
        host = headers.get("host", "").lower()
        name = host.rsplit(":", 1)[0] if not host.endswith("]") else host
        if self.names is not None and not name:
            raise Refused(400, "the request names no host; send a Host header")
        if self.names is not None and name not in self.names:
            raise Refused(400, f"this server is not called {name!r}; start it with --allow-host {name}")

    def check_key(self, scope: Scope, headers: Headers) -> None:
        if not self.keys or not scope["path"].startswith(("/v1/", "/metrics")) or scope["method"] == "OPTIONS":
            return
        kind, _, key = headers.get("authorization", "").partition(" ")
        given = digest(key.strip())
        right = [hmac.compare_digest(given, known) for known in self.keys]  # all of them, so that all take as long
        if kind.lower() != "bearer" or not any(right):
            fact = "the API key is wrong" if key else "an API key is needed"
            raise Refused(401, f"{fact}; send Authorization: Bearer KEY", code="invalid_api_key",
                          www_authenticate="Bearer")  # fmt: skip

    async def read(self, scope: Scope, headers: Headers, receive: Receive) -> bytes | None:
        """The body, if it is not too large, and comes in time."""
        limit = self.settings.max_body
        told = int(length) if re.fullmatch("[0-9]{1,18}", length := headers.get("content-length", "")) else 0
        pieces, size = [], 0
        try:
            async with asyncio.timeout(BODY_SECONDS):
                more = told <= DRAINED * limit
                while more:
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        return None
                    size += len(message.get("body", b""))
                    if size <= limit:
                        pieces.append(message.get("body", b""))
                    more = message.get("more_body", False) and size <= DRAINED * limit
        except TimeoutError:
            raise Refused(
                408, f"the request did not arrive within {BODY_SECONDS:g} seconds", connection="close"
            ) from None
        if max(size, told) > limit:
            raise Refused(413, f"the request has more than {limit:,} bytes; send less at once", code="too_large",
                          connection="close")  # fmt: skip
        kind = headers.get("content-type", "").partition(";")[0].strip().lower()
        if size and kind != "application/json":
            raise Refused(415, f"the body is {kind or 'of no type'}; send Content-Type: application/json")
        return b"".join(pieces)


def shared(app: ASGIApp, settings: Settings) -> ASGIApp:
    """Tells browsers which pages of other sites may read its answers."""
    if not settings.origins:
        return app
    return CORSMiddleware(app, settings.origins, allow_methods=["GET", "POST"], allow_headers=["*"])


def replay(body: bytes, receive: Receive) -> Receive:
    """A body that was read, and what comes after it."""
    told = False

    async def again() -> Message:
        nonlocal told
        if told:
            return await receive()
        told = True
        return {"type": "http.request", "body": body, "more_body": False}

    return again


def seal(path: str, headers: MutableHeaders) -> None:
    for name, value in HEADERS.items():
        headers.setdefault(name, value)
    if path == "/docs":
        headers["Content-Security-Policy"] = HEADERS["Content-Security-Policy"].replace("style-src 'self'", DOCS_STYLE)
    headers.setdefault("Cache-Control", "no-cache" if path.startswith("/static/") else "no-store")


def digest(key: str) -> bytes:
    return hashlib.sha256(key.encode()).digest()
