"""Another project's names for the same weights, as a table that is read in both directions."""

import fnmatch
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True)
class Transform:
    """How one of our tensors is made of theirs, and how theirs are taken from ours."""

    to_ours: Callable[[list[Tensor]], Tensor]
    to_theirs: Callable[[Tensor, int], list[Tensor]]


TRANSFORMS = {
    "same": Transform(lambda theirs: theirs[0], lambda ours, count: [ours]),
    "stack": Transform(torch.cat, lambda ours, count: list(ours.chunk(count))),  # k and v, one above the other
    "row": Transform(lambda theirs: theirs[0][0], lambda ours, count: [ours[None]]),  # 1 V ↔ V
    "transpose": Transform(lambda theirs: theirs[0].T, lambda ours, count: [ours.T]),
}


@dataclass(frozen=True, slots=True)
class Pair:
    """Our name and theirs. Each `{}` of ours is one part of a dotted name, and fills the next `{}` of theirs."""

    ours: str
    theirs: str | tuple[str, ...]
    transform: str = "same"

    def their_names(self, name: str) -> list[str] | None:
        """What they call our tensor `name`; None where this pair is not about it."""
        holes = re.fullmatch(re.escape(self.ours).replace(r"\{\}", r"([^.]+)"), name)
        theirs = (self.theirs,) if isinstance(self.theirs, str) else self.theirs
        return [template.format(*holes.groups()) for template in theirs] if holes else None


@dataclass(frozen=True, kw_only=True, slots=True)
class Map:
    """One foreign `model_type`: its names and its configuration."""

    family: str
    """The family of ours that it is."""
    pairs: tuple[Pair, ...]
    """Names of tensors."""
    ignored: tuple[str, ...] = ()
    """Patterns of their names that tell nothing new: tied copies, tables that are computed."""
    read_config: Callable[[Mapping[str, Any], Collection[str]], Any]
    """Their config.json, and the names of their tensors, as our config; ValueError where we cannot express it."""
    write_config: Callable[[Any], dict[str, Any]]
    """Our config as theirs, for one without `misfits`."""
    misfits: Callable[[Any], list[str]]
    """The fields of our config that they cannot express, each with what it would have to be."""

    def to_ours(self, names: Mapping[str, Any], theirs: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """The tensors that our model has under `names`, made of theirs."""
        left = {name for name in theirs if not any(fnmatch.fnmatchcase(name, pattern) for pattern in self.ignored)}
        ours = {}
        for name in names:
            pair, sources = self._find(name)
            missing = [source for source in sources if source not in theirs]
            if missing:
                raise ValueError(f"no tensor {missing[0]!r}, which config.json asks for; one of the two is not its own")
            ours[name] = TRANSFORMS[pair.transform].to_ours([theirs[source] for source in sources])
            left -= set(sources)
        if left:
            shown = ", ".join(sorted(left)[:5]) + (", …" if len(left) > 5 else "")
            raise ValueError(f"{len(left)} unexpected tensors: {shown}; a model with parts that are not known here")
        return ours

    def to_theirs(self, ours: Mapping[str, Tensor]) -> dict[str, Tensor]:
        theirs: dict[str, Tensor] = {}
        for name, tensor in ours.items():
            pair, targets = self._find(name)
            parts = TRANSFORMS[pair.transform].to_theirs(tensor, len(targets))
            theirs |= dict(zip(targets, parts, strict=True))
        return theirs

    def _find(self, name: str) -> tuple[Pair, list[str]]:
        for pair in self.pairs:
            if names := pair.their_names(name):
                return pair, names
        raise AssertionError(f"the map of {self.family} has no name for {name!r}")
