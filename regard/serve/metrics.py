"""What Prometheus reads: how many ask and wait, how fast texts are written, how full the pages are."""

import time
from collections import deque
from collections.abc import Iterator, Mapping
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Histogram, disable_created_metrics, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from regard.serve.shelf import Shelf

WINDOW = 10.0
"""Seconds over which tokens per second are taken."""
BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)


class Metrics:
    """The figures of one server."""

    def __init__(self, shelf: Shelf) -> None:
        disable_created_metrics()  # type: ignore[no-untyped-call]
        self.shelf, self.registry = shelf, CollectorRegistry()
        both: Any = dict(registry=self.registry)
        self.answers = Counter("regard_http_requests", "Requests answered", ["method", "path", "status"], **both)
        self.read = Counter("regard_prompt_tokens", "Tokens of prompts and sources", ["model"], **both)
        self.written = Counter("regard_generated_tokens", "Tokens written", ["model"], **both)
        self.first = Histogram(
            "regard_time_to_first_token_seconds", "From request to first token", ["model"], buckets=BUCKETS, **both
        )
        self.recent: dict[str, deque[tuple[float, int]]] = {one.name: deque() for one in shelf}
        self.registry.register(self)

    def watch(self, model: str, tokens: int) -> "Watch":
        self.read.labels(model).inc(tokens)
        return Watch(self, model)

    def speed(self, model: str) -> float:
        """Tokens per second, over the last seconds."""
        since = time.monotonic() - WINDOW
        return sum(count for when, count in self.recent[model] if when >= since) / WINDOW

    def wrote(self, model: str, count: int) -> None:
        now, recent = time.monotonic(), self.recent[model]
        self.written.labels(model).inc(count)
        recent.append((now, count))
        while recent[0][0] < now - WINDOW:
            recent.popleft()

    def collect(self) -> Iterator[Metric]:
        """What is so at the moment."""
        engines = {one.name: one.engine for one in self.shelf if one.engine is not None}
        loaded = {one.name: one.state == "loaded" for one in self.shelf}
        now: dict[str, tuple[str, Mapping[str, float]]] = {
            "model_loaded": ("Whether a model is in memory", loaded),
            "requests_waiting": ("Requests in the queue", {n: len(e.waiting) for n, e in engines.items()}),
            "batch_size": ("Requests written together", {n: len(e.running) for n, e in engines.items()}),
            "cache_pages_held": ("Pages in use", {n: e.pages.held for n, e in engines.items()}),
            "cache_pages": ("Pages in all", {n: e.pages.count for n, e in engines.items()}),
            "tokens_per_second": (f"Tokens written, over {WINDOW:g} s", {n: self.speed(n) for n in engines}),
        }
        for name, (text, values) in now.items():
            yield fill(GaugeMetricFamily(f"regard_{name}", text, labels=["model"]), values)
        steps = CounterMetricFamily(
            "regard_engine_steps", "Steps; tokens over steps is the mean batch", labels=["model"]
        )
        yield fill(steps, {name: engine.steps for name, engine in engines.items()})
        waiting = GaugeMetricFamily("regard_readings_waiting", "Requests to encoders that run or wait")
        waiting.add_metric([], self.shelf.reading)
        yield waiting

    def text(self) -> bytes:
        return generate_latest(self.registry)


def fill(family: Metric, values: Mapping[str, float | int]) -> Metric:
    for model, value in values.items():
        family.add_metric([model], float(value))  # type: ignore[attr-defined]
    return family


class Watch:
    """The clock of one request."""

    def __init__(self, metrics: Metrics, model: str) -> None:
        self.metrics, self.model, self.begin, self.any = metrics, model, time.monotonic(), False

    def wrote(self, count: int) -> None:
        if count and not self.any:
            self.any = True
            self.metrics.first.labels(self.model).observe(time.monotonic() - self.begin)
        if count:
            self.metrics.wrote(self.model, count)
