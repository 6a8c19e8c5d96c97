"""A storm on a server: mixed requests at once, with cancels, disconnects and evictions, and at the end SIGTERM.

Every answer is compared with that of the same request asked alone; afterwards nothing may be held any more. Clients are
coroutines with raw connections, since they have to leave in the middle of an answer.
"""

import asyncio
import base64
import json
import os
import random
import signal
import time
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.browser.seen import make_seen
from tests.serve.made import make_models
from tests.serve.running import CALM, PATIENCE, Process, eventually
from tests.serve.talking import palette_png

FLOATS = 1e-4
"""Probabilities and vectors may differ by this much: sums of other batches have another order."""
BURST = 400
"""Requests for which all clients prefer the same models, before others have to be loaded."""
PASSING = {"id", "created"}
"""Fields that differ between equal answers."""


@dataclass(frozen=True)
class Question:
    kind: str
    path: str
    body: bytes
    model: str


def questions(image: Path) -> list[Question]:
    """Requests of every kind that the tiny models answer, and some that are refused."""
    uri = "data:image/png;base64," + base64.b64encode(image.read_bytes()).decode()
    bomb = "data:image/png;base64," + base64.b64encode(palette_png(11_585)).decode()
    texts = ["The cat", "Die Katze saß", "a red bird sees 日本", "größer 😀"]
    made: list[Question] = []

    def add(kind: str, path: str, model: str, **fields: Any) -> None:
        made.append(Question(kind, path, json.dumps({"model": model, **fields}).encode(), model))

    for number, text in enumerate(texts):
        add("generate", "/v1/completions", "gpt", prompt=text, max_tokens=12, temperature=0)
        add("generate", "/v1/completions", "endless", prompt=[text, "b"], max_tokens=20, seed=number, n=2, logprobs=2)
        add("generate", "/v1/completions", "t5", prompt=text, max_tokens=9, temperature=0)
        add("stream", "/v1/completions", "endless", prompt=text, max_tokens=40, seed=number, stream=True)
        add("stream", "/v1/completions", "gpt", prompt=text, max_tokens=20, temperature=0, stop=["e"], stream=True)
        messages = [{"role": "user", "content": text}]
        add("stream", "/v1/chat/completions", "chat", messages=messages, max_tokens=9, seed=number, stream=True)
        add("generate", "/v1/chat/completions", "chat", messages=messages, max_tokens=9, temperature=0)
        add("translate", "/v1/translations", "translate", input=[text, "a"], beams=1 + number, max_tokens=9)
        add("classify", "/v1/classifications", "classify", input=[text, "a b"])
        add("embed", "/v1/embeddings", "embed", input=[text, "a b"], encoding_format=("float", "base64")[number % 2])
        add("answer", "/v1/answer", "qa", input=["Where?"], passages=[text])
        add("tokenize", "/v1/tokenize", "gpt", text=text)
        add("image", "/v1/images", "clip", input=[uri], labels=[text, "a dog"])
    for model in ("vit", "detr", "captioner"):
        add("image", "/v1/images", model, input=[uri] * 2)
    add("refused", "/v1/images", "vit", input=[bomb] * 14)
    add("refused", "/v1/tokenize", "gpt", text=" " * 100_000)
    add("refused", "/v1/completions", "nobody" * 50, prompt="a")
    add("refused", "/v1/completions", "gpt", prompt=[[]] * 20_000)
    return made


@dataclass
class Storm:
    """The clients, and a record of what became of their requests."""

    server: Process
    asked: list[Question]
    seed: int = 0
    alone: dict[Question, Any] = field(default_factory=dict)
    outcomes: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)
    memory: list[int] = field(default_factory=list)
    """The server's resident bytes after each burst."""

    async def exchange(self, question: Question, leave: str = "") -> bytes:
        """The raw answer to a request; a client may `leave` before it, or after its first bytes."""
        reader, writer = await asyncio.open_connection(*self.server.place)
        try:
            head = f"POST {question.path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
            head += f"Content-Type: application/json\r\nContent-Length: {len(question.body)}\r\n\r\n"
            half = len(question.body) // 2 if leave == "unsent" else None
            writer.write(head.encode() + question.body[:half])
            await writer.drain()
            if leave in ("unsent", "unread"):
                return b""
            return await reader.read(64 if leave else -1)
        finally:
            writer.transport.abort() if leave else writer.close()

    async def ask_alone(self) -> None:
        """Ask every question by itself; its answer is what all later ones are compared with."""
        for question in self.asked:
            self.alone[question] = understood(await self.exchange(question))

    async def ask(self, question: Question, leave: str) -> None:
        """Ask a question among others, and compare its answer."""
        try:
            raw = await asyncio.wait_for(self.exchange(question, leave), PATIENCE)
        except (OSError, TimeoutError) as error:
            self.outcomes["failed"] += 1
            self.wrong.append(f"{question.body[:80]!r}: {type(error).__name__} {error}")
            return
        if leave:
            self.outcomes[f"left {leave}"] += 1
            return
        answer, expected = understood(raw), self.alone[question]
        if answer == ("429", "queue_full"):
            self.outcomes["refused: queue full"] += 1
        elif same(answer, expected):
            self.outcomes[f"equal: {question.kind}"] += 1
        else:
            self.outcomes["wrong"] += 1
            self.wrong.append(f"{question.body[:80]!r}: {answer!r:.300} is not {expected!r:.300}")

    async def rage(self, requests: int, clients: int, seconds: float) -> None:
        """Send so many requests from so many clients, or as many as there is time for."""
        numbers, until = iter(range(requests)), time.monotonic() + seconds

        async def client(name: int) -> None:
            for number in numbers:
                if time.monotonic() > until:
                    return
                if number % BURST == 0:
                    self.memory.append(resident(self.server.process.pid))
                dice = random.Random(f"{self.seed} {number}")
                models = sorted({question.model for question in self.asked})
                chosen = random.Random(f"{self.seed} {number // BURST}").sample(models, 4)
                near = [question for question in self.asked if question.model in chosen]
                question = dice.choice(near if dice.random() < 0.998 else self.asked)
                leave = dice.choices(["", "unsent", "unread", "midway"], [0.9, 0.02, 0.04, 0.04])[0]
                await self.ask(question, leave)

        await asyncio.gather(*map(client, range(clients)))

    def held(self) -> dict[str, float]:
        """What the server still holds of requests: everything here must be zero when nobody asks."""
        kinds = ("batch_size", "requests_waiting", "cache_pages_held", "readings_waiting", "tokenizing_waiting")
        figures = self.server.figures()
        return {name: value for name, value in figures.items() if value and name.split("[")[0][7:] in kinds}

    def held_in_the_end(self) -> dict[str, float]:
        """What is still held when clients that left have been noticed."""
        with suppress(AssertionError):
            eventually(lambda: not self.held())
        return self.held()

    async def stop(self, clients: int) -> Counter[str]:
        """Stop the server while requests are open: each is answered as ever, or told that the server is closing."""
        ends: Counter[str] = Counter()

        async def last(question: Question) -> None:
            try:
                answer = understood(await asyncio.wait_for(self.exchange(question), PATIENCE))
            except OSError:  # the server has stopped listening
                ends["not accepted"] += 1
                return
            if answer is None or "closing" in repr(answer):
                ends["not accepted" if answer is None else "closing"] += 1
            elif same(answer, self.alone[question]):
                ends["equal"] += 1
            else:
                self.wrong.append(f"{question.body[:80]!r} at the end: {answer!r:.300}")

        dice = random.Random(self.seed)
        tasks = [asyncio.create_task(last(dice.choice(self.asked))) for _ in range(clients)]
        await asyncio.sleep(0)
        self.server.signal(signal.SIGTERM)
        await asyncio.gather(*tasks)
        return ends


def understood(raw: bytes) -> Any:
    """An answer without what differs from time to time; None if there is none. A stream is its texts and their ends."""
    head, _, body = raw.partition(b"\r\n\r\n")
    if not head:
        return None
    status = head[9:12].decode()
    if b"chunked" in head.lower():
        body = b"".join(line for line in body.split(b"\r\n") if line.startswith(b"data: "))
        assert body.endswith(b"[DONE]\n\n"), body[-100:]
        events = [json.loads(line[6:]) for line in body.decode().split("\n\n")[:-2]]
        texts: Counter[int] = Counter()
        parts: dict[int, str] = {}
        for event in events:
            if "error" in event:
                return status, event["error"]["code"]
            for choice in event["choices"]:
                parts[choice["index"]] = parts.get(choice["index"], "") + (
                    choice.get("text") or choice.get("delta", {}).get("content") or ""
                )
                texts[choice["index"]] += choice["finish_reason"] is not None
        return status, parts, dict(texts)
    answer = json.loads(body)
    if status != "200":
        return status, answer["error"]["code"]
    return status, {name: value for name, value in answer.items() if name not in PASSING}


def same(one: Any, other: Any) -> bool:
    """Whether two answers are equal, numbers up to rounding."""
    if isinstance(one, float) and isinstance(other, float):
        return abs(one - other) <= FLOATS * max(1.0, abs(one), abs(other))
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    if isinstance(one, list | tuple) and isinstance(other, list | tuple):
        return len(one) == len(other) and all(map(same, one, other))
    return bool(one == other)


def resident(process: int) -> int:
    """The bytes of memory that a process has (Linux)."""
    return int(Path(f"/proc/{process}/statm").read_text().split()[1]) * 4096


def make_served(folder: Path) -> tuple[dict[str, Path], Path]:
    """Tiny models of every kind by name, and an image."""
    seen, image = make_seen(folder / "seen")
    return make_models(folder / "made") | {name: seen[name] for name in ("vit", "detr", "captioner", "clip")}, image


def storm(
    models: dict[str, Path], image: Path, *, requests: int, clients: int, seconds: float, seed: int = 0
) -> tuple[Storm, dict[str, Any]]:
    """Start a server, let the storm rage, stop it; return the storm, and how it ended."""
    options = ("--models-memory", "20MB", "--memory-gb", 0.004, "--queue", 64, "--grace", 60)
    server = Process(models, *options, before=CALM)
    try:
        raging = Storm(server, questions(image), seed)
        asyncio.run(raging.ask_alone())
        asyncio.run(raging.rage(requests, clients, seconds))
        held = raging.held_in_the_end()
        raging.memory.append(resident(server.process.pid))
        evictions = sum(value for name, value in server.figures().items() if "evictions_total" in name)
        ends = asyncio.run(raging.stop(clients))
        end = {"held": held, "evictions": int(evictions), "ends": dict(ends), "code": server.end(), "log": server.log}
        return raging, end
    finally:
        server.process.kill()
        os.unlink(server.file)
