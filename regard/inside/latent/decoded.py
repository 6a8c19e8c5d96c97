"""A walk through the latent space of a model with a decoder of images: the images show what a direction means."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from regard.data.sets.collection import Examples
from regard.inside.draw.canvas import Figure, Target
from regard.inside.draw.overlays import as_rgb, grid_of_images
from regard.inside.latent.directions import STOPS, find_direction
from regard.inside.latent.space import pca

REACH = 2.0
"""Default reach of a walk: standard deviations along a component, or lengths of a direction between two labels."""
COMPONENTS = 3
"""Principal components that are walked along where no labels are given."""
LARGEST = 160
"""Pixels of a drawn image's shorter side, at least: small images are enlarged."""


def decoded_walk(
    task: Any, examples: Examples, item: Any, ends: tuple[str, str] | None = None, reach: float = REACH
) -> tuple[dict[str, Any], list[np.ndarray]]:
    """Walk from an image along the direction between two labels, or along the principal components of examples; return
    data about each direction, and the decoded images of each (stops, rows, columns, channels)."""
    if not hasattr(task, "decoded"):
        name = type(task.model).__name__
        raise ValueError(
            f"a {name} has no decoder of images; train one: regard train mae, then regard latent runs/mae …"
        )
    begin, x = task.latents([item]), task.latents(examples.items)
    rows, images = [], []
    for row, vector in directions(x, examples, ends):
        walked = torch.cat([begin + reach * stop * vector for stop in STOPS])
        decoded = task.decoded(walked, item)
        still = decoded[STOPS.index(0.0)].astype(float)
        rows.append(row | {"change": [round(float(np.abs(one - still).mean()), 3) for one in decoded]})
        images.append(decoded)
    return {"examples": len(examples), "numbers": x.shape[1], "steps": [reach * stop for stop in STOPS],
            "directions": rows}, images  # fmt: skip


def directions(
    x: Float[Tensor, "N L"], examples: Examples, ends: tuple[str, str] | None
) -> list[tuple[dict[str, Any], Float[Tensor, "L"]]]:
    """Directions, each with its accuracy in separating two labels, or its share of the variance."""
    if ends is not None:
        along = find_direction(*(x[examples.with_label(end)] for end in ends))
        return [({"name": f"{ends[0]} → {ends[1]}"} | along.report(), along.vector)]
    points, axes, shares = pca(x, COMPONENTS)
    return [
        ({"name": f"component {i + 1}", "explained": share}, (axis * points[:, i].std()).float())
        for i, (axis, share) in enumerate(zip(axes, shares, strict=True))
    ]


def render_walk(data: Mapping[str, Any]) -> str:
    """A line for each direction, with the change of the decoded image along it."""
    lines = [
        f"{data['examples']:,} examples, {data['numbers']:,} latent numbers of each; mean change of the decoded image "
        "in grey levels of 255, at steps " + " ".join(f"{step:+g}" for step in data["steps"])
    ]
    for row in data["directions"]:
        known = f"{100 * row['explained']:.1f} % of the variance" if "explained" in row else (
            f"separates {100 * row['accuracy']:.1f} % of {row['held_out']:,} held-out examples"
        )  # fmt: skip
        lines.append(f"{row['name']} ({known}): " + "  ".join(f"{value:.1f}" for value in row["change"]))
    return "\n".join(lines)


def draw_walk(data: Mapping[str, Any], images: list[np.ndarray], path: Target = None) -> Figure:
    """Draw a strip of decoded images for each direction; the middle one is the image that the walk starts from."""
    factor = max(1, LARGEST // min(images[0].shape[1:3]))
    rows = [[as_rgb(one).repeat(factor, 0).repeat(factor, 1) for one in strip] for strip in images]
    labels = [[f"{step:+g}" if step else "0" for step in data["steps"]] for _ in rows]
    return grid_of_images(rows, labels, path, names=[row["name"] for row in data["directions"]], side=1.0)
