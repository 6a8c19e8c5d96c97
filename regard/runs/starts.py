"""From a trained model and the data that the user names to the recipe that goes on with them.

Each recipe declares what it goes on from, where it is registered: `@register_recipe("lm", verb="generate",
bases=("generate",))`. One that declares nothing, such as a plugin's, goes on from models with its own family's task.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, fields
from functools import cache
from pathlib import Path
from typing import Any

import torch

from regard.config import nearest
from regard.data.sets.base import Tune
from regard.hub.checkpoint import peek_model
from regard.hub.remote import find
from regard.models import build
from regard.registry import models, recipes, starts
from regard.tasks.loading import task_of

TUNED = ("base", "tune", "rank")
"""Fields of data that say how to start, not what to learn."""


@dataclass(frozen=True, kw_only=True)
class Start:
    """A recipe as a continuation of trained models."""

    recipe: str
    verb: str = ""
    """The word for it after --task, where it is not the recipe's name: "classify" for texts and for images."""
    bases: tuple[str, ...] = ()
    """Tasks of the models that it goes on from."""
    asked: tuple[str, ...] = ()
    """Tasks of further models that it goes on from where --task asks for it, since these data may mean another."""
    tunes: tuple[Tune, ...] = ("all", "head", "lora")
    """The choices of --tune."""
    whole: str = "this model"
    """The model in the error for a --tune that it does not take."""
    out: str = ""
    """The folder of the run below runs/, where it is not the word with "-tuned"."""

    @property
    def word(self) -> str:
        return self.verb or self.recipe

    @property
    def place(self) -> Path:
        """The directory of a run, by default."""
        return Path("runs") / (self.out or f"{self.word}-tuned")

    @property
    def data(self) -> type:
        """The class of its data config."""
        return type(recipes[self.recipe]({}).data)

    def takes(self, named: Collection[str], asked: bool = False) -> bool:
        """Whether the named fields are those of its data, and one of them names files to learn from; for data that have
        no files of a user it is enough that --task asks for it."""
        own: Collection[str] = self.data.own  # type: ignore[attr-defined]
        enough = bool(set(own) & set(named)) if own else asked
        return set(named) <= {field.name for field in fields(self.data)} and enough

    def options(self) -> str:
        """The options that name its data: "--data.source or --data.pairs"."""
        return " or ".join(f"--data.{name}" for name in self.data.own) or f"--task {self.word}"  # type: ignore[attr-defined]


def all_starts() -> list[Start]:
    """Every recipe that can go on from a model, in the order of registration; read anew, since plugins add theirs."""
    return [start for name in recipes.entries() if (start := start_of(name)) is not None]


@cache
def start_of(name: str) -> Start | None:
    """Return the start that a recipe declares from a trained model; None if its data have no field `base`."""
    declared, plan = starts.get(name, {}), recipes[name]({})
    if "base" not in {field.name for field in fields(plan.data)}:
        return None
    if not declared:
        with torch.device("meta"):
            declared = {"bases": (getattr(build(plan.family, plan.model), "task", ""),)}
    return Start(recipe=name, **declared)


def words() -> list[str]:
    """The choices of --task."""
    return list(dict.fromkeys(start.word for start in all_starts()))


def place_of(word: str | None) -> Path:
    """The default directory of a run that was started with --task and this word."""
    return next((start.place for start in all_starts() if start.word == word), Path("runs") / str(word))


def choose(base: str, word: str | None, given: Mapping[str, Any]) -> Start:
    """The recipe that goes on from a base with the data that the fields `given` name; an error says what would fit."""
    named = {key.replace("-", "_") for key in given} - set(TUNED)
    if word is not None and word not in (known := words()):
        raise ValueError(f"--task {word!r} is not one of {', '.join(map(repr, known))}; {nearest(word, known)}")
    path = find(base)
    model: Any = peek_model(path)
    family, task = models.name_of(type(model)), task_of(path, model).name
    known_starts = [start for start in all_starts() if word in (None, start.word)]
    able = [start for start in known_starts if task in (start.bases + start.asked if word else start.bases)]
    fitting = [start for start in known_starts if start.takes(named, asked=word is not None)]
    both = [start for start in fitting if start in able]
    if both:
        return min(both, key=lambda start: recipes[start.recipe]({}).family != family)  # its own family's comes first
    got = ", ".join(f"--data.{name.replace('_', '-')}" for name in sorted(named))
    if word is not None and named and not fitting:
        takes = " or ".join(dict.fromkeys(start.options() for start in known_starts))
        raise ValueError(f"--task {word} learns from {takes}, not from {got}; give that, or leave out --task")
    if word is not None and not able:
        own = min(known_starts, key=lambda start: start.recipe != word)  # of texts, where images have the word too
        recipes[own.recipe]({"base": base})  # which may have words of its own
    options = {
        start.options() + (f" with --task {start.word}" if task in start.asked and word is None else ""): start
        for start in sorted(all_starts(), key=lambda start: task not in start.bases)
        if task in start.bases + start.asked and word in (None, start.word)
    }
    fits = ", ".join(options) or "the data of another model"
    if able and word is not None and not named:
        raise ValueError(f"nothing to fine-tune on; give examples for {word}: {able[0].options()} FILE")
    if not named:
        raise ValueError(f"{base} is a {family}; give the data that it is to learn from: {fits}")
    raise ValueError(f"{base} is a {family}, which does not learn from {got} here; give {fits}")
