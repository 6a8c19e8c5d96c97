"""Servers for tests, as a process of their own or as a thread of this one, and how to talk to them byte by byte."""

import http.client
import json
import multiprocessing
import os
import re
import signal
import socket
import tempfile
import threading
import time
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import openai
from prometheus_client.parser import text_string_to_metric_families

from regard.serve import run
from regard.serve.settings import Settings
from tests.serve.child import work

PATIENCE = 60.0
"""Seconds after which something is taken for hung; nothing here should need them."""
FORKS = multiprocessing.get_context("forkserver")
FORKS.set_forkserver_preload(["regard.cli", "regard.serve.run", "regard.tasks"])  # a start takes seconds otherwise


class Answer:
    """What came back: status, headers by lower-case name, and the body."""

    def __init__(self, response: http.client.HTTPResponse) -> None:
        self.status, self.body = response.status, response.read()
        self.headers = {name.lower(): value for name, value in response.getheaders()}

    @property
    def json(self):
        return json.loads(self.body)

    @property
    def error(self):
        """What is wrong, in the form that every error has."""
        error = self.json["error"]
        assert set(self.json) == {"error"} and set(error) == {"message", "type", "param", "code"}, self.json
        assert error["message"] and "\n" not in error["message"]
        return error

    @property
    def events(self):
        """Server-sent events, up to [DONE]."""
        assert self.headers["content-type"].startswith("text/event-stream")
        return events_of(self.body)


def events_of(body: bytes) -> list[dict]:
    *events, done, rest = body.decode().split("\n\n")
    assert (done, rest) == ("data: [DONE]", ""), body[-200:]
    assert all(event.startswith("data: ") for event in events)
    return [json.loads(event.removeprefix("data: ")) for event in events]


class Speaks:
    """A server at an address."""

    address: str

    @property
    def place(self) -> tuple[str, int]:
        parts = urlsplit(self.address)
        return parts.hostname, parts.port

    def ask(self, method: str, path: str, body=None, headers=(), **fields) -> Answer:
        """One request; `fields` are a JSON body."""
        sent = {"Content-Type": "application/json"} if body is not None or fields else {}
        connection = http.client.HTTPConnection(*self.place, timeout=PATIENCE)
        try:
            connection.request(method, path, json.dumps(fields) if fields else body, sent | dict(headers))
            return Answer(connection.getresponse())
        finally:
            connection.close()

    def get(self, path: str, **headers: str) -> Answer:
        return self.ask("GET", path, headers=headers)

    def post(self, path: str, **fields) -> Answer:
        return self.ask("POST", path, **fields)

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
        """A request whose answer the test reads itself, or leaves."""
        body, connection = json.dumps(fields).encode(), self.connect(buffer)
        head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Type: application/json\r\n"
        connection.sendall(head.encode() + f"Content-Length: {len(body)}\r\n\r\n".encode() + body)
        return connection

    def figures(self, **headers: str) -> dict[str, float]:
        """The metrics as name{labels} → value."""
        answer = self.get("/metrics", **headers)
        assert answer.status == 200, answer.body
        families = list(text_string_to_metric_families(answer.body.decode()))
        return {
            one.name + "".join(f"[{value}]" for _, value in sorted(one.labels.items())): one.value
            for family in families
            for one in family.samples
        }

    def wait_until_idle(self, *models: str, **headers: str) -> None:
        """Nobody waits, nothing is written, no page is held."""
        kinds = ("batch_size", "requests_waiting", "cache_pages_held")
        names = [f"regard_{kind}[{model}]" for kind in kinds for model in models]
        eventually(lambda: not any(map(self.figures(**headers).get, names)))

    def client(self, key: str = "none", **how) -> openai.OpenAI:
        return openai.OpenAI(base_url=self.address + "/v1", api_key=key, max_retries=0, timeout=PATIENCE, **how)


def eventually(holds) -> None:
    """Waits until something is so."""
    until = time.monotonic() + PATIENCE
    while not holds():
        assert time.monotonic() < until, "waited in vain"
        time.sleep(0.02)


def words_for(models: dict[str, Path]) -> list[str]:
    return [f"{name}={path}" for name, path in models.items()]


class Process(Speaks):
    """`regard serve` as a user starts it; `before` is Python that runs first."""

    def __init__(self, models: dict[str, Path], *options: str, before: str = "", **environment: str) -> None:
        words = ["serve", *words_for(models), "--port", "0", *map(str, options)]
        handle, self.file = tempfile.mkstemp(suffix=".log")
        os.close(handle)
        self.process = FORKS.Process(target=work, args=(words, before, environment, self.file))
        self.process.start()
        eventually(lambda: "http://" in self.log or not self.process.is_alive())
        found = re.search(r"http://[^/]+:\d+", self.log)
        assert found, self.log
        self.address, self.told = found[0], False

    @property
    def log(self) -> str:
        return Path(self.file).read_text()

    def signal(self, number: int) -> None:
        self.told = True
        os.kill(self.process.pid, number)

    def end(self) -> int:
        """Waits for its end; returns the exit code."""
        self.process.join(PATIENCE)
        return self.process.exitcode


@contextmanager
def serving(models: dict[str, Path], *options: str, before: str = "", complaint: str = "", **environment: str):
    """A server for a while. In the end it must go in peace, and have had nothing to complain of but one thing."""
    server = Process(models, *options, before=before, **environment)
    try:
        yield server
        if not server.told:  # twice would be once too often: at its very end it no longer listens
            server.signal(signal.SIGTERM)
        assert server.end() == 0, server.log
        check_log(server.log, complaint)
    finally:
        server.process.kill()
        os.unlink(server.file)


EXPECTED = ("serving ", "page ", "loaded ", "stopping: ", "WARNING:  Invalid HTTP request received.")


def check_log(log: str, complaint: str = "") -> None:
    """What a server tells of its life; no traceback, nothing else."""
    left = {line for line in log.splitlines() if not line.startswith(EXPECTED) and " cannot be loaded: " not in line}
    assert "serving " in log and left <= {complaint}, log


class Thread(Speaks):
    """The same server inside of this process, for tests of its limits: it is there at once."""

    def __init__(self, models: dict[str, Path], **settings) -> None:
        ready, kept = threading.Event(), []

        class Kept(run.Server):
            def __init__(self, *args) -> None:
                super().__init__(*args)
                kept.append(self)

        def told(address: str, shelf) -> None:
            self.address, self.shelf = address, shelf
            ready.set()

        def work() -> None:
            how = Settings(**dict(port=0, grace=0.0) | settings)
            run.serve({name: str(path) for name, path in models.items()}, how, preload=False, ready=told)

        before, run.Server = run.Server, Kept
        try:
            self.thread = threading.Thread(target=work, daemon=True)
            self.thread.start()
            assert ready.wait(PATIENCE)
            eventually(lambda: kept)
        finally:
            run.Server = before
        self.server = kept[0]

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
