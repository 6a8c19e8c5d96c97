"""Preprocessing: an image resized, cropped, scaled and normalised into the numbers that a model was trained on."""

import math
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from PIL import Image

from regard.data.readers.image_files import MOST_PIXELS, as_array

IMAGENET_MEAN, IMAGENET_STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
"""Mean and standard deviation of each channel over ImageNet, on which published backbones were trained."""

Filter = Literal["nearest", "lanczos", "bilinear", "bicubic", "box", "hamming"]
FILTERS: dict[str, Any] = {name: Image.Resampling[name.upper()] for name in Filter.__args__}  # type: ignore[attr-defined]


@dataclass(frozen=True, kw_only=True, slots=True)
class Preprocessing:
    """The steps from an image to a model's input: resize, crop the centre, scale, normalise each channel."""

    channels: int = 3
    """1 for grey, 3 for colours."""
    size: tuple[int, int] | None = None
    """Rows and columns that every image is resized to."""
    shortest: int | None = None
    """Instead of `size`: the length of the shorter side; the aspect ratio is kept."""
    longest: int | None = None
    """Most pixels of the longer side; with more, the shorter side is reduced."""
    crop: tuple[int, int] | None = None
    """Rows and columns of the centre crop; smaller images are padded with black."""
    filter: Filter = "bilinear"
    """The interpolation of resizing."""
    scale: float | None = 1 / 255
    """The factor that bytes are multiplied by."""
    mean: tuple[float, ...] = ()
    """Subtracted from each channel; () for no normalisation."""
    std: tuple[float, ...] = ()
    """The divisor of each channel after that."""

    def __post_init__(self) -> None:
        if self.size is not None and self.shortest is not None:
            raise ValueError(f"an image has size={self.size} or shortest={self.shortest}, not both")
        if self.longest is not None and (self.shortest is None or self.longest < self.shortest):
            raise ValueError(f"longest={self.longest} needs a shortest of at most that, got {self.shortest}")
        square = None if self.shortest is None else (self.shortest, self.shortest)
        for sides in (self.size, self.crop, square):
            if sides is not None and math.prod(sides) > MOST_PIXELS:
                size = " × ".join(f"{side:,}" for side in sides)
                raise ValueError(f"images of {size} pixels are too large; at most {MOST_PIXELS:,} are read")
        if len(self.mean) != len(self.std) or len(self.mean) not in (0, self.channels):
            raise ValueError(
                f"mean {self.mean} and std {self.std} must have a number for each of {self.channels} channels"
            )
        if min(self.std, default=1) <= 0:
            raise ValueError(f"std {self.std} must be above 0")

    @property
    def target(self) -> tuple[int, int] | None:
        """Rows and columns of the result, if they are the same for all images."""
        return self.crop or self.size

    def at(self, target: tuple[int, int]) -> "Preprocessing":
        """This preprocessing for another size of the result; a crop stays in proportion."""
        if self.crop is None:
            return replace(self, size=target, shortest=None, longest=None)
        times = min(target) / min(self.crop)
        whole, shortest, longest = self.size, self.shortest, self.longest
        return replace(
            self, crop=target, size=whole and (round(whole[0] * times), round(whole[1] * times)),
            shortest=shortest and round(shortest * times), longest=longest and round(longest * times),
        )  # fmt: skip

    def __call__(self, image: Image.Image) -> np.ndarray:
        """An image as a model reads it: float32 (channels, rows, columns)."""
        return self.numbers(self.fit(image))

    def fit(self, image: Image.Image) -> np.ndarray:
        """An image resized and cropped: bytes (rows, columns, channels)."""
        image = image.convert("L" if self.channels == 1 else "RGB")
        size = self.size or (short_side(image.size, self.shortest, self.longest) if self.shortest else None)
        if size is not None:
            if size[0] * size[1] > MOST_PIXELS:
                raise ValueError(
                    f"{image.info.get('path', 'an image')} of {image.size[1]:,} × {image.size[0]:,} pixels would "
                    f"become one of {size[0]:,} × {size[1]:,}, at most {MOST_PIXELS:,} are read; cut it"
                )
            image = image.resize((size[1], size[0]), FILTERS[self.filter])
        pixels = as_array(image, self.channels)
        return pixels if self.crop is None else centre(pixels, self.crop)

    def numbers(self, bytes_: np.ndarray) -> np.ndarray:
        """Bytes (…, rows, columns, channels) scaled and normalised: float32 (…, channels, rows, columns)."""
        x: np.ndarray = bytes_.astype(np.float32)
        if self.scale is not None:
            x = (bytes_.astype(np.float64) * self.scale).astype(np.float32)
        if self.mean:
            x = (x - np.array(self.mean, dtype=np.float32)) / np.array(self.std, dtype=np.float32)
        return np.ascontiguousarray(np.moveaxis(x, -1, -3))

    def bytes_of(self, numbers: np.ndarray) -> np.ndarray:
        """The inverse of `numbers`, for images that a model generates: bytes (…, rows, columns, channels)."""
        x: np.ndarray = np.moveaxis(numbers, -3, -1).astype(np.float64)
        if self.mean:
            x = x * np.array(self.std) + np.array(self.mean)
        return (x / (1 if self.scale is None else self.scale)).round().clip(0, 255).astype(np.uint8)


def short_side(size: tuple[int, int], shortest: int, longest: int | None = None) -> tuple[int, int]:
    """Rows and columns with this shorter side, or a shorter one where the other side would become too long."""
    (columns, rows), exact = size, float(shortest)
    if longest is not None and max(size) / min(size) * shortest > longest:
        exact = longest * min(size) / max(size)
        shortest = round(exact)
        if min(size) == shortest:
            return rows, columns
        shortest = max(1, shortest)
    long = int(exact * max(size) / min(size))
    return (long, shortest) if columns <= rows else (shortest, long)


def centre(pixels: np.ndarray, size: tuple[int, int]) -> np.ndarray:
    """The centre crop of an image; a smaller image is padded with black."""
    missing = [max(0, want - have) for want, have in zip(size, pixels.shape, strict=False)]
    if any(missing):
        around = [(math.ceil(gap / 2), gap - math.ceil(gap / 2)) for gap in missing]
        pixels = np.pad(pixels, [*around, (0, 0)])
    # As the usual libraries count: an odd remainder goes to the bottom and the right, one more pixel of black above.
    top, left = ((have - want) // 2 for have, want in zip(pixels.shape, size, strict=False))
    return pixels[top : top + size[0], left : left + size[1]]
