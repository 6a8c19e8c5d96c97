"""A measure over the minutes of training, a line for each run."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from regard.inside.canvas import Number, chart, colors, fit, name_lines, new_figure, save, tidy
from regard.inside.views import Target

if TYPE_CHECKING:
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
