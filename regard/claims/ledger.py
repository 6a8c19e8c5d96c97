"""Claims as they are stored, one TOML file a lecture, and the verdict that follows from a figure.

`expects` is what the lecture predicts of a figure: `= 7.10` (equal as far as it is written, so from 7.095 to 7.105),
`= a b c` (a list), `= word`, `~ x` (within 2 %), `> x`, `< x`, `>= x` or `<= x`. The verdict is never typed: it follows
from `measured`.
"""

import dataclasses
import operator
import tomllib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import cache
from pathlib import Path
from typing import Any

from regard.config import nearest
from regard.why import COMPONENTS
from regard.why.report import command_of, interval_text, measured

Number = int | float
Figure = Number | str | list[Number]
VERDICTS = ("holds", "fails", "depends", "not measured yet", "not testable here")
LECTURES = ("000", "001", "002", "003", "004")
BOUNDS: dict[str, Callable[[float, float], bool]] = {
    "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge,
    "~": lambda number, about: abs(number - about) <= 0.02 * abs(about),
}  # fmt: skip


@dataclass(frozen=True, kw_only=True, slots=True)
class Claim:
    """One assertion of a lecture, in our words."""

    id: str
    """Lecture and number: 002-17."""
    place: str
    """The topic under which the lecture has it."""
    claim: str
    """The assertion."""
    command: str = ""
    """Arguments of `regard` that print JSON."""
    field: str = ""
    """The figure in that JSON: keys and indices joined by dots; `#` is the number of entries."""
    check: str = ""
    """Name of a function of regard.claims.checks, where no command prints the figure."""
    settings: dict[str, Any] = dataclasses.field(default_factory=dict)
    """Arguments of the check."""
    expects: str = ""
    """The lecture's prediction of the figure."""
    measured: Figure | None = None
    """The figure that was measured, rounded."""
    tolerance: Number = 0.0
    """The greatest difference from `measured` that is no change; 0: one part in a thousand, whole numbers exactly."""
    slow: bool = False
    """Whether it takes more than a few seconds."""
    depends: str = ""
    """The condition on which the claim depends, if it is neither simply right nor wrong."""
    untestable: str = ""
    """The reason why nothing here can test it."""
    note: str = ""
    """The cause of the verdict, or what is right instead."""

    def __post_init__(self) -> None:
        ways = [bool(self.command), bool(self.check), bool(self.untestable)]
        if sum(ways) != 1 or bool(self.expects) == bool(self.untestable):
            raise ValueError(f"claim {self.id}: give expects and one of command, check; or untestable alone")
        if self.expects and self.expects.split()[0] not in ("=", *BOUNDS):
            raise ValueError(f"claim {self.id}: expects {self.expects!r} begins with none of = ~ < <= > >=")

    @property
    def lecture(self) -> str:
        return self.id.partition("-")[0]

    @property
    def typed(self) -> str:
        """The command to type that gives the figure."""
        return "" if self.untestable else f"regard {self.command or f'claims --run {self.id}'}"

    @property
    def verdict(self) -> str:
        if self.untestable:
            return "not testable here"
        if self.measured is None:
            return "not measured yet"
        return "depends" if self.depends else "holds" if meets(self.expects, self.measured) else "fails"


def meets(expects: str, figure: Figure) -> bool:
    """Return whether a figure is as predicted; every number of a list must be."""
    sign, _, rest = expects.partition(" ")
    if isinstance(figure, str):
        return sign == "=" and figure == rest
    numbers = figure if isinstance(figure, list) else [figure]
    if sign != "=":
        return all(BOUNDS[sign](number, float(rest)) for number in numbers)
    wanted = [Decimal(word) for word in rest.split()]
    return len(wanted) == len(numbers) and all(map(rounds_to, numbers, wanted))


def rounds_to(number: Number, written: Decimal) -> bool:
    """Return whether a number is equal to a written one as far as that is written."""
    half = 0.5 * 10.0 ** int(written.as_tuple().exponent)
    return abs(number - float(written)) <= half * (1 + 1e-9)


def unchanged(claim: Claim, figure: Figure) -> bool:
    """Return whether a new figure agrees with the stored one, and so does the verdict."""
    if claim.measured is None or isinstance(figure, str) or isinstance(claim.measured, str):
        return figure == claim.measured
    new, old = ([f] if isinstance(f, int | float) else f for f in (figure, claim.measured))
    if len(new) != len(old) or meets(claim.expects, figure) != meets(claim.expects, claim.measured):
        return False
    return all(abs(a - b) <= (claim.tolerance or slack(b)) for a, b in zip(new, old, strict=True))


def slack(stored: Number) -> float:
    """Return the tolerance of a stored figure that has none of its own."""
    return 0.0 if isinstance(stored, int) else max(1e-9, 1e-3 * abs(stored))


@cache
def written() -> tuple[Claim, ...]:
    """Return the claims of the files, in the order of the lectures."""
    claims = [claim for lecture in LECTURES for claim in read(Path(__file__).parent / "lectures" / f"{lecture}.toml")]
    if len({claim.id for claim in claims}) < len(claims):
        raise ValueError("two claims have one id; number the later one anew")
    return tuple(claims)


def trained() -> list[Claim]:
    """Return the claims that `regard why` tests by training, with the verdicts that are stored there."""
    stored, claims = measured(), []
    for name, component in COMPONENTS.items():
        result = stored.get(name, {"steps": component.steps, "seeds": component.seeds, "claims": ()})
        known = {claim["text"]: claim for claim in result["claims"]}
        for number, claim in enumerate(component.claims):
            lecture, _, place = claim.lecture.partition(", ")
            if lecture[:3] not in LECTURES:  # a claim of the 2017 paper alone
                continue
            found = known.get(claim.text)
            verdict = found["steps"]["verdict"] if found else None
            claims.append(
                Claim(
                    id=f"{lecture[:3]}-{name}-{number + 1}", place=place, claim=claim.text, slow=True,
                    command=f"{command_of(name, result)} --json", field=f"claims.{number}.steps.verdict",
                    expects="= supported", measured=verdict,
                    depends="the size" if verdict == "not visible at this size" else "",
                    note=f"{interval_text(found['steps'])} {claim.unit}" if found else "",
                )
            )  # fmt: skip
    return claims


def ledger() -> list[Claim]:
    """Return all claims, in the order of the lectures; those that need training come last in each."""
    claims = [*written(), *trained()]
    return [claim for lecture in LECTURES for claim in claims if claim.lecture == lecture]


def read(path: Path) -> list[Claim]:
    """Return the claims of a file; a key that no claim has is an error."""
    known = {one.name for one in dataclasses.fields(Claim)}
    rows = tomllib.loads(path.read_text(encoding="utf-8"))["claim"]
    for row in rows:
        if unknown := [key for key in row if key not in known]:
            raise ValueError(
                f"{path.name}, claim {row.get('id')}: no field {unknown[0]!r}; {nearest(unknown[0], known)}"
            )
    return [Claim(**row) for row in rows]


def select(ids: Sequence[str] = (), lecture: str | None = None, verdict: str | None = None) -> list[Claim]:
    """Return the claims of some ids, of a lecture or of a verdict; of all without."""
    known = {claim.id: claim for claim in ledger()}
    ids = [name[:4] + name[4:].zfill(2) if name[3:4] == "-" else name for name in ids]  # 002-1 is 002-01
    if unknown := next((name for name in ids if name not in known), None):
        near = nearest(unknown, known) if unknown.startswith(LECTURES) else "ids are a lecture and a number, as 002-17"
        raise ValueError(f"no claim {unknown!r}; {near}")
    chosen = [known[name] for name in ids] if ids else list(known.values())
    return [c for c in chosen if lecture in (None, c.lecture) and verdict in (None, c.verdict)]
