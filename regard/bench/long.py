"""Long texts through a whole model, segment by segment: time, memory, and the loss by position.

A segment reads what came before from a cache: all keys and values, those of the last positions alone (segments with
memory: Transformer-XL, Dai et al., 2019), or a state of constant size, as recurrent models and linear attention have.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from time import process_time
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from regard.bench.gradient import check_language_model
from regard.bench.measure import (
    forget_peak,
    give_back,
    held,
    in_child,
    interruptible,
    line_up,
    peak,
    report,
    show_seconds,
)
from regard.config import at_least, override
from regard.cost.report import decimal_size
from regard.data.readers.text_files import read_text
from regard.data.sets.running_text import TextConfig
from regard.inside.draw.canvas import Sheet, Target, write_legend
from regard.models import build, preset
from regard.nn.cache import Cache, KeyValues, RecentKeyValues
from regard.registry import models
from regard.tasks import load
from regard.train.progress import Line

if TYPE_CHECKING:
    import matplotlib.figure

FIRST, FACTOR = 256, 4
"""Positions of the first bucket of losses, and the factor from each to the next."""
VOCABULARY = 256
"""Tokens of models that are built."""


@dataclass(frozen=True, kw_only=True, slots=True)
class LongConfig:
    """Models to measure, and the text that they read."""

    models: tuple[str, ...]
    """Runs of language models, or families with settings, as gpt:kernel=linear."""
    tokens: int = 100_000
    """Tokens to read."""
    segment: int = 512
    """Tokens that go through the model together."""
    memory: int = 512
    """Positions before a segment whose keys and values are kept."""
    text: Path | None = None
    """A text for runs (none: Python's documentation)."""
    max_seconds: float = 120.0
    """A model is stopped after this time of the processor."""

    def __post_init__(self) -> None:
        at_least(2, tokens=self.tokens, segment=self.segment)
        at_least(1, memory=self.memory)
        if not self.max_seconds > 0:
            raise ValueError(f"max_seconds={self.max_seconds} must be above 0")
        if not self.models:
            raise ValueError("nothing to measure: name at least one model, such as runs/docs or gpt")


def measure_long(config: LongConfig, *, quiet: bool = True) -> dict[str, Any]:
    """Measure every model with each kind of cache that it has; after Ctrl-C return the results so far."""
    line, rows = Line(quiet), list[dict[str, Any]]()
    result: dict[str, Any] = {"tokens": config.tokens, "segment": config.segment, "threads": torch.get_num_threads(),
                              "rows": rows}  # fmt: skip
    plans = [(name, way) for name in config.models for way in ways_of(config, name)]
    with interruptible(result):
        for name, way in plans:
            row = in_child(read_through, config, name, way, torch.get_num_threads())
            rows.append({"model": name, "cache": describe(way)} | row)
            line.say(f"{name}, {describe(way)}: {row['tokens']:,} tokens in {show_seconds(row['seconds'])}")
    return result


def ways_of(config: LongConfig, name: str) -> list[int | None]:
    """The numbers of earlier positions that are kept: none, the config's, all (None); of a state always all."""
    model, _ = open_model(config, name)
    cache = model.new_cache(config.tokens)
    return [0, config.memory, None] if keeps_keys(cache) else [None]


def keeps_keys(cache: Any) -> bool:
    """Whether a cache holds the keys and values of all layers as they are."""
    return isinstance(cache, Cache) and all(type(layer) is KeyValues for layer in cache.own)


def describe(way: int | None) -> str:
    """A kind of cache in words."""
    return "all" if way is None else f"last {way:,}" if way else "segments alone"


def open_model(config: LongConfig, name: str) -> tuple[Any, Any]:
    """A language model, and the task of a run; None for a model that is built with random weights."""
    if Path(name).is_dir():
        task: Any = load(name)
        return check_language_model(task.model, name), task
    family, _, settings = name.partition(":")
    cls = models[family]
    wanted = dict(vocab_size=VOCABULARY, max_len=config.tokens)
    plan = preset(family, "tiny", **wanted) if "tiny" in cls.presets else override(cls.config_class(), wanted)
    pairs = (part.partition("=") for part in filter(None, settings.split(",")))
    torch.manual_seed(0)
    return check_language_model(build(family, override(plan, {key: value for key, _, value in pairs})), name), None


def tokens_of(config: LongConfig, model: Any, task: Any) -> Tensor:
    """The tokens that a model reads: of the text for a run, random ones otherwise."""
    if task is None:
        return torch.randint(model.config.vocab_size, (1, config.tokens), generator=torch.Generator().manual_seed(0))
    text = TextConfig().split()[0] if config.text is None else read_text((str(config.text),))
    ids = task.tokenizer.encode(text[: 16 * config.tokens])[: config.tokens]
    if len(ids) < 2:
        raise ValueError(f"{config.text} has {len(ids)} tokens; give a longer text")
    return torch.tensor([ids])


@torch.inference_mode()
def read_through(config: LongConfig, name: str, way: int | None, threads: int) -> dict[str, Any]:
    """Read a text segment by segment; meant for a fresh process."""
    torch.set_num_threads(threads)
    model, task = open_model(config, name)
    model.eval()
    ids = tokens_of(config, model, task)
    cache = model.new_cache(ids.shape[1])
    if way is not None:
        cache.own = [RecentKeyValues(way) for _ in cache.own]
    give_back()
    forget_peak()
    before, start, losses, done = held(), process_time(), list[Tensor](), 0
    for first in range(0, ids.shape[1], config.segment):
        part = ids[:, first : first + config.segment]
        logits = model.head(model.features(part, cache=cache))
        following = ids[0, first + 1 : first + 1 + part.shape[1]]
        losses.append(torch.nn.functional.cross_entropy(logits[0, : len(following)], following, reduction="none"))
        done += part.shape[1]
        if process_time() - start > config.max_seconds:
            break
    every = torch.cat(losses)
    return {
        "tokens": done, "seconds": process_time() - start, "memory": max(0, peak() - before),
        "losses": [] if task is None else by_position(every),
    }  # fmt: skip


def by_position(losses: Tensor) -> list[dict[str, Any]]:
    """The mean loss of buckets of positions, each four times as far as the one before."""
    ends, rows, first = FIRST, list[dict[str, Any]](), 0
    while first < len(losses):
        part = losses[first:ends]
        rows.append({"from": first, "to": first + len(part), "loss": round(float(part.mean()), 5)})
        first, ends = ends, ends * FACTOR
    return rows


def render_long(result: Mapping[str, Any]) -> str:
    """A line for each model and cache: time, memory, and the loss by position."""
    rows = result["rows"]
    buckets: list[Any] = max((row["losses"] for row in rows), key=len, default=[])
    head = [
        f"{result['tokens']:,} tokens in segments of {result['segment']:,}, {result['threads']} thread(s); memory: the "
        "most that the process held beyond model and text; then the mean loss by position"
    ]
    table = [["", "cache", "tokens", "CPU time", "µs/token", "memory", *(f"< {one['to']:,}" for one in buckets)]]
    for row in rows:
        losses = [f"{one['loss']:.3f}" for one in row["losses"]]
        table.append([
            row["model"], row["cache"], f"{row['tokens']:,}", show_seconds(row["seconds"]),
            f"{1e6 * row['seconds'] / row['tokens']:.0f}", decimal_size(row["memory"]), *losses,
            *[""] * (len(buckets) - len(losses)),
        ])  # fmt: skip
    return report(head, line_up(table))


def draw_long(result: Mapping[str, Any], path: Target) -> "matplotlib.figure.Figure":
    """Draw the loss by position of trained runs, a line for each cache."""
    rows = [row for row in result["rows"] if row["losses"]]
    if not rows:
        raise ValueError("no losses to draw: models with random weights have none; name a run")
    sheet = Sheet()
    axes = sheet.chart(0, 0, 4.6, 3, xlabel="position", ylabel="loss", log="x")
    for row in rows:
        points = [(math.sqrt(max(1, one["from"]) * one["to"]), one["loss"]) for one in row["losses"]]
        label = f"{Path(row['model']).name}, {row['cache']}"
        axes.plot(*zip(*points, strict=True), marker="o", markersize=3.5, linewidth=1.6, label=label)
    write_legend(axes, loc="upper left", bbox_to_anchor=(1.02, 1), borderaxespad=0)
    return sheet.save(path)
