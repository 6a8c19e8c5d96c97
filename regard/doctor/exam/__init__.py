"""The examination of any nn.Module: does it leak, ignore order, mix rows, drop at evaluation, and can it learn?"""

import copy
import inspect
import time
import warnings
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from types import ModuleType
from typing import Any, Literal

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
from regard.doctor.exam.subject import InapplicableError, Subject, rows_of
from regard.doctor.findings import Finding, as_dict, shortlist
from regard.doctor.verdicts import in_one_line

Verdict = Literal["ok", "broken", "not applicable"]
SECONDS = 60.0
"""Seconds of computing after which no further check begins."""

CHECKS: dict[str, Callable[[Subject], str | Finding]] = {
    "everything is registered": numbers.registered,
    "finite outputs": numbers.finite,
    "the same answer twice": numbers.deterministic,
    "loss at the start": start.loss,
    "activations at the start": start.scale,
    "attention at the start": start.attention,
    "hides the future": sight.future,
    "hides padding": padding.padding,
    "knows the order": sight.order,
    "rows by themselves": sight.batch,
    "every parameter learns": learning.parameters,
    "other number types": numbers.dtypes,
    "learns one batch by heart": learning.overfit,
}
EXACT = (sight.future, padding.padding, sight.order, sight.batch)
"""Checks that something has no influence at all: they run in float64."""


@dataclass(frozen=True, slots=True)
class Check:
    """The outcome of one check."""

    name: str
    verdict: Verdict
    found: str


@dataclass(frozen=True, slots=True)
class Examination:
    """The outcomes of all checks of a module, and the findings, the most probable cause first."""

    module: str
    inputs: str
    checks: list[Check]
    findings: list[Finding]

    def as_dict(self) -> dict[str, Any]:
        return {
            "module": self.module, "inputs": self.inputs, "broken": len(self.findings),
            "checks": [asdict(check) for check in self.checks], "findings": [as_dict(each) for each in self.findings],
        }  # fmt: skip

    def __str__(self) -> str:
        rows = [f"  {each.verdict:<15}{each.name}: {each.found}" for each in self.checks]
        causes = []
        for number, each in enumerate(self.findings, 1):
            where = f" ({each.where})" if each.where else ""
            causes += [f"  {number}. {each.cause}{where}: {each.sentence}", f"     → {each.cure}"]
        end = ["Most probable cause first:", *causes] if causes else ["  nothing is wrong"]
        return "\n".join([self.module, f"  called with {self.inputs}", *rows, *end])


def examine_module(made: Any, name: str, *, causal: bool = False, seconds: float = SECONDS) -> Examination:
    """Runs every check on a module, or on (module, example inputs) or (module, example inputs, loss of its output).

    The module itself is left as it was; what cannot be called is a ValueError.
    """
    with torch.random.fork_rng(devices=[]), torch.enable_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.manual_seed(0)
        subject, inputs = admit(made, name)
        subject.causal, subject.deadline = causal or is_decoder(subject), time.thread_time() + seconds
        exact = subject.precise()
        results = {check: outcome(run, exact if run in EXACT else subject) for check, run in CHECKS.items()}
    checks = [Check(check, verdict, getattr(what, "sentence", str(what))) for check, (verdict, what) in results.items()]
    findings = shortlist(what for _, what in results.values() if isinstance(what, Finding))
    return Examination(name, inputs, checks, findings)


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


def outcome(run: Callable[[Subject], str | Finding], subject: Subject) -> tuple[Verdict, Any]:
    """The verdict of one check, with its finding, figure or reason."""
    if subject.late:
        return "not applicable", "no time left: make_model could return a smaller model"
    try:
        result = run(subject)
    except InapplicableError as reason:
        return "not applicable", reason
    except Exception as error:  # a user's module may raise anything on such inputs
        return "not applicable", f"it raised {in_one_line(error)}"
    return ("broken" if isinstance(result, Finding) else "ok"), result


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
