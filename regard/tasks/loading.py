"""Loading of models: from a directory, or hf:owner/name, to a task."""

from pathlib import Path
from typing import Any, Literal, TypeVar, overload

import torch

from regard.data.notices import notify_once
from regard.hub.checkpoint import load_model, stored_quantize
from regard.hub.remote import find, revision_of
from regard.native import quantized
from regard.registry import models, tasks
from regard.tasks.base import Task
from regard.tasks.loaded import Loaded
from regard.train.compute import SLOW, slowness
from regard.train.device import loading_device

Quantize = Literal["none", "bfloat16", "int8", "int4"]
TaskType = TypeVar("TaskType", bound=Task)


def task_of(path: Path, model: Any) -> type[Task]:
    """Return the task class of a model, as named by its family or its config."""
    name = getattr(model, "task", None)
    if name is None:
        family = models.name_of(type(model))
        raise ValueError(f"the family {family!r} names no task; give its class one of: task = {' or '.join(tasks)}")
    return tasks[name].suited(path)


@overload
def load(
    directory: str | Path, quantize: Quantize | None = None, *, device: str | None = None, as_: type[TaskType]
) -> TaskType: ...
@overload
def load(
    directory: str | Path, quantize: Quantize | None = None, *, device: str | None = None, as_: None = None
) -> Loaded: ...
def load(directory: str | Path, quantize: Quantize | None = None, *, device: str | None = None, as_: Any = None) -> Any:
    """A run, a checkpoint in the Hugging Face layout, or hf:owner/name[@revision] of the Hub, ready to use.

    The result is a task with its verbs as methods: a `Translator` translates, a `LanguageModel` continues texts, a
    `TextEncoder` embeds them, an `ImageClassifier` labels images, and so on. `as_` names the class that is expected:
    editors then know its methods, and another model is an error. `quantize` turns weight matrices into bfloat16 or
    integers; None: as the run itself says, which is "none" for most. `device` is "cpu", "cuda", "cuda:1", "mps" or
    "auto"; None: that of the environment variable REGARD_DEVICE, or the CPU.
    """
    place, path = loading_device(device), find(directory)
    model: Any = load_model(path)
    cls, size = task_of(path, model), sum(p.numel() for p in model.parameters())
    if as_ is not None and not issubclass(cls, as_):
        does = " and ".join(verb.does for verb in cls.verbs) or "has no verbs"
        raise ValueError(f"{directory} {does}: it is a {cls.__name__}, no {as_.__name__}; load another model")
    quantize = quantize or stored_quantize(path)
    if quantize != "none":
        model = quantized.quantize(model, quantize)
    if quantize == "bfloat16" and place.type == "cpu" and (times := slowness(torch.bfloat16, place)) > SLOW:
        notify_once(f"bfloat16: products take {times:.0f} times as long as in float32 on this CPU; int8 is faster")
    task = cls.load(path, model.to(place))
    task.path, task.size, task.quantization = Path(directory), size, quantize
    task.revision = revision_of(path)
    return task


def load_for(verb: str, directory: str | Path, quantize: Quantize | None = None) -> Any:
    """The loaded task of a model that has this verb; the error for one that has not says what it can do instead."""
    task = load(directory, quantize)
    if task.verb(verb) is None:
        does = " and ".join(verb.does for verb in task.verbs) or "has no verbs"
        cure = f"regard finetune {directory} --task {verb}" if verb in task.learns else "choose another model"
        raise ValueError(f"{directory} {does}, it does not {verb}; {cure}")
    return task
