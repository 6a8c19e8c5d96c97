"""Generated clips whose motion no single frame shows.

A shape moves over a torus: what leaves on one side comes back on the other. Where it starts is uniform, so that in
every frame it is anywhere with equal probability, whatever its motion: one frame alone says nothing about the label.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

SIDE, FRAMES = 32, 8
"""Rows and columns, and the frames of a clip."""
PARTS = {"train": (0, 4096), "valid": (1, 512), "test": (2, 1000)}
"""The seed and the number of clips of each part."""
DIRECTIONS = {"left": (0.0, -1.0), "right": (0.0, 1.0), "up": (-1.0, 0.0), "down": (1.0, 0.0)}
NOISE = 6.0
"""Deviation of the noise of each pixel of each frame."""

Path = np.ndarray
"""Rows and columns of a shape's middle in each frame, relative to those in the first."""


@dataclass(frozen=True, slots=True, eq=False)
class Drawn:
    """A generated clip: bytes (frames, rows, columns, channels), and its label."""

    frames: np.ndarray
    label: str


def straight(direction: tuple[float, float], speed: float) -> Path:
    """A path in one direction, by so many pixels a frame."""
    return np.arange(FRAMES)[:, None] * speed * np.array(direction, dtype=float)


def random_direction(rng: np.random.Generator) -> tuple[float, float]:
    return tuple(DIRECTIONS.values())[rng.integers(len(DIRECTIONS))]


def bouncing(path: Path, rng: np.random.Generator) -> Path:
    """A path that turns back somewhere in its middle."""
    turn = int(rng.integers(FRAMES // 2 - 1, FRAMES // 2 + 2))
    return np.where(np.arange(FRAMES)[:, None] <= turn, path, 2 * path[turn] - path)


def circling(way: int, rng: np.random.Generator) -> Path:
    """A path around a middle, clockwise (1) or the other way round (-1)."""
    angle = rng.uniform(0, 2 * np.pi) + way * np.arange(FRAMES) * rng.uniform(0.6, 0.9)
    path = rng.uniform(4, 6) * np.stack([np.sin(angle), np.cos(angle)], axis=1)
    return path - path[0]


def motion(label: str, rng: np.random.Generator) -> Path:
    """A path by its label: in a direction, there and back, or around."""
    speed = rng.uniform(1.5, 3.5)
    if label in DIRECTIONS:
        return straight(DIRECTIONS[label], speed)
    if label == "there and back":
        return bouncing(straight(random_direction(rng), speed), rng)
    return circling(1 if label == "clockwise" else -1, rng)


SPEEDS = {"slow": (0.7, 1.3), "medium": (2.0, 2.6), "fast": (3.5, 4.5)}


def speed(label: str, rng: np.random.Generator) -> Path:
    """A path in any direction at a speed by its label."""
    return straight(random_direction(rng), rng.uniform(*SPEEDS[label]))


def bounce(label: str, rng: np.random.Generator) -> Path:
    """A path that turns back, or goes on."""
    path = straight(random_direction(rng), rng.uniform(1.5, 3.5))
    return bouncing(path, rng) if label == "bounces" else path


def order(label: str, rng: np.random.Generator) -> Path:
    """A shape that appears in three places of a row in turn, again and again: from left to right, or the reverse."""
    step = 1 if label == "left, middle, right" else -1
    place = (rng.integers(3) + step * np.arange(FRAMES)) % 3
    return np.stack([np.zeros(FRAMES), (place - place[0]) * SIDE / 3], axis=1)


def slowing(label: str, rng: np.random.Generator) -> Path:
    """A path that loses speed: played backwards it gains speed."""
    angle, share = rng.uniform(0, 2 * np.pi), rng.uniform(0.55, 0.7)
    way = rng.uniform(6, 9) * (1 - share ** np.arange(FRAMES)) / (1 - share)
    return way[:, None] * np.array([np.sin(angle), np.cos(angle)])


KINDS: dict[str, tuple[Callable[[str, np.random.Generator], Path], tuple[str, ...]]] = {
    "motion": (motion, (*DIRECTIONS, "there and back", "clockwise", "counterclockwise")),
    "speed": (speed, tuple(SPEEDS)),
    "bounce": (bounce, ("bounces", "passes")),
    "order": (order, ("left, middle, right", "right, middle, left")),
    "slowing": (slowing, ("slowing",)),
}
"""The kinds of clips: a function from a label to a path, and the labels."""


def clip(kind: str, part: str, number: int) -> Drawn:
    """A clip of a kind by its part and number; those of a part are without end, and always the same."""
    path_of, labels = KINDS[kind]
    rng = np.random.default_rng((PARTS[part][0], number))
    label = labels[number % len(labels)]
    return Drawn(drawn(path_of(label, rng), rng), label)


def drawn(path: Path, rng: np.random.Generator) -> np.ndarray:
    """A shape along a path on a background that does not move."""
    middles = (path + rng.uniform(0, SIDE, 2)).astype(np.float32)
    cells = np.arange(SIDE, dtype=np.float32)
    away = (cells[None, None] - middles[..., None] + SIDE / 2) % SIDE - SIDE / 2  # frames × 2 × cells, on the torus
    down, right = np.abs(away[:, 0, :, None]), np.abs(away[:, 1, None, :])
    size = rng.uniform(2.5, 4)
    distance = (np.hypot(down, right), np.maximum(down, right), down + right)[rng.integers(3)]  # disc, square, diamond
    inside = np.clip(size + 0.5 - distance, 0, 1)
    ground = rng.uniform(30, 90) + rng.uniform(-20, 20) * np.sin(cells / SIDE * 2 * np.pi + rng.uniform(0, 6))[:, None]
    image = ground + inside * (rng.uniform(170, 250) - ground)
    image += NOISE * rng.standard_normal(image.shape, dtype=np.float32)
    return image.clip(0, 255).astype(np.uint8)[..., None]
