"""Forecasts: the next steps of series by a small Transformer over patches of their past.

regard train forecast
    a day of electricity in Victoria from the two weeks before: 600 steps, 0.4 minutes of one core; MSE 0.068 (a week
    ago and a ridge regression 0.079), 77 % of the values in the 80 % interval; with --data.name sunspots 0.67 (0.74),
    co2 0.0043 (0.0038: the line wins)
regard train forecast --data.series FILE.csv --data.horizon 96
    your own table: a column of dates, and a column for each series
"""

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch

from regard.data.generated.series import EMBEDDED
from regard.data.sets.series_windows import SeriesConfig, Windows, WindowStream
from regard.models import preset
from regard.objectives.forecast import forecasting
from regard.registry import register_recipe
from regard.runs.fit import Job, build_new, prepare
from regard.runs.recipe import Recipe, from_scratch
from regard.tasks.forecast_scores import as_rows, regress
from regard.train.progress import Line

ROWS = 64
"""Windows of a batch."""
LEVELS = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
"""Quantiles that are forecast."""


@register_recipe("forecast", bases=("forecast",))
def forecast(data: Mapping[str, Any]) -> Recipe:
    """Return the recipe of a small Transformer over patches of series."""
    known = EMBEDDED.get(str(data.get("name") or "electricity"), EMBEDDED["electricity"])
    sizes = dict(horizon=known.horizon, context=known.context, patch=known.patch, quantiles=LEVELS, linear=True)
    model = preset("patchtst", "tiny", **sizes)
    train = from_scratch(
        steps=600, batch_tokens=ROWS * model.tokens, lr=3e-4, optimizer="adamw", schedule="cosine", weight_decay=0.05,
        every=50,
    )  # fmt: skip
    return Recipe(name="forecast", family="patchtst", model=model, data=SeriesConfig(), train=train)


@prepare.register
def prepare_series(data: SeriesConfig, recipe: Recipe, out: Path, resume: bool, line: Line) -> Job:
    """Series as windows of one length; the model gets its length, the horizon and the number of columns."""
    loaded = data.load()
    train, valid = loaded.windows("train"), loaded.windows("valid")
    columns = loaded.columns
    model = replace(
        recipe.model, context=loaded.context, horizon=loaded.horizon, channels=len(columns.targets),
        covariates=train.steps[0].covariates.shape[1], patch=min(recipe.model.patch, loaded.context),
    )  # fmt: skip
    rows = max(1, recipe.train.batch_tokens // recipe.model.tokens // model.channels)
    recipe = replace(recipe, model=model, train=replace(recipe.train, batch_tokens=rows * model.tokens))
    named = f"{len(loaded.series):,} series" if len(loaded.series) > 1 else f"{len(columns.targets)} columns"
    return Job(
        recipe=recipe, readers={"series": loaded.format}, stream=WindowStream(train, rows, recipe.train.seed),
        valid=lambda: valid.batches(4 * rows), objective=forecasting,
        build=None if data.base else partial(begin_as_line, train=train, valid=valid),
        about=f"{len(train):,} windows of {loaded.context} steps, {loaded.horizon} ahead, of {named}",
    )  # fmt: skip


@torch.no_grad()
def begin_as_line(recipe: Recipe, *, train: Windows, valid: Windows) -> Any:
    """A new model; its linear forecast, if it has one, is a ridge regression, and the rest of it adds nothing yet."""
    model = build_new(recipe)
    if getattr(model, "line", None) is not None:
        both = []
        for windows in (train, valid):
            x, y = as_rows(windows)
            scaled, mean, scale = (each[..., 0] for each in model.relative(x[..., None], None))
            both += [scale * torch.cat([scaled, torch.ones_like(scale)], 1), y - mean]
        _, matrix = regress(*both)
        model.line.weight.copy_(matrix[:-1].T)
        model.line.bias.copy_(matrix[-1])
        torch.nn.init.zeros_(model.head.weight)
    return model
