"""Servers for tests, as a process of their own or in a thread of this one, and a client for single bytes.

Nothing here waits for a time to pass: tests wait for a condition, hold an engine (`held`), or move a server's clock
(`serving_here(clock=True)`, `skip`), so that the speed of the machine changes no result.
"""

import asyncio
import http.client
import itertools
import json
import multiprocessing
import os
import re
import signal
import socket
import tempfile
import threading
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import openai
import pytest
from prometheus_client.parser import text_string_to_metric_families

from regard.serve import run
from regard.serve.settings import Settings
from tests.serve.child import work

PATIENCE = 240.0
"""Seconds after which something is taken for hung; a quiet machine needs a few."""
FORKS = multiprocessing.get_context("forkserver")
FORKS.set_forkserver_preload(["regard.cli", "regard.serve.run", "regard.tasks"])  # imports take seconds
CALM = "from regard.serve import guard, metrics, run\nguard.BODY_SECONDS = run.BODY_SECONDS = metrics.WINDOW = 3600.0\n"
"""Put before a server's own code: no limit that a busy machine could reach."""


class Answer:
    """A response: status, headers by lower-case name, and the body."""

    def __init__(self, response: http.client.HTTPResponse) -> None:
        self.status, self.body = response.status, response.read()
        self.headers = {name.lower(): value for name, value in response.getheaders()}

    @property
    def json(self):
        return json.loads(self.body)

    @property
    def error(self):
        """The error, after a check of its form."""
        error = self.json["error"]
        assert set(self.json) == {"error"} and set(error) == {"message", "type", "param", "code"}, self.json
        assert error["message"] and "\n" not in error["message"]
        return error

    @property
    def events(self):
        """The server-sent events before [DONE]."""
        assert self.headers["content-type"].startswith("text/event-stream")
        return events_of(self.body)


def events_of(body: bytes) -> list[dict]:
    *events, done, rest = body.decode().split("\n\n")
    assert (done, rest) == ("data: [DONE]", ""), body[-200:]
    assert all(event.startswith("data: ") for event in events)
    return [json.loads(event.removeprefix("data: ")) for event in events]


class Address:
    """A server at an address, and a client for it."""

    address: str
    headers: Mapping[str, str] = {}
    """Sent with every request."""

    @property
    def place(self) -> tuple[str, int]:
        parts = urlsplit(self.address)
        return parts.hostname, parts.port

    def ask(self, method: str, path: str, body=None, headers=(), **fields) -> Answer:
        """The response to a request; `fields` are its JSON body."""
        sent = {"Content-Type": "application/json"} if body is not None or fields else {}
        sent |= {**self.headers, **dict(headers)}
        connection = http.client.HTTPConnection(*self.place, timeout=PATIENCE)
        try:
            connection.request(method, path, json.dumps(fields) if fields else body, sent)
            return Answer(connection.getresponse())
        finally:
            connection.close()

    def get(self, path: str, **headers: str) -> Answer:
        return self.ask("GET", path, headers=headers)

    def post(self, path: str, **fields) -> Answer:
        return self.ask("POST", path, **fields)

    def post_all(self, path: str, bodies) -> list[Answer]:
        """The responses to many requests from sixteen threads: on a busy machine each of them waits."""
        with ThreadPoolExecutor(16) as pool:
            return list(pool.map(lambda body: self.post(path, **body), bodies))

    def connect(self, buffer: int | None = None) -> socket.socket:
        connection = socket.socket(socket.AF_INET)
        connection.settimeout(PATIENCE)
        if buffer is not None:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer)
        try:
            connection.connect(self.place)
        except OSError:
            connection.close()
            raise
        return connection

    def send(self, path: str, buffer: int | None = None, **fields) -> socket.socket:
        """A connection on which a request was sent, and whose response nobody has read."""
        body, connection = json.dumps(fields).encode(), self.connect(buffer)
        head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Type: application/json\r\n"
        connection.sendall(head.encode() + f"Content-Length: {len(body)}\r\n\r\n".encode() + body)
        return connection

    def figures(self) -> dict[str, float]:
        """The metrics as name{labels} → value."""
        answer = self.get("/metrics")
        assert answer.status == 200, answer.body
        families = list(text_string_to_metric_families(answer.body.decode()))
        return {
            sample.name + "".join(f"[{value}]" for _, value in sorted(sample.labels.items())): sample.value
            for family in families
            for sample in family.samples
        }

    def wait_until_idle(self, *models: str) -> None:
        """Return when no request waits or runs, and no cache page is held."""
        kinds = ("batch_size", "requests_waiting", "cache_pages_held")
        names = [f"regard_{kind}[{model}]" for kind in kinds for model in models]
        eventually(lambda: not any(map(self.figures().get, names)))

    def client(self, key: str = "none", **options) -> openai.OpenAI:
        return openai.OpenAI(base_url=self.address + "/v1", api_key=key, max_retries=0, timeout=PATIENCE, **options)


def eventually(holds) -> None:
    """Return when a condition holds."""
    until = time.monotonic() + PATIENCE
    while not holds():
        assert time.monotonic() < until, "the condition never held"
        time.sleep(0.02)


def words_for(models: dict[str, Path]) -> list[str]:
    return [f"{name}={path}" for name, path in models.items()]


class Process(Address):
    """`regard serve` in a process of its own; `before` is Python that runs first."""

    def __init__(self, models: dict[str, Path], *options: str, before: str = "", **environment: str) -> None:
        words = ["serve", *words_for(models), "--port", "0", *map(str, options)]
        handle, self.file = tempfile.mkstemp(suffix=".log")
        os.close(handle)
        self.process = FORKS.Process(target=work, args=(words, CALM + before, environment, self.file))
        self.process.start()
        eventually(lambda: "http://" in self.log or not self.process.is_alive())
        match = re.search(r"http://[^/]+:\d+", self.log)
        assert match, self.log
        self.address, self.signalled = match[0], False

    @property
    def log(self) -> str:
        return Path(self.file).read_text()

    def signal(self, number: int) -> None:
        self.signalled = True
        os.kill(self.process.pid, number)

    def end(self) -> int:
        """The exit code, when the process has ended."""
        self.process.join(PATIENCE)
        return self.process.exitcode


@contextmanager
def serving(models: dict[str, Path], *options: str, before: str = "", complaint: str = "", **environment: str):
    """A server in a process, which must end without an error and log nothing unexpected but `complaint`."""
    server = Process(models, *options, before=before, **environment)
    try:
        yield server
        if not server.signalled:  # a second signal would kill it at its very end
            server.signal(signal.SIGTERM)
        assert server.end() == 0, server.log
        check_log(server.log, complaint)
    finally:
        server.process.kill()
        os.unlink(server.file)


EXPECTED = ("serving ", "page ", "loaded ", "evicted ", "stopping: ", "Invalid HTTP request received.")


def check_log(log: str, complaint: str = "") -> None:
    """Check that a log has the usual lines and no others."""
    left = {line for line in log.splitlines() if not line.startswith(EXPECTED) and " cannot be loaded: " not in line}
    assert "serving " in log and left <= {complaint}, log


class ClockLoop(asyncio.SelectorEventLoop):
    """An event loop whose clock can be moved."""

    offset = 0.0

    def time(self) -> float:
        return super().time() + self.offset

    def skip(self, seconds: float) -> None:
        self.offset += seconds


class Thread(Address):
    """A server inside this process; with `clock`, `skip` moves its time."""

    def __init__(self, models: dict[str, Path], *, clock: bool = False, preload: bool = False, **settings) -> None:
        ready, kept = threading.Event(), []

        class Kept(run.Server):
            def __init__(self, *args) -> None:
                super().__init__(*args)
                kept.append(self)

        def on_ready(address: str, store) -> None:
            self.address, self.store, self.loop = address, store, asyncio.get_running_loop()
            ready.set()

        def work() -> None:
            chosen = Settings(**dict(port=0, grace=0.0) | settings)
            run.serve({name: str(path) for name, path in models.items()}, chosen, preload=preload, ready=on_ready)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(run, "Server", Kept)
            if clock:
                patch.setattr(run.uvicorn.Config, "get_loop_factory", lambda self: ClockLoop)
            self.thread = threading.Thread(target=work, daemon=True)
            self.thread.start()
            assert ready.wait(PATIENCE)
            eventually(lambda: kept)
        self.server = kept[0]

    def skip(self, seconds: float) -> None:
        """Let this much time pass for the server."""
        self.loop.call_soon_threadsafe(self.loop.skip, seconds)

    @contextmanager
    def held(self, model: str, after: int = 3):
        """Let the engine of a model do only this many steps in here, however fast the machine is."""
        served = self.store.models[model]
        if served.engine is None:
            assert self.post("/v1/completions", model=model, prompt="a", max_tokens=1).status == 200
            self.wait_until_idle(model)
        engine, steps, go = served.engine, itertools.count(), threading.Event()

        def step() -> None:
            if next(steps) >= after:
                go.wait(PATIENCE)
            type(engine).step(engine)

        engine.step = step
        try:
            yield
        finally:
            go.set()
            del engine.step

    def close(self) -> None:
        self.server.should_exit = True
        self.thread.join(PATIENCE)
        assert not self.thread.is_alive()


@contextmanager
def serving_here(models: dict[str, Path], **settings):
    server = Thread(models, **settings)
    try:
        yield server
    finally:
        server.close()
