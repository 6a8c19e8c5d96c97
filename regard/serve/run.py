"""Starting a server, and stopping it so that nobody's answer breaks off without a word."""

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
from regard.serve.settings import Settings
from regard.serve.shelf import Shelf

log = logging.getLogger("regard.serve")
BACKLOG = 2048
"""Connections that wait to be taken."""


class Server(uvicorn.Server):
    """Told to stop, it takes no more; what is open may go on for a while, and then gets a clear end."""

    def __init__(self, config: uvicorn.Config, shelf: Shelf, settings: Settings) -> None:
        super().__init__(config)
        self.shelf, self.settings = shelf, settings

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        hurry = self.should_exit and sig == signal.SIGINT  # Ctrl-C twice
        if not self.should_exit and (count := len(self.server_state.tasks)):
            told = f"stopping: up to {self.settings.grace:g} s for {count} open answers"
            log.info("%s%s", told, "; Ctrl-C again ends them now" if sig == signal.SIGINT else "")
        self.should_exit = self.shelf.closing = True
        loop = asyncio.get_running_loop()
        loop.call_soon_threadsafe(loop.call_later, 0 if hurry else self.settings.grace, self.shelf.close)


class Connection(HttpToolsProtocol):
    """Hangs up on who connects and asks nothing, and lets an answer hang up on who stopped reading."""

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self.loop.call_later(BODY_SECONDS, lambda: None if self.cycle else transport.abort())

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self.scope[ABORT] = self.transport.abort  # type: ignore[literal-required]


def serve(
    models: dict[str, str], settings: Settings, *, preload: bool, ready: Callable[[str, Shelf], Any],
    opening: tuple[Any, ...] = (), loaded: Mapping[str, Any] | None = None,
) -> None:  # fmt: skip
    """Serves until it is told to stop; `ready` is called with the address when it can be reached.

    `opening` is what the page looks at first; models that are `loaded` are not loaded again.
    """
    logging.basicConfig(format="%(message)s")
    log.setLevel(logging.INFO)
    shelf = Shelf(models, settings, loaded)
    listener = listen(settings)
    config = uvicorn.Config(
        build_app(shelf, settings, opening), log_level="warning", access_log=False, server_header=False,
        date_header=True,
        timeout_graceful_shutdown=int(settings.grace) + 5, timeout_keep_alive=75, ws="none", backlog=BACKLOG,
        http=Connection, proxy_headers=False,
    )  # fmt: skip

    async def run() -> None:
        if preload:
            for served in shelf:
                try:
                    await served.load()
                except Refused as error:
                    raise ValueError(error.detail) from None
        host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(settings.host, settings.host)  # any address: this one works
        name = f"[{host}]" if ":" in host else host
        ready(f"http://{name}:{listener.getsockname()[1]}", shelf)
        if not settings.is_local and not settings.api_keys:
            log.warning("whoever reaches this machine can use it, without a key; give it one with --api-key")
        await Server(config, shelf, settings).serve(sockets=[listener])

    with asyncio.Runner(loop_factory=config.get_loop_factory()) as runner:
        runner.run(run())


def listen(settings: Settings) -> socket.socket:
    """An open port; one that is taken is an error of one line."""
    where = f"{settings.host}:{settings.port}"
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
        raise ValueError(
            f"cannot listen on {where}: {error.strerror or error}; choose another --port or --host"
        ) from None
    return listener
