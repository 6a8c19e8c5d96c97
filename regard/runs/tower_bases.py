"""A trained image model as the first part of a captioner or a detector; the rest starts with new weights."""

from typing import Any

from regard.hub.checkpoint import load_model
from regard.hub.remote import find
from regard.models.parts import pretrained
from regard.models.towers import begin_with, tower_width
from regard.registry import models
from regard.runs.fit import WIDTH, build_new
from regard.runs.recipe import Recipe, inputs_of

SLOWER = 0.3
"""The learning rate with a trained tower, as a share of that from scratch; with a wide tower less in proportion."""


def tower_of(base: str | None) -> Any:
    """The image model in a base, without what only its training needed; None where the base reads more than images."""
    if base is None:
        return None
    model: Any = pretrained(load_model(find(base)))
    return model if inputs_of(models.name_of(type(model))) == ["pixels"] else None


def tower_rate(described: str, lr: float | None) -> float | None:
    """The learning rate of a model with a trained tower, from that of one without."""
    return None if lr is None else lr * SLOWER * min(1.0, WIDTH / tower_width(described))


def from_tower(data: Any) -> dict[str, Any]:
    """The fields of a job whose model begins with the tower in the base that the data name; none without one."""
    tower = tower_of(data.base)
    if tower is None:
        return {}
    if getattr(data, "tune", "all") != "all":
        raise ValueError(f"most of the model on top of {data.base} is new and trained as a whole; leave out --tune")

    def build(recipe: Recipe) -> Any:
        model = build_new(recipe)
        begin_with(model, tower)
        return model

    return {"build": build}
