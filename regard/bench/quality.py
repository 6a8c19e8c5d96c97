"""A small model trained on one text under each kernel: held-out loss, time and memory."""

import importlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import torch

from regard.bench.measure import Died, counted, forget_peak, give_back, held, in_child, line_up, peak, show_seconds
from regard.config import read_json
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
    """Trains a run for each kernel in `out` and returns their results; finished runs are not trained again."""
    if not names:
        raise ValueError("nothing to train: name at least one kernel")
    if "model.kernel" in (changes or {}):
        raise ValueError("there is a run for each kernel; name them with --kernels, not --model.kernel")
    changed = {name: plan_of(name, steps, changes or {}) for name in names}
    line, threads = Line(quiet), torch.get_num_threads()
    plans: dict[str, Recipe] = {}
    for name in names:
        kernels.settings(name)  # a wrong name is known before anything is trained
        plans[name] = recipe(RECIPES[model], changed[name])
    finished = {name: stored(out / folder(name), changed[name]) for name in names}
    rows: dict[str, Any] = {}
    steps = next(iter(plans.values())).train.steps
    result = {"model": model, "steps": steps, "threads": threads, "kernels": rows, "interrupted": False}
    try:
        for name, plan in plans.items():
            run, row = out / folder(name), finished[name]
            if row is None:
                line.say(f"{name}:")
                try:
                    build(plan.family, plan.model)  # a kernel that the family refuses is reported before data are read
                    home = kernels[name].__module__
                    row = in_child(train_one, RECIPES[model], changed[name], run, quiet, home, threads)
                except (ValueError, Died) as error:
                    rows[name] = {"refused" if isinstance(error, ValueError) else "failed": str(error)}
                    continue
                store(run, changed[name], row)
            rows[name] = row
    except KeyboardInterrupt:
        result["interrupted"] = True
    full = rows.get("full", {}).get("loss")
    for row in rows.values():
        if "loss" in row:
            row["to_full"] = None if full is None else round(row["loss"] / full - 1, 4)
    return result


def plan_of(name: str, steps: int, changes: Mapping[str, Any]) -> dict[str, Any]:
    """The overrides of a run in its recipe; by default it is validated once, at the end."""
    return {"train.steps": steps, "train.eval_every": steps, **changes, "model.kernel": name}


def folder(name: str) -> str:
    """The directory of a kernel's run: its name with settings."""
    return name.translate(str.maketrans(":=,", "---"))


def store(run: Path, plan: Mapping[str, Any], row: Mapping[str, Any]) -> None:
    """Writes the results of a finished run beside its settings."""
    text = json.dumps({"asked": plan, "row": row}, indent=2)
    write_atomically(run / DONE, lambda draft: draft.write_text(text, encoding="utf-8"))


def stored(run: Path, plan: Mapping[str, Any]) -> dict[str, Any] | None:
    """The results of a finished run, None if it is not finished; other settings are an error."""
    if not (run / DONE).exists():
        return None
    results = read_json(run / DONE)
    if results["asked"] != plan:
        raise ValueError(f"{run} was trained with other settings; choose another --out, or remove it")
    return results["row"]


def train_one(name: str, changes: Mapping[str, Any], out: Path, quiet: bool, home: str, threads: int) -> dict[str, Any]:
    """Trains or resumes a run and returns its loss, time and memory; meant for a fresh process."""
    importlib.import_module(home)  # registers a kernel of the user's
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
    """A table with a line for each kernel."""
    table = [["kernel", "held-out loss", "to full", "training", "tokens/s", "memory", "parameters", ""]]
    for name, row in result["kernels"].items():
        if "loss" not in row:
            table.append([name, *["–"] * 6, "refused: " + row["refused"] if "refused" in row else row["failed"]])
            continue
        to_full = "–" if row["to_full"] is None else f"{row['to_full']:+.1%}"
        figures = [show_seconds(row["seconds"]), f"{row['tokens_per_second']:,}", decimal_size(row["memory"])]
        table.append([name, f"{row['loss']:.4f}", to_full, *figures, f"{row['parameters']:,}", ""])
    what = f"{result['model']}, {counted(result['steps'], 'step')}, {counted(result['threads'], 'thread')}"
    about = "loss per token at the end, on held-out text; memory above that of the data, in training and validation"
    return "\n".join([f"{what}: {about}", "", *line_up(table)])
