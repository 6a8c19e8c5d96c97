"""Fonts, colours, layout in inches and saving, shared by all figures; without pyplot and global state."""

import io
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from regard.files import write_atomically

if TYPE_CHECKING:
    from matplotlib.axes import Axes as Axes
    from matplotlib.colors import Colormap
    from matplotlib.figure import Figure as Figure
else:  # matplotlib is imported when something is drawn
    Axes = Colormap = Figure = Any

Number = int | float
Target = str | Path | None
"""The path that a figure is written to (none: it is only returned)."""
SUFFIXES = (".png", ".svg", ".pdf")
INK, SOFT, FAINT = "#1f2328", "#6b7280", "#e5e7eb"
LINES = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#7F3C8D")
"""Okabe and Ito: colour-blind safe; the last, in place of their yellow, is for lines on white."""
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
    size = max(size, SMALLEST_FONT)
    return {"fontsize": size, "fontfamily": list(families()), "parse_math": False, "color": INK} | more


@cache
def ramp() -> Colormap:
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


@cache
def figure_class() -> "type[Figure]":
    """Matplotlib's figures, shown by notebooks without any setting."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise ImportError("figures need matplotlib: pip install 'regard[draw]'") from None

    class Drawing(Figure):
        """A figure that a notebook shows."""

        def _repr_png_(self) -> bytes:
            written = io.BytesIO()
            self.savefig(written, format="png")
            return written.getvalue()

    return Drawing


class Sheet:
    """An unbounded white sheet: axes stand where they are put, in inches; `save` cuts it to what was drawn."""

    def __init__(self) -> None:
        self.figure = figure_class()(dpi=150, facecolor="white")
        from matplotlib.backends.backend_agg import FigureCanvasAgg

        FigureCanvasAgg(self.figure)

    def place(
        self,
        left: Number,
        bottom: Number,
        width: Number,
        height: Number,
        *,
        title: str = "",
        xlabel: str = "",
        ylabel: str = "",
    ) -> Axes:
        """Add axes, with a title at the left."""
        across, down = self.figure.get_size_inches()
        axes = self.figure.add_axes((left / across, bottom / down, width / across, height / down))
        axes.spines[:].set(linewidth=0.6, color=SOFT)
        axes.tick_params(width=0.6, length=2.5, color=SOFT, labelsize=8, labelcolor=INK)
        axes.set_title(title, loc="left", **pen(9.5, fontweight="bold"))
        axes.set_xlabel(xlabel, **pen(8.5, color=SOFT))
        axes.set_ylabel(ylabel, **pen(8.5, color=SOFT))
        return axes

    def blank(self, width: Number, height: Number) -> Axes:
        """Add axes without lines whose unit is an inch."""
        axes = self.place(0, 0, width, height)
        axes.set(xlim=(0, width), ylim=(0, height), autoscale_on=False)
        axes.axis("off")
        return axes

    def chart(
        self, left: Number, bottom: Number, width: Number, height: Number, *, log: str = "", **labels: str
    ) -> Axes:
        """Add axes for lines: two spines and a faint grid; `log` names the logarithmic axes, such as "xy"."""
        axes = self.place(left, bottom, width, height, **labels)
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(axis="y", color=FAINT, linewidth=0.6)
        axes.set_axisbelow(True)
        axes.set_prop_cycle(color=LINES)
        if "x" in log:
            axes.set_xscale("log", base=2)
        if "y" in log:
            axes.set_yscale("log")
        axes.minorticks_off()
        return axes

    def save(self, path: Target, pad: Number = 0.12) -> Figure:
        """Cut the figure to what is drawn on it, axes in their size, and write it if there is a path."""
        figure = self.figure
        with quiet():
            box = figure.get_tightbbox(figure.canvas.get_renderer())  # type: ignore[attr-defined]
        old, new = figure.get_size_inches(), np.array([box.width, box.height]) + 2 * pad
        boxes = [(axes, axes.get_position()) for axes in figure.axes]
        figure.set_size_inches(*new)
        for axes, was in boxes:
            left, bottom = (was.x0 * old[0] - box.x0 + pad) / new[0], (was.y0 * old[1] - box.y0 + pad) / new[1]
            axes.set_position((left, bottom, was.width * old[0] / new[0], was.height * old[1] / new[1]))
        figure.set_dpi(min(150.0, (MOST_PIXELS / (new[0] * new[1])) ** 0.5))
        return save(figure, path)


def shades(count: int) -> list[Any]:
    """Return `count` colours of an ordered colour map."""
    from matplotlib import colormaps

    return [colormaps["viridis"](0.05 + 0.8 * i / max(count - 1, 1)) for i in range(count)]


def name_lines(axes: Axes) -> None:
    """Write the labels of lines beside their right ends, moved apart where they would overlap."""
    axes.set(xlim=axes.get_xlim(), ylim=axes.get_ylim())
    apart = 0.15 / (axes.get_position().height * axes.figure.get_size_inches()[1])  # type: ignore[union-attr]
    to_share = axes.transData + axes.transAxes.inverted()  # on a logarithmic axis too
    ends: list[tuple[Any, np.ndarray]] = []
    for line in axes.lines:
        points = np.asarray(line.get_xydata())
        points = points[np.isfinite(points[:, 1])]
        if len(points) and not str(line.get_label()).startswith("_child"):
            ends.append((line, points[-1]))
    ends.sort(key=lambda end: end[1][1])
    shares = spread([float(to_share.transform(point)[1]) for _, point in ends], apart)
    for share, (line, _) in zip(shares, ends, strict=True):
        style = pen(8.5, color=line.get_color(), va="center", annotation_clip=False)
        axes.annotate(line.get_label(), (1, share), (6, 0), "axes fraction", "offset points", **style)


def write_legend(axes: Axes, size: Number = 8.0, **style: Any) -> None:
    """Draw the legend of lines, without a frame."""
    axes.legend(frameon=False, prop={"family": list(families()), "size": size}, labelcolor=INK, **style)


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


def save(figure: Figure, path: Target) -> Figure:
    """Write a figure, whole or not at all, and return it; without a path only return it."""
    if path is not None:
        kind = check_suffix(path)
        with quiet():
            write_atomically(Path(path), lambda draft: figure.savefig(draft, format=kind, dpi=figure.dpi))
    return figure
