"""Weights laid over images, and images side by side. Everything here takes arrays.

Images are bytes, rows × columns × channels (1, 3 or none); weights are rows × columns of their cells.
"""

from collections.abc import Sequence

import numpy as np
from PIL import Image

from regard.inside.draw.canvas import FAINT, SOFT, Axes, Figure, Number, Sheet, Target, pen, readable
from regard.inside.draw.matrices import write_title

SHARPEST = 256
"""Side in pixels up to which a small image is enlarged, without smoothing."""
Cell = Number | tuple[Number, Number]
"""The side of a cell in pixels, or its height and width."""
VEIL = 0.88
"""Opacity of the strongest weight over the image."""


def as_rgb(pixels: np.ndarray) -> np.ndarray:
    """An image as RGB bytes, with pixels enlarged so that they can be seen."""
    pixels = pixels[..., None] if pixels.ndim == 2 else pixels
    if pixels.ndim != 3 or pixels.shape[2] not in (1, 3) or pixels.dtype != np.uint8:
        raise ValueError(f"an image is bytes, rows × columns × 1 or 3, got {pixels.dtype} of shape {pixels.shape}")
    times = max(1, SHARPEST // max(pixels.shape[:2]))
    colour = np.broadcast_to(pixels, (*pixels.shape[:2], 3))
    return np.ascontiguousarray(colour.repeat(times, 0).repeat(times, 1))


def overlay(
    pixels: np.ndarray,
    weights: np.ndarray,
    *,
    top: Number | None = None,
    cell: Cell | None = None,
    smooth: bool = False,
) -> np.ndarray:
    """The image, darkened, under its weights, as RGB bytes: the larger its weight, the brighter a cell.

    `top` is the brightest weight (none: the largest), so that several images can share a scale. `cell` is the size of
    a cell, where the cells do not cover the image exactly.
    """
    from matplotlib import colormaps

    image = as_rgb(pixels)
    grey = image @ np.array([0.299, 0.587, 0.114])[:, None]
    weights = np.asarray(weights, dtype=np.float32)
    drawn = on_image(weights, pixels.shape[:2], image.shape[:2], cell, smooth)
    share = (drawn / (top or weights.max() or 1)).clip(0, 1)
    veil = VEIL * share[..., None] ** 0.7
    glow = 255 * colormaps["inferno"](0.42 + 0.58 * share)[..., :3]
    mixed = (1 - veil) * (20 + 0.36 * (grey + image) / 2) + veil * glow
    return mixed.round().astype(np.uint8)


def on_image(
    weights: np.ndarray,
    size: tuple[int, ...],
    drawn: tuple[int, ...],
    cell: Cell | None,
    smooth: bool,
) -> np.ndarray:
    """Return the weight at every pixel of an image of that size."""
    rows, columns = weights.shape
    high, wide = (size[0] / rows, size[1] / columns) if cell is None else np.broadcast_to(cell, 2)
    box = (0, 0, size[1] / wide, size[0] / high)  # in cells; it may end inside the last ones, or behind them
    below, right = (max(0, int(np.ceil(end - 1e-6)) - side) for end, side in ((box[3], rows), (box[2], columns)))
    weights = np.pad(weights, ((0, below), (0, right)))
    resampling = Image.Resampling.BICUBIC if smooth else Image.Resampling.NEAREST
    box = (0, 0, min(box[2], weights.shape[1]), min(box[3], weights.shape[0]))
    return np.asarray(Image.fromarray(weights).resize((drawn[1], drawn[0]), resampling, box))


def grid_of_images(
    images: Sequence[Sequence[np.ndarray | None]],
    labels: Sequence[Sequence[str]] | None = None,
    path: Target = None,
    *,
    names: Sequence[str] = (),
    lead: tuple[np.ndarray, str] | None = None,
    title: str = "",
    side: Number = 1.5,
    top: Number | None = None,
) -> Figure:
    """Draw rows of RGB images (None: an empty cell), each with its label above; `names` stand at the left of the rows.

    `lead` is an image with its label that stands before all others. `side` is the width of one in inches; `top` draws
    the scale of `overlay` beside them.
    """
    every = [one for row in images for one in row if one is not None]
    if not every:
        raise ValueError("no images to draw; give at least one")
    height = side * max(one.shape[0] / one.shape[1] for one in every)
    step, down = side + 0.1, height + (0.24 if labels is not None else 0.1)
    room = 0.1 + 0.15 * max((1 + name.count("\n") for name in names), default=0)  # for names that are turned
    begin = (step + room) * (lead is not None)
    columns, rows = max(len(row) for row in images), len(images)
    wide, high = begin + columns * step - 0.1, (rows - 1) * down + height
    sheet = Sheet()
    axes = sheet.blank(wide, high)  # one for all images: axes are slow
    if lead is not None:
        put(axes, *lead, (0, high - height, side, height))
    for r, row in enumerate(images):
        bottom = (rows - 1 - r) * down
        for c, image in enumerate(row):
            if image is not None:
                put(axes, image, labels[r][c] if labels is not None else "", (begin + c * step, bottom, side, height))
        if r < len(names):
            style = pen(8.5, color=SOFT, rotation=90, ha="right", va="center", multialignment="center")
            axes.text(begin - 0.06, bottom + height / 2, names[r], **style)
    if top is not None:
        tall = min(1.5, height)
        add_glow(sheet, wide + 0.12, high - tall, tall, top)
    write_title(axes, title)
    return sheet.save(path)


def put(axes: Axes, image: np.ndarray, label: str, box: tuple[Number, Number, Number, Number]) -> None:
    """Draw one image in a box (left, bottom, width, height), with a label no longer than it is wide."""
    from matplotlib.patches import Rectangle

    left, bottom, width, height = box
    height = width * image.shape[0] / image.shape[1]
    bottom += box[3] - height
    shrinks = image.shape[1] > axes.figure.dpi * width  # then thin lines would be lost between its pixels
    extent = (left, left + width, bottom, bottom + height)
    axes.imshow(image, aspect="auto", extent=extent, interpolation="auto" if shrinks else "nearest")
    axes.add_patch(Rectangle((left, bottom), width, height, fill=False, edgecolor=FAINT, linewidth=0.6, clip_on=False))
    if label:
        text = readable([label], max(14, int(width / 0.058)))[0]
        axes.text(left + width / 2, bottom + height + 0.045, text, ha="center", **pen(8.5))


def add_glow(sheet: Sheet, left: Number, bottom: Number, height: Number, top: Number) -> None:
    """Draw the scale of `overlay` beside images."""
    axes = sheet.place(left, bottom, 0.1, height)
    bar = overlay(np.full((128, 1), 128, dtype=np.uint8), np.linspace(1, 0, 128)[:, None])
    axes.imshow(bar, aspect="auto", extent=(0, 1, 0, top))
    axes.yaxis.tick_right()
    axes.set_xticks([])
    axes.set_yticks([0, top / 2, top], [f"{tick:.2g}" for tick in (0, top / 2, top)], **pen(7.5, color=SOFT))


def borders(
    image: np.ndarray,
    regions: np.ndarray,
    cell: Cell,
    *,
    colour: tuple[int, int, int] = (255, 255, 255),
    width: int = 1,
) -> np.ndarray:
    """A drawn image with lines inside the edges of its regions: cells with one number belong together, 0 to none.

    `cell` is the size of a cell in pixels of the drawn image.
    """
    size = image.shape[:2]
    numbers = on_image(regions.astype(np.float32), size, size, cell, smooth=False)
    around = np.pad(numbers, width, constant_values=-1)
    edge = np.zeros(size, dtype=bool)
    for step in range(2 * width + 1):
        edge |= around[step : step + size[0], width:-width] != numbers
        edge |= around[width:-width, step : step + size[1]] != numbers
    return np.where((edge & (numbers > 0))[..., None], np.array(colour, dtype=np.uint8), image)


def framed(
    image: np.ndarray,
    size: tuple[int, ...],
    box: tuple[Number, Number, Number, Number],
    colour: tuple[int, ...],
    width: int = 3,
) -> np.ndarray:
    """A drawn image with a box (left, top, right, bottom), given in pixels of the image of that size."""
    times = np.array([image.shape[1] / size[1], image.shape[0] / size[0]] * 2)
    most = np.array([image.shape[1], image.shape[0]] * 2)
    left, top, right, bottom = (np.array(box) * times).round().clip(0, most).astype(int)
    inside = np.zeros(image.shape[:2], dtype=bool)
    inside[top:bottom, left:right] = True
    inside[top + width : bottom - width, left + width : right - width] = False
    return np.where(inside[..., None], np.array(colour, dtype=np.uint8), image)
