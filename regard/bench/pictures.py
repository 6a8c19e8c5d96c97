"""What labelled pictures teach: by how many there are, and by the size of the patches that a model cuts them into.

A CNN starts from neighbours and a Swin from windows, a ViT from nothing: the fewer pictures, the more that counts.
"""

import statistics
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch

from regard.bench.measure import Died, counted, in_child, line_up, median, show_seconds, timed
from regard.bench.quality import store, stored
from regard.data.sets.labelled_images import ImagesConfig
from regard.eval.scores import evaluate
from regard.inside.draw.canvas import Target
from regard.inside.draw.curves import Panel, draw_growth
from regard.nn.patches import sides
from regard.recipes import Recipe, recipe
from regard.recipes.vit import BATCH
from regard.runs.fit import fit_job, prepare
from regard.tasks import load
from regard.train.loop import read_metrics
from regard.train.progress import Line

if TYPE_CHECKING:
    import matplotlib.figure

Cell = dict[str, Any]
"""What one run gave: its model, number of examples or patch, seed, accuracy, time, …"""
MODELS: dict[str, dict[str, Any]] = {"cnn": {"name": "cnn-attention", "model.attention": 0}}
"""Names that are no recipe of their own: which one, and what it overrides."""
PLAIN: dict[str, Any] = {
    "data.shift": 0.0, "data.zoom": 0.0, "data.turn": 0.0, "data.flip": False, "data.colour": 0.0, "data.mixup": 0.0,
    "data.cutmix": 0.0,
}  # fmt: skip
"""Pictures as they are: moved ones would teach a ViT what the others know from the start."""
MOST = 256
"""Patches that the smallest ones make of a picture, unless told."""


@dataclass(frozen=True, kw_only=True, slots=True)
class PicturesConfig:
    """Which runs are compared."""

    by: Literal["examples", "patch"] = "examples"
    """What differs between them."""
    models: tuple[str, ...] = ()
    """Recipes, or cnn (none: vit, swin and cnn by examples, vit by patch)."""
    values: tuple[int, ...] = ()
    """Numbers of training pictures, or patches (none: such as suit the pictures)."""
    seeds: int = 3
    """Runs of each, with other weights and other pictures drawn."""
    steps: int = 400
    """Of each run."""
    minutes: float | None = None
    """Time of each run, instead of steps."""

    def __post_init__(self) -> None:
        for name in ("seeds", "steps"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name}={getattr(self, name)} must be at least 1")
        if self.minutes is not None and self.minutes <= 0:
            raise ValueError(f"minutes={self.minutes} must be positive")


def measure_pictures(
    config: PicturesConfig, out: Path, changes: Mapping[str, Any] | None = None, *, quiet: bool = True
) -> dict[str, Any]:
    """A run for each cell in `out`, and its figures. What is finished there already is not trained again."""
    field = "data.examples" if config.by == "examples" else "model.patch"
    if field in (changes or {}):
        raise ValueError(f"a run for each was asked for; name them with --values, not --{field}")
    config = replace(config, models=config.models or (("vit", "swin", "cnn") if config.by == "examples" else ("vit",)))
    config = replace(config, values=config.values or values_of(config, changes or {}))
    asked = [(cell, plan_of(config, cell, changes or {})) for cell in cells_of(config)]
    finished = [stored(out / folder(cell), plan) for cell, plan in asked]
    cells: list[Cell] = []
    result: dict[str, Any] = {
        "by": config.by, "models": list(config.models), "values": list(config.values), "seeds": config.seeds,
        "steps": config.steps, "minutes": config.minutes, "threads": torch.get_num_threads(), "cells": cells,
        "interrupted": False,
    }  # fmt: skip
    line = Line(quiet)
    try:
        for (cell, plan), done in zip(asked, finished, strict=True):
            place = out / folder(cell)
            if done is None:
                try:
                    done = in_child(train_one, plan, place, torch.get_num_threads())
                except Died as died:
                    done = {"failed": str(died)}
                else:
                    store(place, plan, done)
            cells.append(cell | done)
            line.say(f"{cell['model']}, {config.by} {cell[config.by]:,}, seed {cell['seed']}: {show_cell(done)}")
    except KeyboardInterrupt:
        result["interrupted"] = True
    return result


def values_of(config: PicturesConfig, changes: Mapping[str, Any]) -> tuple[int, ...]:
    """Numbers of pictures, a ladder up to what there is; or the patches that divide both sides."""
    data = recipe_of(config.models[0], changes).data
    rows, columns, _ = data.shape()
    if config.by == "patch":
        found = [p for p in range(1, min(rows, columns) + 1) if rows % p == columns % p == 0]
        return tuple(p for p in found if rows * columns <= MOST * p * p)
    there = len(data.split()[0])
    return tuple(
        dict.fromkeys(min(there, count) for count in ((50, 200, 1000) if data.embedded else (100, 1000, 10000)))
    )


def cells_of(config: PicturesConfig) -> Iterator[Cell]:
    """Seed by seed, so that whoever stops early has all models once."""
    for seed in range(config.seeds):
        for value in config.values:
            for name in config.models:
                yield {"model": name, config.by: value, "seed": seed}


def recipe_of(name: str, changes: Mapping[str, Any]) -> Recipe:
    own = MODELS.get(name, {"name": name})
    plan = recipe(own["name"], {**changes, **{key: value for key, value in own.items() if key != "name"}})
    if not isinstance(plan.data, ImagesConfig):
        raise ValueError(f"{name} learns from other things than labelled pictures; use vit, swin, mvit or cnn")
    return plan


def plan_of(config: PicturesConfig, cell: Cell, changes: Mapping[str, Any]) -> dict[str, Any]:
    """The recipe's name and what a run overrides in it. The last weights count: choosing the best of many by pictures
    for validation would be help from more labels than were asked for."""
    name, value = cell["model"], cell[config.by]
    plan: dict[str, Any] = {"train.steps": config.steps, "train.eval_every": config.steps, **changes}
    if config.minutes is not None:
        plan |= {"train.minutes": config.minutes, "train.eval_every": 1_000_000}
    if config.by == "examples":
        plan = PLAIN | plan | {"data.examples": value}
    else:
        plan["model.patch"] = value
    plan |= {"train.seed": cell["seed"], "train.save_every": plan["train.eval_every"]}
    recipe_of(name, plan)  # a wrong name or size is known before anything is trained
    return MODELS.get(name, {"name": name}) | plan


def folder(cell: Cell) -> str:
    return "-".join(str(part) for part in cell.values())


def train_one(asked: Mapping[str, Any], out: Path, threads: int) -> dict[str, Any]:
    """In a fresh process: trains, or goes on where a run was stopped, and scores what it held out."""
    torch.set_num_threads(threads)
    changes = {key: value for key, value in asked.items() if key != "name"}
    plan, resume = recipe(asked["name"], changes), (out / "recipe.toml").exists()
    fit_job(prepare(plan.data, plan, out, resume, Line(True)), out, resume=resume, quiet=True)
    scores, model = evaluate(out, {}).scores, load(out).model
    steps = [row for row in read_metrics(out / "metrics.jsonl") if "tokens" in row]
    shape = (BATCH, model.config.channels, *sides(model.config.image))
    pixels = torch.from_numpy(np.random.default_rng(0).random(shape, dtype=np.float32))
    with torch.inference_mode():
        model(pixels)
        forward = median(timed(lambda: model(pixels), repeats=5, budget=30.0)) / BATCH
    return {
        "accuracy": scores["accuracy"], "examples_held_out": scores["examples"], "steps": len(steps),
        "seconds": steps[-1]["seconds"], "seconds_a_picture": forward, "tokens": model.config.tokens,
        "parameters": sum(parameter.numel() for parameter in model.parameters()),
    }  # fmt: skip


def show_cell(cell: Mapping[str, Any]) -> str:
    return cell["failed"] if "failed" in cell else f"{cell['accuracy']:.2f} % in {show_seconds(cell['seconds'])}"


def gathered(result: Mapping[str, Any]) -> dict[tuple[str, int], list[Cell]]:
    """The finished runs of each model and value."""
    found: dict[tuple[str, int], list[Cell]] = {}
    for cell in result["cells"]:
        if "failed" not in cell:
            found.setdefault((cell["model"], cell[result["by"]]), []).append(cell)
    return found


def mean(cells: list[Cell], key: str) -> float:
    return statistics.fmean(cell[key] for cell in cells)


def accuracy(cells: list[Cell]) -> str:
    """The mean over seeds, and how far they lie apart."""
    values = [cell["accuracy"] for cell in cells]
    return f"{statistics.fmean(values):.2f}" + (f" ± {statistics.stdev(values):.2f}" if len(values) > 1 else "")


def render_pictures(result: Mapping[str, Any]) -> str:
    """By examples a line for each model, by patch one for each patch."""
    found, by = gathered(result), result["by"]
    budget = f"{result['minutes']:g} minutes" if result["minutes"] else counted(result["steps"], "step")
    how = f"{budget} of {BATCH} pictures, {counted(result['seeds'], 'seed')}, {counted(result['threads'], 'thread')}"
    lines = [f"held-out pictures right, in % (mean ± deviation); {how}", ""]
    if by == "examples":
        table = [["pictures", *(f"{value:,}" for value in result["values"]), "training", "parameters"]]
        for name in result["models"]:
            rows = [found.get((name, value), []) for value in result["values"]]
            every = [cell for row in rows for cell in row]
            ends = [show_seconds(mean(every, "seconds")), f"{every[0]['parameters']:,}"] if every else ["–", "–"]
            table.append([name, *(accuracy(row) if row else "–" for row in rows), *ends])
        return "\n".join([*lines, *line_up(table)])
    table = [["patch", "tokens", "right", "training", "a picture", "parameters"]]
    for (name, value), row in sorted(found.items()):
        times = [show_seconds(mean(row, key)) for key in ("seconds", "seconds_a_picture")]
        table.append([f"{name} {value} × {value}", f"{row[0]['tokens']:,}", accuracy(row), *times,
                      f"{row[0]['parameters']:,}"])  # fmt: skip
    return "\n".join([*lines, *line_up(table)])


def draw_pictures(result: Mapping[str, Any], path: Target) -> "matplotlib.figure.Figure":
    """Accuracy against examples or patch; by patch the time beside it."""
    found, by = gathered(result), result["by"]
    right = Panel("held-out pictures right", "%", slopes=(), logarithmic=False)
    slow = Panel("time of training", "time", "s", slopes=())
    for name in result["models"]:
        rows = [(value, found[name, value]) for value in result["values"] if (name, value) in found]
        right.add(name, [(value, mean(row, "accuracy")) for value, row in rows], None)
        slow.add(name, [(value, mean(row, "seconds")) for value, row in rows], None)
    panels, xlabel = ([right], "labelled pictures") if by == "examples" else ([right, slow], "pixels of a patch's side")
    return draw_growth([panels], path, xlabel=xlabel)
