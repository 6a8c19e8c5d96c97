"""Laws as records, and their outcomes: what a kernel or a family keeps, breaks, or does not claim."""

import traceback
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

Verdict = Literal["ok", "broken", "slow", "not claimed"]


@dataclass(frozen=True, slots=True)
class Law:
    """A law, the declarations that it needs to apply, and the consequence if it is broken."""

    name: str
    check: Callable[[Any], Any]
    """Raises an AssertionError if the law is broken; may return a measured figure."""
    needs: tuple[str, ...]
    meaning: str


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of one law: a measured figure, what is broken and what that means, or why it does not apply."""

    law: str
    verdict: Verdict
    found: str = ""


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """The outcomes of all laws on one kernel or family."""

    kind: Literal["kernel", "family"]
    name: str
    outcomes: list[Outcome]

    @property
    def broken(self) -> int:
        return sum(outcome.verdict == "broken" for outcome in self.outcomes)

    def as_dict(self) -> dict[str, Any]:
        return {self.kind: self.name, "broken": self.broken, "laws": [asdict(outcome) for outcome in self.outcomes]}

    def __str__(self) -> str:
        rows = [f"  {each.verdict:<12} {each.law}{': ' if each.found else ''}{each.found}" for each in self.outcomes]
        verdicts = [each.verdict for each in self.outcomes]
        total = ", ".join(f"{verdicts.count(v)} {v}" for v in ("ok", "broken", "slow", "not claimed") if v in verdicts)
        return "\n".join([self.name, *rows, f"  {total}"])


def judge(law: Law, subject: Any, missing: str | None) -> Outcome:
    """The outcome of a law; `missing` is what its subject does not declare, if anything."""
    if missing:
        return Outcome(law.name, "not claimed", missing)
    try:
        return Outcome(law.name, "ok", law.check(subject) or "")
    except AssertionError as error:
        return Outcome(law.name, "broken", f"{error} → {law.meaning}")
    except Exception as error:  # code of a user's own may raise anything
        return Outcome(law.name, "broken", f"it raised {in_one_line(error)} → {law.meaning}")


def in_one_line(error: Exception) -> str:
    """Return an error in one line, with the last line of the user's own code in its traceback."""
    ours = str(Path(__file__).parents[1])
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if not frame.filename.startswith(ours)]
    frames = [frame for frame in frames if "site-packages" not in frame.filename] or frames
    where = f" ({Path(frames[-1].filename).name}, line {frames[-1].lineno})" if frames else ""
    first = next(iter(str(error).splitlines()), "")
    return f"{type(error).__name__}: {first}{where}"
