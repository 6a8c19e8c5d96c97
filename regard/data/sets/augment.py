"""Augmentation of images: translation, rotation, zoom, mirroring, colour, and mixing with other images."""

import math
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

from regard.data.readers.preprocessing import Preprocessing

SHAPES = math.log(4 / 3)
"""The logarithm of the largest ratio of a random crop's sides."""
GREYS = (0.299, 0.587, 0.114)
"""The weight of red, green and blue in the brightness of a pixel."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Augmentation:
    """The random changes of images in training; all random numbers come from a generator that is passed in."""

    shift: float = 0.0
    """Largest translation, as a share of the side."""
    zoom: float = 0.0
    """Largest change of size: 0.1 is from 90 to 110 percent."""
    turn: float = 0.0
    """Largest rotation in degrees, either way."""
    flip: bool = False
    """Mirrored left to right half of the time; wrong where left and right mean something, as in letters."""
    colour: float = 0.0
    """Largest change of brightness, contrast and, in colours, saturation."""

    def __post_init__(self) -> None:
        for name in ("shift", "zoom", "turn", "colour"):
            if getattr(self, name) < 0:
                raise ValueError(f"{name}={getattr(self, name)} must not be negative")
        for name in ("zoom", "colour"):
            if getattr(self, name) >= 1:
                raise ValueError(f"{name}={getattr(self, name)} must be below 1")

    def change(self, pixels: Float[Tensor, "B C Y X"], rng: np.random.Generator) -> Float[Tensor, "B C Y X"]:
        """Return the images, pixels from 0 to 255, each randomly augmented."""
        if self.shift or self.zoom or self.turn or self.flip:
            pixels = self.move(pixels, rng)
        return self.relight(pixels, rng) if self.colour else pixels

    def move(self, pixels: Float[Tensor, "B C Y X"], rng: np.random.Generator) -> Float[Tensor, "B C Y X"]:
        """Images translated, rotated, zoomed and mirrored in one step; outside pixels repeat the border."""
        B, (rows, columns) = len(pixels), pixels.shape[2:]
        angle = np.deg2rad(rng.uniform(-self.turn, self.turn, B))
        size = 1 / rng.uniform(1 - self.zoom, 1 + self.zoom, B)
        side = np.where(rng.random(B) < 0.5, -1.0, 1.0) if self.flip else np.ones(B)
        offset = rng.uniform(-2 * self.shift, 2 * self.shift, (B, 2))  # the grid goes from −1 to 1
        ratio = rows / columns
        matrix = np.zeros((B, 2, 3))
        matrix[:, 0, 0], matrix[:, 0, 1] = side * size * np.cos(angle), -size * np.sin(angle) * ratio
        matrix[:, 1, 0], matrix[:, 1, 1] = side * size * np.sin(angle) / ratio, size * np.cos(angle)
        matrix[:, :, 2] = offset
        grid = F.affine_grid(torch.from_numpy(matrix).to(pixels), list(pixels.shape), align_corners=False)
        return F.grid_sample(pixels, grid, padding_mode="border", align_corners=False)

    def cropped(
        self, pixels: Float[Tensor, "B C Y X"], rng: np.random.Generator, *, size: tuple[int, int], least: float,
        ratios: np.ndarray,
    ) -> Float[Tensor, "B C P Q"]:  # fmt: skip
        """Random parts of images, each of at least this share of the area, resized to one size; rotated, mirrored and
        with other colours as `change` does it. `ratios` are the columns of the originals by their rows."""
        B = len(pixels)
        angle = np.deg2rad(rng.uniform(-self.turn, self.turn, B))
        side = np.where(rng.random(B) < 0.5, -1.0, 1.0) if self.flip else np.ones(B)
        area, shape = rng.uniform(least, 1, B), np.exp(rng.uniform(-SHAPES, SHAPES, B)) * size[1] / size[0]
        height = np.sqrt(area * ratios / shape)  # as shares of the image's sides
        height, width = height.clip(0, 1), (area / height).clip(0, 1)
        matrix = np.zeros((B, 2, 3))
        matrix[:, 0, 0], matrix[:, 0, 1] = side * width * np.cos(angle), -width * np.sin(angle)
        matrix[:, 1, 0], matrix[:, 1, 1] = side * height * np.sin(angle), height * np.cos(angle)
        matrix[:, :, 2] = rng.uniform(-1, 1, (B, 2)) * (1 - np.stack([width, height], axis=1))
        grid = F.affine_grid(torch.from_numpy(matrix).to(pixels), [*pixels.shape[:2], *size], align_corners=False)
        pixels = F.grid_sample(pixels, grid, padding_mode="border", align_corners=False)
        return self.relight(pixels, rng) if self.colour else pixels

    def relight(self, pixels: Float[Tensor, "B C Y X"], rng: np.random.Generator) -> Float[Tensor, "B C Y X"]:
        """Images with random brightness, contrast and saturation."""
        factors = rng.uniform(1 - self.colour, 1 + self.colour, (3, len(pixels), 1, 1, 1))
        bright, contrast, full = torch.from_numpy(factors).to(pixels)
        x = pixels * bright
        middle = x.mean((1, 2, 3), keepdim=True)
        x = middle + (x - middle) * contrast
        if x.shape[1] == 3:
            grey = (x * x.new_tensor(GREYS)[:, None, None]).sum(1, keepdim=True)
            x = grey + (x - grey) * full
        return x.clamp(0, 255)


def mix(
    pixels: Float[Tensor, "B C Y X"], labels: Int[Tensor, "B"], classes: int, rng: np.random.Generator, *,
    mixup: float = 0.0, cutmix: float = 0.0,
) -> tuple[Float[Tensor, "B C Y X"], Tensor]:  # fmt: skip
    """Images mixed with others of the batch, and each class's share; without mixing, the labels as they are.

    Shares are sampled from Beta(x, x), where x is `mixup` or `cutmix`; with both set, one is chosen at random.
    """
    methods = [(method, x) for method, x in (("mixup", mixup), ("cutmix", cutmix)) if x]
    if not methods or len(pixels) < 2:
        return pixels, labels
    method, strength = methods[rng.integers(len(methods))]
    share, order = float(rng.beta(strength, strength)), rng.permutation(len(pixels))
    if method == "mixup":
        pixels = share * pixels + (1 - share) * pixels[order]
    else:
        top, bottom, left, right = rectangle(pixels.shape[2], pixels.shape[3], 1 - share, rng)
        pixels = pixels.clone()
        pixels[:, :, top:bottom, left:right] = pixels[order][:, :, top:bottom, left:right]
        share = 1 - (bottom - top) * (right - left) / (pixels.shape[2] * pixels.shape[3])
    targets = F.one_hot(labels, classes).to(pixels)
    return pixels, share * targets + (1 - share) * targets[order]


def normalized(x: Tensor, preprocessing: Preprocessing) -> Tensor:
    """Pixels from 0 to 255 scaled and normalised for a model."""
    x = x * preprocessing.scale if preprocessing.scale is not None else x
    if not preprocessing.mean:
        return x
    mean, std = (torch.tensor(row, dtype=x.dtype)[:, None, None] for row in (preprocessing.mean, preprocessing.std))
    return (x - mean) / std


def rectangle(rows: int, columns: int, area: float, rng: np.random.Generator) -> tuple[int, int, int, int]:
    """Top, bottom, left and right of a rectangle with about this share of the area; at the border it is cut."""
    height, width = (round(side * math.sqrt(area)) for side in (rows, columns))
    top, left = int(rng.integers(rows)) - height // 2, int(rng.integers(columns)) - width // 2
    return max(0, top), min(rows, top + height), max(0, left), min(columns, left + width)
