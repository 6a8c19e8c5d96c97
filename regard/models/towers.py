"""A trained image model as the first part of another: its features as a map, B C Y X → B D rows columns.

The config of the whole holds the tower's as JSON, in the field `tower`, so that a run is complete in itself.
"""

import json
from functools import cache
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from regard.config import check_sizes, override, to_dict
from regard.models.base import build, without_labels
from regard.models.parts import patch_grid, prefix_length
from regard.nn.grids import PatchGrid
from regard.nn.patches import Side, sides
from regard.registry import models


def describe_tower(model: nn.Module) -> str:
    """The family and the config of an image model, without its labels, as JSON."""
    fields = to_dict(without_labels(model.config))
    return json.dumps({"family": models.name_of(type(model))} | fields)


def build_tower(described: str) -> Any:
    """The image model that `describe_tower` described, with new weights."""
    fields = json.loads(described)
    check_sizes(fields)
    family = fields.pop("family")
    return build(family, override(models[family].config_class(), fields))


@cache
def tower_shape(described: str) -> Any:
    """The image model on the meta device, for its sizes."""
    with torch.device("meta"):
        return build_tower(described)


def tower_width(described: str) -> int:
    """The width of a tower's features."""
    config = tower_shape(described).config
    return getattr(config, "width", config.dim)


def tower_grid(described: str, size: tuple[int, int]) -> PatchGrid:
    """The cells of a tower's last grid for an image of that size."""
    model = tower_shape(described)
    stages = len(getattr(model.config, "depths", "1"))
    return patch_grid(model, size).coarser(2 ** (stages - 1))


CONVOLUTIONS = ("stem", "widths", "blocks", "bottleneck", "frozen")
"""Fields of convolutions; they have no effect where a tower takes their place."""


class FeatureMap:
    """Base of configs whose model begins with convolutions, or with a trained image model in their place."""

    __slots__ = ()
    image: Side
    tower: str

    def convolved(self, size: tuple[int, int]) -> PatchGrid:
        """The cells that the convolutions make of an image of that size."""
        raise NotImplementedError

    def cells(self, size: tuple[int, int]) -> PatchGrid:
        """The cells of the feature map of an image of that size."""
        return tower_grid(self.tower, size) if self.tower else self.convolved(size)

    @property
    def grid(self) -> tuple[int, int]:
        """Rows and columns of the feature map."""
        return self.cells(sides(self.image)).grid

    @property
    def cell_side(self) -> int:
        """Pixels from one cell of the feature map to the next."""
        return self.cells(sides(self.image)).cell

    @property
    def idle(self) -> dict[str, str]:
        """Fields without effect, and why."""
        return self.idle_convolutions()

    def idle_convolutions(self) -> dict[str, str]:
        """The fields of the convolutions, where a tower takes their place."""
        return {name: "tower …" for name in CONVOLUTIONS if self.tower and hasattr(self, name)}


class Tower(nn.Module):
    """A trained image model that gives a map of features instead of labels."""

    def __init__(self, described: str, dim: int) -> None:
        super().__init__()
        self.described, self.inner = described, build_tower(described)
        self.project = nn.Conv2d(tower_width(described), dim, 1)

    def forward(self, pixels: Float[Tensor, "B C Y X"]) -> Float[Tensor, "B D N M"]:
        x = self.inner.features(pixels)[:, prefix_length(self.inner) :]
        rows, columns = tower_grid(self.described, (pixels.shape[2], pixels.shape[3])).grid
        return self.project(x.mT.unflatten(2, (rows, columns)))

    def begin(self, base: nn.Module) -> None:
        """Copy the weights of the trained model that was described; its head is left out."""
        own, stored = self.inner.state_dict(), base.state_dict()
        self.inner.load_state_dict({name: stored[name] for name in own})


def begin_with(model: nn.Module, base: nn.Module) -> None:
    """Copy the weights of a trained image model into the tower of a model that was built for it."""
    next(part for part in model.modules() if isinstance(part, Tower)).begin(base)
