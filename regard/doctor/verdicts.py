"""Laws as records, and their outcomes: what a kernel, a family or a module keeps, breaks, or does not claim."""

import traceback
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

import torch

from regard.doctor.findings import Finding, as_dict, shortlist

Verdict = Literal["ok", "broken", "slow", "not claimed", "not applicable"]


class InapplicableError(Exception):
    """Raised where a law does not apply to a subject; the message is the reason."""


@dataclass(frozen=True, slots=True)
class Law:
    """A law, the properties of its subject that it needs to apply, and the consequence if it is broken."""

    name: str
    check: Callable[[Any], str | Finding | None]
    """Returns a measured figure, or a finding if the law is broken; or raises an AssertionError then."""
    needs: tuple[str, ...] = ()
    meaning: str = ""
    """The consequence if it is broken; empty where findings tell it, and then an error is no proof of a fault."""
    exact: bool = False
    """Whether it says that something has no influence at all: it runs on the subject's `exact`, in float64."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of one law: a measured figure, what is broken and what that means, or why it does not apply."""

    law: str
    verdict: Verdict
    found: str = ""
    finding: Finding | None = None


@dataclass(frozen=True, slots=True)
class Report:
    """The outcomes of all laws on one kernel, family or module."""

    kind: Literal["kernel", "family", "module"]
    name: str
    outcomes: list[Outcome]
    inputs: str = ""
    """A description of what a module was called with."""

    @property
    def findings(self) -> list[Finding]:
        """The faults of a module, the most probable cause first."""
        return shortlist(outcome.finding for outcome in self.outcomes if outcome.finding is not None)

    @property
    def broken(self) -> int:
        return len(self.findings) or sum(outcome.verdict == "broken" for outcome in self.outcomes)

    def as_dict(self) -> dict[str, Any]:
        module = self.kind == "module"
        law, laws, inputs = ("name", "checks", {"inputs": self.inputs}) if module else ("law", "laws", {})
        rows = [{law: each.law, "verdict": each.verdict, "found": each.found} for each in self.outcomes]
        findings = {"findings": [as_dict(each) for each in self.findings]} if module else {}
        return {self.kind: self.name, **inputs, "broken": self.broken, laws: rows, **findings}

    def __str__(self) -> str:
        width = 15 if self.kind == "module" else 13
        lines = [f"  called with {self.inputs}"] if self.inputs else []
        lines += [f"  {each.verdict:<{width}}{each.law}{': ' * bool(each.found)}{each.found}" for each in self.outcomes]
        if self.findings:
            lines.append("Most probable cause first:")
        elif self.kind == "module":
            lines.append("  nothing is wrong")
        else:
            verdicts = [each.verdict for each in self.outcomes]
            lines.append("  " + ", ".join(f"{verdicts.count(v)} {v}" for v in get_args(Verdict) if v in verdicts))
        for number, each in enumerate(self.findings, 1):
            where = f" ({each.where})" if each.where else ""
            lines += [f"  {number}. {each.cause}{where}: {each.sentence}", f"     → {each.cure}"]
        return "\n".join([self.name, *lines])


Missing = Callable[[Law, Any], str | None]
"""(law, subject) → the reason why the law does not apply to it, None if it does."""


def run(laws: Iterable[Law], subject: Any, missing: Missing) -> list[Outcome]:
    """The outcome of each law, all from the same random seed."""
    outcomes = []
    for law in laws:
        torch.manual_seed(0)
        outcomes.append(judge(law, subject, missing))
    return outcomes


def judge(law: Law, subject: Any, missing: Missing) -> Outcome:
    """The outcome of a law."""
    unasked: Verdict = "not claimed" if law.meaning else "not applicable"
    try:
        if reason := missing(law, subject):
            return Outcome(law.name, unasked, reason)
        result = law.check(subject.exact if law.exact else subject)
    except InapplicableError as error:
        return Outcome(law.name, unasked, str(error))
    except Exception as error:  # code of a user's own may raise anything
        told = str(error) if law.meaning and isinstance(error, AssertionError) else f"it raised {in_one_line(error)}"
        return Outcome(law.name, *(("broken", f"{told} → {law.meaning}") if law.meaning else (unasked, told)))
    if isinstance(result, Finding):
        return Outcome(law.name, "broken", result.sentence, result)
    return Outcome(law.name, "ok", result or "")


def in_one_line(error: Exception) -> str:
    """Return an error in one line, with the last line of the user's own code in its traceback."""
    ours = str(Path(__file__).parents[1])
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if not frame.filename.startswith(ours)]
    frames = [frame for frame in frames if "site-packages" not in frame.filename] or frames
    where = f" ({Path(frames[-1].filename).name}, line {frames[-1].lineno})" if frames else ""
    first = next(iter(str(error).splitlines()), "")
    return f"{type(error).__name__}: {first}{where}"
