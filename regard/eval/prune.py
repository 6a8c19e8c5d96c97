"""Heads that a model can do without: scored by the loss on held-out data when each is switched off, then removed.

A removed head's columns in the output projection are zeros: shapes stay as they are, so that everything that reads the
model still does; it does not get faster.
"""

import json
import math
import random
import shutil
from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path
from typing import Any

import torch

from regard.data.sets.batches import Batch
from regard.files import write_text
from regard.hub.checkpoint import save_model
from regard.hub.remote import find
from regard.inside.capture.ablation import without
from regard.inside.capture.weights import owner_of
from regard.nn.weights import find_kernels
from regard.runs.choice import VALIDATED, is_validated, learned
from regard.runs.fit import prepare
from regard.runs.recipe import Recipe, configure
from regard.tasks import load
from regard.train.loop import evaluate
from regard.train.progress import Line

ROUNDS = 4
"""Number of rounds in which heads are removed; the remaining heads are scored again in each."""
EXAMPLES = 256
"""Approximate number of held-out examples that every head is scored on."""
NOT_COPIED = ("config.json", "pruned.json", "scores.json")

Head = tuple[str, int]
"""The name of an attention layer, and the index of one of its heads."""


def prune(
    run: str | Path, heads: int, out: Path, changes: Mapping[str, Any], *, seed: int | None = None, quiet: bool = False
) -> dict[str, Any]:
    """Save a copy of a run without its least important heads (with `seed`: without random ones) and return the change
    of the loss."""
    run = find(run)
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise ValueError(f"{out} is not empty; choose another --out")
    model = load(run).model
    every = removable(model)
    if not 0 < heads < len(every):
        raise ValueError(f"--heads {heads}: {run} has {len(every)} heads; remove 1 to {len(every) - 1} of them")
    line = Line(quiet)
    loss_of = held_out_loss(run, changes)
    own = Recipe.load(run / "recipe.toml")
    held_out = not learned(run, own.data, configure(own, changes).data, "valid")
    if not held_out:
        line.say(f"{run} was trained on its held-out examples, too; --data.valid FILE names others to choose heads by")
    before = loss_of(model)
    if seed is None:
        chosen, losses = sift(model, heads, lambda: loss_of(model), line)
    else:
        chosen, losses = sorted(random.Random(seed).sample(every, heads)), {}
    remove(model, chosen)
    result = {
        "heads": len(every), "removed": [{"layer": name, "head": head} for name, head in chosen],
        "held_out": held_out, "loss_before": round(before, 6), "loss_after": round(loss_of(model), 6),
        "effects": [{"layer": n, "head": h, "loss_rises": round(e - before, 6)} for (n, h), e in losses.items()],
    }  # fmt: skip
    save_pruned(model, run, out, result)
    if is_validated(run):  # held-out examples are scored by these weights, of the copy as well
        judged = load(run / VALIDATED).model
        remove(judged, chosen)
        save_pruned(judged, run / VALIDATED, out / VALIDATED, result)
    return result


def held_out_loss(run: Path, changes: Mapping[str, Any]) -> Callable[[Any], float]:
    """Return a function that computes a model's mean loss on a bounded part of its held-out data, or of the data in
    `changes`."""
    stored = run / "recipe.toml"
    if not stored.exists():
        raise ValueError(f"{run} has no recipe.toml, so what to test it on is not known; prune a run of regard train")
    recipe = configure(Recipe.load(stored), changes)
    job = prepare(recipe.data, recipe, run, True, Line(True))
    batches: list[Batch] = list(job.valid())
    step = math.ceil(sum(len(batch.targets) for batch in batches) / EXAMPLES)
    batches = batches[min(step, len(batches)) // 2 :: step]  # they are in order of length: some of each

    @torch.inference_mode()
    def loss(model: Any) -> float:
        return evaluate(model, batches, job.objective)

    return loss


def removable(model: Any) -> list[Head]:
    """List the heads that can be removed by zeroing columns of an output projection; a shared layer is listed once.

    Where MViT adds its queries to what a head mixed, zeros would remove these as well.
    """
    kernels = {kernel: name for name, kernel in reversed(find_kernels(model).items())}
    heads = [
        (name, head)
        for kernel, name in reversed(kernels.items())
        if (layer := owner_of(model, kernel)) is not None and not getattr(layer, "residual", False)
        for head in range(kernel.heads)
    ]
    if not heads:
        raise ValueError(f"{type(model).__name__} has no heads that can be removed alone; prune another Transformer")
    return heads


def head_losses(model: Any, loss: Callable[[], float], gone: Collection[Head] = ()) -> dict[Head, float]:
    """Return the loss without each remaining head in turn; the heads in `gone` are ablated as well."""
    kernels, losses = find_kernels(model), dict[Head, float]()
    for head in removable(model):
        if head not in gone:
            off = [(name, h) for layer, h in (*gone, head) for name in kernels if kernels[name] is kernels[layer]]
            with without(model, off):
                losses[head] = loss()
    return losses


def least(losses: Mapping[Head, float], count: int) -> list[Head]:
    """Return the heads whose removal raises the loss least."""
    return sorted(losses, key=losses.__getitem__)[:count]


def sift(model: Any, count: int, loss: Callable[[], float], line: Line) -> tuple[list[Head], dict[Head, float]]:
    """Choose heads to remove, and return them with the loss without each one alone.

    They go in rounds, and those left are tried again: heads stand in for each other, and the second of two matters
    only when the first is gone.
    """
    first = losses = head_losses(model, loss)
    gone: list[Head] = []
    while True:
        gone += least(losses, min(math.ceil(count / ROUNDS), count - len(gone)))
        line.show(f"{len(gone)} of {count} heads found", final=len(gone) == count)
        if len(gone) == count:
            return gone, first
        losses = head_losses(model, loss, gone)


@torch.no_grad()
def remove(model: Any, heads: Iterable[Head]) -> None:
    """Zero the columns of the output projections that read these heads, in place."""
    kernels = find_kernels(model)
    for name, head in heads:
        layer = owner_of(model, kernels[name])
        assert layer is not None
        layer.out.weight[:, head * layer.head_dim : (head + 1) * layer.head_dim] = 0


def copy_small_files(run: Path, out: Path) -> None:
    """Copy what stands beside the weights: tokenizer, preprocessing, decoding defaults, recipe."""
    out.mkdir(parents=True, exist_ok=True)
    for path in sorted(run.iterdir()):
        if path.suffix in (".json", ".toml", ".jinja", ".model", ".txt") and path.name not in NOT_COPIED:
            if not path.name.endswith(".safetensors.index.json"):
                shutil.copyfile(path, out / path.name)


def save_pruned(model: Any, run: Path, out: Path, result: Mapping[str, Any]) -> None:
    """Save the weights in our own layout, and copy the run's other small files."""
    copy_small_files(run, out)
    save_model(model, out)
    text = json.dumps(result, indent=1, ensure_ascii=False) + "\n"
    write_text(out / "pruned.json", text)


def render(result: Mapping[str, Any]) -> str:
    """Return the removed heads and the change of the loss as text."""
    removed: dict[str, list[int]] = {}
    for head in result["removed"]:
        removed.setdefault(head["layer"], []).append(head["head"])
    lines = [f"{len(result['removed'])} of {result['heads']} heads removed:"]
    lines += [f"  {layer:32}{' '.join(map(str, sorted(heads)))}" for layer, heads in sorted(removed.items())]
    kind = "held-out loss" if result.get("held_out", True) else "loss on examples that were trained on"
    return "\n".join([*lines, f"{kind} {result['loss_before']:.4f} before, {result['loss_after']:.4f} after"])
