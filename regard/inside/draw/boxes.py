"""Boxes drawn around the objects in an image."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from PIL import Image, ImageDraw, ImageFont

from regard.data.readers.image_files import SUFFIXES
from regard.files import write_atomically

SMALLEST = 512
"""Pixels that the longer side of a drawing has at least, so that names can be read."""
COLOURS = (
    "#e6194b", "#0082c8", "#3cb44b", "#f58231", "#911eb4", "#008080", "#d2008c", "#808000", "#000080", "#800000",
)  # fmt: skip
"""The colours of labels in turn: far from each other, and dark enough for white letters."""


def check_place(path: Path) -> None:
    """Raise an error for a path without the suffix of an image, before any work is done."""
    if path.suffix.lower() not in SUFFIXES:
        raise ValueError(f"{path} has no suffix of an image; use .png")


def place(
    box: Sequence[int], across: int, down: int, size: tuple[int, int], taken: Sequence[Sequence[int]]
) -> tuple[int, int]:
    """The position of a name: above its box, else below it, else in it; the first of these that is free."""
    left, top, _, bottom = box
    x = max(0, min(left, size[0] - across))
    heights = [y for y in (top - down, bottom, top, bottom - down) if 0 <= y <= size[1] - down]
    free = [
        y for y in heights
        if not any(x < right and l < x + across and y < low and t < y + down for l, t, right, low in taken)  # noqa: E741
    ]  # fmt: skip
    return x, (free or heights or [max(0, min(top, size[1] - down))])[0]


def draw_boxes(
    image: Image.Image, objects: Sequence[Any], labels: Sequence[str], path: str | Path | None = None
) -> Any:
    """Draw an image with a box, a label and a percentage for each object; it is written to `path` if there is one.

    Each object has a label, a score, and a box (left, top, right, bottom) in pixels of the image.
    """
    times = max(1, -(-SMALLEST // max(image.size)))
    drawn = image.convert("RGB").resize([side * times for side in image.size], Image.Resampling.NEAREST)
    pen, font = ImageDraw.Draw(drawn), ImageFont.load_default(size=max(13, max(drawn.size) // 40))
    width = max(2, max(drawn.size) // 250)
    boxes = [tuple(round(side * times) for side in one.box) for one in objects]
    colours = [COLOURS[labels.index(one.label) % len(COLOURS)] for one in objects]
    order = range(len(objects) - 1, -1, -1)  # the surest last, on top
    for i in order:
        left, top, right, bottom = boxes[i]
        pen.rectangle((left, top, max(left, right - 1), max(top, bottom - 1)), outline=colours[i], width=width)
    taken: list[tuple[int, ...]] = []
    for i in reversed(order):  # the surest name has the first choice
        text = f"{objects[i].label} {objects[i].score:.0%}"
        across, down = (int(side) + 6 for side in pen.textbbox((0, 0), text, font=font)[2:])
        x, y = place(boxes[i], across, down, drawn.size, taken)
        taken.append((x, y, x + across, y + down))
        pen.rectangle(taken[-1], fill=colours[i])
        pen.text((x + 3, y + 3), text, fill="white", font=font)
    if path is not None:
        write_atomically(Path(path), drawn.save)
    return drawn
