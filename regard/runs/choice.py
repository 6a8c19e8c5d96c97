"""Training on few examples ends with a choice by validation, and the chosen model is trained again on all of them.

choice.json   what was chosen, and how far the rest has come; a run that is resumed goes on from there
validated/    the chosen weights, which have not seen the examples held out for validation: `regard eval` scores these
again/        checkpoints of the second training, while it lasts
"""

import json
import math
import os
import shutil
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, get_type_hints

import torch

from regard.config import parse, read_json
from regard.data.sets.base import Data
from regard.data.sets.batches import Batch, Stream
from regard.files import same_file, write_text
from regard.hub.checkpoint import load_model
from regard.hub.files import CONFIG
from regard.runs.linear_probe import clearly_better
from regard.tasks.base import Task
from regard.train.config import TrainConfig
from regard.train.device import device_of
from regard.train.loop import Fitted, Objective, evaluate
from regard.train.loop import fit as train
from regard.train.progress import Line

CHOICE, VALIDATED, AGAIN = "choice.json", "validated", "again"
SAVED = (".json", ".safetensors", ".txt", ".model")
"""Endings of the files that a model is loaded from."""

Batches = Callable[[], Iterable[Batch]]
Publish = Callable[[Any, Path], None]


@dataclass(frozen=True, slots=True)
class Choice:
    """The model that validation chose, and whether the run's weights are final."""

    probe: bool = False
    """Whether the linear probe is kept, not the fine-tuned model."""
    loss: float | None = None
    """The validation loss of the kept one, where it is not that of the training."""
    finished: bool = False
    """Whether the weights of the run are the final ones."""

    def save(self, out: Path) -> "Choice":
        write_text(out / CHOICE, json.dumps(asdict(self)) + "\n")
        return self


@dataclass(frozen=True, kw_only=True)
class Whole:
    """All examples, those held out for validation included."""

    stream: Stream
    examples: int
    held_out: int


def load_choice(out: Path) -> Choice | None:
    """The choice of a run, None where there is none; an error if its file is damaged."""
    path = out / CHOICE
    if not path.exists():
        return None
    stored, kinds = read_json(path), get_type_hints(Choice)
    try:
        if stored.keys() != kinds.keys():
            raise ValueError(f"has the fields {', '.join(stored) or 'none'}, not {', '.join(kinds)}")
        return Choice(**{name: parse(value, kinds[name], name) for name, value in stored.items()})
    except ValueError as error:
        raise ValueError(f"{path}: {error}; restore it from a copy, or train anew with another --out") from None


def is_validated(run: Path) -> bool:
    """Whether a run was trained again on all examples, and has the weights that did not see the held-out ones."""
    return (run / VALIDATED / CONFIG).is_file()


def learned(run: Path, own: Data, data: Data, *held: str) -> bool:
    """Whether the run's final weights were trained on the held-out examples of `data`: those of `own`, its data, where
    no file of its own is named for a part in `held`."""
    same = all(same_file(getattr(data, name, None), getattr(own, name)) for name in own.own)
    return is_validated(run) and same and not data.parts.keys() & {*held}


def forget(out: Path) -> None:
    """Remove a choice and all that followed from it: training has found better weights."""
    (out / CHOICE).unlink(missing_ok=True)
    for name in (VALIDATED, AGAIN):
        shutil.rmtree(out / name, ignore_errors=True)


def choose(
    out: Path, task: type[Task], rival: Callable[[], Any] | None, valid: Batches, objective: Objective, line: Line
) -> tuple[Choice, Any]:
    """The choice between the fine-tuned model in `out` and its rival, and the rival if it is kept; both are printed."""
    if rival is None:
        return Choice(), None
    tuned, other = load_model(out), rival()
    with torch.no_grad():
        scores, others = (
            task.load(out, model).validate(batch.to(device_of(model)) for batch in valid()) for model in (tuned, other)
        )
        loss = evaluate(other, valid(), objective)
    name, score = next(iter(scores.items()))
    count = sum(len(batch.targets) for batch in valid())
    better = clearly_better(score, others[name], count)
    line.say(
        f"validation: {name} {score:.1f} fine-tuned, {others[name]:.1f} with a linear probe of the frozen encoder; "
        f"kept: {'the probe' if better else 'the fine-tuned model'}"
    )
    return (Choice(probe=True, loss=loss), other) if better else (Choice(), None)


def keep_validated(out: Path, publish: Publish, model: Any | None) -> None:
    """Copy the files of the model in `out` to its folder `validated`, or write `model` there."""
    draft = out / f".{VALIDATED}-{os.getpid()}"
    shutil.rmtree(draft, ignore_errors=True)
    draft.mkdir()
    for path in out.iterdir():
        if path.is_file() and path.suffix in SAVED and not path.name.startswith("."):
            shutil.copy2(path, draft)
    if model is not None:
        publish(model, draft)
    shutil.rmtree(out / VALIDATED, ignore_errors=True)
    draft.rename(out / VALIDATED)


def finish(
    out: Path, task: type[Task], fitted: Fitted, *, rival: Callable[[bool], Any] | None, whole: Whole | None,
    build: Callable[[], Any], publish: Publish, valid: Batches, objective: Objective, config: TrainConfig,
    resume: bool, quiet: bool,
) -> Fitted:  # fmt: skip
    """Choose between the fine-tuned model and its rival by validation, and train the chosen one again on the whole.

    `rival(True)` is trained on all examples, `rival(False)` without the held-out ones. `config` is the training's own.
    """
    line, choice = Line(quiet), load_choice(out) if resume else None
    if choice is None:
        first = None if rival is None else (lambda: rival(False))
        choice, kept = choose(out, task, first, valid, objective, line)
        if whole is not None:
            keep_validated(out, publish, kept)
        choice.save(out)
    if whole is not None and not choice.finished:
        line.say(
            f"once more with all {whole.examples:,} examples, the {whole.held_out:,} for validation included; the "
            "scores of validation are those of the training without them"
        )
    seconds = 0.0
    if choice.probe and not choice.finished:
        assert rival is not None
        publish(rival(whole is not None), out)
    elif whole is not None and not choice.finished:
        (out / AGAIN).mkdir(exist_ok=True)
        torch.manual_seed(config.seed)
        model = build()
        again = train(
            model, whole.stream, None, objective, replace(config, patience=0), out / AGAIN,
            publish=lambda: publish(model, out), resume=resume, quiet=quiet,
        )  # fmt: skip
        seconds = again.seconds
    replace(choice, finished=True).save(out)
    shutil.rmtree(out / AGAIN, ignore_errors=True)
    loss = fitted.valid_loss if choice.loss is None else choice.loss
    return replace(fitted, valid_loss=loss, seconds=fitted.seconds + seconds)


def steps_again(config: TrainConfig, fitted: Fitted, count: int) -> int:
    """Updates of the second training: those of as many epochs of `count` batches; after early stopping, those up to the
    best validation."""
    if fitted.step < config.steps:
        return fitted.kept or fitted.step  # a run of an older version does not know its best step
    if config.epochs is None:
        return fitted.step
    return max(1, config.min_steps, math.ceil(config.epochs * count / config.accumulate))
