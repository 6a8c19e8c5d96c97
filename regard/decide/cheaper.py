"""A cheaper model for a trained one: the cost and the loss of every option, and the best at a part of the cost.

Candidates are measured and chosen on one half of the held-out examples; what the chosen one loses is measured on the
other half, by paired differences between blocks of examples.
"""

import math
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal

import torch

from regard.cost import cost
from regard.decide.options import Option, Source, combinations, quick_options, size_options
from regard.eval.scores import eval_set, scored_weights
from regard.hub.remote import find
from regard.native.quantized import size_of
from regard.tasks import EvalSet, load
from regard.tasks.base import Task
from regard.why.statistics import Interval, paired_interval

Measure = Literal["seconds", "flops", "bytes"]
BLOCKS = 10
"""Blocks of examples in each half."""
LEAST = 6
"""The fewest examples of a block."""
DEARER = 1.5
"""The largest CPU time, of the model's own, at a glance; what is above is not measured."""
ROUNDS, CHECKS = 3, 9
"""Interleaved timings of a candidate and the model itself: to compare candidates, and of the chosen one."""
TURN, LONGEST = 0.2, 1.0
"""CPU seconds of one timing: at least, by repetition, and at most, by fewer examples."""
MOST = 32
"""The most combinations of options that are measured."""
FEW = 3.0
"""Changed outputs that none among n examples does not exclude, with a probability of 95 %."""
AS_IS = "as it is"
COSTS = {"seconds": "CPU time", "flops": "FLOPs", "bytes": "memory of the weights"}


@dataclass(frozen=True, kw_only=True)
class Bench:
    """The model itself with its held-out examples, that candidates are compared with."""

    task: Task
    test: EvalSet
    metric: str
    lower: bool
    examples: int
    """The number of held-out examples, of both halves."""
    discrete: bool
    """Whether outputs are right or wrong, so that few examples may show no change where there is one."""
    timed: EvalSet
    """The examples that are timed."""
    lengths: Mapping[str, Any]
    """Typical lengths of the inputs, for FLOPs."""
    size: int
    """Bytes of the model as it was loaded; tables of positions grow with use."""

    def blocks(self, task: Task, half: int) -> list[float]:
        """Scores of a model on each block of a half, so that higher is better."""
        parts = [(2 * k + half, 2 * BLOCKS) for k in range(BLOCKS)]
        scores = [task.evaluate(replace(self.test, part=part)).scores[self.metric] for part in parts]
        return [-score if self.lower else score for score in scores]

    def check_cheaper(self, task: Task, size: int, cost: Measure) -> None:
        """Raise an error for a candidate that costs more than the model itself, by a glance at a few examples."""
        if cost == "seconds":
            part = replace(self.timed, part=(0, 4 * BLOCKS))
            own, other = self.task.work(part), task.work(part)
            share = seconds(other.run) / other.count / (seconds(own.run) / own.count)
            limit = DEARER
        else:
            share = size / self.size if cost == "bytes" else self.flops(task) / self.flops(self.task)
            limit = 1.0
        if share > limit:
            raise ValueError(f"{share:.2g} times the {COSTS[cost]}")

    def ratios(self, task: Task, rounds: int) -> tuple[list[float], float, str]:
        """The CPU time of a candidate as shares of the model's own, the model's seconds per unit, and the unit."""
        own, other = self.task.work(self.timed), task.work(self.timed)
        passes = max(1, math.ceil(TURN / max(1e-4, seconds(own.run))))
        first, shares = list[float](), list[float]()
        for _ in range(rounds):
            first.append(seconds(own.run, passes) / passes / own.count)
            shares.append(seconds(other.run, passes) / passes / other.count / first[-1])
        return shares, statistics.median(first), own.unit

    def flops(self, task: Task) -> int:
        """FLOPs of a forward pass for one typical example."""
        return cost(task.model.config, **self.lengths).flops.forward


def seconds(work: Callable[[], Any], passes: int = 1) -> float:
    """The CPU seconds of some calls."""
    started = time.process_time()
    for _ in range(passes):
        work()
    return time.process_time() - started


def measure_cheaper(
    run: str | Path, *, by: int | float = 2.0, cost: Measure = "seconds", minutes: int | float = 3.0,
    limit: int | None = None, changes: Mapping[str, Any] | None = None, out: Path | None = None,
    save: Path | None = None, say: Callable[[str], None] = lambda text: None,
) -> dict[str, Any]:  # fmt: skip
    """Measure every way that suits the run and combinations of them, and choose the best at 1/by of the cost."""
    if not by > 1:
        raise ValueError(f"--by {by:g} makes nothing cheaper; use a number above 1, as 2 for half the cost")
    if minutes < 0:
        raise ValueError(f"--minutes {minutes:g} is no time; use 0 to distil nothing")
    if save is not None and save.exists() and (not save.is_dir() or any(save.iterdir())):
        raise ValueError(f"{save} is not empty; choose another --save")
    path = find(run)
    if not (path / "recipe.toml").is_file():
        raise ValueError(f"{run} has no recipe.toml, so its data are not known; give a run of regard train or finetune")
    weights = scored_weights(path, changes or {})
    with TemporaryDirectory() as temporary, one_thread():
        folder = Path(temporary) if out is None else out / "models"
        source = Source.read(path, weights)
        bench = new_bench(load(weights, "none"), path, changes or {}, limit, source)
        result: dict[str, Any] = {
            "run": str(run), "by": by, "cost": cost, "metric": bench.metric, "lower": bench.lower,
            "examples": bench.examples, "left_out": {},
        }  # fmt: skip
        rows = result["rows"] = measure_rows(bench, source, by, cost, minutes, folder, result["left_out"], say)
        mark_frontier(rows, cost)
        result["chosen"] = choose(bench, source, rows, result, Path(temporary) / "chosen", say)
        if save is not None and result["chosen"] is not None:
            source.write(rows[result["chosen"]["index"]]["options"], save)
            result["saved"] = str(save)
    for row in rows:
        row["options"] = [option.name for option in row["options"]]
    return result


@contextmanager
def one_thread() -> Any:
    """Compute with one thread, so that CPU seconds do not count threads that wait."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def held_out(task: Task, test: EvalSet) -> tuple[int, str]:
    """The number of held-out examples, and their name."""
    scored = task.evaluate(replace(test, limit=1))
    return scored.total or 0, scored.unit


def new_bench(task: Task, run: Path, changes: Mapping[str, Any], limit: int | None, source: Source) -> Bench:
    """The model on its held-out data; an error if these are too few to tell."""
    size = size_of(task.model)
    test = eval_set(task, run, changes)
    total, unit = held_out(task, test)
    counted = min(total, limit or total)
    if counted < 2 * BLOCKS * LEAST:
        need = f"at least {2 * BLOCKS * LEAST} tell what a cheaper model loses"
        raise ValueError(f"{counted} held-out {unit} are too few: {need}; name more, or raise --limit")
    test = replace(test, limit=None if limit is None else math.ceil(limit / (2 * BLOCKS)))
    part = replace(test, part=(0, 2 * BLOCKS))
    scored = task.evaluate(part)
    if scored.total and scored.total >= total:
        raise ValueError(f"the task {task.name!r} scores all held-out examples at once, not in blocks")
    timed, count = replace(test, part=(0, 2), limit=None if limit is None else math.ceil(limit / 2)), 2
    while count < 2 * BLOCKS and seconds(task.work(timed).run) > LONGEST:
        count *= 2
        timed = replace(timed, part=(0, count))
    shapes = {name: statistics.median(batch.inputs[name].shape[-1] for batch in source.batches)
              for name in ("ids", "source", "target") if name in source.batches[0].inputs}  # fmt: skip
    lengths = {"length": shapes.get("target", shapes.get("ids")), "source_length": shapes.get("source")}
    return Bench(
        task=task, test=test, examples=counted, metric=scored.judged[0], lower=scored.lower,
        discrete=bool(scored.outputs), timed=timed, size=size,
        lengths={name: int(value) for name, value in lengths.items() if value is not None},
    )  # fmt: skip


def measure_rows(
    bench: Bench, source: Source, by: float, cost: Measure, minutes: float, folder: Path, left_out: dict[str, str],
    say: Callable[[str], None],
) -> list[dict[str, Any]]:  # fmt: skip
    """A row for the model itself, for each option alone, and for combinations of those that help."""
    own = bench.blocks(bench.task, 0)
    shares, unit_seconds, unit = bench.ratios(bench.task, ROUNDS)
    rows = [row_of(bench, bench.task, bench.size, AS_IS, (), own, own, (statistics.median(shares), unit_seconds, unit))]
    options = list(quick_options(source, bench.task))
    options += size_options(source, by, minutes, folder, left_out, say)

    def add(chosen: tuple[Option, ...]) -> None:
        name = ", ".join(option.name for option in chosen)
        say(f"measuring: {name}")
        try:
            with candidate(source, chosen) as task:
                size = size_of(task.model)
                bench.check_cheaper(task, size, cost)
                scores, (shares, base, unit) = bench.blocks(task, 0), bench.ratios(task, ROUNDS)
                timing = (statistics.median(shares), base, unit)
                rows.append(row_of(bench, task, size, name, chosen, own, scores, timing))
        except ValueError as error:
            left_out[name] = str(error)

    for option in options:
        add((option,))
    ratios = {row["name"]: row[f"{cost}_ratio"] for row in rows}
    for chosen in combinations(options, ratios, MOST):
        add(chosen)
    return rows


@contextmanager
def candidate(source: Source, chosen: Sequence[Option]) -> Any:
    """The task of a candidate, loaded from a run as a user loads it."""
    with TemporaryDirectory() as folder:
        source.write(chosen, Path(folder))
        yield load(folder)


def row_of(
    bench: Bench, task: Task, size: int, name: str, options: tuple[Option, ...], own: list[float],
    scores: list[float], timing: tuple[float, float, str],
) -> dict[str, Any]:  # fmt: skip
    """The figures of one candidate; losses are positive where it is worse than the model itself."""
    ratio, base, unit = timing if options else (1.0, *timing[1:])
    flops, sign = bench.flops(task), -1 if bench.lower else 1
    return {
        "name": name, "options": options, "seconds": base * ratio, "unit": unit, "seconds_ratio": ratio, "flops": flops,
        "flops_ratio": flops / bench.flops(bench.task), "bytes": size, "bytes_ratio": size / bench.size,
        "quality": sign * statistics.fmean(scores),
        "loss": statistics.fmean(before - after for before, after in zip(own, scores, strict=True)),
    }  # fmt: skip


def mark_frontier(rows: list[dict[str, Any]], cost: Measure) -> None:
    """Mark the rows that no other one beats in both cost and quality."""
    key = f"{cost}_ratio"
    for row in rows:
        row["frontier"] = not any(
            other[key] <= row[key]
            and other["loss"] <= row["loss"]
            and (other[key], other["loss"]) != (row[key], row["loss"])
            for other in rows
        )


def choose(
    bench: Bench, source: Source, rows: list[dict[str, Any]], result: Mapping[str, Any], folder: Path,
    say: Callable[[str], None],
) -> dict[str, Any] | None:  # fmt: skip
    """The candidate of the least loss at 1/by of the cost, with figures of the other half; None where none is so cheap.

    Its time is measured again, by more rounds: of many candidates the cheapest was also a lucky one.
    """
    key = f"{result['cost']}_ratio"
    cheap = sorted(
        (i for i, row in enumerate(rows) if row[key] <= 1 / result["by"]), key=lambda i: (rows[i]["loss"], rows[i][key])
    )
    own = bench.blocks(bench.task, 1)
    for index in cheap:
        say(f"on the other half: {rows[index]['name']}")
        with candidate(source, rows[index]["options"]) as task:
            shares, base, unit = bench.ratios(task, CHECKS)
            time_ratio = statistics.median(shares)
            if result["cost"] == "seconds" and time_ratio > 1 / result["by"]:
                continue
            scores = bench.blocks(task, 1)
        losses = [before - after for before, after in zip(own, scores, strict=True)]
        interval = widened(paired_interval(losses), result["examples"] / 2 if bench.discrete else math.inf)
        sign = -1 if bench.lower else 1
        return {
            "index": index, "name": rows[index]["name"], "seconds_ratio": time_ratio, "seconds": base * time_ratio,
            "seconds_before": base, "unit": unit, "times": sorted(shares),
            "ratio": time_ratio if result["cost"] == "seconds" else rows[index][key],
            "quality_before": sign * statistics.fmean(own), "quality": sign * statistics.fmean(scores),
            "loss": interval.mean, "low": interval.low, "high": interval.high, "at_most": max(0.0, interval.high),
        }  # fmt: skip
    return None


def widened(interval: Interval, examples: int | float) -> Interval:
    """The interval, at least as wide as changes that so many examples may have missed."""
    reach = max(interval.high - interval.mean, 100 * FEW / examples)
    return Interval(interval.mean, interval.mean - reach, interval.mean + reach, interval.count)
