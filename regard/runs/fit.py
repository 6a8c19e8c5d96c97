"""From a recipe to a trained run on disk."""

import contextlib
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from functools import partial, singledispatch
from pathlib import Path
from typing import Any

import torch

from regard.config import dump_toml, nearest, to_dict
from regard.data.notices import listening
from regard.data.readers.hub_sets import HUB
from regard.data.readers.preprocessing import Preprocessing
from regard.data.sets.batches import Batch
from regard.doctor.watch import Watch
from regard.files import held
from regard.hub.adapter import begin_from, save_adapter, tune
from regard.hub.checkpoint import load_model, peek_model, save_generation, save_model
from regard.hub.files import CONFIG
from regard.hub.preprocessor import load_preprocessing
from regard.hub.remote import find, pinned
from regard.modalities.text import TEXT
from regard.models import build
from regard.nn.patches import sides
from regard.registry import modalities, models, recipes
from regard.runs.checksums import changed_sources, save_checksums
from regard.runs.choice import CHOICE, Whole, finish, forget, steps_again
from regard.runs.recipe import Recipe, configure
from regard.runs.recipe import recipe as named_recipe
from regard.tasks.base import Task
from regard.tasks.loading import task_of
from regard.tokens import Tokenizer
from regard.tokens.published import has_files
from regard.train import processes
from regard.train.compute import Placed
from regard.train.device import pick
from regard.train.loop import Fitted, Objective, Stream
from regard.train.loop import fit as train
from regard.train.progress import Line

RATES = {"all": 5e-4, "head": 4e-3, "lora": 2e-3}
"""Learning rates from trained weights; what is small or initialised to zero can take larger steps."""
WIDTH = 128
"""The width up to which they hold; the rate of all weights of a wider model is lower in proportion."""


def build_new(recipe: Recipe) -> Any:
    """The model of a recipe with new weights."""
    return build(recipe.family, recipe.model)


@dataclass(frozen=True, kw_only=True)
class Job:
    """A recipe with its data prepared, as the training loop takes it."""

    recipe: Recipe
    """The recipe with everything that its data decided, such as the size of the vocabulary."""
    readers: dict[str, Any] = field(default_factory=dict)
    """The reader of each modality, by name: a tokenizer for "text", a preprocessing for "image"; saved with the run."""
    stream: Stream
    valid: Callable[[], Iterable[Batch]]
    objective: Objective
    about: str
    """The training data in a few words."""
    build: Callable[[Recipe], Any] | None = None
    """The model as training starts with it; None: from the base that the data name, or else with new weights."""
    publish: Callable[[Any, Path], None] = save_model
    """Writes the weights that others load."""
    generation: dict[str, Any] = field(default_factory=dict)
    """The decoding defaults of a model that generates."""
    rival: Callable[[bool], Any] | None = None
    """A simpler model of the same data, trained without what is held out, or (True) with it; it is kept instead where
    validation finds it clearly better."""
    whole: Whole | None = None
    """All examples, if the training is repeated on them after validation."""


@singledispatch
def prepare(data: Any, recipe: Recipe, out: Path, resume: bool, line: Line) -> Job:
    """Read the data of a recipe into a job; each data config registers a function for its type."""
    raise ValueError(f"{type(data).__name__} cannot be trained on; register a function with regard.runs.fit.prepare")


def fit(
    recipe: Recipe | str, out: str | Path | None = None, *, resume: bool = False, quiet: bool = False, **fields: Any
) -> Fitted:
    """Train by a recipe, or by its name, and leave a run in `out` (runs/NAME) that `regard.load` opens.

    `fields` override those of the recipe: `steps=100` where one part alone has such a field, or by dotted names:
    `fit("lm", out="runs/book", **{"data.text": "book.txt", "train.steps": 500})`.
    """
    if isinstance(recipe, str):
        recipe = named_recipe(recipe, dotted_fields(recipes[recipe]({}), fields))
    elif fields:
        recipe = configure(recipe, dotted_fields(recipe, fields))
    out = Path("runs") / recipe.name if out is None else out
    resume, quiet = resume or processes.goes_on(Path(out)), quiet or processes.rank() > 0
    check_free(Path(out), resume)  # before anything is read
    processes.join(pick(recipe.train.device, "--train.device").type)
    test = recipe.data.test
    # Otherwise it would be noticed only after the training.
    if test is not None and not test.startswith(HUB) and not Path(test).exists():
        raise ValueError(f"no such file or folder: {test}; correct --data.test, or leave it out")
    line = Line(quiet)
    with listening(lambda text, passing: (line.show if passing else line.say)(text)):
        understood = [] if resume else recipe.data.overview()
        job = started(prepare(recipe.data, recipe, Path(out), resume, line))
        for text in [text for overview in understood for text in overview.lines()]:  # a mistake is one line before it
            line.say(text)
        del understood  # what was read for it is free from here on
    return fit_job(job, Path(out), resume=resume, quiet=quiet)


def started(job: Job) -> Job:
    """The job with a function that builds its model: from trained weights where the data name a base."""
    if job.build is not None:
        return job
    if getattr(job.recipe.data, "base", None) is None:
        return replace(job, build=build_new)
    recipe, options = from_base(job.recipe, job.recipe.data, rates_for(job.recipe.model))
    return replace(job, recipe=recipe, **options)


def rates_for(config: Any) -> dict[str, float]:
    """The learning rates of a model from trained weights, by what is tuned."""
    return RATES | {"all": RATES["all"] * min(1.0, WIDTH / getattr(config, "dim", WIDTH))}


def dotted_fields(plan: Recipe, named: Mapping[str, Any]) -> dict[str, Any]:
    """Fields by their dotted names: a plain name is that of the one part of the recipe that has such a field."""
    parts = {part: [each.name for each in fields(getattr(plan, part))] for part in ("train", "data", "model")}
    result: dict[str, Any] = {}
    for name, value in named.items():
        owners = [part for part in parts if name in parts[part]]
        if "." in name or name in ("model", "family"):
            result[name] = value
        elif len(owners) == 1:
            result[f"{owners[0]}.{name}"] = value
        elif owners:
            choices = " or ".join(f"{part}.{name}" for part in owners)
            raise ValueError(f"{name} is a field of {' and of '.join(owners)}; say which: **{{{choices!r}: {value!r}}}")
        else:
            every = [each for part in parts.values() for each in part]
            raise ValueError(f"{plan.name} has no field {name!r}; {nearest(name, every)}")
    return result


def fit_job(job: Job, out: Path, *, resume: bool = False, quiet: bool = False) -> Fitted:
    """Train by a recipe whose data are prepared, and leave a run in `out`."""
    check_free(out, resume)
    job = started(job)
    recipe, line, begin = pin_base(with_steps(job.recipe, job.stream)), Line(quiet), job.build or build_new
    processes.check_alike(dump_toml(to_dict(recipe)))
    torch.manual_seed(recipe.train.seed)
    model, device = begin(recipe), pick(recipe.train.device, "--train.device")
    model.to(device)
    task: type[Task] | None = None
    if type(model) is models[recipe.family]:
        task = task_of(out, model)
        check_task(recipe, task, job.readers)  # one that does not fit would be noticed only in or after the training

    @torch.no_grad()
    def metrics() -> dict[str, float]:
        """The task's metrics on the validation data; none without the packages that compute them."""
        if task is None or task.validate is Task.validate:
            return {}
        if not (out / CONFIG).exists():  # a task reads it, and the first validation is the best one yet
            job.publish(model, out)
        with contextlib.suppress(ImportError):
            return task.load(out, model).validate(batch.to(device) for batch in job.valid())
        return {}

    def publish() -> None:
        if not watch.steps and (out / CHOICE).exists():  # the weights there are those of the choice, or follow from it
            return
        forget(out)
        job.publish(model, out)

    watch = Watch(model, Placed(job.objective, recipe.train.precision), recipe.train)
    out.mkdir(parents=True, exist_ok=True)
    with held(out) if processes.rank() == 0 else contextlib.nullcontext():
        if processes.rank() == 0:
            prepare_place(job, recipe, out, resume)
        announce(job, recipe, model, line)
        fitted = train(
            model, job.stream, job.valid, job.objective, recipe.train, out,
            publish=publish, metrics=metrics,
            observer=watch, again=0.0 if job.whole is None else 1.0, resume=resume, quiet=quiet,
        )  # fmt: skip
        processes.leave()
        if processes.rank():  # what follows is for one process
            return fitted
        whole, rival = job.whole, job.rival if metrics() else None
        if task is None or (whole is None and rival is None):
            return fitted
        steps = steps_again(recipe.train, fitted, whole.stream.count()) if whole is not None else fitted.step
        return finish(
            out, task, fitted, rival=rival, whole=whole, build=lambda: begin(recipe), publish=job.publish,
            valid=job.valid, objective=job.objective, config=replace(recipe.train, steps=steps), resume=resume,
            quiet=quiet,
        )  # fmt: skip


def prepare_place(job: Job, recipe: Recipe, out: Path, resume: bool) -> None:
    """Write what belongs to a run before its training, unless something there speaks against it."""
    check_data(recipe.data, out, resume)
    check_place(recipe, out, resume)
    for name, reader in job.readers.items():
        modalities[name].save(reader, out)
    recipe.save(out / "recipe.toml")
    save_checksums(recipe.data, out)
    if job.generation:
        save_generation(out, **job.generation)


def check_task(recipe: Recipe, task: type[Task], readers: Mapping[str, Any]) -> None:
    """Raise an error if the user chose a family whose task does not fit the recipe's data."""
    kind = getattr(task, "examples", "")
    fits = isinstance(recipe.data, task.data) and kind in ("", getattr(recipe.data, "task", kind))
    if task.data and set(task.inputs) == set(readers) and not fits:
        refuse(recipe, f"is built for the task {task.name}")


def refuse(recipe: Recipe, reason: str) -> None:
    """Raise an error with this reason if the family is not the recipe's own but one that the user chose."""
    if recipe.family != (own := recipes[recipe.name]({}).family):
        raise ValueError(f"{recipe.family} is no model for the data of {recipe.name}: it {reason}; use {own}")


def announce(job: Job, recipe: Recipe, model: Any, line: Line) -> None:
    """Print the size of the model and what it is trained on."""
    steps, warmup = recipe.train.steps, recipe.train.warmup_steps
    if recipe.train.minutes is None and steps <= warmup:
        line.say(f"{steps} steps end within the warm-up of {warmup}; lower --train.warmup")
    count = sum(p.numel() for p in model.parameters())
    trained = sum(p.numel() for p in model.parameters() if p.requires_grad)
    share = f" ({trained:,} of them trained, {trained / count:.2%})" if trained < count else ""
    readers = [words for name, reader in job.readers.items() if (words := modalities[name].describe(reader))]
    line.say(", ".join([f"{recipe.family}: {count:,} parameters{share}", *readers, job.about]))


def pin_base(recipe: Recipe) -> Recipe:
    """The recipe with the revision of a base on the Hub, so that the run knows it and is never resumed from another."""
    base = getattr(recipe.data, "base", None)
    return recipe if base is None or pinned(base) == base else recipe.with_data(base=pinned(base))


def with_steps(recipe: Recipe, stream: Any) -> Recipe:
    """The recipe with `epochs`, if set, as a number of steps."""
    if recipe.train.epochs is None:
        return recipe
    steps = math.ceil(recipe.train.epochs * stream.count() / recipe.train.accumulate)
    return replace(recipe, train=replace(recipe.train, steps=max(1, steps, recipe.train.min_steps)))


def check_free(out: Path, resume: bool) -> None:
    """Raise an error if `out` holds a run that would be overwritten."""
    if not resume and ((out / "recipe.toml").exists() or (out / "checkpoints").exists()):
        raise ValueError(f"{out} holds a run already; go on with --resume or choose another --out")


def check_data(data: Any, out: Path, resume: bool) -> None:
    """Raise an error if a run would be resumed with files that are no longer those that it was trained on."""
    if resume and (changed := changed_sources(data, out)):
        raise ValueError(
            f"{' and '.join(changed)} changed since {out} was trained on it; put the old data back, or start anew with "
            "another --out"
        )


def check_place(recipe: Recipe, out: Path, resume: bool) -> None:
    """Raise an error if a run would be overwritten, or resumed with another model or data."""
    check_free(out, resume)
    stored = out / "recipe.toml"
    if resume and stored.exists():
        before = Recipe.load(stored)
        parts = [(r.family, r.model, r.data, r.train.optimizer, r.train.seed) for r in (before, recipe)]
        if parts[0] != parts[1]:
            raise ValueError(
                f"{out} was trained with another model, data, optimizer or seed; to resume it, change only other "
                "--train fields, or start anew with another --out"
            )


def from_base(recipe: Recipe, data: Any, rates: Mapping[str, float]) -> tuple[Recipe, dict[str, Any]]:
    """Return the recipe with a learning rate for fine-tuning, and the job's fields that load and save the weights; the
    recipe as it is and {} where the data name no weights to start from."""
    if data.base is None:
        return recipe, {}
    base, mode, rank = find(data.base), getattr(data, "tune", "all"), getattr(data, "rank", 1)
    with torch.device("meta"):
        tune(build_new(recipe), mode, rank)  # what cannot be tuned is refused before anything is printed
    if recipe.train.lr is None:
        recipe = replace(recipe, train=replace(recipe.train, lr=rates[mode]))

    def build(recipe: Recipe) -> Any:
        model = begin_from(load_model(base), recipe.model)
        tune(model, mode, rank)
        return model

    if mode == "all":
        return recipe, {"build": build}
    return recipe, {"build": build, "publish": partial(save_adapter, base=base, mode=mode, rank=rank)}


def base_preprocessing(data: Any, config: Any, line: Line) -> Preprocessing | None:
    """The preprocessing of the base that the data name, at the size of a model with this config; None without one."""
    if data.base is None:
        return None
    if data.channels not in (None, config.channels):
        raise ValueError(f"{data.base} reads images of {config.channels} channels; leave out --data.channels")
    shape = (*sides(config.image), config.channels)
    if (own := replace(data, channels=None).shape()) != shape:
        before, after = (
            f"{rows} × {columns} in {'grey' if depth == 1 else 'colours'}" for rows, columns, depth in (own, shape)
        )
        line.say(f"images of {before} become {after}, as {data.base} reads them")
    return load_preprocessing(find(data.base), config).at(sides(config.image))


def get_tokenizer(
    data: Any, texts: Callable[[], Iterable[str]], out: Path, resume: bool, specials: tuple[str, ...] = (),
    learn: Callable[[Iterable[str]], Tokenizer] | None = None,
) -> Tokenizer:  # fmt: skip
    """The run's own tokenizer on resuming, the one that the data name, their base's, or one trained on the texts, by
    `learn` where a recipe has a kind of its own."""
    if resume and TEXT.beside(out):
        return Tokenizer.load(out)
    base = TEXT.load(find(data.base), None) if data.base is not None and reads_text(data.base) else None
    if data.tokenizer is not None:
        named = Tokenizer.load(data.tokenizer)
        if base is not None:
            check_same_tokens(data.tokenizer, named, base)
        return named
    if base is not None:
        return base
    if learn is not None:
        return learn(texts())
    return Tokenizer.train(
        texts=texts(), kind=data.kind, vocab_size=data.vocab_size, lowercase=data.lowercase, specials=specials
    )


def check_same_tokens(source: str, tokenizer: Tokenizer, base: Tokenizer) -> None:
    """Raise an error if a tokenizer would give other meanings to the embeddings of a trained model."""
    if tokenizer.inner.get_vocab() == base.inner.get_vocab():
        return
    count, own = len(tokenizer), len(base)
    fact = f"{count:,} tokens, the model {own:,}" if count != own else f"other tokens than the model, {count:,} as well"
    raise ValueError(f"{source} has {fact}; use the model's own: leave out --data.tokenizer")


def reads_text(base: str) -> bool:
    """Whether a trained model has embeddings of tokens to go on with: it reads or, as a captioner, writes texts."""
    path = find(base)
    model: Any = peek_model(path)
    beside = TEXT.beside(path) or has_files(path)
    return hasattr(model.config, "vocab_size") and (beside or TEXT.name in task_of(path, model).inputs)


def with_vocabulary(recipe: Recipe, tokenizer: Tokenizer, **changes: Any) -> Recipe:
    """The recipe with the model's vocabulary, and other fields, set for this tokenizer."""
    if missing := changes.keys() - {field.name for field in fields(recipe.model)}:
        refuse(recipe, f"has no {' and '.join(sorted(missing))}")
    size = len(tokenizer)
    base = getattr(recipe.data, "base", None)
    if base is not None and reads_text(base):  # its rows stay, also those beyond the tokenizer's
        if size > recipe.model.vocab_size:
            source = getattr(recipe.data, "tokenizer", None) or base
            raise ValueError(
                f"{source} has {size:,} tokens, the model {recipe.model.vocab_size:,}; use the model's own"
            )
        size = recipe.model.vocab_size
    return replace(recipe, model=replace(recipe.model, vocab_size=size, **changes))


def special_ids(tokenizer: Tokenizer, *roles: str) -> list[int]:
    """The ids of the special tokens that a recipe needs, such as "bos", "eos" and "pad"."""
    ids = {role: getattr(tokenizer, role) for role in roles}
    if missing := [role for role, id in ids.items() if id is None]:
        raise ValueError(f"the tokenizer has no <{missing[0]}> token; use one trained by `regard tokenizer train`")
    return list(ids.values())
