"""Lines: a measure over the minutes of training, and growth with length."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import cycle
from typing import Any

from regard.inside.draw.canvas import (
    LINES,
    SOFT,
    Axes,
    Figure,
    Number,
    Sheet,
    Target,
    name_lines,
    write_legend,
)


def draw_race(series: Mapping[str, Sequence[tuple[Number, Number]]], path: Target, measure: str) -> Figure:
    """Draw each run's (minutes, value) points; lower is better."""
    sheet = Sheet()
    axes = sheet.chart(0, 0, 4.6, 3, xlabel="minutes of training", ylabel=measure)
    for name, points in series.items():
        axes.plot(*zip(*points, strict=True), linewidth=1.6, label=name, marker="o" if len(points) == 1 else None)
    settled = [value for points in series.values() for _, value in points[len(points) // 8 :]]
    axes.set(xlim=(0, None), ylim=(0.97 * min(settled), 1.03 * max(settled)))  # the first fall would hide the rest
    name_lines(axes)
    return sheet.save(path)


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


def draw_growth(rows: Sequence[Sequence[Panel]], path: Target, *, xlabel: str) -> Figure:
    """Draw panels in rows; a name keeps its colour and marker in all of them."""
    names = dict.fromkeys(name for row in rows for panel in row for name in panel.lines)
    pens = dict(zip(names, zip(cycle(LINES), cycle(SIGNS), strict=False), strict=False))
    width, height, below = 3.6, 2.9, 1.0
    beside = 1.7 + 0.07 * max(map(len, names), default=0)  # a legend with its exponents, and the next panel's numbers
    sheet = Sheet()
    for i, row in enumerate(rows):
        for j, panel in enumerate(row):
            axes = sheet.chart(j * (width + beside), -i * (height + below), width, height, title=panel.title,
                         xlabel=xlabel, ylabel=panel.ylabel, log="xy" if panel.logarithmic else "x")  # fmt: skip
            draw_panel(axes, panel, pens)
    return sheet.save(path)


def draw_panel(axes: Axes, panel: Panel, pens: Mapping[str, tuple[str, str]]) -> None:
    """Draw the lines of a panel and its reference lines, with a legend."""
    from matplotlib.ticker import EngFormatter, FixedLocator, FuncFormatter, LogLocator

    for name, (points, exponent) in panel.lines.items():
        color, sign = pens[name]
        label = name if exponent is None else f"{name}  {panel.symbol}^{exponent:.2f}"
        axes.plot(*zip(*points, strict=True), color=color, marker=sign, markersize=3.5, linewidth=1.4, label=label)
    every = [point for points, _ in panel.lines.values() for point in points]
    if not every:
        return
    lengths = sorted({n for n, _ in every})
    low, high = min(value for _, value in every), max(value for _, value in every)
    if panel.logarithmic:
        room = max(1.25, (high / low) ** 0.06)
        reach = (low / room, high * room)
    else:
        margin = 0.06 * (high - low) or 1
        reach = (low - margin, high + margin)
    axes.set(xlim=(lengths[0] / 1.1, lengths[-1] * 1.1), ylim=reach)
    for slope, style in zip(panel.slopes, ((0, (5, 3)), (0, (2, 2))), strict=False):
        ends = [(low if slope > 0 else high) * (n / lengths[0]) ** slope for n in (lengths[0], lengths[-1])]
        axes.plot([lengths[0], lengths[-1]], ends, color=SOFT, linewidth=0.9, linestyle=style, zorder=1,
                  label=f"slope {slope:g}")  # fmt: skip
    axes.xaxis.set_major_locator(FixedLocator(lengths[:: max(1, -(-len(lengths) // 8))]))
    axes.xaxis.set_major_formatter(lambda n, _: f"{n / 1024:g}k" if n >= 1024 and n % 1024 == 0 else f"{n:,.6g}")
    if panel.logarithmic:
        axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5) if high < 200 * low else (1,)))
        plain = FuncFormatter(lambda y, _: f"{y:g}")
        axes.yaxis.set_major_formatter(EngFormatter(unit=panel.unit) if panel.unit else plain)
    write_legend(axes, loc="upper left", bbox_to_anchor=(1.02, 1), borderaxespad=0, handlelength=2.2, labelspacing=0.35)


def draw_by_length(
    series: Mapping[str, Sequence[tuple[str, Number | None, int]]],
    path: Target = None,
    ylabel: str = "",
    title: str = "",
    xlabel: str = "source length",
) -> Figure:
    """A line for each run over buckets of sentence length; under each bucket the number of its sentences."""
    if not any(series.values()):
        raise ValueError("no buckets to draw; give at least one (label, value, count) for each run")
    runs = {name: numbered(points) for name, points in series.items()}
    counts: dict[tuple[str, int], int] = {}
    for points in runs.values():
        for bucket, (_, count) in points.items():
            counts[bucket] = max(count, counts.get(bucket, 0))
    sheet = Sheet()
    axes = sheet.chart(0, 0, max(3.6, 0.62 * len(counts)), 3, title=title, xlabel=xlabel, ylabel=ylabel)
    for name, points in runs.items():
        values = [points.get(bucket, (None, 0))[0] for bucket in counts]
        heights = [math.nan if value is None else value for value in values]
        axes.plot(range(len(counts)), heights, linewidth=1.8, marker="o", markersize=4, label=name)
    axes.set_xticks(range(len(counts)), [f"{label}\nn = {count:,}" for (label, _), count in counts.items()])
    axes.margins(x=0.04)
    name_lines(axes)
    return sheet.save(path)


def numbered(
    points: Sequence[tuple[str, Number | None, int]],
) -> dict[tuple[str, int], tuple[Number | None, int]]:
    """Return value and count by label; repeated labels stay separate buckets."""
    buckets: dict[tuple[str, int], tuple[Number | None, int]] = {}
    for label, value, count in points:
        buckets[label, sum(known == label for known, _ in buckets)] = (value, count)
    return buckets


def draw_training(metrics: Mapping[str, Sequence[Mapping[str, Any]]], path: Target = None) -> Figure:
    """Loss above, learning rate below, a colour for each run; losses on held-out data are dashed."""
    sheet = Sheet()
    losses = sheet.chart(0, 1.4, 5, 2.6, title="loss (dashed: held out)")
    rates = sheet.chart(0, 0, 5, 0.9, title="learning rate", xlabel="step")
    for color, (name, records) in zip(cycle(LINES), metrics.items(), strict=False):
        for key in sorted({k for r in records for k in r if "loss" in k and r[k] is not None}):
            draw_loss(losses, records, key, color, name)
            name = ""  # one line has the name of the run
        for key in ("lr", "rate", "learning_rate"):
            rates.plot(*column(records, key), color=color, linewidth=1.3)
    if not losses.lines:
        raise ValueError("no losses to draw; each record needs a step and a key with 'loss' in its name")
    if not any("--" == line.get_linestyle() for line in losses.lines):
        losses.set_title("loss", loc="left")
    rates.set_xlim(losses.get_xlim())
    losses.tick_params(labelbottom=False)
    rates.ticklabel_format(axis="y", scilimits=(-2, 4), useMathText=True)
    name_lines(losses)
    return sheet.save(path)


def draw_loss(axes: Axes, records: Sequence[Mapping[str, Any]], key: str, color: str, name: str) -> None:
    """Draw one loss of one run, the raw values faint behind a running mean."""
    steps, values = column(records, key)
    style: dict[str, Any] = dict(linewidth=1.6)
    if key.startswith(("val", "test", "dev", "eval", "held")):
        style = dict(linewidth=1.3, linestyle="--", marker="o", markersize=3)
    elif len(values) > 100:
        axes.plot(steps, values, color=color, linewidth=0.6, alpha=0.3)
        values = running_mean(values, keep=1 - 50 / (50 + len(values)))
    axes.plot(steps, values, color=color, label=name or None, **style)


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
