"""Boxes drawn around what was found in a picture."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from PIL import Image, ImageDraw, ImageFont

from regard.data.images import SUFFIXES
from regard.files import write_atomically

SMALLEST = 512
"""Pixels that the longer side of a drawing has at least, so that names can be read."""
COLOURS = (
    "#e6194b", "#0082c8", "#3cb44b", "#f58231", "#911eb4", "#008080", "#d2008c", "#808000", "#000080", "#800000",
)  # fmt: skip
"""Of the labels in turn: far from each other, and dark enough for white letters."""


def check_place(path: Path) -> None:
    """An error, before any work is done, for a name that no picture can have."""
    if path.suffix.lower() not in SUFFIXES:
        raise ValueError(f"{path} has no suffix of a picture; use .png")


def draw_boxes(image: Image.Image, found: Sequence[Any], labels: Sequence[str], path: str | Path | None = None) -> Any:
    """The picture with a box, a name and a percentage for each of the `found`; written to `path` if there is one.

    Each has a label, a score, and a box (left, top, right, bottom) in pixels of the picture.
    """
    times = max(1, -(-SMALLEST // max(image.size)))
    drawn = image.convert("RGB").resize([side * times for side in image.size], Image.Resampling.NEAREST)
    pen, font = ImageDraw.Draw(drawn), ImageFont.load_default(size=max(13, max(drawn.size) // 40))
    width = max(2, max(drawn.size) // 250)
    for one in reversed(found):  # the surest last, on top
        colour = COLOURS[labels.index(one.label) % len(COLOURS)]
        left, top, right, bottom = (round(side * times) for side in one.box)
        pen.rectangle((left, top, max(left, right - 1), max(top, bottom - 1)), outline=colour, width=width)
        text = f"{one.label} {one.score:.0%}"
        across, down = (int(side) + 6 for side in pen.textbbox((0, 0), text, font=font)[2:])
        x = max(0, min(left, drawn.size[0] - across))
        y = top - down if top >= down else min(top, drawn.size[1] - down)  # above the box, or in it without room there
        pen.rectangle((x, y, x + across, y + down), fill=colour)
        pen.text((x + 3, y + 3), text, fill="white", font=font)
    if path is not None:
        write_atomically(Path(path), drawn.save)
    return drawn
