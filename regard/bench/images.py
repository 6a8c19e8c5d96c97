"""Accuracy of image models by the number of labelled images, by that of images they were pre-trained on, or by patches.

A CNN has the inductive bias of neighbourhoods, a Swin of windows, a ViT none: the fewer images, the more that counts.
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
from regard.cost import cost
from regard.cost.report import quantity
from regard.data.sets.labelled_images import ImagesConfig
from regard.data.sets.unlabelled_images import ViewsConfig
from regard.eval.probe import LABELS, probe
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

OLD_KEY = "seconds_a_picture"
"""Name of `seconds_per_image` in runs of earlier versions."""
Cell = dict[str, Any]
"""The results of one run: its model, number of examples or patch, seed, accuracy, time, …"""
MODELS: dict[str, dict[str, Any]] = {"cnn": {"name": "cnn-attention", "model.attention": 0}}
"""Additional model names: each is a recipe with overrides."""
PRETRAINED = "simclr"
"""The recipe that pre-trains image models without labels."""
PLAIN: dict[str, Any] = {
    "data.shift": 0.0, "data.zoom": 0.0, "data.turn": 0.0, "data.flip": False, "data.colour": 0.0, "data.mixup": 0.0,
    "data.cutmix": 0.0,
}  # fmt: skip
"""Overrides without augmentation: shifted images would teach a ViT the inductive bias of the other models."""
MOST = 256
"""The most patches of an image among the default values."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ImagesBenchConfig:
    """The runs that are compared."""

    by: Literal["examples", "pretraining", "patch"] = "examples"
    """The setting that differs between them."""
    models: tuple[str, ...] = ()
    """Recipes, or cnn (none: vit, swin and cnn, by patch vit alone)."""
    values: tuple[int, ...] = ()
    """Numbers of training images, or patch sizes (none: a ladder that suits the images)."""
    seeds: int = 3
    """Runs of each, with other initial weights and other samples of images."""
    steps: int = 400
    """Training steps of each run."""
    minutes: float | None = None
    """Training minutes of each run, instead of steps."""
    flops: float | None = None
    """Training FLOPs of each run, instead of steps."""

    def __post_init__(self) -> None:
        for name in ("seeds", "steps"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name}={getattr(self, name)} must be at least 1")
        for name in ("minutes", "flops"):
            if (budget := getattr(self, name)) is not None and budget <= 0:
                raise ValueError(f"{name}={budget} must be positive")
        if self.minutes is not None and self.flops is not None:
            raise ValueError("minutes and flops are two budgets; give one of them")


def measure_images(
    config: ImagesBenchConfig, out: Path, changes: Mapping[str, Any] | None = None, *, quiet: bool = True
) -> dict[str, Any]:
    """Trains a run for each cell in `out` and returns their results; finished runs are not trained again."""
    field = "model.patch" if config.by == "patch" else "data.examples"
    if field in (changes or {}):
        raise ValueError(f"there is a run for each value; name them with --values, not --{field}")
    config = replace(config, models=config.models or (("vit",) if config.by == "patch" else ("vit", "swin", "cnn")))
    config = replace(config, values=config.values or values_of(config, changes or {}))
    plans = [(cell, plan_of(config, cell, changes or {})) for cell in cells_of(config)]
    finished = [stored(out / folder(cell), plan) for cell, plan in plans]
    cells: list[Cell] = []
    result: dict[str, Any] = {
        "by": config.by, "models": list(config.models), "values": list(config.values), "seeds": config.seeds,
        "steps": config.steps, "minutes": config.minutes, "flops": config.flops,
        "threads": torch.get_num_threads(), "cells": cells, "interrupted": False,
    }  # fmt: skip
    line = Line(quiet)
    try:
        for (cell, plan), done in zip(plans, finished, strict=True):
            run = out / folder(cell)
            if done is None:
                try:
                    done = in_child(train_one, plan, run, torch.get_num_threads())
                except Died as died:
                    done = {"failed": str(died)}
                else:
                    store(run, plan, done)
            if OLD_KEY in done:
                done["seconds_per_image"] = done.pop(OLD_KEY)
            cells.append(cell | done)
            line.say(f"{cell['model']}, {config.by} {cell[config.by]:,}, seed {cell['seed']}: {show_cell(done)}")
    except KeyboardInterrupt:
        result["interrupted"] = True
    return result


def values_of(config: ImagesBenchConfig, changes: Mapping[str, Any]) -> tuple[int, ...]:
    """The default values: a ladder of numbers of images, or the patch sizes that divide both sides."""
    data = recipe_of(config.by, config.models[0], changes).data
    rows, columns, _ = data.shape()
    if config.by == "patch":
        sizes = [p for p in range(1, min(rows, columns) + 1) if rows % p == columns % p == 0]
        return tuple(p for p in sizes if rows * columns <= MOST * p * p)
    available, ladder = len(data.split()[0]), (50, 200, 1000) if data.embedded else (100, 1000, 10000)
    return tuple(dict.fromkeys(min(available, count) for count in ladder))


def cells_of(config: ImagesBenchConfig) -> Iterator[Cell]:
    """The cells seed by seed, so that an early stop leaves all models compared once."""
    for seed in range(config.seeds):
        for value in config.values:
            for name in config.models:
                yield {"model": name, config.by: value, "seed": seed}


def base_of(by: str, name: str) -> dict[str, Any]:
    """The recipe of a model of the comparison, and its overrides."""
    own = MODELS.get(name, {"name": name})
    return own if by != "pretraining" else {**own, "name": PRETRAINED, "model": own["name"]}


def recipe_of(by: str, name: str, changes: Mapping[str, Any]) -> Recipe:
    """The recipe of a model of the comparison, with changes."""
    own = base_of(by, name)
    plan = recipe(own["name"], {**changes, **{key: value for key, value in own.items() if key != "name"}})
    if not isinstance(plan.data, ImagesConfig | ViewsConfig):
        raise ValueError(f"{name} is not trained on labelled images; use vit, swin, mvit or cnn")
    return plan


def plan_of(config: ImagesBenchConfig, cell: Cell, changes: Mapping[str, Any]) -> dict[str, Any]:
    """The recipe's name and its overrides for a run. It is validated once, at the end: choosing the best of many
    weights by validation images would use more labels than the cell allows."""
    name, value = cell["model"], cell[config.by]
    plan = {**changes, **({"model.patch": value} if config.by == "patch" else {"data.examples": value})}
    plan = PLAIN | plan if config.by == "examples" else plan
    whole = recipe_of(config.by, name, plan)  # a wrong name or size is known before anything is trained
    steps = config.steps if config.flops is None else max(1, round(config.flops / flops_of_step(whole)))
    budget: dict[str, Any] = {"train.steps": steps, "train.eval_every": steps}
    if config.by == "pretraining":
        budget["train.batch_tokens"] = BATCH * whole.model.tokens
    if config.minutes is not None:
        budget |= {"train.minutes": config.minutes, "train.eval_every": 1_000_000}
    plan = budget | plan | {"train.seed": cell["seed"]}
    return base_of(config.by, name) | plan | {"train.save_every": plan["train.eval_every"]}


def flops_of_step(plan: Recipe) -> int:
    """The FLOPs of a training step: forward and backward for each image of a batch, or for both views of each."""
    views = 2 if isinstance(plan.data, ViewsConfig) else 1
    return views * BATCH * cost(plan.model).flops.training


def folder(cell: Cell) -> str:
    """The name of a cell's run."""
    return "-".join(str(part) for part in cell.values())


def train_one(plan: Mapping[str, Any], out: Path, threads: int) -> dict[str, Any]:
    """Trains or resumes a run and scores it on what it held out; meant for a fresh process."""
    torch.set_num_threads(threads)
    changes = {key: value for key, value in plan.items() if key != "name"}
    settings, resume = recipe(plan["name"], changes), (out / "recipe.toml").exists()
    fit_job(prepare(settings.data, settings, out, resume, Line(True)), out, resume=resume, quiet=True)
    scores, model = scores_of(out, plan["name"]), load(out).model
    steps = [row for row in read_metrics(out / "metrics.jsonl") if "tokens" in row]
    shape = (BATCH, model.config.channels, *sides(model.config.image))
    pixels = torch.from_numpy(np.random.default_rng(0).random(shape, dtype=np.float32))
    with torch.inference_mode():
        model(pixels)
        forward = median(timed(lambda: model(pixels), repeats=5, budget=30.0)) / BATCH
    return {
        "accuracy": scores["accuracy"], "examples_held_out": scores["examples"], "steps": len(steps),
        "flops_per_image": cost(model.config).flops.forward,
        "seconds": steps[-1]["seconds"], "seconds_per_image": forward, "tokens": model.config.tokens,
        "parameters": sum(parameter.numel() for parameter in model.parameters()),
    }  # fmt: skip


def scores_of(run: Path, recipe: str) -> dict[str, Any]:
    """The accuracy of a classifier; of a pre-trained encoder that of a linear classifier on its best layer."""
    if recipe != PRETRAINED:
        return evaluate(run, {}).scores
    found = probe(run, {})
    return {"accuracy": 100 - found["error"], "examples": found["examples"]}


def show_cell(cell: Mapping[str, Any]) -> str:
    """Return a result as a short text."""
    return cell["failed"] if "failed" in cell else f"{cell['accuracy']:.2f} % in {show_seconds(cell['seconds'])}"


def gathered(result: Mapping[str, Any]) -> dict[tuple[str, int], list[Cell]]:
    """The finished runs of each model and value."""
    groups: dict[tuple[str, int], list[Cell]] = {}
    for cell in result["cells"]:
        if "failed" not in cell:
            groups.setdefault((cell["model"], cell[result["by"]]), []).append(cell)
    return groups


def mean(cells: list[Cell], key: str) -> float:
    """The mean of a figure over runs."""
    return statistics.fmean(cell[key] for cell in cells)


def accuracy(cells: list[Cell]) -> str:
    """The mean accuracy over seeds, and its standard deviation."""
    values = [cell["accuracy"] for cell in cells]
    return f"{statistics.fmean(values):.2f}" + (f" ± {statistics.stdev(values):.2f}" if len(values) > 1 else "")


def render_images(result: Mapping[str, Any]) -> str:
    """A table with a line for each model, or for each patch size."""
    groups, by = gathered(result), result["by"]
    budget = f"{result['minutes']:g} minutes" if result["minutes"] else counted(result["steps"], "step")
    if result.get("flops"):
        budget = f"{result['flops']:.3g} FLOPs in steps"
    setting = f"{budget} of {BATCH} images, {counted(result['seeds'], 'seed')}, {counted(result['threads'], 'thread')}"
    lines = [f"{accuracy_of(by)} in % (mean ± deviation); {setting}", ""]
    if by != "patch":
        first = "pre-trained on" if by == "pretraining" else "images"
        table = [[first, *(f"{value:,}" for value in result["values"]), "steps", "training", "FLOPs", "parameters"]]
        for name in result["models"]:
            rows = [groups.get((name, value), []) for value in result["values"]]
            every = [cell for row in rows for cell in row]
            ends = ends_of(every) if every else ["–"] * 4
            table.append([name, *(accuracy(row) if row else "–" for row in rows), *ends])
        return "\n".join([*lines, *line_up(table)])
    table = [["patch", "tokens", "accuracy", "training", "an image", "parameters"]]
    for (name, value), row in sorted(groups.items()):
        times = [show_seconds(mean(row, key)) for key in ("seconds", "seconds_per_image")]
        table.append([f"{name} {value} × {value}", f"{row[0]['tokens']:,}", accuracy(row), *times,
                      f"{row[0]['parameters']:,}"])  # fmt: skip
    return "\n".join([*lines, *line_up(table)])


def ends_of(cells: list[Cell]) -> list[str]:
    """The steps and the time of a model's runs, the FLOPs of an image, and its parameters."""
    steps, flops = cells[0].get("steps"), cells[0].get("flops_per_image")
    sizes = ["–" if steps is None else f"{steps:,}", show_seconds(mean(cells, "seconds"))]
    return [*sizes, "–" if flops is None else quantity(flops), f"{cells[0]['parameters']:,}"]


def accuracy_of(by: str) -> str:
    """The accuracy that is compared."""
    if by == "pretraining":
        return f"accuracy of a linear classifier on the best layer with {LABELS:,} labels"
    return "accuracy on held-out images"


def draw_images(result: Mapping[str, Any], path: Target) -> "matplotlib.figure.Figure":
    """Draws accuracy against examples or patch size; by patch with the time of training beside it."""
    groups, by = gathered(result), result["by"]
    accuracies = Panel(accuracy_of(by).replace(" on the best", "\non the best"), "%", slopes=(), logarithmic=False)
    times = Panel("time of training", "time", "s", slopes=())
    for name in result["models"]:
        rows = [(value, groups[name, value]) for value in result["values"] if (name, value) in groups]
        accuracies.add(name, [(value, mean(row, "accuracy")) for value, row in rows], None)
        times.add(name, [(value, mean(row, "seconds")) for value, row in rows], None)
    panels, xlabel = ([accuracies], "images of the pre-training" if by == "pretraining" else "labelled images")
    if by == "patch":
        panels, xlabel = [accuracies, times], "pixels of a patch's side"
    return draw_growth([panels], path, xlabel=xlabel)
