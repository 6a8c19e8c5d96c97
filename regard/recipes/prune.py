"""Heads that a model can do without: scored by the loss on held-out data when each is switched off, then removed.

A removed head's columns in the output projection are zeros: shapes stay as they are, so that everything that reads the
model still does; it does not get faster.
"""

import json
import math
import random
import shutil
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import torch

from regard.data.batches import Batch
from regard.files import write_atomically
from regard.hub.checkpoint import save_model
from regard.hub.remote import find
from regard.inside.ablation import without
from regard.inside.capture import find_kernels, owner_of
from regard.recipes.base import Recipe, configure
from regard.recipes.run import prepare
from regard.tasks import load
from regard.train.loop import evaluate
from regard.train.progress import Line

EXAMPLES = 256
"""Of held-out data, about so many, that every head is tried on."""
NOT_COPIED = ("config.json", "metrics.jsonl", "pruned.json")

Head = tuple[str, int]
"""An attention layer by its name, and a head."""


def prune(
    run: str | Path, heads: int, out: Path, changes: Mapping[str, Any], *, seed: int | None = None, quiet: bool = False
) -> dict[str, Any]:
    """A copy of a run without the heads that matter least (with `seed`: without some at random), and what it costs."""
    run = find(run)
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise ValueError(f"{out} is not empty; choose another --out")
    model = load(run).model
    every = removable(model)
    if not 0 < heads < len(every):
        raise ValueError(f"--heads {heads}: {run} has {len(every)} heads; remove 1 to {len(every) - 1} of them")
    loss_of = held_out_loss(run, changes)
    before = loss_of(model)
    effects = head_losses(model, lambda: loss_of(model) - before, Line(quiet))
    chosen = least(effects, heads) if seed is None else sorted(random.Random(seed).sample(every, heads))
    remove(model, chosen)
    found = {
        "heads": len(effects), "removed": [{"layer": name, "head": head} for name, head in chosen],
        "loss_before": round(before, 6), "loss_after": round(loss_of(model), 6),
        "effects": [{"layer": n, "head": h, "loss_rises": round(e, 6)} for (n, h), e in effects.items()],
    }  # fmt: skip
    save_pruned(model, run, out, found)
    return found


def held_out_loss(run: Path, changes: Mapping[str, Any]) -> Callable[[Any], float]:
    """The mean loss of a model on a bounded part of the held-out data of a run, or of what `changes` name."""
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
    """Every head that has columns of its own in an output projection; a layer that is used again counts once."""
    kernels = {kernel: name for name, kernel in reversed(find_kernels(model).items())}
    found = [
        (name, head)
        for kernel, name in reversed(kernels.items())
        if owner_of(model, kernel) is not None
        for head in range(kernel.heads)
    ]
    if not found:
        raise ValueError(f"{type(model).__name__} has no heads to remove; prune a Transformer")
    return found


def head_losses(model: Any, rise: Callable[[], float], line: Line) -> dict[Head, float]:
    """How much the loss rises without each head: one forward sweep each."""
    kernels, every, found = find_kernels(model), removable(model), dict[Head, float]()
    for name, head in every:
        with without(model, [(other, head) for other in kernels if kernels[other] is kernels[name]]):
            found[name, head] = rise()
        line.show(f"{len(found)} of {len(every)} heads tried", final=len(found) == len(every))
    return found


def least(effects: Mapping[Head, float], count: int) -> list[Head]:
    """The heads that matter least."""
    return sorted(effects, key=effects.__getitem__)[:count]


@torch.no_grad()
def remove(model: Any, heads: Iterable[Head]) -> None:
    """Zeros in place of what the output projection reads of some heads; the model is changed for good."""
    kernels = find_kernels(model)
    for name, head in heads:
        layer = owner_of(model, kernels[name])
        assert layer is not None
        layer.out.weight[:, head * layer.head_dim : (head + 1) * layer.head_dim] = 0


def save_pruned(model: Any, run: Path, out: Path, found: Mapping[str, Any]) -> None:
    """The weights in our own layout, beside a copy of everything small that the run needs."""
    out.mkdir(parents=True, exist_ok=True)
    for path in sorted(run.iterdir()):
        if path.suffix in (".json", ".toml", ".jinja", ".model", ".txt") and path.name not in NOT_COPIED:
            if not path.name.endswith(".safetensors.index.json"):
                shutil.copyfile(path, out / path.name)
    save_model(model, out)
    text = json.dumps(found, indent=1, ensure_ascii=False) + "\n"
    write_atomically(out / "pruned.json", lambda draft: draft.write_text(text, encoding="utf-8"))


def render(found: Mapping[str, Any]) -> str:
    """What went, and what it cost."""
    removed: dict[str, list[str]] = {}
    for one in found["removed"]:
        removed.setdefault(one["layer"], []).append(str(one["head"]))
    lines = [f"{len(found['removed'])} of {found['heads']} heads removed:"]
    lines += [f"  {layer:32}{' '.join(sorted(heads))}" for layer, heads in sorted(removed.items())]
    return "\n".join([*lines, f"held-out loss {found['loss_before']:.4f} before, {found['loss_after']:.4f} after"])
