"""Texts and images as sequences: the merges of byte pair encoding, and patches."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from jaxtyping import UInt8

from regard.data.generated.scenes import stream_scenes
from regard.data.readers.image_files import as_array, read_image
from regard.data.readers.preprocessing import centre
from regard.inside.draw.canvas import FAINT, INK, LINES, SOFT, Axes, Figure, Number, Sheet, Target, pen, readable
from regard.inside.draw.figures import FIGURES
from regard.inside.draw.matrices import write_title
from regard.tokens import Tokenizer
from regard.tokens.trace import Step, Trace, trace

MOST_LETTERS, MOST_PATCHES = 48, 256
"""The most letters and patches that fit on a slide."""
SCENE = 12
"""Number of a generated scene with three objects of three colours."""
ACROSS, FLAT = 16, 32
"""Patches in a row, and patches up to which their vectors are drawn below them."""


@FIGURES.register("bpe")
def draw_bpe(
    path: Target = None,
    *,
    text: str = "low lower lowest new newer newest",
    tokenizer: str | None = None,
    steps: int = 12,
) -> Figure:
    """Byte pair encoding of the letters of `--text`, merge by merge; `--tokenizer` FILE: with its own merges."""
    if steps < 1:
        raise ValueError(f"steps={steps} shows no merge; use at least 1")
    traced = trace(text, Tokenizer.load(tokenizer) if tokenizer else None)
    letters = len(traced.initial)
    if not 1 <= letters <= MOST_LETTERS:
        raise ValueError(f"text has {letters} letters, a figure shows 1 to {MOST_LETTERS}; give a word or a few")
    rows = [("letters", traced.initial, [1] * letters, [False] * letters), *merged_rows(traced)]
    hidden = len(rows) - 1 - steps
    if hidden > 0:  # the last row is where it ends
        rows = [*rows[:steps], (f"… {hidden} more, then {rows[-1][0]}", *rows[-1][1:])]
    cell, line = 0.27, 0.4
    sheet = Sheet()
    axes = sheet.blank(letters * cell, len(rows) * line)
    for number, (label, symbols, widths, new) in enumerate(rows):
        y = (len(rows) - 1 - number) * line + 0.05  # of the edge
        axes.text(-0.15, y + 0.14, label, ha="right", va="center", **pen(9.5, color=SOFT))
        write_boxes(axes, y, cell, readable(symbols), widths, new)
        count = f"{len(symbols)} tokens" if number in (0, len(rows) - 1) else str(len(symbols))
        axes.text(letters * cell + 0.15, y + 0.14, count, va="center", **pen(9.5, color=SOFT))
    learned = "learned from these letters alone" if tokenizer is None else "as the tokenizer learned them"
    merges = f"{len(traced.steps)} merge{'s' * (len(traced.steps) != 1)}"
    pieces = f"{letters} letters, {len(traced.pieces)} tokens after {merges} {learned}"
    write_title(axes, f"Byte pair encoding: {pieces}", 11.5)
    return sheet.save(path)


def merged_rows(traced: Trace) -> Iterator[tuple[str, Sequence[str], list[int], list[bool]]]:
    """Return, after each merge: the pair, all symbols, the letters that each spans, and whether it is new."""
    symbols, widths = traced.initial, [1] * len(traced.initial)
    for step in traced.steps:
        widths, new = grown(step, symbols, widths)
        symbols = step.symbols
        yield f"{' + '.join(readable(step.pair))}   {step.count} ×", symbols, widths, new


def grown(step: Step, before: Sequence[str], widths: Sequence[int]) -> tuple[list[int], list[bool]]:
    """Return the spans of the symbols after a merge, and whether each was made by it."""
    spans: list[int] = []
    new: list[bool] = []
    place_of, left = 0, len(before) - len(step.symbols)
    for symbol in step.symbols:
        joins = left > 0 and symbol == step.symbol and tuple(before[place_of : place_of + 2]) == step.pair
        count = 2 if joins else 1
        spans.append(sum(widths[place_of : place_of + count]))
        new.append(joins)
        place_of, left = place_of + count, left - joins
    return spans, new


def write_boxes(
    axes: Axes, y: Number, cell: Number, symbols: Sequence[str], widths: Sequence[int],
    new: Sequence[bool],
) -> None:  # fmt: skip
    """Draw symbols in boxes as wide as their letters; new ones in colour."""
    from matplotlib.patches import FancyBboxPatch

    left = 0
    for symbol, width, made in zip(symbols, widths, new, strict=True):
        face, edge, line = ("#d6e8f5", LINES[0], 1.1) if made else ("white", "#c3c8cf", 0.8)
        box = FancyBboxPatch(
            (left * cell + 0.025, y), width * cell - 0.05, 0.28, boxstyle="round,pad=0,rounding_size=0.05",
            linewidth=line, facecolor=face, edgecolor=edge,
        )  # fmt: skip
        axes.add_patch(box)
        style = pen(10.5, color=LINES[0] if made else INK, fontweight="bold" if made else "normal")
        axes.text((left + width / 2) * cell, y + 0.135, symbol, ha="center", va="center", **style)
        left += width


@FIGURES.register("patches")
def draw_patches(path: Target = None, *, image: str | None = None, patch: int = 16) -> Figure:
    """An image cut into patches and laid out as a sequence of vectors: `--image` FILE, or else a drawn scene."""
    pixels = whole_patches(pixels_of(image), patch)
    cut = patches_of(pixels, patch)
    (rows, columns, channels), count = pixels.shape, len(cut)
    if count > MOST_PATCHES:
        raise ValueError(f"patch={patch} cuts it into {count:,}, a figure shows up to {MOST_PATCHES}; use larger ones")
    down, right = rows // patch, columns // patch
    across, flat = min(count, ACROSS), count <= FLAT
    tile, gap, high = 0.5, 0.1, 2.8
    wide = high * columns / rows
    step, lines = 0.28 + tile + (1.05 if flat else 0.0), -(-count // across)
    tall = max(high, lines * step)
    begin = wide + 0.9
    sheet = Sheet()
    axes = sheet.blank(begin + across * (tile + gap), tall)
    bottom = (tall - high) / 2
    put(axes, pixels, 0, bottom, wide, high)
    side = high / down
    for i in range(1, down):
        axes.plot([0, wide], [bottom + i * side] * 2, color="white", linewidth=1.6)
    for i in range(1, right):
        axes.plot([i * side] * 2, [bottom, bottom + high], color="white", linewidth=1.6)
    for number in range(count):
        row, column = divmod(number, right)
        number_size = max(7.0, min(13.0, 24 * side))
        back = dict(boxstyle="round,pad=0.15", facecolor="white", edgecolor="none", alpha=0.8)
        x, y = (column + 0.5) * side, bottom + high - (row + 0.5) * side
        axes.text(x, y, str(number + 1), ha="center", va="center", **pen(number_size, bbox=back))
    style = dict(arrowstyle="-|>", color=SOFT, linewidth=1.8, mutation_scale=18)
    axes.annotate("", (begin - 0.2, tall / 2), (wide + 0.2, tall / 2), arrowprops=style)
    above = (tall + lines * step) / 2
    for number, one in enumerate(cut):
        row, column = divmod(number, across)
        x, y = begin + column * (tile + gap), above - row * step - 0.28 - tile + 0.06
        axes.text(x + tile / 2, y + tile + 0.09, str(number + 1), ha="center", va="center", **pen(9, color=SOFT))
        put(axes, one, x, y, tile, tile)
        if flat:
            put(axes, one.reshape(-1, 1, 1), x + tile / 2 - 0.09, y - 0.98, 0.18, 0.9)
    numbers = f"{count} vector{'s' * (count != 1)} of {patch} · {patch} · {channels} = {cut[0].size:,} numbers"
    write_title(axes, f"{rows} × {columns} pixels, patches of {patch} × {patch}: a sequence of {numbers}", 12)
    return sheet.save(path)


def pixels_of(image: str | None) -> UInt8[np.ndarray, "Y X C"]:
    """The pixels of a file, or of a drawn scene."""
    if image is None:
        return next(stream_scenes("train", first=SCENE)).pixels
    opened = read_image(image)
    return as_array(opened, 1 if opened.mode == "L" else 3)


def whole_patches(pixels: UInt8[np.ndarray, "Y X C"], patch: int) -> UInt8[np.ndarray, "_ _ C"]:
    """Return the centre of an image that whole patches cover."""
    rows, columns = pixels.shape[:2]
    if not 1 <= patch <= min(rows, columns):
        raise ValueError(f"patch={patch} does not fit into {rows} × {columns} pixels; use 1 to {min(rows, columns)}")
    return centre(pixels, (rows - rows % patch, columns - columns % patch))


def patches_of(pixels: UInt8[np.ndarray, "Y X C"], patch: int) -> UInt8[np.ndarray, "N P P C"]:
    """Return the patches row by row; flattened, each is a token's vector."""
    rows, columns, channels = pixels.shape
    cut = pixels.reshape(rows // patch, patch, columns // patch, patch, channels).swapaxes(1, 2)
    return cut.reshape(-1, patch, patch, channels)


def put(axes: Axes, pixels: np.ndarray, x: Number, y: Number, width: Number, height: Number) -> None:
    """Draw an image in a box, with a faint edge."""
    style: dict[str, Any] = dict(cmap="gray", vmin=0, vmax=255, interpolation="nearest", aspect="auto", zorder=1)
    axes.imshow(pixels, extent=(x, x + width, y, y + height), **style)
    axes.set(xlim=axes.get_xlim(), ylim=axes.get_ylim())
    axes.plot([x, x + width, x + width, x, x], [y, y, y + height, y + height, y], color=FAINT, linewidth=0.6)
