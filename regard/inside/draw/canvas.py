"""Fonts, colours, layout in inches and saving, shared by all figures; without pyplot and global state."""

import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from regard.files import write_atomically

if TYPE_CHECKING:
    import matplotlib.axes
    import matplotlib.colors
    import matplotlib.figure

Number = int | float
Target = str | Path | None
"""The path that a figure is written to (none: it is only returned)."""
SUFFIXES = (".png", ".svg", ".pdf")
INK, SOFT, FAINT = "#1f2328", "#6b7280", "#e5e7eb"
LINES = (
    "#0072B2",
    "#D55E00",
    "#009E73",
    "#CC79A7",
    "#E69F00",
    "#56B4E9",
    "#000000",
    "#7F3C8D",
)  # Okabe and Ito: colour-blind safe; the last, in place of their yellow, is for lines on white
SMALLEST_FONT = 7.0
"""Smallest font size in points; figures grow instead of using a smaller one."""
FAMILIES = (
    "DejaVu Sans", "Noto Sans", "Noto Sans CJK JP", "Noto Sans CJK SC", "WenQuanYi Zen Hei", "Noto Sans Arabic",
    "Noto Sans Hebrew", "Noto Sans Devanagari", "Arial Unicode MS", "Segoe UI Symbol", "Noto Emoji",
)  # fmt: skip
SIGNS = {"\n": "↵", "\r": "↵", "\t": "⇥", " ": "␣", "": "∅"}
MOST_PIXELS = 40e6
"""The most pixels of one figure; a larger one is saved at fewer dots per inch."""


@cache
def families() -> tuple[str, ...]:
    """The installed ones of our fonts; a glyph that the first lacks is taken from the next."""
    from matplotlib import font_manager

    known = {font.name for font in font_manager.fontManager.ttflist}
    return tuple(name for name in FAMILIES if name in known) or ("sans-serif",)


def pen(size: Number = 8.0, **more: Any) -> dict[str, Any]:
    """Return text properties with our fonts, in which `$` is printed and not read as mathematics."""
    return {
        "fontsize": max(size, SMALLEST_FONT),
        "fontfamily": list(families()),
        "parse_math": False,
        "color": INK,
    } | more


@cache
def ramp() -> "matplotlib.colors.Colormap":
    """Return a colour map from white to deep blue with even steps of lightness in OKLab (Ottosson, 2020)."""
    from matplotlib.colors import ListedColormap

    share = np.linspace(0, 1, 256)
    lightness, chroma = 1 - 0.73 * share, 0.11 * np.sin(np.pi * share**0.85) + 0.055 * share
    hue = np.deg2rad(248 + 20 * share)
    lab = np.stack([lightness, chroma * np.cos(hue), chroma * np.sin(hue)])
    to_cones = [[1, 0.3963377774, 0.2158037573], [1, -0.1055613458, -0.0638541728], [1, -0.0894841775, -1.2914855480]]
    to_light = [
        [4.0767416621, -3.3077115913, 0.2309699292],
        [-1.2684380046, 2.6097574011, -0.3413193965],
        [-0.0041960863, -0.7034186147, 1.7076147010],
    ]
    light = np.clip(np.array(to_light) @ (np.array(to_cones) @ lab) ** 3, 0, 1)
    screen = np.where(light <= 0.0031308, 12.92 * light, 1.055 * light ** (1 / 2.4) - 0.055)
    return ListedColormap(screen.T, name="paper-to-blue")


def new_figure(width: Number, height: Number) -> "matplotlib.figure.Figure":
    """A white figure of that many inches, with a canvas of its own."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), dpi=150, facecolor="white")
    FigureCanvasAgg(figure)
    return figure


def place(
    figure: "matplotlib.figure.Figure", left: Number, bottom: Number, width: Number, height: Number
) -> "matplotlib.axes.Axes":
    """Add axes at a position given in inches."""
    whole_width, whole_height = figure.get_size_inches()
    axes = figure.add_axes((left / whole_width, bottom / whole_height, width / whole_width, height / whole_height))
    axes.spines[:].set(linewidth=0.6, color=SOFT)
    axes.tick_params(width=0.6, length=2.5, color=SOFT)
    return axes


def chart(figure: "matplotlib.figure.Figure", left: Number, bottom: Number, width: Number, height: Number,
          *, title: str = "", xlabel: str = "", ylabel: str = "") -> "matplotlib.axes.Axes":  # fmt: skip
    """Axes for lines: two spines, a faint grid, a title at the left."""
    axes = place(figure, left, bottom, width, height)
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis="y", color=FAINT, linewidth=0.6)
    axes.set_axisbelow(True)
    axes.set_title(title, loc="left", **pen(9.5, fontweight="bold"))
    axes.set_xlabel(xlabel, **pen(8.5, color=SOFT))
    axes.set_ylabel(ylabel, **pen(8.5, color=SOFT))
    return axes


def tidy(axes: "matplotlib.axes.Axes") -> None:
    """Number labels in our size and ink, and no ticks between them."""
    for label in (*axes.get_xticklabels(), *axes.get_yticklabels()):
        label.set(fontsize=8, color=INK)
    axes.minorticks_off()


def colors(count: int) -> list[str]:
    """Return a colour for each line; after eight the colours repeat."""
    return [LINES[i % len(LINES)] for i in range(count)]


def shades(count: int) -> list[Any]:
    """Return `count` colours of an ordered colour map."""
    from matplotlib import colormaps

    return [colormaps["viridis"](0.05 + 0.8 * i / max(count - 1, 1)) for i in range(count)]


def name_lines(axes: "matplotlib.axes.Axes", ends: Sequence[tuple[Number, Number, str, Any]]) -> None:
    """Write names beside the right ends (x, y) of lines, moved apart where they would overlap."""
    axes.set(xlim=axes.get_xlim(), ylim=axes.get_ylim())
    apart = 0.15 / (axes.get_position().height * axes.figure.get_size_inches()[1])  # type: ignore[union-attr]
    to_share = axes.transData + axes.transAxes.inverted()  # on a logarithmic axis too
    order = sorted(ends, key=lambda end: end[1])
    shares = spread([float(to_share.transform(end[:2])[1]) for end in order], apart)
    for share, (_, _, name, color) in zip(shares, order, strict=True):
        axes.annotate(name, (1, share), (6, 0), xycoords="axes fraction", textcoords="offset points", va="center",
                      annotation_clip=False, **pen(8.5, color=color))  # fmt: skip


def spread(rising: Sequence[Number], apart: Number) -> list[Number]:
    """Return sorted heights moved until they are at least `apart`, and below the top."""
    heights: list[Number] = []
    for each in rising:
        heights.append(max(each, heights[-1] + apart) if heights else each)
    ceiling = max(1.0, max(rising, default=1.0))
    for i in reversed(range(len(heights))):
        heights[i] = min(heights[i], ceiling)
        ceiling = heights[i] - apart
    return heights


def readable(labels: Sequence[str], longest: int = 24) -> list[str]:
    """Printable labels of tokens: white space as signs, long ones cut."""
    shown = []
    for label in labels:
        text = SIGNS.get(label) or "".join(SIGNS.get(c, c) if c in "\n\r\t" else c for c in label)
        text = "".join(c if c.isprintable() else "�" for c in text)
        shown.append(text if len(text) <= longest else text[: longest - 1] + "…")
    return shown


def fit(figure: "matplotlib.figure.Figure", pad: Number = 0.12) -> "matplotlib.figure.Figure":
    """Cut or enlarge a figure to what is drawn on it; axes keep their size in inches."""
    with quiet():
        box = figure.get_tightbbox(figure.canvas.get_renderer())  # type: ignore[attr-defined]
    old, new = figure.get_size_inches(), np.array([box.width, box.height]) + 2 * pad
    boxes = [(axes, axes.get_position()) for axes in figure.axes]
    figure.set_size_inches(*new)
    for axes, was in boxes:
        left, bottom = (was.x0 * old[0] - box.x0 + pad) / new[0], (was.y0 * old[1] - box.y0 + pad) / new[1]
        axes.set_position((left, bottom, was.width * old[0] / new[0], was.height * old[1] / new[1]))
    figure.set_dpi(min(150.0, (MOST_PIXELS / (new[0] * new[1])) ** 0.5))
    return figure


@contextmanager
def quiet() -> Iterator[None]:
    """Context manager: suppress warnings about glyphs that no installed font has."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=r"(?s).*[Gg]lyph.*")
        yield


def check_suffix(path: Target) -> str:
    """The format of a figure from its path (none: it is not written); a wrong suffix is an error."""
    if path is None:
        return ""
    suffix = Path(path).suffix.lower()
    if suffix not in SUFFIXES:
        raise ValueError(f"cannot draw to {str(path)!r}: a figure ends in {', '.join(SUFFIXES)}")
    return suffix[1:]


def save(figure: "matplotlib.figure.Figure", path: Target) -> "matplotlib.figure.Figure":
    """Write a figure, whole or not at all, and return it; without a path only return it."""
    if path is None:
        return figure
    path, kind = Path(path), check_suffix(path)
    with quiet():
        write_atomically(path, lambda draft: figure.savefig(draft, format=kind, dpi=figure.dpi, facecolor="white"))
    return figure
