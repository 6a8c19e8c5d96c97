"""Checks of every request before it is read (host, key, size, type), and the headers of every response."""

import asyncio
import codecs
import hashlib
import hmac
import re
from collections.abc import Callable
from typing import Any

from starlette.datastructures import Headers, MutableHeaders
from starlette.middleware.cors import CORSMiddleware
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from regard.serve.errors import Refused, full
from regard.serve.settings import Settings

HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; media-src blob:; "
        "connect-src 'self'; font-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=(self)",
}
DOCS_STYLE = "style-src 'self' 'unsafe-inline'"
"""Added for /docs alone, whose page sets inline styles; it shows no output of a model."""
LOCAL = ("localhost", "127.0.0.1", "[::1]")
BODY_SECONDS = 60.0
"""Seconds in which a request must arrive."""
AFTER = "regard.after"
"""The key of a request's scope for functions that are called when its response was sent, or nobody waits for it."""
MOST_NESTED = 2**14
"""Lists and objects in a body: a megabyte of brackets takes seconds to parse and validate, one of text does not."""
UPLOADS, FORM = "/v1/audio/", "multipart/form-data"
LARGER = 8
"""The upload of a recording may be larger than any other request by this factor."""
HELD = 32
"""Bodies of the largest size whose bytes may be held for all requests together."""
DRAINED = 16
"""A body that is too large is read up to this many times the limit: clients read the response only after it."""


class Guard:
    """An ASGI application that checks host names, API keys and body sizes for another one, and adds headers."""

    def __init__(self, app: ASGIApp, settings: Settings, count: Callable[[Scope, int], Any]) -> None:
        self.app, self.settings, self.count = app, settings, count
        self.held = 0  # bytes of the bodies of all open requests
        self.keys = [digest(key.strip()) for key in settings.api_keys]
        names = (*LOCAL, settings.host, f"[{settings.host}]", *settings.hosts)
        self.names = {name.lower() for name in names} if settings.is_local or settings.hosts else None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return

        async def send_sealed(message: Message) -> None:
            if message["type"] == "http.response.start":
                seal(scope["path"], MutableHeaders(scope=message))
                self.count(scope, message["status"])
            await send(message)

        pieces: list[bytes] = []
        scope[AFTER] = []
        try:
            headers = Headers(scope=scope)
            self.check_name(headers)
            self.check_key(scope, headers)
            form = is_form(scope, headers)
            if await self.read(headers, receive, pieces, form):
                body = b"".join(pieces)
                if not form:
                    check_nesting(body)
                await self.app(scope, replay(body, receive), send_sealed)
        except Refused as error:
            await shared(error.response, self.settings)(scope, receive, send_sealed)
        finally:
            self.held -= sum(map(len, pieces))
            for call in scope[AFTER]:
                call()

    def check_name(self, headers: Headers) -> None:
        """Refuse foreign host names: a page elsewhere can point its own name at this machine (DNS rebinding)."""
        host = headers.get("host", "").lower()
        name = host.rsplit(":", 1)[0] if not host.endswith("]") else host
        if self.names is not None and not name:
            raise Refused(400, "the request names no host; send a Host header")
        if self.names is not None and name not in self.names:
            raise Refused(400, f"this server is not called {name!r}; start it with --allow-host {name}")

    def check_key(self, scope: Scope, headers: Headers) -> None:
        if not self.keys or not scope["path"].startswith(("/v1/", "/metrics")) or scope["method"] == "OPTIONS":
            return
        scheme, _, key = headers.get("authorization", "").partition(" ")
        sent = digest(key.strip())
        matches = [hmac.compare_digest(sent, known) for known in self.keys]  # all keys, so that timing tells nothing
        if scheme.lower() != "bearer" or not any(matches):
            fact = "the API key is wrong" if key else "an API key is needed"
            raise Refused(401, f"{fact}; send Authorization: Bearer KEY", code="invalid_api_key",
                          www_authenticate="Bearer")  # fmt: skip

    async def read(self, headers: Headers, receive: Receive, pieces: list[bytes], form: bool) -> bool:
        """Collect the body in `pieces`; return whether the client is still there. A body that is too large, late or not
        JSON is refused, and any while those of other requests take all the memory that bodies may."""
        held, limit = HELD * self.settings.max_body, self.settings.max_body * (LARGER if form else 1)
        declared = int(length) if re.fullmatch("[0-9]{1,18}", length := headers.get("content-length", "")) else 0
        size = 0
        try:
            async with asyncio.timeout(BODY_SECONDS):
                more = declared <= DRAINED * limit
                while more:
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        return False
                    piece = message.get("body", b"")
                    size += len(piece)
                    if size <= limit:
                        if self.held + len(piece) > held:
                            raise full()
                        pieces.append(piece)
                        self.held += len(piece)
                    more = message.get("more_body", False) and size <= DRAINED * limit
        except TimeoutError:
            late = f"the request did not arrive within {BODY_SECONDS:g} seconds; send it again"
            raise Refused(408, late, connection="close") from None
        if max(size, declared) > limit:
            raise Refused(413, f"the request has more than {limit:,} bytes; send less at once", code="too_large",
                          connection="close")  # fmt: skip
        type_ = headers.get("content-type", "").partition(";")[0].strip().lower()
        if size and not form and type_ != "application/json":
            raise Refused(415, f"the body is {type_ or 'of no type'}; send Content-Type: application/json")
        return True


def is_form(scope: Scope, headers: Headers) -> bool:
    """Whether a request uploads a recording: the only body that is no JSON."""
    return scope["path"].startswith(UPLOADS) and headers.get("content-type", "").lower().startswith(FORM)


def check_nesting(body: bytes) -> None:
    """Refuse a body with too many lists and objects, before it is parsed, and one that is not UTF-8: in other encodings
    they could not be counted."""
    if b"\0" in body or body.startswith(codecs.BOM_UTF8):
        raise Refused(400, "the body is not plain UTF-8; send it without null bytes and byte order marks")
    if nested(body) > MOST_NESTED:  # cheap, but counts those in texts, too
        plain = body.replace(b"\\\\", b"").replace(b'\\"', b"").split(b'"')[::2]  # what is outside of strings
        if (count := sum(map(nested, plain))) > MOST_NESTED:
            fact = f"the body has {count:,} lists and objects, at most {MOST_NESTED:,} are read"
            raise Refused(400, f"{fact}; send less at once", code="too_large")


def nested(body: bytes) -> int:
    return body.count(b"[") + body.count(b"{")


def shared(app: ASGIApp, settings: Settings) -> ASGIApp:
    """The application with CORS headers, if pages of other sites may read its responses."""
    if not settings.origins:
        return app
    return CORSMiddleware(app, settings.origins, allow_methods=["GET", "POST"], allow_headers=["*"])


def replay(body: bytes, receive: Receive) -> Receive:
    """A `receive` that returns a body that was read already, then what comes after it."""
    replayed = False

    async def again() -> Message:
        nonlocal replayed
        if replayed:
            return await receive()
        replayed = True
        return {"type": "http.request", "body": body, "more_body": False}

    return again


def seal(path: str, headers: MutableHeaders) -> None:
    """Add the security headers of a response."""
    for name, value in HEADERS.items():
        headers.setdefault(name, value)
    if path == "/docs":
        headers["Content-Security-Policy"] = HEADERS["Content-Security-Policy"].replace("style-src 'self'", DOCS_STYLE)
    headers.setdefault("Cache-Control", "no-cache" if path.startswith("/static/") else "no-store")


def digest(key: str) -> bytes:
    return hashlib.sha256(key.encode()).digest()
