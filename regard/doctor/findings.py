"""Findings of the doctor: a cause by name, its evidence and its cure; the most probable cause first."""

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Finding:
    """A probable cause of trouble."""

    cause: str
    """A short, stable name: "learning rate too high"."""
    sentence: str
    """The evidence in one sentence, with figures."""
    cure: str
    """The remedy in one clause, with the option's name."""
    weight: float
    """The confidence from 0 to 1; the shortlist is sorted by it."""
    step: int | None = None
    """The training step at which it was seen."""
    where: str | None = None
    """The layer, head or parameter."""

    def __post_init__(self) -> None:
        if not 0 <= self.weight <= 1:
            raise ValueError(f"weight={self.weight} is not in [0, 1]")

    def __str__(self) -> str:
        return f"{self.cause}: {self.sentence.rstrip('.')}; {self.cure}"


def shortlist(findings: Iterable[Finding]) -> list[Finding]:
    """The most confident finding of each cause, in falling order; of equal ones the first."""
    best: dict[str, Finding] = {}
    for finding in findings:
        if finding.cause not in best or finding.weight > best[finding.cause].weight:
            best[finding.cause] = finding
    return sorted(best.values(), key=lambda finding: -finding.weight)


def as_dict(finding: Finding) -> dict[str, Any]:
    """The fields of a finding that are set, for JSON."""
    return {name: value for name, value in asdict(finding).items() if value is not None}
