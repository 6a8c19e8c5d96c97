"""Metrics for Prometheus: requests and queues, tokens per second, time to the first token, cache pages in use."""

import time
from collections import deque
from collections.abc import Iterator, Mapping
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Histogram, disable_created_metrics, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from regard.serve.model_store import ModelStore

WINDOW = 10.0
"""Seconds over which tokens per second are averaged."""
BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)


class Metrics:
    """All metrics of one server."""

    def __init__(self, store: ModelStore) -> None:
        disable_created_metrics()  # type: ignore[no-untyped-call]
        self.store, self.registry = store, CollectorRegistry()
        common: Any = dict(registry=self.registry)
        self.responses = Counter("regard_http_requests", "Requests answered", ["method", "path", "status"], **common)
        self.read = Counter("regard_prompt_tokens", "Tokens of prompts and source texts", ["model"], **common)
        self.generated = Counter("regard_generated_tokens", "Tokens generated", ["model"], **common)
        self.first = Histogram(
            "regard_time_to_first_token_seconds", "From request to first token", ["model"], buckets=BUCKETS, **common
        )
        self.recent: dict[str, deque[tuple[float, int]]] = {served.name: deque() for served in store}
        self.registry.register(self)

    def watch(self, model: str, tokens: int) -> "Watch":
        self.read.labels(model).inc(tokens)
        return Watch(self, model)

    def speed(self, model: str) -> float:
        """Tokens generated per second, averaged over the last seconds."""
        since = time.monotonic() - WINDOW
        return sum(count for when, count in self.recent[model] if when >= since) / WINDOW

    def count_generated(self, model: str, count: int) -> None:
        now, recent = time.monotonic(), self.recent[model]
        self.generated.labels(model).inc(count)
        recent.append((now, count))
        while recent[0][0] < now - WINDOW:
            recent.popleft()

    def collect(self) -> Iterator[Metric]:
        """The gauges, measured when Prometheus asks."""
        engines = {served.name: served.engine for served in self.store if served.engine is not None}
        loaded = {served.name: served.state == "loaded" for served in self.store}
        gauges: dict[str, tuple[str, Mapping[str, float]]] = {
            "model_loaded": ("Whether a model is in memory", loaded),
            "model_memory_bytes": ("Weights and cache of a model", {one.name: one.memory for one in self.store}),
            "requests_waiting": ("Requests in the queue", {n: len(e.waiting) for n, e in engines.items()}),
            "batch_size": ("Requests in the batch", {n: len(e.running) for n, e in engines.items()}),
            "cache_pages_held": ("Cache pages in use", {n: e.pages.held for n, e in engines.items()}),
            "cache_pages": ("Cache pages in all", {n: e.pages.count for n, e in engines.items()}),
            "tokens_per_second": (f"Tokens per second, over {WINDOW:g} s", {n: self.speed(n) for n in engines}),
        }
        for name, (text, values) in gauges.items():
            yield fill(GaugeMetricFamily(f"regard_{name}", text, labels=["model"]), values)
        steps = CounterMetricFamily(
            "regard_engine_steps", "Decoding steps; tokens over steps is the mean batch", labels=["model"]
        )
        yield fill(steps, {name: engine.steps for name, engine in engines.items()})
        evicted = CounterMetricFamily("regard_model_evictions", "Times that a model left for another", labels=["model"])
        yield fill(evicted, {served.name: served.evictions for served in self.store})
        pools = self.store.pools
        waiting = GaugeMetricFamily("regard_readings_waiting", "Requests in the worker thread or waiting for it")
        waiting.add_metric([], pools.worker.pending)
        yield waiting
        texts = GaugeMetricFamily("regard_tokenizing_waiting", "Requests that are tokenized or wait for it")
        texts.add_metric([], pools.tokenizing)
        yield texts

    def text(self) -> bytes:
        return generate_latest(self.registry)


def fill(family: Metric, values: Mapping[str, float | int]) -> Metric:
    for model, value in values.items():
        family.add_metric([model], float(value))  # type: ignore[attr-defined]
    return family


class Watch:
    """The token counts and the clock of one request."""

    def __init__(self, metrics: Metrics, model: str) -> None:
        self.metrics, self.model, self.begin, self.started = metrics, model, time.monotonic(), False

    def generated(self, count: int) -> None:
        if count and not self.started:
            self.started = True
            self.metrics.first.labels(self.model).observe(time.monotonic() - self.begin)
        if count:
            self.metrics.count_generated(self.model, count)
