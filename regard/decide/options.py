"""Options that make a trained model cheaper, along five axes: decoding, numbers, kernel, context, sizes."""

import re
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import partial
from pathlib import Path
from typing import Any

from regard.bench.growth import efficient_kernels
from regard.bench.quality import store, stored
from regard.config import read_json
from regard.data.sets.batches import Batch
from regard.eval.cut import cut, cut_blocks, cut_heads, cut_units
from regard.eval.prune import copy_small_files
from regard.hub.checkpoint import load_model, save_model
from regard.hub.files import GENERATION, write_json
from regard.nn.lora import merge_low_rank
from regard.objectives.distill import distillation
from regard.runs.fit import Job, prepare
from regard.runs.recipe import Recipe
from regard.tasks.base import Task
from regard.train.config import TrainConfig
from regard.train.loop import evaluate, fit
from regard.train.progress import Line

EXAMPLES = 128
"""Training examples, about, by which heads and hidden units are chosen."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Option:
    """One change of a model; a candidate has at most one of each axis."""

    axis: str
    name: str
    change: Callable[[Any], Any] = lambda model: model
    """From the model to the changed one."""
    quantize: str = "none"
    beams: int | None = None


@dataclass(frozen=True, kw_only=True)
class Source:
    """The model that is to become cheaper: its weights, its recipe and its training data."""

    weights: Path
    recipe: Recipe
    job: Job
    batches: Sequence[Batch]
    """A few batches of training data."""

    @classmethod
    def read(cls, run: Path, weights: Path) -> "Source":
        recipe = Recipe.load(run / "recipe.toml")
        job = prepare(recipe.data, recipe, run, True, Line(True))
        batches, examples = list[Batch](), 0
        for _, _, batch in job.stream.batches():
            batches, examples = [*batches, batch], examples + len(batch.targets)
            if examples >= EXAMPLES:
                break
        return cls(weights=weights, recipe=recipe, job=job, batches=batches)

    def model(self) -> Any:
        """The model with floating-point weights of its own."""
        model = load_model(self.weights)
        merge_low_rank(model)
        return model

    def loss(self, model: Any) -> float:
        """The mean loss of a model on the few batches of training data."""
        return evaluate(model, self.batches, self.job.objective)

    def write(self, options: Sequence[Option], out: Path) -> None:
        """Write a run with these changes, which loads, evaluates and serves as any other."""
        model = self.model()
        for option in options:
            model = option.change(model)
        copy_small_files(self.weights, out)
        quantize = next((option.quantize for option in options if option.quantize != "none"), "none")
        save_model(model, out, quantize=quantize)
        replace(self.recipe, model=model.config).save(out / "recipe.toml")
        if beams := next((option.beams for option in options if option.beams), None):
            write_json(out / GENERATION, read_json(out / GENERATION) | {"num_beams": beams})


def quick_options(source: Source, task: Task) -> Iterator[Option]:
    """Options that train nothing and take no time to prepare."""
    path = source.weights / GENERATION
    if path.is_file() and (read_json(path).get("num_beams") or 1) > 1:
        yield Option(axis="decoding", name="greedy", beams=1)
    for kind in ("int8", "int4"):
        yield Option(axis="numbers", name=kind, quantize=kind)
    own: str = getattr(task.model.config, "kernel", "")
    own_cross = "cross_kernel" in {field.name for field in fields(task.model.config)}
    for kernel in efficient_kernels() if own else ():
        if kernel != own.partition(":")[0]:
            across = {"cross_kernel": task.model.config.cross_kernel or own} if own_cross else {}
            yield Option(axis="kernel", name=kernel, change=partial(cut, fields={"kernel": kernel, **across}))
    if (context := getattr(task, "context", None)) and context > 2:
        half = context // 2
        yield Option(axis="context", name=f"context of {half}", change=partial(cut, fields={"max_len": half}))


def with_fewer_heads(source: Source, by: float) -> dict[str, Callable[[], Any]]:
    """Models with three quarters, and with 1/by, of the heads of every layer, by name."""
    heads: Any = getattr(source.model().config, "heads", None)
    alone = not isinstance(heads, int) or heads < 2
    counts = set() if alone else {min(heads - 1, max(1, round(heads * share))) for share in (0.75, 1 / by)}
    return {
        f"{count} of {heads} heads": partial(cut_heads, source.model(), count, source.loss)
        for count in sorted(counts, reverse=True)
    }


def students(source: Source, by: float) -> dict[str, Callable[[], Any]]:
    """Models of 1/by of the blocks, of the width inside the blocks, and of both, by name; they are to be distilled."""
    config = source.model().config
    heads, units = getattr(config, "heads", None), getattr(config, "ffn_dim", None)
    found: dict[str, Callable[[], Any]] = {f"1/{by:g} of the blocks": lambda: cut_blocks(source.model(), 1 / by)}
    if isinstance(heads, int) and isinstance(units, int) and units >= by:

        def narrow(model: Any) -> Any:
            if heads > 1:
                model = cut_heads(model, max(1, round(heads / by)), source.loss)
            return cut_units(model, max(1, round(units / by)), source.batches)

        found[f"1/{by:g} of heads and hidden units"] = lambda: narrow(source.model())
        found[f"1/{by:g} of blocks, heads and hidden units"] = lambda: cut_blocks(narrow(source.model()), 1 / by)
    return found


def size_options(
    source: Source, by: float, minutes: float, folder: Path, left_out: dict[str, str], say: Callable[[str], None]
) -> Iterator[Option]:
    """Options of the model's own sizes: heads removed, and students that were distilled for so many CPU minutes.

    Models are kept in `folder`; finished ones are not trained again.
    """
    plans = [(name, make, 0.0) for name, make in with_fewer_heads(source, by).items()]
    if minutes:
        plans += [(f"{name}, distilled", make, minutes) for name, make in students(source, by).items()]
    for name, make, taught in plans:
        place = folder / re.sub(r"\W+", "-", name)
        plan = {"name": name, "minutes": taught, "weights": str(source.weights)}
        if stored(place, plan) is None:
            say(f"{name} …")
            try:
                model = make()
                if taught:
                    distil(source, model, taught, place)
            except ValueError as error:
                left_out[name] = str(error)
                continue
            save_model(model, place)
            store(place, plan, {})
        yield Option(axis="size", name=name, change=partial(stored_model, place))


def stored_model(folder: Path, model: Any) -> Any:
    """The model in a folder, in place of `model`."""
    return load_model(folder)


def distil(source: Source, student: Any, minutes: float, folder: Path) -> None:
    """Train a student to predict what the model predicts, on the training data of its run; it goes on where an earlier
    call was interrupted."""
    folder.mkdir(parents=True, exist_ok=True)
    fit(student, source.job.stream, None, distillation(source.model()), short(source.recipe.train, minutes), folder,
        publish=lambda: None, resume=True, quiet=True)  # fmt: skip
    shutil.rmtree(folder / "checkpoints")


def short(config: TrainConfig, minutes: float) -> TrainConfig:
    """Return the settings of a run for a budget of CPU minutes: as they are, but for warm-up and schedule."""
    warmup: dict[str, Any] = {} if config.lr is None else {"warmup": 0.05}
    return replace(
        config, minutes=minutes, clock="cpu", epochs=None, schedule="cosine", average=1, patience=0, watch=0,
        smoothing=0.0, save_every=1_000_000, **warmup,
    )  # fmt: skip


def combinations(options: Sequence[Option], ratios: Mapping[str, float], most: int) -> list[tuple[Option, ...]]:
    """Return combinations of options of different axes that are cheaper alone, those of few options first."""
    helpful = [option for option in options if ratios.get(option.name, 1.0) < 0.97]
    found: list[tuple[Option, ...]] = [()]
    for axis in dict.fromkeys(option.axis for option in helpful):
        found += [(*chosen, option) for chosen in found for option in helpful if option.axis == axis]
    return sorted((chosen for chosen in found if len(chosen) > 1), key=len)[:most]
