"""Start a server, and stop it such that every open response ends properly."""

import asyncio
import json
import logging
import signal
import socket
from collections.abc import Callable, Mapping
from types import FrameType
from typing import Any

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from regard.data.terminal import printable
from regard.serve.allocator import share_arenas
from regard.serve.answers import ABORT
from regard.serve.app import build_app
from regard.serve.errors import Refused
from regard.serve.guard import BODY_SECONDS
from regard.serve.model_store import ModelStore
from regard.serve.settings import Settings

log = logging.getLogger("regard.serve")
BACKLOG = 2048
"""Connections that may wait to be accepted."""
MOST_HEADERS, MOST_HEADER_BYTES = 100, 2**16
"""Headers of a request, and their bytes together with the path's."""


class LogFormatter(logging.Formatter):
    """Writes a message on one line, whatever its model or file is called; only a traceback has more."""

    def format(self, record: logging.LogRecord) -> str:
        line = {"msg": record.getMessage().replace("\n", "⟨0A⟩"), "args": None}
        return printable(super().format(logging.makeLogRecord(record.__dict__ | line)))


class Server(uvicorn.Server):
    """A server that on shutdown accepts no new requests and gives open responses `grace` seconds to end."""

    def __init__(self, config: uvicorn.Config, store: ModelStore, settings: Settings) -> None:
        super().__init__(config)
        self.store, self.settings = store, settings

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        hurry = self.should_exit and sig == signal.SIGINT  # Ctrl-C twice
        if not self.should_exit and (count := len(self.server_state.tasks)):
            again = "; Ctrl-C again ends them now" if sig == signal.SIGINT else ""
            log.info("stopping: up to %g s for %d open responses%s", self.settings.grace, count, again)
        self.should_exit = self.store.closing = True
        loop = asyncio.get_running_loop()
        loop.call_soon_threadsafe(loop.call_later, 0 if hurry else self.settings.grace, self.store.close)


class Connection(HttpToolsProtocol):
    """A connection whose headers are bounded in number, size and time, and which a response can close.

    The parser collects a header before it hands it over, so bytes that it keeps to itself are counted too.
    """

    timer: asyncio.TimerHandle | None = None
    """Runs while headers are awaited: from the connection's start, later from the first byte of a request."""
    kept = header_count = header_bytes = 0
    excess = False

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self.await_headers()

    def await_headers(self) -> None:
        if self.timer is None:
            self.timer = self.loop.call_later(BODY_SECONDS, self.transport.abort)

    def connection_lost(self, exc: Exception | None) -> None:
        self.stop_timer()
        super().connection_lost(exc)

    def stop_timer(self) -> None:
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None

    def data_received(self, data: bytes) -> None:
        self.kept += len(data)
        super().data_received(data)
        if self.kept > MOST_HEADER_BYTES and not self.transport.is_closing():
            self.excess = True
            self.send_400_response("")

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self.header_count = self.header_bytes = 0
        self.await_headers()
        self.scope[ABORT] = self.transport.abort  # type: ignore[literal-required]

    def on_header(self, name: bytes, value: bytes) -> None:
        self.kept = 0
        self.header_count += 1
        self.header_bytes += len(name) + len(value)
        if self.header_count > MOST_HEADERS or self.header_bytes + len(self.url) > MOST_HEADER_BYTES:
            self.excess = True
            raise ValueError("too many headers")  # the parser stops, and an error is sent
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        self.kept = 0
        self.stop_timer()
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        self.kept = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        self.kept = 0
        super().on_message_complete()

    def send_400_response(self, msg: str) -> None:
        """Send an error that needs no application: headers beyond the limit, or what is no HTTP."""
        if not self.excess:
            return super().send_400_response(msg)
        limit = f"the headers have more than {MOST_HEADER_BYTES:,} bytes or {MOST_HEADERS} fields; send fewer"
        error = {"message": limit, "type": "invalid_request_error", "param": None, "code": "headers_too_large"}
        body = json.dumps({"error": error}).encode()
        head = f"HTTP/1.1 431 Request Header Fields Too Large\r\ncontent-length: {len(body)}\r\n"
        self.transport.write(head.encode() + b"content-type: application/json\r\nconnection: close\r\n\r\n" + body)
        self.transport.close()


def serve(
    models: dict[str, str], settings: Settings, *, preload: bool, ready: Callable[[str, ModelStore], Any],
    opening: tuple[Any, ...] = (), loaded: Mapping[str, Any] | None = None,
) -> None:  # fmt: skip
    """Serve until a signal stops it; `ready` is called with the address and the models before the first request.

    `opening` is the input that the page shows first; the tasks in `loaded` are not loaded again.
    """
    share_arenas()
    handler = logging.StreamHandler()
    handler.setFormatter(LogFormatter("%(message)s"))
    logging.basicConfig(handlers=[handler])
    log.setLevel(logging.INFO)
    store = ModelStore(models, settings, loaded)
    listener = listen(settings)
    config = uvicorn.Config(
        build_app(store, settings, opening), log_config=None, log_level="warning", access_log=False,
        server_header=False, date_header=True,
        timeout_graceful_shutdown=int(settings.grace) + 5, timeout_keep_alive=75, ws="none", backlog=BACKLOG,
        http=Connection, proxy_headers=False,
    )  # fmt: skip

    async def run() -> None:
        if preload:
            for served in store:
                try:
                    await store.load(served)
                except Refused as error:
                    raise ValueError(error.detail) from None
                if any(other.evictions for other in store):
                    raise ValueError("--models-memory holds not all models at once; raise it, or leave out --preload")
        host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(settings.host, settings.host)  # any address
        name = f"[{host}]" if ":" in host else host
        ready(f"http://{name}:{listener.getsockname()[1]}", store)
        if not settings.is_local and not settings.api_keys:
            log.warning("everybody who reaches this machine can use the server; set a key with --api-key")
        await Server(config, store, settings).serve(sockets=[listener])

    with listener, asyncio.Runner(loop_factory=config.get_loop_factory()) as runner:
        runner.run(run())


def listen(settings: Settings) -> socket.socket:
    """A listening socket; a port that is taken is an error of one line."""
    try:
        family = socket.getaddrinfo(settings.host, settings.port, type=socket.SOCK_STREAM)[0][0]
        listener = socket.socket(family, socket.SOCK_STREAM)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((settings.host, settings.port))
            listener.listen(BACKLOG)
        except OSError:
            listener.close()
            raise
    except OSError as error:
        where, reason = f"{settings.host}:{settings.port}", error.strerror or error
        raise ValueError(f"cannot listen on {where}: {reason}; choose another --port or --host") from None
    return listener
