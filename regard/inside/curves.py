"""Lines: a measure over the minutes of training, and growth with length."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from regard.inside.canvas import (
    INK,
    SOFT,
    Number,
    chart,
    colors,
    families,
    fit,
    name_lines,
    new_figure,
    save,
    tidy,
)  # fmt: skip
from regard.inside.views import Target

if TYPE_CHECKING:
    import matplotlib.axes
    import matplotlib.figure


def draw_race(
    series: Mapping[str, Sequence[tuple[Number, Number]]], path: Target, measure: str
) -> "matplotlib.figure.Figure":
    """Each run's (minutes, value) points; lower is better."""
    figure = new_figure(9, 5)
    axes = chart(figure, 1, 1, 4.6, 3, xlabel="minutes of training", ylabel=measure)
    ends = []
    for (name, points), color in zip(series.items(), colors(len(series)), strict=True):
        minutes, values = zip(*points, strict=True)
        axes.plot(minutes, values, color=color, linewidth=1.6)
        ends.append((minutes[-1], values[-1], name, color))
    settled = [value for points in series.values() for _, value in points[len(points) // 8 :]]
    axes.set(xlim=(0, None), ylim=(0.97 * min(settled), 1.03 * max(settled)))  # the first fall would hide the rest
    tidy(axes)
    name_lines(axes, ends)
    return save(fit(figure), path)


SIGNS = ("o", "s", "^", "D", "v", "P", "X", "<", ">", "*", "p")
"""Of points: there are more lines than colours."""


@dataclass(frozen=True, slots=True)
class Panel:
    """Lines (n, value) over a logarithmic axis, each with the exponent that was fitted to it."""

    title: str
    ylabel: str
    unit: str = ""
    """Of the values: "s", "B", or nothing for plain numbers."""
    slopes: tuple[float, ...] = (1, 2)
    """Drawn as dashes, to compare with."""
    symbol: str = "n"
    """Of what lies along the axis."""
    logarithmic: bool = True
    """Values too, not only what lies along the axis."""
    lines: dict[str, tuple[Sequence[tuple[Number, Number]], float | None]] = field(default_factory=dict)

    def add(self, name: str, points: Sequence[tuple[Number, Number]], exponent: float | None) -> None:
        if points:
            self.lines[name] = points, exponent


def draw_growth(rows: Sequence[Sequence[Panel]], path: Target, *, xlabel: str) -> "matplotlib.figure.Figure":
    """Panels in rows; a name keeps its colour and sign in all of them."""
    names = list(dict.fromkeys(name for row in rows for panel in row for name in panel.lines))
    width, height, below = 3.6, 2.9, 1.0
    beside = 1.7 + 0.07 * max(map(len, names), default=0)  # a legend with its exponents, and the next panel's numbers
    across = max((len(row) for row in rows), default=1)
    figure = new_figure(1 + across * (width + beside), 1 + max(1, len(rows)) * (height + below))
    signs = (SIGNS[i % len(SIGNS)] for i in range(len(names)))
    pens = dict(zip(names, zip(colors(len(names)), signs, strict=True), strict=True))
    for i, row in enumerate(reversed(rows)):
        for j, panel in enumerate(row):
            axes = chart(
                figure, 0.8 + j * (width + beside), 0.7 + i * (height + below), width, height,
                title=panel.title, xlabel=xlabel, ylabel=panel.ylabel,
            )  # fmt: skip
            _draw_lines(axes, panel, pens)
    return save(fit(figure), path)


def _draw_lines(axes: "matplotlib.axes.Axes", panel: Panel, pens: Mapping[str, tuple[str, str]]) -> None:
    from matplotlib.ticker import EngFormatter, FixedLocator, FuncFormatter, LogLocator

    axes.set(xscale="log", yscale="log" if panel.logarithmic else "linear")
    for name, (points, exponent) in panel.lines.items():
        color, sign = pens[name]
        label = name if exponent is None else f"{name}  {panel.symbol}^{exponent:.2f}"
        axes.plot(*zip(*points, strict=True), color=color, marker=sign, markersize=3.5, linewidth=1.4, label=label)
    every = [point for points, _ in panel.lines.values() for point in points]
    if not every:
        return
    lengths = sorted({n for n, _ in every})
    low, high = min(value for _, value in every), max(value for _, value in every)
    room, margin = max(1.25, (high / low) ** 0.06), 0.06 * (high - low) or 1
    reach = (low / room, high * room) if panel.logarithmic else (low - margin, high + margin)
    axes.set(xlim=(lengths[0] / 1.1, lengths[-1] * 1.1), ylim=reach)
    for slope, style in zip(panel.slopes, ((0, (5, 3)), (0, (2, 2))), strict=False):
        ends = [(low if slope > 0 else high) * (n / lengths[0]) ** slope for n in (lengths[0], lengths[-1])]
        axes.plot([lengths[0], lengths[-1]], ends, color=SOFT, linewidth=0.9, linestyle=style, zorder=1,
                  label=f"slope {slope:g}")  # fmt: skip
    axes.xaxis.set_major_locator(FixedLocator(lengths[:: max(1, -(-len(lengths) // 8))]))
    axes.xaxis.set_major_formatter(
        FuncFormatter(lambda n, _: f"{n / 1024:g}k" if n >= 1024 and n % 1024 == 0 else f"{n:,.6g}")
    )
    if panel.logarithmic:
        axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5) if high < 200 * low else (1,)))
        axes.yaxis.set_major_formatter(
            EngFormatter(unit=panel.unit) if panel.unit else FuncFormatter(lambda y, _: f"{y:g}")
        )
    tidy(axes)
    axes.legend(
        loc="upper left", bbox_to_anchor=(1.02, 1), frameon=False, borderaxespad=0, handlelength=2.2, labelspacing=0.35,
        prop={"family": list(families()), "size": 8}, labelcolor=INK,
    )  # fmt: skip
