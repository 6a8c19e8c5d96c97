"""Load on `regard serve` from a second process: what many clients at once get, beside one alone.

    pip install 'regard[serve]'
    python benchmarks/serve.py runs/docs [--clients 16] [--seconds 120] [--tokens 128] [--connections 500] [--json]

Starts the server on a free port of loopback, or takes a running one (`--url http://127.0.0.1:8000`). Streams to one
client, then to all of them for `--seconds`, then to one again: the ratio is taken within one run, to the mean of both.
Every request has a prompt of its own; tokens are those that the server counts (`usage`); a model that ends its texts
early is asked again. Then `--connections` are opened, and when all are open each asks for a short completion: it is
answered, or refused with 429 or 503 and our error. Anything else, here or before, is a failure and the exit code 1.
The client reads bytes and looks at them when a text is complete, so that the cores are left to the server. Of a server
of its own it also prints the processor's time for each token, which other programs on the machine hardly change.
"""

import argparse
import asyncio
import json
import os
import random
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

WORDS = "the a list value returns raises if not when key file name all each first last number text with from".split()
KEY = {"Authorization": f"Bearer {os.environ['REGARD_API_KEY'].split()[0]}"} if os.environ.get("REGARD_API_KEY") else {}
PATIENCE = 300.0
"""Seconds after which an answer is taken for lost."""


class FailedError(Exception):
    """An answer that no client should get."""


@dataclass(frozen=True, slots=True)
class Answer:
    status: int
    body: bytes
    first: float
    """The time of the first piece of the body."""


@dataclass(slots=True)
class Load:
    """The results of a load of streaming clients."""

    clients: int
    seconds: float = 0.0
    cpu: float = 0.0
    """Seconds of the processor that the server took; of one that ran already, 0."""
    tokens: int = 0
    texts: int = 0
    waits: list[float] = field(default_factory=list)
    """Seconds to each first token."""
    failures: list[str] = field(default_factory=list)

    @property
    def speed(self) -> float:
        return self.tokens / self.seconds if self.seconds else 0.0

    def told(self) -> dict[str, Any]:
        waits = sorted(self.waits) or [float("nan")]
        return {
            "clients": self.clients,
            "seconds": round(self.seconds, 2),
            "texts": self.texts,
            "tokens": self.tokens,
            "tokens_per_second": round(self.speed, 1),
            "cpu_ms_per_token": round(1000 * self.cpu / max(1, self.tokens), 4),
            "first_token_p50": round(statistics.median(waits), 4),
            "first_token_p95": round(waits[round(0.95 * (len(waits) - 1))], 4),
            "first_token_max": round(waits[-1], 4),
            "failures": self.failures,
        }


@dataclass(frozen=True, kw_only=True, slots=True)
class Server:
    """The address of a server, and the model that is requested."""

    host: str
    port: int
    model: str = ""
    process: int | None = None
    """The process of a server of our own."""

    @property
    def cpu(self) -> float:
        """Seconds of the processor that the server has taken (Linux)."""
        if self.process is None or not (stat := Path(f"/proc/{self.process}/stat")).exists():
            return 0.0
        fields = stat.read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection(self.host, self.port)

    async def post(
        self, fields: dict[str, Any], open_one: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None
    ) -> Answer:
        """One completion over one connection, which the server closes behind it."""
        content = json.dumps({"model": self.model, **fields}).encode()
        head = (
            f"POST /v1/completions HTTP/1.1\r\nHost: {self.host}:{self.port}\r\nConnection: close\r\n"
            f"Content-Type: application/json\r\nContent-Length: {len(content)}\r\n"
        ) + "".join(f"{name}: {value}\r\n" for name, value in KEY.items())
        reader, writer = open_one or await self.connect()
        try:
            writer.write(f"{head}\r\n".encode() + content)
            answer, first = b"", 0.0
            pieces: list[bytes] = []
            while piece := await reader.read(1 << 16):
                pieces.append(piece)
                if not first:
                    answer += piece  # only until the body begins
                    first = time.perf_counter() if answer.partition(b"\r\n\r\n")[2] else 0.0
        finally:
            writer.close()
        headers, _, body = b"".join(pieces).partition(b"\r\n\r\n")
        if not headers.startswith(b"HTTP/1.1 "):
            raise FailedError("the connection was closed without an answer")
        if b"transfer-encoding: chunked" in headers.lower():
            body = unchunked(body)
        return Answer(int(headers[9:12]), body, first)


def unchunked(body: bytes) -> bytes:
    """The content of HTTP's chunks; the last one, which is empty, must be there."""
    pieces, place = [], 0
    while True:
        end = body.find(b"\r\n", place)
        if end < 0:
            raise FailedError("the answer was cut off")
        size = int(body[place:end].partition(b";")[0], 16)
        if size == 0:
            return b"".join(pieces)
        pieces.append(body[end + 2 : end + 2 + size])
        place = end + 2 + size + 2


def usage(answer: Answer) -> int:
    """The tokens of a stream that came to its proper end."""
    if answer.status != 200:
        raise FailedError(f"{answer.status}: {answer.body[:300].decode(errors='replace')}")
    events = [event.removeprefix(b"data: ") for event in answer.body.split(b"\n\n") if event.startswith(b"data: ")]
    if not events or events[-1] != b"[DONE]":
        raise FailedError(f"a stream without an end: …{answer.body[-200:].decode(errors='replace')}")
    last = json.loads(events[-2])
    if "error" in last:
        raise FailedError(f"an error in the stream: {last['error'].get('message')}")
    return int(last["usage"]["completion_tokens"])


def prompt(*seed: object) -> str:
    """A text that begins unlike all others, so that nothing of it is in the server's cache."""
    dice = random.Random(str(seed))
    return " ".join([str(dice.randrange(10**9)), *dice.choices(WORDS, k=4)])


async def stream(server: Server, clients: int, seconds: float, tokens: int, name: str) -> Load:
    """So many clients, each one asking again as soon as it has its text, until the time is over."""
    load = Load(clients)
    started, cpu = time.perf_counter(), server.cpu

    async def client(number: int) -> None:
        turn = 0
        while turn == 0 or time.perf_counter() - started < seconds:
            fields = {"prompt": prompt(name, number, turn), "max_tokens": tokens, "seed": turn}
            fields |= {"stream": True, "stream_options": {"include_usage": True}}
            turn += 1
            asked = time.perf_counter()
            try:
                answer = await asyncio.wait_for(server.post(fields), PATIENCE)
                load.tokens += usage(answer)
            except (FailedError, OSError, ValueError, LookupError, TimeoutError) as error:
                load.failures.append(f"{type(error).__name__}: {error}")
                await asyncio.sleep(0.1)
                continue
            load.texts += 1
            load.waits.append(answer.first - asked)

    await asyncio.gather(*(client(number) for number in range(clients)))
    load.seconds, load.cpu = time.perf_counter() - started, server.cpu - cpu
    return load


async def crowd(server: Server, connections: int) -> dict[str, Any]:
    """All connections open, then all ask."""
    opened = await asyncio.gather(*(server.connect() for _ in range(connections)), return_exceptions=True)

    async def one(number: int, connection: Any) -> str:
        try:
            if isinstance(connection, BaseException):
                raise connection
            fields = {"prompt": prompt("crowd", number), "max_tokens": 8}
            answer = await asyncio.wait_for(server.post(fields, connection), PATIENCE)
            content = json.loads(answer.body)
            if answer.status == 200 and content["usage"]["completion_tokens"] > 0:
                return "answered"
            if answer.status in (429, 503) and content["error"]["message"]:
                return f"refused {answer.status}"
            return f"failed: {answer.status}: {answer.body[:200].decode(errors='replace')}"
        except (FailedError, OSError, ValueError, LookupError, TypeError, TimeoutError) as error:
            return f"failed: {type(error).__name__}: {error}"

    started = time.perf_counter()
    counts = Counter(await asyncio.gather(*(one(number, each) for number, each in enumerate(opened))))
    failures = {what: count for what, count in counts.items() if what.startswith("failed")}
    return {
        "connections": connections,
        "seconds": round(time.perf_counter() - started, 2),
        "answered": counts["answered"],
        "refused": {what.split()[1]: count for what, count in sorted(counts.items()) if what.startswith("refused")},
        "failures": failures,
    }


@contextmanager
def running(run: str, options: Sequence[str]) -> Iterator[Server]:
    """A server of our own, told to stop at the end; it has to stop properly."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [sys.executable, "-m", "regard.cli", "serve", run, "--port", str(port), *options]
    with tempfile.TemporaryFile() as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)

        def said() -> str:
            log.seek(0)
            return log.read().decode(errors="replace")[-2000:].strip()

        try:
            url = f"http://127.0.0.1:{port}/health"
            while process.poll() is None:
                try:
                    urllib.request.urlopen(url, timeout=5).read()
                    break
                except OSError:
                    time.sleep(0.1)
            else:
                raise SystemExit(f"the server did not start: {said()}")
            yield Server(host="127.0.0.1", port=port, process=process.pid)
        finally:
            process.terminate()
            try:
                code = process.wait(60)
            except subprocess.TimeoutExpired:
                process.kill()
                code = process.wait()
        if code:
            raise SystemExit(f"the server ended with {code}: {said()}")


def chosen(server: Server, wanted: str | None) -> Server:
    """The server with the requested model, or its first generative one."""
    question = urllib.request.Request(f"http://{server.host}:{server.port}/v1/models", headers=KEY)
    with urllib.request.urlopen(question, timeout=60) as answer:
        models = json.load(answer)["data"]
    writers = [model["id"] for model in models if "generate" in model["does"] and wanted in (None, model["id"])]
    if not writers:
        raise SystemExit(f"no model {wanted or 'that writes'} among {[model['id'] for model in models]}")
    return replace(server, model=writers[0])


async def measure(server: Server, arguments: argparse.Namespace) -> dict[str, Any]:
    warm = await stream(server, arguments.clients, 0, arguments.tokens, "warm")
    if warm.failures:
        raise SystemExit(f"not even the first texts came: {warm.failures[0]}")
    alone = arguments.alone or max(1.0, min(30.0, arguments.seconds / 4))
    before = await stream(server, 1, alone, arguments.tokens, "before")
    many = await stream(server, arguments.clients, arguments.seconds, arguments.tokens, "many")
    after = await stream(server, 1, alone, arguments.tokens, "after")
    one = statistics.mean([before.speed, after.speed])
    return {
        "model": server.model,
        "loads": [load.told() for load in (before, many, after)],
        "ratio": round(many.speed / one, 2) if one else None,
        "crowd": await crowd(server, arguments.connections) if arguments.connections else None,
    }


def show(result: dict[str, Any]) -> None:
    print("clients   seconds    texts   tokens   tokens/s   CPU ms/token   first token p50     p95      max  failures")
    for load in result["loads"]:
        waits = "".join(f"{load[f'first_token_{which}']:7.3f} s" for which in ("p50", "p95", "max"))
        counts = f"{load['clients']:7} {load['seconds']:9.1f} {load['texts']:8} {load['tokens']:8}"
        speed = f"{load['tokens_per_second']:10.1f} {load['cpu_ms_per_token']:14.3f}"
        print(f"{counts} {speed}          {waits} {len(load['failures']):10}")
    print(f"{result['loads'][1]['clients']} clients get {result['ratio']} times the tokens of one")
    if crowd := result["crowd"]:
        refused = ", ".join(f"{count} with {status}" for status, count in crowd["refused"].items()) or "none"
        print(
            f"{crowd['connections']} connections at once, {crowd['seconds']} s: {crowd['answered']} answered, "
            f"refused: {refused}, failed: {sum(crowd['failures'].values())}"
        )


def failures(result: dict[str, Any]) -> list[str]:
    found = [text for load in result["loads"] for text in load["failures"]]
    return found + [
        f"{what} ({count} times)" for what, count in ((result["crowd"] or {}).get("failures") or {}).items()
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", nargs="?", help="a run or checkpoint that writes")
    parser.add_argument("--url", help="a server that runs already")
    parser.add_argument("--model", help="its name there; otherwise the first that writes")
    parser.add_argument("--clients", type=int, default=16)
    parser.add_argument("--seconds", type=float, default=120)
    parser.add_argument("--alone", type=float, help="seconds of each turn of one client (a quarter, at most 30)")
    parser.add_argument("--tokens", type=int, default=128, help="at most so many a text")
    parser.add_argument("--connections", type=int, default=500)
    parser.add_argument("--quantize", default="none")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    if bool(arguments.run) == bool(arguments.url):
        parser.error("give a run, or --url of a server")

    def take(server: Server) -> dict[str, Any]:
        return asyncio.run(measure(chosen(server, arguments.model), arguments))

    if arguments.url:
        place = urlsplit(arguments.url)
        result = take(Server(host=place.hostname or "127.0.0.1", port=place.port or 80))
    else:
        with running(str(Path(arguments.run)), ["--quantize", arguments.quantize]) as server:
            result = take(server)
    result |= {"cores": os.cpu_count(), "quantize": arguments.quantize}
    print(json.dumps(result, indent=2)) if arguments.json else show(result)
    if found := failures(result):
        raise SystemExit("\n".join(["failures:", *found[:10]]))


if __name__ == "__main__":
    main()
