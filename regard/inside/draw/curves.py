"""Lines: a measure over the minutes of training, and growth with length."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from regard.inside.draw.canvas import (
    INK,
    SOFT,
    Number,
    Target,
    chart,
    check_suffix,
    colors,
    families,
    fit,
    name_lines,
    new_figure,
    save,
    tidy,
)  # fmt: skip

if TYPE_CHECKING:
    import matplotlib.axes
    import matplotlib.figure


def draw_race(
    series: Mapping[str, Sequence[tuple[Number, Number]]], path: Target, measure: str
) -> "matplotlib.figure.Figure":
    """Draw each run's (minutes, value) points; lower is better."""
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
"""Markers of points, since there are more lines than colours."""


@dataclass(frozen=True, slots=True)
class Panel:
    """Lines (n, value) over a logarithmic axis, each with the exponent that was fitted to it."""

    title: str
    ylabel: str
    unit: str = ""
    """Unit of the values: "s", "B", or empty for plain numbers."""
    slopes: tuple[float, ...] = (1, 2)
    """Exponents of dashed reference lines."""
    symbol: str = "n"
    """Symbol of the quantity on the horizontal axis."""
    logarithmic: bool = True
    """Whether the vertical axis is logarithmic, as the horizontal one always is."""
    lines: dict[str, tuple[Sequence[tuple[Number, Number]], float | None]] = field(default_factory=dict)

    def add(self, name: str, points: Sequence[tuple[Number, Number]], exponent: float | None) -> None:
        if points:
            self.lines[name] = points, exponent


def draw_growth(rows: Sequence[Sequence[Panel]], path: Target, *, xlabel: str) -> "matplotlib.figure.Figure":
    """Draw panels in rows; a name keeps its colour and marker in all of them."""
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


def draw_by_length(
    series: Mapping[str, Sequence[tuple[str, Number | None, int]]],
    path: Target = None,
    ylabel: str = "",
    title: str = "",
    xlabel: str = "source length",
) -> "matplotlib.figure.Figure":
    """A line for each run over buckets of sentence length; under each bucket the number of its sentences."""
    check_suffix(path)
    if not any(series.values()):
        raise ValueError("no buckets to draw; give at least one (label, value, count) for each run")
    runs = {name: numbered(points) for name, points in series.items()}
    counts: dict[tuple[str, int], int] = {}
    for points in runs.values():
        for bucket, (_, count) in points.items():
            counts[bucket] = max(count, counts.get(bucket, 0))
    figure = new_figure(9, 5)
    axes = chart(figure, 1, 1, max(3.6, 0.62 * len(counts)), 3, title=title, xlabel=xlabel, ylabel=ylabel)
    ends = []
    for color, (name, points) in zip(colors(len(runs)), runs.items(), strict=True):
        values = [points.get(bucket, (None, 0))[0] for bucket in counts]
        heights = [math.nan if value is None else value for value in values]
        axes.plot(range(len(counts)), heights, color=color, linewidth=1.8, marker="o", markersize=4)
        known = [(i, y, name, color) for i, y in enumerate(heights) if not math.isnan(y)]
        ends += known[-1:]
    axes.set_xticks(range(len(counts)), [f"{label}\nn = {count:,}" for (label, _), count in counts.items()])
    axes.margins(x=0.04)
    tidy(axes)
    name_lines(axes, ends)
    return save(fit(figure), path)


def numbered(
    points: Sequence[tuple[str, Number | None, int]],
) -> dict[tuple[str, int], tuple[Number | None, int]]:
    """Return value and count by label; repeated labels stay separate buckets."""
    buckets: dict[tuple[str, int], tuple[Number | None, int]] = {}
    for label, value, count in points:
        buckets[label, sum(known == label for known, _ in buckets)] = (value, count)
    return buckets


def draw_training(
    metrics: Mapping[str, Sequence[Mapping[str, Any]]], path: Target = None
) -> "matplotlib.figure.Figure":
    """Loss above, learning rate below, a colour for each run; losses on held-out data are dashed."""
    check_suffix(path)
    figure = new_figure(8, 6)
    losses = chart(figure, 1, 2.4, 5, 2.6, title="loss (dashed: held out)")
    rates = chart(figure, 1, 1, 5, 0.9, title="learning rate", xlabel="step")
    ends = []
    for color, (name, records) in zip(colors(len(metrics)), metrics.items(), strict=True):
        last = [
            draw_loss(losses, records, key, color)
            for key in sorted({k for r in records for k in r if "loss" in k and r[k] is not None})
        ]
        ends += [(*last[0], name, color)] if last else []
        for key in ("lr", "rate", "learning_rate"):
            rates.plot(*column(records, key), color=color, linewidth=1.3)
    if not ends:
        raise ValueError("no losses to draw; each record needs a step and a key with 'loss' in its name")
    if not any("--" == line.get_linestyle() for line in losses.lines):
        losses.set_title("loss", loc="left")
    rates.set_xlim(losses.get_xlim())
    losses.tick_params(labelbottom=False)
    rates.ticklabel_format(axis="y", scilimits=(-2, 4), useMathText=True)
    for axes in (losses, rates):
        tidy(axes)
    name_lines(losses, ends)
    return save(fit(figure), path)


def draw_loss(
    axes: "matplotlib.axes.Axes", records: Sequence[Mapping[str, Any]], key: str, color: str
) -> tuple[Number, Number]:
    """Draw one loss of one run, the raw values faint behind a running mean; return the end of the line."""
    steps, values = column(records, key)
    if key.startswith(("val", "test", "dev", "eval", "held")):
        axes.plot(steps, values, color=color, linewidth=1.3, linestyle="--", marker="o", markersize=3)
        return steps[-1], values[-1]
    if len(values) > 100:
        axes.plot(steps, values, color=color, linewidth=0.6, alpha=0.3)
        values = running_mean(values, keep=1 - 50 / (50 + len(values)))
    axes.plot(steps, values, color=color, linewidth=1.6)
    return steps[-1], values[-1]


def running_mean(values: Sequence[Number], keep: Number) -> list[Number]:
    """An exponential mean without the bias of its start."""
    smooth, mean = [], 0.0
    for i, value in enumerate(values, start=1):
        mean = keep * mean + (1 - keep) * value
        smooth.append(mean / (1 - keep**i))
    return smooth


def column(records: Sequence[Mapping[str, Any]], key: str) -> tuple[list[Number], list[Number]]:
    """Return steps and values of the records that have this field."""
    pairs = [(record["step"], record[key]) for record in records if record.get(key) is not None]
    return [step for step, _ in pairs], [value for _, value in pairs]
