"""Running claims: the command or the check of each once more, and the figure beside the stored one."""

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch

from regard.claims.checks import CHECKS
from regard.claims.checks.base import numbers
from regard.claims.ledger import Claim, Figure, unchanged

Call = Callable[[str], str]
"""(arguments of `regard`) → what it prints."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Outcome:
    """The figure of one claim, measured again."""

    claim: Claim
    figure: Figure | None
    error: str = ""
    """The reason why there is no figure."""

    @property
    def as_stored(self) -> bool:
        return self.figure is not None and unchanged(self.claim, self.figure)


def run(claims: Sequence[Claim], call: Call) -> Iterator[Outcome]:
    """Measure claims again, one after the other; a command that several share runs once."""
    once = cache(lambda command: json.loads(call(command)))
    for claim in claims:
        try:
            figure = pick(once(claim.command), claim.field) if claim.command else checked(claim)
        except Exception as error:  # whatever broke is the outcome
            yield Outcome(claim=claim, figure=None, error=f"{type(error).__name__}: {error}")
        else:
            yield Outcome(claim=claim, figure=figure)


def pick(result: Any, path: str) -> Figure:
    """Return the figure at a path of keys and indices in a result of JSON."""
    for key in path.split("."):
        result = len(result) if key == "#" else result[int(key)] if isinstance(result, list) else result[key]
    return result


def checked(claim: Claim) -> Figure:
    """Return the figure of a claim's check, computed in float64 from a fixed seed."""
    with torch.random.fork_rng(devices=[]), numbers(torch.float64):
        torch.manual_seed(0)
        return CHECKS[claim.check](**claim.settings)
