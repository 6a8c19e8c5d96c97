"""Windows of series: tables of values over time, or real series that come with a package; and batches of them.

The first 70 % of each series is trained on, the next 15 % is for validation, the rest for the test. A window belongs to
the part that its horizon is in; what it is forecast from may be in an earlier one.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch

from regard.data.generated.series import EMBEDDED, Name, path_of
from regard.data.notices import notify_once
from regard.data.readers.series_format import SeriesFormat, Steps, measure
from regard.data.readers.series_tables import Columns, Series, choose_columns, read_series, table_of, with_categories
from regard.data.readers.tables import Table
from regard.data.sets.base import Data
from regard.data.sets.batches import Batch, shuffled
from regard.data.sets.overview import Overview

TRAIN, VALID = 0.7, 0.15
"""Shares of a series; the rest is for the test."""
MOST_CONTEXT = 512
"""Steps of a window at most, where the user does not say."""
MOST_SEASONAL = 20
"""Series that the season is found in."""


@dataclass(frozen=True, kw_only=True, slots=True)
class SeriesConfig(Data):
    """Where series come from (nothing given: electricity), what is forecast of them, and how far."""

    own: ClassVar[tuple[str, ...]] = ("series",)
    reading: ClassVar[tuple[str, ...]] = (
        "date", "item", "targets", "known", "observed", "horizon", "context", "season", "calendar",
    )  # fmt: skip
    splitting: ClassVar[tuple[str, ...]] = ("name", "horizon")
    decides: ClassVar[dict[str, str]] = {
        "model.horizon": "follows from the data; use --data.horizon",
        "model.context": "follows from the data; use --data.context",
        "model.channels": "follows from the columns; use --data.targets",
        "model.covariates": "follows from the columns; use --data.known and --data.observed",
    }

    series: str | None = None
    """A table (.csv, .parquet …): a column for each series, or a long one whose rows name their series."""
    name: Name = "electricity"
    """The series that comes with a package: electricity, co2 or sunspots."""
    horizon: int | None = None
    """Steps that are forecast (none: a season, or what suits the length)."""
    context: int | None = None
    """Steps that a forecast is made from (none: several seasons)."""
    targets: tuple[str, ...] = ()
    """Columns to forecast (none: all columns of numbers)."""
    known: tuple[str, ...] = ()
    """Columns that are known in advance, such as holidays; numbers or words."""
    observed: tuple[str, ...] = ()
    """Columns that are known up to the forecast only; numbers or words."""
    date: str | None = None
    """The column of dates (none: found)."""
    item: str | None = None
    """The column that names the series of a long table (none: found, where dates are repeated)."""
    season: int | None = None
    """Steps after which values repeat themselves (none: the day, week or year that forecasts best)."""
    calendar: bool = False
    """Read the time of day, of the week and of the year, too."""
    base: str | None = None
    """A run or checkpoint whose weights to start from."""

    def __post_init__(self) -> None:
        for field in ("horizon", "context", "season"):
            if getattr(self, field) is not None and getattr(self, field) < 1:
                raise ValueError(f"{field}={getattr(self, field)} must be at least 1")

    @property
    def idle(self) -> dict[str, str]:
        return {"name": f"series {self.series}"} if self.series else {}

    @property
    def source(self) -> Path:
        """The file of the series."""
        return path_of(self.name) if self.series is None else Path(self.series)

    def load(self, reader: SeriesFormat | None = None) -> "SeriesSet":
        """The series with all that follows from them; a trained model's `reader` says what they are read by."""
        if self.series is not None:
            return self.arranged(table_of(self.source), reader)
        known = EMBEDDED[self.name]
        usual = replace(
            self, season=self.season or known.season, horizon=self.horizon or known.horizon,
            context=self.context or known.context, targets=self.targets or (known.target,),
        )  # fmt: skip
        return usual.arranged(table_of(self.source), reader)

    def arranged(self, table: Table, reader: SeriesFormat | None = None) -> "SeriesSet":
        """The series of a table."""
        if reader is not None and reader.columns is not None:
            columns = reader.columns
        else:
            given = Columns(self.date, self.item, self.targets, self.known, self.observed)
            columns = with_categories(table, choose_columns(table, given))
        return SeriesSet.of(self, read_series(table, columns), columns, reader)

    def split(self) -> "tuple[Windows, Windows]":
        loaded = self.load()
        return loaded.windows("train"), loaded.windows("valid")

    def held_out(self) -> "Windows":
        return self.load().windows("test")

    def overview(self) -> list[Overview]:
        if self.series is None:
            return []
        loaded = self.load()
        first, chosen = loaded.series[0], loaded.columns
        taken = {"date": chosen.date, "item": chosen.item}
        columns = {ours: name for ours, name in taken.items() if name is not None}
        columns["targets"] = ", ".join(chosen.targets[:8]) + ", …" * (len(first.values[0]) > 8)
        dates = f"{first.grid.label(0)} to {first.grid.label(len(first) - 1)}, a step is a {first.grid.words}"
        notes = [f"{dates}; season {loaded.format.season}, horizon {loaded.horizon}, context {loaded.context}"]
        return [
            Overview(
                source=self.series, part="train", count=sum(map(len, loaded.series)), unit="steps",
                about=f"{len(loaded.series):,} series" if len(loaded.series) > 1 else "a series", columns=columns,
                notes=notes,
            )
        ]  # fmt: skip


@dataclass(frozen=True, slots=True, eq=False)
class SeriesSet:
    """Series with their parts, and the sizes of their windows."""

    series: list[Series]
    ends: list[dict[str, tuple[int, int]]]
    """The first step of each part of a series, and the step after its last."""
    format: SeriesFormat
    context: int
    horizon: int

    @property
    def columns(self) -> Columns:
        """The columns of the table."""
        assert self.format.columns is not None, "a set knows its columns"
        return self.format.columns

    @classmethod
    def of(
        cls, config: SeriesConfig, series: Sequence[Series], columns: Columns, reader: SeriesFormat | None = None
    ) -> "SeriesSet":  # fmt: skip
        """Series with what the user set, and for what is not set that which suits them."""
        source = config.series or config.name
        longest = max(each.end for each in series)
        if longest == 0:
            raise ValueError(f"{source} has no value in {', '.join(columns.targets)}; give a column of numbers")
        season = config.season or usual_season(series)
        horizon = config.horizon or max(1, min(season if season > 1 else 12, 96, longest // 10))
        bounds = [(each, parts) for each in series if (parts := parts_of(each, horizon))]
        kept, ends = [each for each, _ in bounds], [parts for _, parts in bounds]
        if not kept:
            raise ValueError(
                f"{source} has {longest:,} steps, and a horizon of {horizon} needs at least {3 * horizon + 2:,}, to "
                "train, to validate and to test; lower --data.horizon"
            )
        if len(kept) < len(series):
            notify_once(f"{source}: {len(series) - len(kept):,} of {len(series):,} series are too short and left out")
        longest = max(end["train"][1] for end in ends)
        most = min(MOST_CONTEXT, longest // 3)
        twice = [2 * each for each in (season, *kept[0].grid.seasons) if 2 * each <= most]
        context = config.context or max(1, min(most, max([4 * horizon, *twice])))
        trained = [(each, end["train"][1]) for each, end in zip(kept, ends, strict=True)]
        scales = {each.name: measure(each.values[:end]) for each, end in trained}
        if reader is not None:
            form = replace(reader, columns=columns, scales=scales | reader.scales)
        else:
            beside = measure(np.concatenate([each.covariates[:end] for each, end in trained]))
            form = SeriesFormat(columns, season, config.calendar, scales, beside)
        return cls(kept, ends, form, context, horizon)

    def windows(self, part: str) -> "Windows":
        """The windows whose horizon is in a part."""
        steps = [self.format.steps(each, len(each), self.horizon) for each in self.series]
        origins = []
        for number, (each, end) in enumerate(zip(steps, self.ends, strict=True)):
            begin, stop = end[part]
            if part == "train":
                begin = each.first + (self.context if stop - each.first >= self.context + self.horizon
                                      else max(1, (stop - each.first - self.horizon) // 2))  # fmt: skip
            starts = np.arange(max(begin, each.first + 1), stop - self.horizon + 1)
            there = ~np.isnan(each.truth).all(1)
            count = np.concatenate([[0], there.cumsum()])
            starts = starts[count[starts + self.horizon] > count[starts]]
            origins.append(np.stack([np.full_like(starts, number), starts], 1))
        return Windows(self, steps, np.concatenate(origins))


def parts_of(series: Series, horizon: int) -> dict[str, tuple[int, int]]:
    """The first step of each part of a series, and the step after its last; {} for a series that is too short."""
    end = series.end
    held = max(horizon, round((1 - TRAIN - VALID) * end))
    train, valid = int(TRAIN * end), int((TRAIN + VALID) * end)
    if held == horizon:
        train, valid = end - 2 * horizon, end - horizon
    if train < horizon + 2:
        return {}
    return {"train": (0, train), "valid": (train, valid), "test": (valid, end)}


def usual_season(series: Sequence[Series]) -> int:
    """The number of steps after which the first parts of the series repeat themselves best; 1 where the value a few
    steps ago is as near."""
    trained = [each.values[: int(TRAIN * each.end)] for each in series[:MOST_SEASONAL]]

    def error(steps: int) -> float:
        long = [rows for rows in trained if len(rows) > 2 * steps]
        gaps = [np.square((rows[steps:] - rows[:-steps]) / measure(rows).std) for rows in long]
        there = [gap[~np.isnan(gap)] for gap in gaps]
        return float(np.concatenate(there).mean()) if any(map(len, there)) else math.inf

    errors = {season: error(season) for season in series[0].grid.seasons}
    best = min(errors, key=lambda season: errors[season], default=1)
    return best if errors and errors[best] < error(max(1, min(errors) // 2)) else 1


@dataclass(frozen=True, eq=False)
class Windows:
    """Windows of series, by the steps at which their horizons begin."""

    set: SeriesSet
    steps: list[Steps]
    origins: np.ndarray
    """Number of the series, and the first step of the horizon."""

    def __len__(self) -> int:
        return len(self.origins)

    def take(self, chosen: Any) -> "Windows":
        """The windows that a NumPy index selects."""
        return replace(self, origins=self.origins[chosen])

    def joined(self, other: "Windows") -> "Windows":
        """These windows and others of the same series."""
        return replace(self, origins=np.concatenate([self.origins, other.origins]))

    def batch(self, chosen: Sequence[int] | np.ndarray) -> Batch:
        """Some of the windows as tensors."""
        context, horizon, format = self.set.context, self.set.horizon, self.set.format
        calendar = self.steps[0].covariates.shape[1] - self.set.series[0].covariates.shape[1]
        known = calendar + format.known
        origins = self.origins[chosen].tolist()
        cut = [self.steps[n].window(start, context, horizon, known) for n, start in origins]
        truth = [self.steps[n].truth[start : start + horizon] for n, start in origins]
        inputs = {"series": torch.from_numpy(np.stack([values for values, _, _ in cut]))}
        lengths = torch.tensor([length for _, _, length in cut])
        if (lengths < context).any():
            inputs["lengths"] = lengths
        if self.steps[0].covariates.shape[1]:
            inputs["covariates"] = torch.from_numpy(np.stack([covariates for _, covariates, _ in cut]))
        return Batch(inputs, torch.from_numpy(np.stack(truth)), tuple(map(int, chosen)))

    def batches(self, rows: int) -> Iterator[Batch]:
        """All windows in order, a few at a time."""
        for first in range(0, len(self), rows):
            yield self.batch(np.arange(first, min(len(self), first + rows)))


@dataclass(frozen=True)
class WindowStream:
    """Endless batches of windows in a new order in every epoch."""

    windows: Windows
    rows: int
    seed: int = 0

    def count(self) -> int:
        """Batches of an epoch."""
        return -(-len(self.windows) // self.rows)

    def batches(self, epoch: int = 0, index: int = 0) -> Iterator[tuple[int, int, Batch]]:
        """(epoch, index of the next batch, batch), from a position on."""
        for epoch, index, chosen, _ in shuffled(len(self.windows), self.rows, self.seed, epoch, index):  # noqa: B020
            yield epoch, index, self.windows.batch(chosen)
