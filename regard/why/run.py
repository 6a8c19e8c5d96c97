"""One training run of one arm with one seed, measured along its way at equal steps and by CPU seconds."""

import shutil
import statistics
import time
from collections.abc import Iterable
from dataclasses import replace
from math import log10
from pathlib import Path
from typing import Any

import torch
from torch import nn

from regard.config import override
from regard.doctor.vitals import by_layer, squares, untouched
from regard.inside.capture.weights import look
from regard.models import build
from regard.registry import models
from regard.train.config import TrainConfig
from regard.train.loop import fit, read_metrics
from regard.train.observer import Note, Observer, Row
from regard.why.component import Arm, Component
from regard.why.problems import Problem

POINTS = 10
"""Measurements of a run after its start."""
TRAIN: dict[str, Any] = dict(
    lr=3e-3, schedule="constant", warmup=20, beta2=0.98, smoothing=0.0, weight_decay=0.01, clip=1.0, watch=0
)
"""A constant rate, so that every point of a run is a fair end of a shorter one."""
NOT_FINITE = ("the loss is", "the gradient norm is")
"""Beginnings of the training loop's errors for numbers that are not finite."""


def problem_of(component: Component, arm: Arm) -> Problem:
    return replace(component.problem, **arm.data)


def new_model(component: Component, arm: Arm, seed: int) -> Any:
    """Return an arm's model; tensors that the first arm has too, by name and shape, start from its values."""
    model = _build(component, arm, seed)
    if arm is not component.reference:
        first = _build(component, component.reference, seed).state_dict()
        own = model.state_dict()
        shared = {name: value for name, value in first.items() if name in own and own[name].shape == value.shape}
        model.load_state_dict(own | shared)
    if arm.alter is not None:
        arm.alter(model)
    return model


def _build(component: Component, arm: Arm, seed: int) -> Any:
    problem = problem_of(component, arm)
    torch.manual_seed(seed)
    fields = {**problem.sizes(), **component.problem.model, **arm.model}
    return build(problem.family, override(models[problem.family].config_class(), fields))


def training(component: Component, arm: Arm, seed: int, steps: int) -> TrainConfig:
    fields = {**TRAIN, **component.problem.train, **arm.train}
    return TrainConfig(**fields, steps=steps, seed=seed, save_every=10 * steps, eval_every=10 * steps)


class Recorder(Observer):
    """Measures a run at regular steps; CPU seconds count the training alone."""

    def __init__(self, model: nn.Module, problem: Problem, steps: int) -> None:
        self.model, self.problem, self.steps = model, problem, steps
        self.every = max(1, steps // POINTS)
        self.curve: list[Row] = []
        self.gradient: dict[str, float] = {}
        self.before, self.begun = 0.0, time.process_time()
        self.curve.append(self.measure(0, 0.0))

    def is_measured(self, step: int) -> bool:
        return step % self.every == 0 or step == self.steps

    def measure(self, step: int, cpu: float) -> Row:
        """Return the metrics at this step; the time that they take does not count."""
        started = time.process_time()
        with untouched(self.model):
            point = {"step": step, "cpu": round(cpu, 4), **self.problem.scores(self.model)}
        self.begun += time.process_time() - started
        return point

    def resume(self, rows: list[Row]) -> None:
        self.curve += [row["point"] for row in rows if "point" in row]
        self.before = max((row["cpu"] for row in rows if "cpu" in row), default=0.0)
        self.gradient = next((row["gradient"] for row in rows if "gradient" in row), {})
        self.begun = time.process_time()

    def on_gradients(self, step: int) -> None:
        if step == 1:
            grads = {name: p.grad for name, p in self.model.named_parameters() if p.grad is not None}
            self.gradient = by_layer(dict(zip(grads, squares(list(grads.values())), strict=True)))

    def on_update(self, step: int, loss: float, lr: float) -> Iterable[Note]:
        cpu = self.before + time.process_time() - self.begun
        row: Row = {"step": step, "cpu": round(cpu, 4)}
        if step == 1:
            row["gradient"] = self.gradient
        if self.is_measured(step):
            row["point"] = self.measure(step, cpu)
            self.curve.append(row["point"])
        return [(row, "")]


def run_arm(component: Component, arm: Arm, seed: int, steps: int, folder: Path) -> Row:
    """Train, or go on with a run that was interrupted, and return everything that reports need."""
    problem, config = problem_of(component, arm), training(component, arm, seed, steps)
    model = new_model(component, arm, seed)
    recorder = Recorder(model, problem, steps)
    folder.mkdir(parents=True, exist_ok=True)
    diverged = None
    try:
        fit(model, problem.stream(seed), None, problem.objective, config, folder, publish=lambda: None,
            observer=recorder, resume=True, quiet=True)  # fmt: skip
    except ValueError as error:
        if not str(error).startswith(NOT_FINITE):
            raise
        diverged = recorder.curve[-1]["step"]
        later = [step for step in range(diverged + 1, steps + 1) if recorder.is_measured(step)]
        recorder.curve += [recorder.curve[-1] | {"step": step} | problem.worst() for step in later]
    rows = read_metrics(folder / "metrics.jsonl")
    shutil.rmtree(folder)
    with untouched(model):
        said = problem.sample(model) if diverged is None else "the loss is not finite"
        weights, tokens = first_map(model, problem)
    blocks = {name: norm for name, norm in recorder.gradient.items() if "blocks." in name}
    return {
        "arm": arm.name, "seed": seed, "parameters": sum(p.numel() for p in model.parameters()),
        "curve": recorder.curve, "once": once(rows, blocks, recorder.curve), "gradient": blocks,
        "map": weights, "tokens": tokens, "sample": said, "diverged": diverged,
    }  # fmt: skip


def once(rows: list[Row], gradient: dict[str, float], curve: list[Row]) -> dict[str, float]:
    """Return metrics of a whole run: orders of magnitude between the first and the last block's gradient, and between
    the largest and the median gradient norm; and those of attention at the start."""
    norms, layers = [row["norm"] for row in rows if "norm" in row], list(gradient.values())
    tiny = 1e-12
    start = {f"{name}_start": value for name, value in curve[0].items() if name in ("entropy", "softmax_room")}
    return {
        "gradient_reach": log10(max(tiny, layers[0]) / max(tiny, layers[-1])) if layers else 0.0,
        "spike": log10(max(norms) / max(tiny, statistics.median(norms))) if norms else 0.0,
        **start,
    }


def first_map(model: Any, problem: Problem) -> tuple[list[list[float]], list[str]]:
    """Return the attention of the first layer, as the mean of its heads, and the names of the tokens."""
    inputs, tokens = problem.example()
    with look(model, layers=0) as seen:
        model(**inputs)
    weights = seen.attention[0][0].mean(0)
    return [[round(value, 4) for value in row] for row in weights.nan_to_num().tolist()], tokens
