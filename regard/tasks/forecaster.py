"""Forecasters: the next steps of a series, with the interval that they are expected in."""

import csv
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from regard.data.readers.dates import formats_of, reader_of
from regard.data.readers.series_format import SeriesFormat
from regard.data.readers.series_tables import Series
from regard.data.sets.batches import Batch
from regard.data.sets.series_windows import SeriesConfig, SeriesSet, Windows
from regard.hub.checkpoint import export_model
from regard.modalities.series import SERIES
from regard.tasks.base import EvalSet, Example, Option, Samples, Scored, Task, Verb, Work, quoted, register_task
from regard.tasks.forecast_scores import Errors, parts, simplest
from regard.tasks.prepared import Outputs, Prepared, TokenSequence, all_tokens, on_device
from regard.tasks.single import one_or_many

SHOWN = 1000
"""Past steps of an answer at most."""


@dataclass(frozen=True, slots=True, eq=False)
class Forecast:
    """The next steps of one column of a series."""

    name: str
    """The column, behind the name of its series where the table has several."""
    dates: list[str]
    mean: Float[np.ndarray, "H"]
    quantiles: dict[float, Float[np.ndarray, "H"]]
    """By level."""
    past_dates: list[str]
    past: Float[np.ndarray, "T"]
    """The steps that it was made from; NaN where a value is missing."""


def as_json(forecasts: Sequence[Forecast]) -> dict[str, Any]:
    """The forecasts of a table as a JSON object."""
    return {
        "series": [
            {
                "name": each.name, "dates": each.dates, "mean": rounded(each.mean),
                "quantiles": {f"{level:g}": rounded(row) for level, row in each.quantiles.items()},
                "past": {"dates": each.past_dates, "values": rounded(each.past)},
            }
            for each in forecasts
        ]
    }  # fmt: skip


def rounded(values: np.ndarray) -> list[float | None]:
    """Numbers with the digits that float32 has; None for a missing one."""
    return [None if np.isnan(value) else float(f"{value:.7g}") for value in values]


def render(answer: Mapping[str, Any]) -> str:
    """A line for each step: its date, the mean, and the outermost quantiles."""
    lines = []
    for each in answer["series"]:
        levels = list(each["quantiles"])[:: max(1, len(each["quantiles"]) - 1)]
        names = ["mean", *(f"{100 * float(level):g} %" for level in levels)]
        wide = max(10, *map(len, each["dates"]))
        lines += [f"{each['name']:{wide}}" + "".join(f"{name:>14}" for name in names)]
        for step, date in enumerate(each["dates"]):
            row = [each["mean"][step], *(each["quantiles"][level][step] for level in levels)]
            lines.append(f"{date:{wide}}" + "".join(f"{value:14.6g}" for value in row))
    return "\n".join(lines)


def as_table(forecasts: Sequence[Forecast]) -> str:
    """The forecasts as the text of a CSV file: a row for each step, with the mean and each quantile."""
    levels = list(dict.fromkeys(level for each in forecasts for level in each.quantiles))
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(["date", "series", "mean", *(f"q{level:g}" for level in levels)])
    for each in forecasts:
        for step, date in enumerate(each.dates):
            values = each.mean[step], *(each.quantiles[level][step] for level in levels)
            writer.writerow([date, each.name, *(f"{value:.7g}" for value in values)])
    return out.getvalue()


@register_task("forecast")
class Forecaster(Task):
    """Forecasts series."""

    inputs: ClassVar[tuple[str, ...]] = ("series",)
    output = "number"
    data: ClassVar[tuple[type, ...]] = (SeriesConfig,)
    verbs: ClassVar[tuple[Verb, ...]] = (
        Verb(
            name="forecast", does="forecasts series", help="Forecast the next steps of each series.",
            as_json=as_json, render=render,
            options=(
                Option(name="horizon", kind=int, help="Steps to forecast.", limits=(1, 100_000)),
                Option(name="start", help="The first date, or step, to forecast, as if nothing later were known."),
            ),
        ),
    )  # fmt: skip

    def __init__(self, model: Any, reader: SeriesFormat) -> None:
        self.model, self.reader = model.eval(), reader

    def facts(self) -> dict[str, str]:
        return super().facts() | {"context": f"{self.model.config.context:,} steps"}

    @torch.inference_mode()
    def run(self, batch: Batch) -> tuple[Float[np.ndarray, "B H C"], Float[np.ndarray, "B H C Q"]]:
        """The mean and the quantiles of the horizons of windows; quantiles that cross are put in order."""
        out = self.model(**on_device(batch.inputs, self.model)).float().cpu()
        if not self.model.config.quantiles:
            return out.numpy(), out[..., None][..., :0].numpy()
        return out[..., 0].numpy(), out[..., 1:].sort(-1).values.numpy()

    def prepare(self, series: Series, start: str | int | None) -> tuple[dict[str, Tensor], int, Any]:
        """The window before the first step to forecast as tensors, that step, and the series as it was read."""
        config, of = self.model.config, f" of {series.name!r}" if series.name else ""
        end = step_of(series, start)
        if end < 1 or np.isnan(series.values[:end]).all():
            raise ValueError(f"there is no value{of} before {series.grid.label(end)}; a forecast needs one at least")
        self.check_known(series, end)
        steps = self.reader.steps(series, end, config.horizon)
        calendar = steps.covariates.shape[1] - series.covariates.shape[1]
        values, beside, length = steps.window(end, config.context, config.horizon, calendar + self.reader.known)
        inputs = {"series": torch.from_numpy(values)[None]}
        if length < config.context:
            inputs["lengths"] = torch.tensor([length])
        if config.covariates:
            inputs["covariates"] = torch.from_numpy(beside)[None]
        return inputs, end, steps

    def check_known(self, series: Series, end: int) -> None:
        """Raise an error where covariates that are known in advance are missing for a step of the horizon."""
        if not self.reader.known:
            return
        wanted = series.covariates[end : end + self.model.config.horizon, : self.reader.known]
        there = len(wanted) if not np.isnan(wanted).any() else int(np.isnan(wanted).any(1).argmax())
        if there < self.model.config.horizon:
            names = ", ".join(self.reader.columns.known)  # type: ignore[union-attr]
            raise ValueError(
                f"{names} is not given for {series.grid.label(end + there)}, and the model reads it for all "
                f"{self.model.config.horizon} steps of its horizon; add rows with it"
            )

    @one_or_many
    def forecast(
        self, series: Sequence[Any], *, horizon: int | None = None, start: str | int | None = None
    ) -> list[list[Forecast]]:
        """The next steps of each column of each table."""
        return [
            [one for each in self.reader.read(SERIES.read(item)) for one in self.ahead(each, horizon, start)]
            for item in series
        ]

    def ahead(self, series: Series, horizon: int | None, start: str | int | None) -> list[Forecast]:
        """The next steps of each column of a series."""
        config = self.model.config
        if horizon is not None and not 1 <= horizon <= config.horizon:
            cure = f"use at most {config.horizon}, or train with --data.horizon {horizon}"
            raise ValueError(f"horizon={horizon}, and the model was trained for {config.horizon} steps; {cure}")
        inputs, end, steps = self.prepare(series, start)
        means, quantiles = self.run(Batch(inputs, inputs["series"], ()))
        count, first = horizon or config.horizon, max(0, end - min(config.context, SHOWN))
        dates = [series.grid.label(step) for step in range(first, end + count)]
        mean, std = np.array(steps.scale.mean), np.array(steps.scale.std)
        means, rows = means[0, :count] * std + mean, quantiles[0, :count] * std[:, None] + mean[:, None]
        return [
            Forecast(
                name=name, dates=dates[end - first :], mean=means[:, column], past_dates=dates[: end - first],
                quantiles={level: rows[:, column, i] for i, level in enumerate(config.quantiles)},
                past=series.values[first:end, column],
            )
            for column, name in enumerate(self.columns_of(series))
        ]  # fmt: skip

    def columns_of(self, series: Series) -> list[str]:
        """The name of each column of a series, behind that of the series where it has one."""
        columns = self.reader.columns.targets if self.reader.columns is not None else ()
        count = series.values.shape[1]
        names = [name or f"series {i}" for i, name in enumerate(columns or [""] * count, 1)]
        return [f"{series.name} {name}".strip() if count > 1 or not series.name else series.name for name in names]

    def read(self, *series: Any, start: str | None = None, **options: Any) -> Prepared:
        """Prepare the window of the first series of a table; the tokens are the patches of its first column."""
        if len(series) != 1:
            raise ValueError(f"a {type(self.model).__name__} reads one table at a time, got {len(series)}")
        model, own = self.model, self.reader.read(SERIES.read(series[0]))[0]
        inputs, end, _ = self.prepare(own, start)
        names = model.token_names(lambda step: own.grid.label(end + step), self.columns_of(own))

        def run(inputs: dict[str, Tensor]) -> Tensor:
            out = model(**inputs)
            return out[:, :, 0, :1] if model.config.quantiles else out[:, :, :1]

        def choose(prepared: Prepared) -> Outputs:
            steps = list(range(model.config.horizon))
            return Outputs(steps, [0] * len(steps), all_tokens(len(names)).expand(len(steps), -1))

        return Prepared(
            model=model, inputs=inputs, run=run, answers="number", row_sequence=None, choose=choose,
            sequences=[TokenSequence("series", "Patches, by their first steps", names)],
            own_views=("forecast",), embed=lambda inputs: model.embed(**inputs),
            request={"forecasts": self.ahead(own, None, start)},
        )  # fmt: skip

    def loaded(self, test: EvalSet) -> SeriesSet:
        """The series of a test with their parts, read as the model reads them."""
        config = self.model.config
        if test.data.horizon not in (None, config.horizon):
            raise ValueError(f"the model was trained for {config.horizon} steps; leave out --data.horizon")
        sized = replace(test.data, horizon=config.horizon, context=config.context, season=test.data.season)
        return sized.load(self.reader)

    def windows(self, test: EvalSet) -> Windows:
        """The windows of a test: those whose horizons are in the last part of each series."""
        return test.read("windows", lambda: self.loaded(test).windows("test"))

    def evaluate(self, test: EvalSet, **options: Any) -> Scored:
        whole = self.windows(test)
        windows = whole.take(slice(None, None, -(-len(whole) // test.limit))) if test.limit else whole
        errors = Errors(self.model.config.quantiles)
        for chosen in parts(windows):
            errors.add(windows, chosen, *self.run(windows.batch(chosen)))
        scores = errors.scores() | {"examples": len(windows)}
        return Scored(
            scores=scores, outputs=[], metrics=("mse",), lower=True, total=len(whole), unit="windows", details=windows
        )

    def baselines(self, test: EvalSet, scored: Scored) -> dict[str, dict[str, float]]:
        return simplest(scored.details, self.loaded(test))

    def work(self, test: EvalSet) -> Work:
        windows = self.windows(test)
        windows = windows.take(slice(test.limit))
        batches = [windows.batch(chosen) for chosen in parts(windows)]
        return Work(run=lambda: [self.run(batch) for batch in batches], count=len(windows), unit="window")

    def samples(self, test: EvalSet, run: Path) -> Samples:
        item = str(test.data.source)
        name = "forecast.png"
        return Samples(
            commands=[f"regard forecast {run} {quoted(item)} --out {name}", f"regard eval {run}"],
            views={name: ("forecast", item)}, examples=[Example(inputs=(SERIES.read(item),), label=Path(item).name)],
        )  # fmt: skip

    def export(self, out: Path) -> None:
        export_model(self.model, out)


def step_of(series: Series, start: str | int | None) -> int:
    """The first step to forecast: the one that is named by its date or number, or the one after the last value."""
    if start is None:
        return series.end
    text = str(start).strip()
    found = reader_of([text])
    if found is None:
        raise ValueError(f"start={text!r} is no date; write it like {series.grid.label(0)}")
    if not found[1] and len({way(text) for way in formats_of([text])}) > 1:
        raise ValueError(f"start={text!r} may have the day or the month first; write it like {series.grid.label(0)}")
    step = float(series.grid.steps(np.array([found[0](text)]))[0])
    if step != round(step) or not 0 < step <= len(series):
        inside = f"{series.grid.label(1)} to {series.grid.label(len(series))}, a step is a {series.grid.words}"
        raise ValueError(f"start={text} is no step of the series: give one of {inside}")
    return int(step)
