"""Start a server, and stop it such that every open response ends properly."""

import asyncio
import logging
import signal
import socket
from collections.abc import Callable, Mapping
from types import FrameType
from typing import Any

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from regard.serve.answers import ABORT
from regard.serve.app import build_app
from regard.serve.errors import Refused
from regard.serve.guard import BODY_SECONDS
from regard.serve.model_store import ModelStore
from regard.serve.settings import Settings

log = logging.getLogger("regard.serve")
BACKLOG = 2048
"""Connections that may wait to be accepted."""


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
    """Closes connections that send no request, and lets a response close a connection that is no longer read."""

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self.loop.call_later(BODY_SECONDS, lambda: None if self.cycle else transport.abort())

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self.scope[ABORT] = self.transport.abort  # type: ignore[literal-required]


def serve(
    models: dict[str, str], settings: Settings, *, preload: bool, ready: Callable[[str, ModelStore], Any],
    opening: tuple[Any, ...] = (), loaded: Mapping[str, Any] | None = None,
) -> None:  # fmt: skip
    """Serve until a signal stops it; `ready` is called with the address and the models before the first request.

    `opening` is the input that the page shows first; the tasks in `loaded` are not loaded again.
    """
    logging.basicConfig(format="%(message)s")
    log.setLevel(logging.INFO)
    store = ModelStore(models, settings, loaded)
    listener = listen(settings)
    config = uvicorn.Config(
        build_app(store, settings, opening), log_level="warning", access_log=False, server_header=False,
        date_header=True,
        timeout_graceful_shutdown=int(settings.grace) + 5, timeout_keep_alive=75, ws="none", backlog=BACKLOG,
        http=Connection, proxy_headers=False,
    )  # fmt: skip

    async def run() -> None:
        if preload:
            for served in store:
                try:
                    await served.load()
                except Refused as error:
                    raise ValueError(error.detail) from None
        host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(settings.host, settings.host)  # any address
        name = f"[{host}]" if ":" in host else host
        ready(f"http://{name}:{listener.getsockname()[1]}", store)
        if not settings.is_local and not settings.api_keys:
            log.warning("everybody who reaches this machine can use the server; set a key with --api-key")
        await Server(config, store, settings).serve(sockets=[listener])

    with asyncio.Runner(loop_factory=config.get_loop_factory()) as runner:
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
