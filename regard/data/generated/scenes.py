"""Random scenes of coloured shapes on textured grounds, with boxes, masks, captions and questions.

The objects of a scene are sampled first and drawn afterwards, so captions are always true. Words are unambiguous:
small and large leave a gap, hues lie far apart, and objects are named from left to right by centres that differ.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal

import numpy as np
from PIL import Image, ImageDraw

Size = Literal["small", "large"]
Box = tuple[float, float, float, float]

SHAPES = ("circle", "square", "triangle", "star", "cross")
COLOURS: dict[str, tuple[int, int, int]] = {
    "red": (205, 45, 40), "green": (45, 150, 60), "blue": (45, 80, 205), "yellow": (235, 205, 45),
    "purple": (140, 55, 165), "orange": (240, 130, 30), "white": (245, 245, 245), "black": (25, 25, 25),
}  # fmt: skip
GROUNDS = ("plain", "striped", "dotted", "checked")
RADII: dict[Size, tuple[float, float]] = {"small": (0.085, 0.12), "large": (0.17, 0.23)}
"""Smallest and largest radius, as a share of the image's side."""
VISIBLE = 0.55
"""Least share of an object that the objects in front of it leave visible."""
APART = 0.08
"""Least distance of two centres from left to right, as a share of the side."""
FINE = 2
"""Pixels are drawn this many times finer, then averaged."""
SEEDS = {"train": 1, "valid": 2, "test": 3}


@dataclass(frozen=True, slots=True)
class SceneObject:
    """One shape of a scene; its box (left, top, right, bottom in pixels) includes hidden parts."""

    shape: str
    colour: str
    size: Size
    box: Box

    @property
    def phrase(self) -> str:
        """Size, colour and shape in words."""
        return f"a {self.size} {self.colour} {self.shape}"

    @property
    def centre(self) -> tuple[float, float]:
        """Column and row of the centre."""
        left, top, right, bottom = self.box
        return (left + right) / 2, (top + bottom) / 2


@dataclass(frozen=True, slots=True, eq=False)
class Scene:
    """A generated image, its objects and its ground."""

    pixels: np.ndarray
    """Bytes (rows, columns, 3)."""
    objects: tuple[SceneObject, ...]
    """The objects from left to right, as the caption names them."""
    masks: np.ndarray
    """The visible pixels of each object (objects, rows, columns)."""
    ground: str
    """The background, one of GROUNDS."""

    @property
    def caption(self) -> str:
        """All objects and the ground in words."""
        return f"{listed([item.phrase for item in self.objects])} on a {self.ground} ground"

    def questions(self) -> list[tuple[str, str]]:
        """Questions about the scene, with their answers."""
        shapes = [item.shape for item in self.objects]
        pairs = [("how many things are there?", str(len(shapes)))]
        pairs += [(f"how many {name_of_many(shape)} are there?", str(shapes.count(shape))) for shape in SHAPES]
        pairs += [("what is the ground like?", self.ground)]
        for i, item in enumerate(self.objects):
            if shapes.count(item.shape) > 1:
                continue
            pairs += [(f"what colour is the {item.shape}?", item.colour)]
            pairs += [(f"how large is the {item.shape}?", item.size)]
            if i > 0:
                pairs += [(f"what is left of the {item.shape}?", self.objects[i - 1].phrase)]
        return pairs


def listed(phrases: list[str]) -> str:
    """The phrases joined by commas and a last "and"."""
    *first, last = phrases
    return f"{', '.join(first)}{' and ' if first else ''}{last}"


def name_of_many(shape: str) -> str:
    """Return the plural of a shape's name."""
    return f"{shape}es" if shape.endswith("s") else f"{shape}s"


def outline(shape: str, x: float, y: float, radius: float, rotation: float) -> list[tuple[float, float]]:
    """Corners of a shape around a centre."""
    if shape == "cross":  # twelve corners of a plus
        arm = 0.36
        corners = [(1, arm), (arm, arm), (arm, 1), (-arm, 1), (-arm, arm), (-1, arm)]
        corners += [(-a, -b) for a, b in corners]
        c, s = math.cos(rotation), math.sin(rotation)
        return [(x + radius * (a * c - b * s), y + radius * (a * s + b * c)) for a, b in corners]
    count = {"circle": 48, "square": 4, "triangle": 3, "star": 10}[shape]
    reach = [0.45 if shape == "star" and i % 2 else 1.0 for i in range(count)]
    start = {"square": math.pi / 4}.get(shape, -math.pi / 2) + rotation
    angles = [start + 2 * math.pi * i / count for i in range(count)]
    return [(x + radius * r * math.cos(a), y + radius * r * math.sin(a)) for r, a in zip(reach, angles, strict=True)]


def draw_ground(rng: np.random.Generator, kind: str, side: int) -> np.ndarray:
    """A pale ground of two near greys and some noise."""
    base = rng.uniform(150, 190, size=3) * 0.25 + rng.uniform(150, 190) * 0.75
    rows, columns = np.mgrid[0:side, 0:side].astype(np.float32) / side
    step, angle = rng.uniform(0.09, 0.16), rng.uniform(0, math.pi)
    along = columns * math.cos(angle) + rows * math.sin(angle)
    across = rows * math.cos(angle) - columns * math.sin(angle)
    first, second = along % step < step / 2, across % step < step / 2
    near = np.hypot(along % step - step / 2, across % step - step / 2) < step * 0.28
    pattern = {"plain": np.zeros_like(first), "striped": first, "dotted": near, "checked": first ^ second}[kind]
    return base + np.where(pattern, -rng.uniform(24, 34), 0.0)[..., None]


def place_objects(rng: np.random.Generator, count: int) -> list[tuple[str, str, Size, float, float, float, float]]:
    """Shape, colour, size, column, row, radius and rotation of each object, in shares of the side."""
    while True:  # until all centres are apart
        shapes: list[Any] = []
        for _ in range(count):
            size: Size = "small" if rng.random() < 0.5 else "large"
            radius = rng.uniform(*RADII[size])
            x, y = rng.uniform(radius, 1 - radius, size=2)
            rotation = rng.uniform(-0.35, 0.35)
            shapes.append((str(rng.choice(SHAPES)), str(rng.choice(list(COLOURS))), size, x, y, radius, rotation))
        columns = sorted(shape[3] for shape in shapes)
        if all(b - a >= APART for a, b in zip(columns, columns[1:], strict=False)):
            return shapes


def scene(rng: np.random.Generator, size: int = 64, most: int = 4, fewest: int = 1) -> Scene:
    """A random scene of `fewest` to `most` objects, at most 6."""
    if not 1 <= fewest <= most <= 6:
        raise ValueError(f"a scene has 1 to 6 objects, got fewest={fewest}, most={most}")
    if size < 16:
        raise ValueError(f"size={size} is too small to tell shapes apart; use at least 16")
    ground, side = str(rng.choice(GROUNDS)), size * FINE
    count = int(rng.integers(fewest, most + 1))
    while True:
        objects, owner, whole = [], np.full((side, side), -1, dtype=np.int8), []
        for i, (shape, colour, large, x, y, radius, rotation) in enumerate(place_objects(rng, count)):
            corners = outline(shape, x * side, y * side, radius * side, rotation)
            canvas = Image.new("1", (side, side))
            ImageDraw.Draw(canvas).polygon(corners, fill=1)
            mask = np.asarray(canvas)
            owner[mask] = i
            rows, columns = np.flatnonzero(mask.any(1)), np.flatnonzero(mask.any(0))
            box = (columns[0] / FINE, rows[0] / FINE, (columns[-1] + 1) / FINE, (rows[-1] + 1) / FINE)
            objects.append(SceneObject(shape, colour, large, tuple(map(float, box))))  # type: ignore[arg-type]
            whole.append(mask.sum())
        if all((owner == i).sum() >= VISIBLE * area for i, area in enumerate(whole)):
            break
    pixels = draw_ground(rng, ground, side)
    for i, item in enumerate(objects):
        shade = np.array(COLOURS[item.colour]) * rng.uniform(0.9, 1.08)
        pixels[owner == i] = shade + rng.normal(0, 3, size=3)
    pixels = (
        pixels.reshape(size, FINE, size, FINE, 3).mean((1, 3))
        + rng.standard_normal((size, size, 3), dtype=np.float32) * 3
    )
    order = sorted(range(count), key=lambda i: objects[i].centre[0])
    shares = np.stack([(owner == i).reshape(size, FINE, size, FINE).mean((1, 3)) for i in order])
    masks = (shares >= 0.5) & (shares.argmax(0) == np.arange(count)[:, None, None])  # a pixel shows one object
    bytes_ = pixels.round().clip(0, 255).astype(np.uint8)
    return Scene(bytes_, tuple(objects[i] for i in order), masks, ground)


def stream_scenes(split: str, size: int = 64, most: int = 3, fewest: int = 1, first: int = 0) -> Iterator[Scene]:
    """Endless scenes, each generated from its own number, so that the stream can begin anywhere."""
    number = first
    while True:
        yield scene(np.random.default_rng((SEEDS[split], number)), size, most, fewest)
        number += 1


@lru_cache(maxsize=2)  # of tests, which draw the same twice; a scene is three times its pixels
def scenes(split: str, count: int, size: int = 64, most: int = 3, fewest: int = 1) -> tuple[Scene, ...]:
    """The first scenes of a split: train, valid or test; no two splits share a scene."""
    stream = stream_scenes(split, size, most, fewest)
    return tuple(next(stream) for _ in range(count))
