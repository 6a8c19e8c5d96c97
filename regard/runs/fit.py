"""From a recipe to a trained run on disk."""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from functools import singledispatch
from pathlib import Path
from typing import Any

import torch

from regard.data.readers.images import Preparation
from regard.data.sets.batches import Batch
from regard.doctor.watch import Watch
from regard.files import held
from regard.hub.checkpoint import save_generation, save_model
from regard.hub.images import save_preparation
from regard.models import build
from regard.runs.recipe import Recipe
from regard.tokens import Tokenizer
from regard.train.loop import Fitted, Objective, Stream
from regard.train.loop import fit as train
from regard.train.progress import Line


@dataclass(frozen=True, kw_only=True)
class Job:
    """A recipe with its data at hand: what the training loop is given."""

    recipe: Recipe
    """The recipe with everything that its data decided, such as the size of the vocabulary."""
    tokenizer: Tokenizer | None = None
    """What turns texts into ids, if there are texts."""
    stream: Stream
    valid: Callable[[], Iterable[Batch]]
    objective: Objective
    about: str
    """What there is to learn from, in a few words."""
    build: Callable[[Recipe], Any] = lambda recipe: build(recipe.family, recipe.model)
    """The model to begin with."""
    publish: Callable[[Any, Path], None] = save_model
    """Writes the weights that others load."""
    generation: dict[str, Any] = field(default_factory=dict)
    """How the model is to be decoded, if it writes."""
    preparation: Preparation | None = None
    """How pictures become numbers, if it sees."""


@singledispatch
def prepare(data: Any, recipe: Recipe, out: Path, resume: bool, line: Line) -> Job:
    """Reads a recipe's data. Each kind of data has its own way; registering one makes a new kind of recipe."""
    raise ValueError(f"no way is known to train on {type(data).__name__}; register one with regard.runs.fit.prepare")


def fit(recipe: Recipe, out: str | Path, *, resume: bool = False, quiet: bool = False) -> Fitted:
    """Trains what the recipe says and leaves a run in `out` that `regard.load` opens."""
    check_free(Path(out), resume)  # before anything is read
    test = getattr(recipe.data, "test", None)
    if test is not None and not Path(test).exists():  # it would be missed only after the training
        raise ValueError(f"no such file or folder: {test}; correct --data.test, or leave it out")
    job = prepare(recipe.data, recipe, Path(out), resume, Line(quiet))
    return fit_job(job, Path(out), resume=resume, quiet=quiet)


def fit_job(job: Job, out: Path, *, resume: bool = False, quiet: bool = False) -> Fitted:
    """`fit` with the data at hand."""
    recipe, line = with_steps(job.recipe, job.stream), Line(quiet)
    check_free(out, resume)
    torch.manual_seed(recipe.train.seed)
    model = job.build(recipe)

    out.mkdir(parents=True, exist_ok=True)
    with held(out):
        check_place(recipe, out, resume)
        if job.tokenizer is not None:
            job.tokenizer.save(out / "tokenizer.json")
        if job.preparation is not None:
            save_preparation(out, job.preparation)
        recipe.save(out / "recipe.toml")
        if job.generation:
            save_generation(out, **job.generation)
        announce(job, recipe, model, line)
        return train(
            model, job.stream, job.valid, job.objective, recipe.train, out,
            publish=lambda: job.publish(model, out), observer=Watch(model, job.objective, recipe.train), resume=resume,
            quiet=quiet,
        )  # fmt: skip


def announce(job: Job, recipe: Recipe, model: Any, line: Line) -> None:
    """What is about to be trained, and on what."""
    steps, warmup = recipe.train.steps, recipe.train.warmup
    if recipe.train.minutes is None and steps <= warmup:
        line.say(f"{steps} steps end within the warm-up of {warmup}; lower --train.warmup")
    count = sum(p.numel() for p in model.parameters())
    trained = sum(p.numel() for p in model.parameters() if p.requires_grad)
    share = f" ({trained:,} of them trained, {trained / count:.2%})" if trained < count else ""
    words = f", vocabulary {len(job.tokenizer):,}" if job.tokenizer is not None else ""
    line.say(f"{recipe.family}: {count:,} parameters{share}{words}, {job.about}")


def with_steps(recipe: Recipe, stream: Any) -> Recipe:
    """Passes over the data as a number of updates."""
    if recipe.train.epochs is None:
        return recipe
    steps = math.ceil(recipe.train.epochs * stream.count() / recipe.train.accumulate)
    return replace(recipe, train=replace(recipe.train, steps=max(1, steps)))


def check_free(out: Path, resume: bool) -> None:
    """A run is never overwritten."""
    if not resume and ((out / "recipe.toml").exists() or (out / "checkpoints").exists()):
        raise ValueError(f"{out} holds a run already; go on with --resume or choose another --out")


def check_place(recipe: Recipe, out: Path, resume: bool) -> None:
    """A run is never overwritten, and never resumed as something else."""
    check_free(out, resume)
    stored = out / "recipe.toml"
    if resume and stored.exists():
        before = Recipe.load(stored)
        same = [(r.family, r.model, r.data, r.train.optimizer, r.train.seed) for r in (before, recipe)]
        if same[0] != same[1]:
            raise ValueError(
                f"{out} was trained with another model, data, optimizer or seed; to resume it, change only other "
                "--train fields, or start anew with another --out"
            )


def get_tokenizer(
    data: Any, texts: Callable[[], Iterable[str]], out: Path, resume: bool, specials: tuple[str, ...] = ()
) -> Tokenizer:
    """The run's own on resuming, the given one, or one trained on the texts."""
    if resume and (out / "tokenizer.json").exists():
        return Tokenizer.load(out)
    if data.tokenizer is not None:
        return Tokenizer.load(data.tokenizer)
    return Tokenizer.train(
        texts=texts(), kind=data.kind, vocab_size=data.vocab_size, lowercase=data.lowercase, specials=specials
    )


def with_vocabulary(recipe: Recipe, tokenizer: Tokenizer, **changes: Any) -> Recipe:
    """The recipe for a model of this tokenizer's size."""
    return replace(recipe, model=replace(recipe.model, vocab_size=len(tokenizer), **changes))


def marks(tokenizer: Tokenizer, *roles: str) -> list[int]:
    """The ids of the special tokens that a recipe needs, such as "bos", "eos" and "pad"."""
    found = {role: getattr(tokenizer, role) for role in roles}
    if missing := [role for role, mark in found.items() if mark is None]:
        raise ValueError(f"the tokenizer has no <{missing[0]}> token; use one trained by `regard tokenizer train`")
    return list(found.values())
