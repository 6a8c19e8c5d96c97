"""The examination of any nn.Module: does it leak, ignore order, mix rows, drop at evaluation, and can it learn?"""

import copy
import inspect
import time
import warnings
from collections.abc import Mapping
from types import ModuleType
from typing import Any

import torch
from torch import Tensor, nn

from regard.doctor.exam import learning, numbers, padding, sight, start
from regard.doctor.exam.guess import (
    PADS,
    ROWS,
    describe,
    find_padding,
    find_sequence,
    find_vocabs,
    first_call,
    is_decoder,
    setting,
)
from regard.doctor.exam.subject import Subject, rows_of
from regard.doctor.verdicts import Law, Report, in_one_line, run

SECONDS = 60.0
"""Seconds of computing after which no further check begins."""
LAWS = [
    Law("everything is registered", numbers.registered),
    Law("finite outputs", numbers.finite),
    Law("the same answer twice", numbers.deterministic),
    Law("loss at the start", start.loss, ("finite",)),
    Law("activations at the start", start.scale, ("finite",)),
    Law("attention at the start", start.attention, ("finite",)),
    Law("hides the future", sight.future, ("sequence", "finite"), exact=True),
    Law("hides padding", padding.padding, ("padding",), exact=True),
    Law("knows the order", sight.order, ("finite",), exact=True),
    Law("rows by themselves", sight.batch, ("finite",), exact=True),
    Law("every parameter learns", learning.parameters, ("parameters",)),
    Law("other number types", numbers.dtypes, ("finite",)),
    Law("learns one batch by heart", learning.overfit, ("finite", "parameters")),
]
REASONS = {
    "finite": "its outputs are not finite",
    "sequence": "it has no output for each position of a sequence",
    "padding": "it takes no mask and no lengths, and knows no padding token",
    "parameters": "it has no parameters",
}
"""Properties of a subject that laws need, with the outcome if one is missing."""


def missing(law: Law, subject: Subject) -> str | None:
    """The reason why a law does not apply to a module, None if it does."""
    if subject.late:
        return "no time left: make_model could return a smaller model"
    return next((REASONS[need] for need in law.needs if not getattr(subject, need)), None)


def examine_module(made: Any, name: str, *, causal: bool = False, seconds: float = SECONDS) -> Report:
    """Runs every law on a module, or on (module, example inputs) or (module, example inputs, loss of its output).

    The module itself is left as it was; what cannot be called is a ValueError.
    """
    with torch.random.fork_rng(devices=[]), torch.enable_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.manual_seed(0)
        subject, inputs = admit(made, name)
        subject.causal, subject.deadline = causal or is_decoder(subject), time.thread_time() + seconds
        return Report("module", name, run(LAWS, subject, missing), inputs)


def make(module: ModuleType, attribute: str) -> Any:
    """Call the function or class of that name and return the result; return a module instance as it is."""
    value = getattr(module, attribute, None)
    if isinstance(value, nn.Module):
        return value
    if not callable(value):
        here = [name for name, each in vars(module).items() if getattr(each, "__module__", "") == module.__name__]
        fact = f"has no {attribute!r}" if value is None else f"has {attribute!r}, but that is a {type(value).__name__}"
        raise ValueError(f"module {module.__name__!r} {fact}; it defines {', '.join(here) or 'nothing'}")
    try:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            return value()
    except Exception as error:  # a user's function may raise anything
        raise ValueError(f"{module.__name__}:{attribute}() fails: {in_one_line(error)}") from None


def admit(made: Any, name: str) -> tuple[Subject, str]:
    """The subject of what make_model returned, and a line that describes its inputs."""
    module, inputs, loss = (*made, None, None)[:3] if isinstance(made, (tuple, list)) else (made, None, None)
    if not isinstance(module, nn.Module):
        raise ValueError(f"{name} gives {type(module).__name__}, no nn.Module; return one, or (module, example inputs)")
    try:
        model = copy.deepcopy(module).cpu().float().eval()
    except Exception as error:
        raise ValueError(
            f"{name} cannot be copied: {in_one_line(error)}; keep no tensors of a forward pass in it"
        ) from None
    frozen = frozenset(n for n, p in model.named_parameters() if not p.requires_grad)
    for parameter in model.parameters():
        parameter.requires_grad_(parameter.is_floating_point())
    subject = Subject(name, model, {}, pad=setting(model, PADS), loss=loss, frozen=frozen)
    described = first_call(subject) if inputs is None else take(subject, inputs)
    subject.sequence = find_sequence(subject)
    subject.padding, subject.inputs = find_padding(subject)
    return subject, described


def take(subject: Subject, inputs: Any) -> str:
    """Set the subject's inputs to an example, by the names of forward's arguments; return a description of them."""
    if isinstance(inputs, Mapping):
        subject.inputs = dict(inputs)
    else:
        values = inputs if isinstance(inputs, (tuple, list)) else (inputs,)
        signature = inspect.signature(subject.model.forward)
        try:
            bound = signature.bind(*values).arguments
        except TypeError as error:
            raise ValueError(f"{subject.name}: the example does not fit forward{signature}: {error}") from None
        subject.positional = any(isinstance(value, tuple) for value in bound.values())
        subject.inputs = {f"input {n}": v for n, v in enumerate(values)} if subject.positional else dict(bound)
    first = next((value for value in subject.inputs.values() if isinstance(value, Tensor) and value.dim()), None)
    if first is None:
        raise ValueError(f"{subject.name}: the example holds no tensor; return (module, tensor, tuple or dict of them)")
    if subject.loss is None:  # a loss may need all rows
        subject.inputs = rows_of(subject.inputs, slice(ROWS), len(first))
    try:
        find_vocabs(subject)
    except Exception as error:
        raise ValueError(f"{subject.name} fails in forward: {in_one_line(error)}") from None
    return describe(subject)
