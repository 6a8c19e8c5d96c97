"""Pixels as tokens: each is one colour of a small palette, row by row from the top left."""

import json
from dataclasses import asdict, dataclass, fields
from pathlib import Path

import numpy as np

from regard.config import check_sizes, parse, read_json, reading
from regard.files import write_text

PIXELS = "pixels.json"
MOST = 1 << 16
"""Most colours of a palette."""


@dataclass(frozen=True, kw_only=True, slots=True)
class PixelTokenizer:
    """Images of one size as ids and back, as a tokenizer does for texts."""

    rows: int
    columns: int
    channels: int
    levels: int
    """Values of a channel; the palette is all their combinations."""

    def __post_init__(self) -> None:
        if min(self.rows, self.columns) < 1 or self.channels not in (1, 3):
            size = f"{self.rows} × {self.columns} pixels with {self.channels} channels"
            raise ValueError(f"{size} are no image; use at least one pixel, and 1 or 3 channels")
        if self.levels < 2 or self.colours > MOST:
            raise ValueError(
                f"levels={self.levels} in {self.channels} channels are {self.colours:,} colours; use 2 to {MOST:,}"
            )

    @classmethod
    def for_images(cls, shape: tuple[int, int, int], levels: int | None) -> "PixelTokenizer":
        """The tokenizer of images of this shape (rows, columns, channels), by default with 16 greys or 6³ colours."""
        rows, columns, channels = shape
        usual = 16 if channels == 1 else 6
        return cls(rows=rows, columns=columns, channels=channels, levels=usual if levels is None else levels)

    @property
    def colours(self) -> int:
        """Number of colours in the palette."""
        return self.levels**self.channels

    @property
    def start(self) -> int:
        """The token before the first pixel; it stands for no colour."""
        return self.colours

    @property
    def vocab_size(self) -> int:
        """Number of ids: the colours and the start token."""
        return self.colours + 1

    def __len__(self) -> int:
        """Return the number of tokens of an image."""
        return self.rows * self.columns

    def encode(self, images: np.ndarray) -> np.ndarray:
        """Bytes (number, rows, columns, channels) as ids (number, tokens): the nearest level of each channel."""
        steps = np.rint(images * ((self.levels - 1) / 255)).astype(np.int64)
        digits = self.levels ** np.arange(self.channels)[::-1]
        return (steps * digits).sum(-1).reshape(len(images), -1)

    def decode(self, ids: np.ndarray) -> np.ndarray:
        """Ids as bytes; the darkest level is 0, the brightest 255."""
        digits = self.levels ** np.arange(self.channels)[::-1]
        steps = ids[..., None] // digits % self.levels
        bytes_ = np.rint(steps * (255 / (self.levels - 1))).astype(np.uint8)
        return bytes_.reshape(len(ids), self.rows, self.columns, self.channels)

    def save(self, directory: Path) -> None:
        """Write `pixels.json` into a directory."""
        write_text(directory / PIXELS, json.dumps(asdict(self), indent=2) + "\n")

    @classmethod
    def load(cls, directory: Path) -> "PixelTokenizer":
        """Read the `pixels.json` of a directory."""
        path = directory / PIXELS
        with reading(path):
            stored = read_json(path)
            check_sizes(stored)
            return cls(**{field.name: parse(stored[field.name], int, field.name) for field in fields(cls)})
