"""Families trained on a toy task, and how many of their answers are right at other lengths and distances."""

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from regard.bench.measure import interruptible, line_up, report
from regard.bench.quality import folder
from regard.config import at_least
from regard.data.sets.toy_tasks import BEYOND, ToyConfig
from regard.files import write_text
from regard.inside.draw.canvas import Sheet, Target, write_legend
from regard.recipes import Recipe, fit, recipe
from regard.tasks import EvalSet, load
from regard.train.progress import Line

if TYPE_CHECKING:
    import matplotlib.figure

STEPS = 4
"""Values of length or distance up to the trained one, and again up to `BEYOND` times it."""


def measure_toys(
    names: tuple[str, ...],
    out: Path,
    *,
    examples: int = 200,
    changes: Mapping[str, Any] | None = None,
    quiet: bool = True,
) -> dict[str, Any]:
    """Train each model on the toy task in `out`, and score it at lengths and distances up to `BEYOND` times those of
    training. Models that are finished are not trained or scored again; after Ctrl-C return the results so far."""
    at_least(1, examples=examples)
    if not names:
        raise ValueError("nothing to train: name at least one model, such as lstm or gpt")
    plans = {name: plan_of(name, changes or {}) for name in names}
    data: ToyConfig = next(iter(plans.values())).data
    line = Line(quiet)
    rows: dict[str, Any] = {}
    result: dict[str, Any] = {"task": data.task, "length": data.length, "distance": data.distance, "models": rows}
    with interruptible(result):
        for name, plan in plans.items():
            run = out / folder(name)
            line.say(f"{name}:")
            rows[name] = stored_scores(run, plan, examples) or scored(run, plan, examples, quiet)
    return result


def plan_of(name: str, changes: Mapping[str, Any]) -> Recipe:
    """The recipe of a model such as `gpt:position=none`: a family, and fields of its config."""
    family, _, settings = name.partition(":")
    pairs = (part.partition("=") for part in filter(None, settings.split(",")))
    return recipe("toy", {**changes, "model": family, **{f"model.{key}": value for key, _, value in pairs}})


def ladders(data: ToyConfig) -> dict[str, list[ToyConfig]]:
    """The test data at each length and, where there is a gap, at each distance; the other one stays as trained."""
    lengths = rungs(data.length, 16 if data.task == "recall" else BEYOND * data.length)
    by_length = [replace(data, length=n, shortest=n) for n in lengths]
    gaps = rungs(data.distance, BEYOND * data.distance) if data.distance else []
    by_distance = [replace(data, distance=n, nearest=n) for n in gaps]
    return {"length": by_length} | ({"distance": by_distance} if by_distance else {})


def rungs(trained: int, most: int) -> list[int]:
    """Rising values up to the trained one, and above it up to `most`."""
    values = {max(1, round(trained * i / STEPS)) for i in range(1, BEYOND * STEPS + 1)}
    return sorted(value for value in values if value <= most)


def scored(run: Path, plan: Recipe, examples: int, quiet: bool) -> dict[str, Any]:
    """Train a model, or go on with its run, and return the share of right answers by length and by distance."""
    fit(plan, run, resume=(run / "recipe.toml").exists(), quiet=quiet)
    task = load(run)
    row: dict[str, Any] = {"parameters": sum(parameter.numel() for parameter in task.model.parameters())}
    for kind, ladder in ladders(plan.data).items():
        row[kind] = {}
        for data in ladder:
            with torch.random.fork_rng(devices=[]):
                scores = task.evaluate(EvalSet(data=data, own=plan.data, limit=examples, run=str(run))).scores
            row[kind][str(getattr(data, kind))] = scores["exact_match"]
    write_text(run / "toys.json", json.dumps({"asked": asked(plan, examples), "row": row}, indent=2))
    return row


def asked(plan: Recipe, examples: int) -> str:
    """The settings on which the results depend, as a text."""
    return f"{plan.model!r} {plan.data!r} {plan.train!r} {examples}"


def stored_scores(run: Path, plan: Recipe, examples: int) -> dict[str, Any] | None:
    """The results of a finished run; None if it is not finished, an error if it has other settings."""
    if not (run / "toys.json").exists():
        return None
    stored = json.loads((run / "toys.json").read_text(encoding="utf-8"))
    if stored["asked"] != asked(plan, examples):
        raise ValueError(f"{run} was trained with other settings; choose another --out, or remove it")
    return stored["row"]


def render_toys(result: Mapping[str, Any]) -> str:
    """A table of right answers for each of length and distance."""
    trained = {"length": result["length"], "distance": result["distance"]}
    tables = []
    for kind in ("length", "distance"):
        rows = {name: row[kind] for name, row in result["models"].items() if kind in row}
        if not rows:
            continue
        values = list(next(iter(rows.values())))
        head = [f"{kind}, trained to {trained[kind]}", *values, ""]
        table = [[name, *(f"{row[value]:.0f}" for value in values), ""] for name, row in rows.items()]
        tables.append(line_up([head, *table]))
    return report([f"{result['task']}: answers that are entirely right, in percent"], *tables)


def draw_toys(result: Mapping[str, Any], path: Target) -> "matplotlib.figure.Figure":
    """Draw right answers against length and, beside it, against distance; a line marks the end of training."""
    sheet, kinds = Sheet(), ["length", "distance"] if result["distance"] else ["length"]
    for column, kind in enumerate(kinds):
        title = f"{result['task']}: by {kind}"
        axes = sheet.chart(column * 4.6, 0, 3.8, 2.8, title=title, xlabel=kind, ylabel="right answers, %")
        for name, row in result["models"].items():
            points = [(int(value), share) for value, share in row.get(kind, {}).items()]
            axes.plot(*zip(*points, strict=True), linewidth=1.6, marker="o", markersize=3.5, label=name)
        axes.axvline(result[kind], color="0.6", linewidth=1, linestyle=(0, (4, 3)))
        axes.set(ylim=(-3, 103), xlim=(0, None))
    write_legend(axes, loc="upper left", bbox_to_anchor=(1.02, 1), borderaxespad=0)
    return sheet.save(path)
