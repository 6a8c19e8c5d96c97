"""The forecast itself, over the steps that it was made from."""

from collections.abc import Mapping
from typing import Any

from regard.inside.draw.forecast import draw_forecasts
from regard.inside.views.base import Shown, View, register_view
from regard.tasks.forecaster import as_json, render
from regard.tasks.prepared import Prepared


def show_forecast(prepared: Prepared) -> Shown:
    """Show the mean and the quantiles of each next step of each column."""
    forecasts = prepared.request["forecasts"]
    return as_json(forecasts), lambda path: draw_forecasts(forecasts, path)


def render_forecast(data: Mapping[str, Any]) -> str:
    """A line for each step."""
    return render(data)


register_view(
    View(name="forecast", show=show_forecast, render=render_forecast, needs_weights=False, complete=False), False
)
