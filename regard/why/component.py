"""Records of a comparison, fixed before anything is trained: a component, its arms, and the claims about them."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from torch import nn

from regard.config import nearest
from regard.why.problems import Problem

Scores = Mapping[str, Mapping[str, int | float]]
"""Metrics by arm."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Arm:
    """One way to build or train the same small model."""

    name: str
    about: str
    """A few words on what distinguishes it."""
    model: Mapping[str, Any] = field(default_factory=dict)
    """Fields of the model's config that differ."""
    train: Mapping[str, Any] = field(default_factory=dict)
    """Fields of the training that differ."""
    data: Mapping[str, Any] = field(default_factory=dict)
    """Fields of the problem that differ."""
    alter: Callable[[nn.Module], None] | None = None
    """Changes the model after it was built, where the difference is no setting of models."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Claim:
    """A claim as a sum over metrics of arms that is positive where the claim holds."""

    text: str
    lecture: str
    """Where it is claimed."""
    terms: tuple[tuple[float, str, str], ...]
    """(weight, arm, metric)."""
    least: float
    """The smallest mean that counts."""
    unit: str

    def difference(self, scores: Scores) -> float:
        """Return the sum for one seed."""
        return sum(weight * scores[arm][metric] for weight, arm, metric in self.terms)

    @property
    def metrics(self) -> list[str]:
        return list(dict.fromkeys(metric for _, _, metric in self.terms))


def lower(metric: str, better: str, worse: str) -> tuple[tuple[float, str, str], ...]:
    """The terms of a claim that one arm has a lower metric than another."""
    return (1.0, worse, metric), (-1.0, better, metric)


def higher(metric: str, better: str, worse: str) -> tuple[tuple[float, str, str], ...]:
    """The terms of a claim that one arm has a higher metric than another."""
    return (1.0, better, metric), (-1.0, worse, metric)


@dataclass(frozen=True, kw_only=True, slots=True)
class Component:
    """A part of a model or of its training, the problem that it is tried on, its arms and the claims about them."""

    name: str
    question: str
    problem: Problem
    arms: tuple[Arm, ...]
    claims: tuple[Claim, ...]
    metric: str = "loss"
    """The metric whose curve is drawn, by steps and by CPU time."""
    also: str = ""
    """Another metric to draw, by steps."""
    steps: int = 400
    """Training steps of a run, unless the user chooses."""
    seeds: int = 5
    """Paired seeds, unless the user chooses."""

    def __post_init__(self) -> None:
        names = {arm.name for arm in self.arms}
        used = {arm for claim in self.claims for _, arm, _ in claim.terms}
        assert used <= names and len(names) == len(self.arms), f"{self.name}: claims on unknown arms {used - names}"
        assert all(claim.least > 0 for claim in self.claims), f"{self.name}: a claim without a smallest difference"

    @property
    def reference(self) -> Arm:
        """The first arm: others get its initial weights where shapes agree."""
        return self.arms[0]


COMPONENTS: dict[str, Component] = {}
"""Components by name, in the order in which they are listed."""


def register(component: Component) -> Component:
    """Add a component to those that `regard why` knows."""
    assert component.name not in COMPONENTS, component.name
    COMPONENTS[component.name] = component
    return component


def find_component(name: str) -> Component:
    """Return a component by its name; an unknown name is an error that names the closest one."""
    if name not in COMPONENTS:
        raise ValueError(f"no component {name!r}; {nearest(name, COMPONENTS)}")
    return COMPONENTS[name]
