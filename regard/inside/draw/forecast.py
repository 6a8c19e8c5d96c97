"""Forecasts: the past of a series, its next steps, and the interval that they are expected in."""

from collections.abc import Sequence
from typing import Any

from regard.inside.draw.canvas import INK, LINES, SOFT, Figure, Sheet, Target, name_lines

WIDTH, HEIGHT, GAP = 7.6, 2.0, 0.75
"""Inches of a chart, and between two."""
MOST = 12
"""Series of a figure at most."""
TICKS = 6
"""Dates that are written below a chart."""


def draw_forecasts(forecasts: Sequence[Any], path: Target = None) -> Figure:
    """A chart of each series: its past, the mean of each next step, and the quantiles as bands around it."""
    if not forecasts:
        raise ValueError("there is no forecast to draw")
    sheet = Sheet()
    for number, each in enumerate(forecasts[:MOST]):
        axes = sheet.chart(0, -number * (HEIGHT + GAP), WIDTH, HEIGHT, title=each.name)
        past, ahead = len(each.past), len(each.mean)
        steps = range(past, past + ahead)
        axes.plot(range(past), each.past, color=INK, linewidth=1.0, label="past")
        levels = sorted(each.quantiles)
        for low, high in zip(levels[: len(levels) // 2], levels[: -len(levels) // 2 - 1 : -1], strict=False):
            outer = (low, high) == (levels[0], levels[-1])
            label = f"{100 * (high - low):g} % interval" if outer else None
            band = each.quantiles[low], each.quantiles[high]
            axes.fill_between(steps, *band, color=LINES[0], alpha=0.16, linewidth=0, label=label)
        axes.plot(steps, each.mean, color=LINES[0], linewidth=1.4, label="forecast")
        axes.axvline(past - 0.5, color=SOFT, linewidth=0.6, linestyle=":")
        dates = [*each.past_dates, *each.dates]
        every = max(1, -(-len(dates) // TICKS))
        places = list(range(0, len(dates), every))
        axes.set_xticks(places, [dates[place] for place in places])
        axes.set(xlim=(-0.5, len(dates) - 0.5))
        name_lines(axes)
    return sheet.save(path)
