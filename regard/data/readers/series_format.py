"""The settings by which a forecaster reads tables: columns, scales and season, which are saved beside the weights."""

import json
import math
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from regard.config import parse, read_json, reading
from regard.data.readers.dates import Grid
from regard.data.readers.series_tables import Columns, Series, choose_columns, read_series, table_of
from regard.files import write_text

FILE = "series.json"


@dataclass(frozen=True, slots=True)
class Scale:
    """Mean and standard deviation of each target of a series."""

    mean: tuple[float, ...]
    std: tuple[float, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Steps:
    """A series as a model reads it: relative to its scale, and without gaps."""

    truth: np.ndarray
    """Steps × targets; NaN where a value is missing."""
    values: np.ndarray
    """Each missing value replaced by the last one before it; before the first one it is 0."""
    covariates: np.ndarray
    """Steps of the series and of a horizon behind it × numbers."""
    first: int
    """The first step with a value."""
    scale: Scale

    def window(self, start: int, context: int, horizon: int, known: int) -> tuple[np.ndarray, np.ndarray, int]:
        """The values of the `context` steps before `start`, 0 where there are none, the covariates of these and of the
        horizon, of which the first `known` numbers are known in advance, and the number of steps that are there."""
        begin = max(self.first, start - context)
        values = np.zeros((context, self.values.shape[1]), dtype=np.float32)
        values[context - (start - begin) :] = self.values[begin:start]
        covariates = np.zeros((context + horizon, self.covariates.shape[1]), dtype=np.float32)
        covariates[context - (start - begin) :] = self.covariates[begin : start + horizon]
        covariates[context:, known:] = 0
        return values, covariates, start - begin


@dataclass(frozen=True, slots=True)
class SeriesFormat:
    """Settings by which tables become windows."""

    columns: Columns | None = None
    """None: a checkpoint from elsewhere, which reads the columns of numbers."""
    season: int = 1
    """Steps after which series repeat themselves, for comparison with the value of a season ago."""
    calendar: bool = False
    """Whether the time of day, of the week and of the year are covariates."""
    scales: dict[str, Scale] = field(default_factory=dict)
    """The scale of each series that the model was trained on."""
    covariate_scale: Scale = Scale((), ())

    @property
    def known(self) -> int:
        """Numbers of covariates that are known in advance, those of the calendar are not counted."""
        columns = self.columns or Columns()
        return sum(columns.widths[name] for name in columns.known)

    def read(self, item: Any) -> list[Series]:
        """The series of a table, a file, or numbers."""
        table = table_of(item)
        return read_series(table, self.columns or choose_columns(table, Columns()))

    def scale_of(self, series: Series, end: int) -> Scale:
        """The scale of a series: that of training, or for another series that of its steps before `end`."""
        if self.columns is None:
            width = series.values.shape[1]
            return Scale((0.0,) * width, (1.0,) * width)
        known = self.scales.get(series.name)
        return known if known is not None else measure(series.values[:end])

    def steps(self, series: Series, end: int, horizon: int) -> Steps:
        """A series as a model reads it that forecasts from the step `end` on, or from earlier ones."""
        scale = self.scale_of(series, end)
        truth = ((series.values - scale.mean) / scale.std).astype(np.float32)
        there = np.flatnonzero(~np.isnan(truth).all(1))
        beside = np.full((len(series) + horizon, series.covariates.shape[1]), np.nan)
        beside[: len(series)] = (series.covariates - self.covariate_scale.mean) / self.covariate_scale.std
        beside = filled(beside)
        if self.calendar:
            beside = np.concatenate([calendar_of(series.grid, len(beside)), beside], 1)
        first = int(there[0]) if len(there) else len(truth)
        return Steps(truth, filled(truth), beside.astype(np.float32), first, scale)


def calendar_of(grid: Grid, steps: int) -> np.ndarray:
    """The covariates of the calendar for the first steps of a series."""
    if not grid.seasons:
        raise ValueError("the rows have no dates within a day, a week or a year; leave out --data.calendar")
    return grid.calendar(np.arange(steps))


def filled(values: np.ndarray) -> np.ndarray:
    """Values (steps × numbers) with each missing one replaced by the last before it, or 0: nothing from later steps."""
    there = ~np.isnan(values)
    if there.all():
        return values
    last = np.maximum.accumulate(np.where(there, np.arange(len(values))[:, None], -1), axis=0)
    return np.where(last < 0, 0, np.take_along_axis(values, last.clip(0), 0)).astype(values.dtype)


def measure(values: np.ndarray) -> Scale:
    """Mean and standard deviation of each column, of those values that are there; 1 for a constant column."""
    means, stds = [], []
    for column in values.T:
        there = column[~np.isnan(column)]
        mean, std = (float(there.mean()), float(there.std())) if len(there) else (0.0, 1.0)
        means.append(mean)
        stds.append(std if std > 1e-9 * max(1.0, abs(mean)) else 1.0)
    return Scale(tuple(means), tuple(stds))


def save_format(reader: SeriesFormat, path: Path) -> None:
    """Write the settings beside a model."""
    write_text(path / FILE, json.dumps(asdict(reader), ensure_ascii=False) + "\n")


def load_format(path: Path, config: Any = None) -> SeriesFormat:
    """The settings beside a model; one from elsewhere reads all columns of numbers as they are."""
    file = path / FILE
    if not file.is_file():
        return SeriesFormat()
    with reading(file):
        return parse_format(read_json(file))


def parse_format(stored: dict[str, Any]) -> SeriesFormat:
    """The settings in a JSON object; ValueError for what they cannot be."""
    columns = stored["columns"]
    if columns is not None:
        names = {name: parse(columns[name], tuple[str, ...], name) for name in ("targets", "known", "observed")}
        categories = {str(name): parse(words, tuple[str, ...], name) for name, words in columns["categories"].items()}
        date, item = (parse(columns[name], str | None, name) for name in ("date", "item"))
        columns = Columns(date, item, **names, categories=categories)
    reader = SeriesFormat(
        columns, parse(stored["season"], int, "season"), parse(stored["calendar"], bool, "calendar"),
        {str(name): parse_scale(scale, name) for name, scale in stored["scales"].items()},
        parse_scale(stored["covariate_scale"], "covariate_scale"),
    )  # fmt: skip
    width = None if columns is None else len(columns.targets)
    if reader.season < 1 or any(len(scale.mean) != width for scale in reader.scales.values()):
        raise ValueError("its numbers do not fit its columns; copy it again")
    return reader


def parse_scale(stored: Any, name: str) -> Scale:
    """A scale in a JSON object."""
    mean, std = (parse(stored[part], tuple[float, ...], name) for part in ("mean", "std"))
    if len(mean) != len(std) or not all(map(math.isfinite, (*mean, *std))) or not all(each > 0 for each in std):
        raise ValueError(f"the scale of {name!r} is none: {mean}, {std}; copy it again")
    return Scale(mean, std)
