"""The same small model on the same text under each kernel: what it learns, in which time and memory."""

import importlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import torch

from regard.bench.measure import Died, counted, forget_peak, give_back, held, in_child, line_up, peak, show_seconds
from regard.cost.report import decimal_size
from regard.files import write_atomically
from regard.hub.checkpoint import load_model
from regard.models import build
from regard.recipes import Recipe, recipe
from regard.registry import kernels
from regard.runs.fit import fit_job, prepare
from regard.train.loop import read_metrics
from regard.train.progress import Line

RECIPES = {"gpt": "lm", "bert": "bert"}
DONE = "quality.json"


def measure_quality(
    names: tuple[str, ...],
    out: Path,
    *,
    model: Literal["gpt", "bert"] = "gpt",
    steps: int = 300,
    changes: Mapping[str, Any] | None = None,
    quiet: bool = True,
) -> dict[str, Any]:
    """A run for each kernel in `out`, and its figures. What is finished there already is not trained again."""
    if not names:
        raise ValueError("nothing to train: name at least one kernel")
    if "model.kernel" in (changes or {}):
        raise ValueError("a run for each kernel was asked for; name them with --kernels, not --model.kernel")
    asked = {name: plan_of(name, steps, changes or {}) for name in names}
    line, threads = Line(quiet), torch.get_num_threads()
    plans: dict[str, Recipe] = {}
    for name in names:
        kernels.settings(name)  # a wrong name is known before anything is trained
        plans[name] = recipe(RECIPES[model], asked[name])
    finished = {name: stored(out / folder(name), asked[name]) for name in names}
    rows: dict[str, Any] = {}
    steps = next(iter(plans.values())).train.steps
    result = {"model": model, "steps": steps, "threads": threads, "kernels": rows, "interrupted": False}
    try:
        for name, plan in plans.items():
            place, row = out / folder(name), finished[name]
            if row is None:
                line.say(f"{name}:")
                try:
                    build(plan.family, plan.model)  # what a family refuses is known before its data is read
                    home = kernels[name].__module__
                    row = in_child(train_one, RECIPES[model], asked[name], place, quiet, home, threads)
                except (ValueError, Died) as error:
                    rows[name] = {"refused" if isinstance(error, ValueError) else "failed": str(error)}
                    continue
                store(place, asked[name], row)
            rows[name] = row
    except KeyboardInterrupt:
        result["interrupted"] = True
    full = rows.get("full", {}).get("loss")
    for row in rows.values():
        if "loss" in row:
            row["to_full"] = None if full is None else round(row["loss"] / full - 1, 4)
    return result


def plan_of(name: str, steps: int, changes: Mapping[str, Any]) -> dict[str, Any]:
    """What a run overrides in its recipe; it is validated once, at the end, unless asked otherwise."""
    return {"train.steps": steps, "train.eval_every": steps, **changes, "model.kernel": name}


def folder(name: str) -> str:
    """A kernel's name, settings included, as a directory's."""
    return name.translate(str.maketrans(":=,", "---"))


def store(place: Path, asked: Mapping[str, Any], row: Mapping[str, Any]) -> None:
    text = json.dumps({"asked": asked, "row": row}, indent=2)
    write_atomically(place / DONE, lambda draft: draft.write_text(text, encoding="utf-8"))


def stored(place: Path, asked: Mapping[str, Any]) -> dict[str, Any] | None:
    """The figures of a finished run, if it is the one that is asked for."""
    if not (place / DONE).exists():
        return None
    found = json.loads((place / DONE).read_text(encoding="utf-8"))
    if found["asked"] != asked:
        raise ValueError(f"{place} was trained with other settings; choose another --out, or remove it")
    return found["row"]


def train_one(name: str, changes: Mapping[str, Any], out: Path, quiet: bool, home: str, threads: int) -> dict[str, Any]:
    """In a fresh process: trains, or goes on where a run was stopped, and says what it took."""
    importlib.import_module(home)  # a kernel of the user's own registers itself
    torch.set_num_threads(threads)
    plan, resume = recipe(name, changes), (out / "recipe.toml").exists()
    job = prepare(plan.data, plan, out, resume, Line(quiet))
    give_back()
    forget_peak()
    ready = held()
    fit_job(job, out, resume=resume, quiet=quiet)
    most = peak()
    rows = read_metrics(out / "metrics.jsonl")
    steps = [row for row in rows if "tokens" in row]
    seconds = steps[-1]["seconds"]
    return {
        "loss": round(next(row["valid_loss"] for row in reversed(rows) if "valid_loss" in row), 4),
        "seconds": seconds,
        "tokens_per_second": round(sum(row["tokens"] for row in steps) / max(seconds, 1e-9)),
        "memory": max(0, most - ready),
        "parameters": sum(parameter.numel() for parameter in load_model(out).parameters()),
    }


def render_quality(result: Mapping[str, Any]) -> str:
    """A line for each kernel."""
    table = [["kernel", "held-out loss", "to full", "training", "tokens/s", "memory", "parameters", ""]]
    for name, row in result["kernels"].items():
        if "loss" not in row:
            table.append([name, *["–"] * 6, "refused: " + row["refused"] if "refused" in row else row["failed"]])
            continue
        to_full = "–" if row["to_full"] is None else f"{row['to_full']:+.1%}"
        figures = [show_seconds(row["seconds"]), f"{row['tokens_per_second']:,}", decimal_size(row["memory"])]
        table.append([name, f"{row['loss']:.4f}", to_full, *figures, f"{row['parameters']:,}", ""])
    what = f"{result['model']}, {counted(result['steps'], 'step')}, {counted(result['threads'], 'thread')}"
    about = "loss a token at the end, on held-out text; memory above that of the data, in training and validation"
    return "\n".join([f"{what}: {about}", "", *line_up(table)])
