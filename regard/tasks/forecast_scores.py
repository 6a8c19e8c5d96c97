"""Metrics of forecasts over all windows of a test, and the simplest forecasts: a season ago, and a line.

MSE, MAE and CRPS are of values relative to the mean and standard deviation of training, as is usual (Zhou et al.,
2021). MASE divides the absolute error by that of the value a season ago in training (Hyndman and Koehler, 2006). sMAPE
is 200 |y − ŷ| / (|y| + |ŷ|) (Makridakis, 1993). CRPS is twice the mean pinball loss of the quantiles; of a forecast
without quantiles it is the absolute error (Gneiting and Raftery, 2007).
"""

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from regard.data.readers.series_format import filled
from regard.data.sets.series_windows import SeriesSet, Windows
from regard.objectives.forecast import pinball

STRENGTHS = tuple(10.0**power for power in range(-2, 5))
"""Strengths of a ridge regression, of which validation chooses."""
MOST_ROWS = 20_000
"""Windows of a channel that a ridge regression is fitted on, at most."""
AT_ONCE = 256
"""Windows that are computed together."""


@dataclass(slots=True)
class Errors:
    """Sums of errors, to which windows are added."""

    levels: tuple[float, ...] = ()
    sums: dict[str, float] = field(default_factory=dict)
    values: int = 0
    scaled: int = 0
    """Values whose series is not constant from season to season in training."""
    naive: list[np.ndarray] = field(default_factory=list)
    """The errors of the value a season ago in training, by series; they are computed once."""

    def add(self, windows: Windows, chosen: np.ndarray, mean: np.ndarray, quantiles: np.ndarray) -> None:
        """Add forecasts (windows × steps × targets, of quantiles × levels) of some of the windows."""
        origins, horizon = windows.origins[chosen], windows.set.horizon
        steps = [windows.steps[number] for number, _ in origins]
        truth = np.stack([each.truth[start : start + horizon] for each, (_, start) in zip(steps, origins, strict=True)])
        there = ~np.isnan(truth)
        shift, scale = (np.array([getattr(each.scale, part) for each in steps])[:, None] for part in ("mean", "std"))
        error = np.abs(truth - mean)
        crps = error
        if self.levels:
            levels = torch.tensor(self.levels, dtype=torch.float32)
            crps = 2 * pinball(torch.from_numpy(quantiles), torch.from_numpy(truth), levels).mean(-1).numpy()
            inside = (truth >= quantiles[..., 0]) & (truth <= quantiles[..., -1])
        real, forecast = truth * scale + shift, mean * scale + shift
        size = np.abs(real) + np.abs(forecast)
        self.naive = self.naive or naive_errors(windows.set)
        naive = np.stack([self.naive[number] for number, _ in origins])[:, None] / scale
        moves = there & (naive > 0)
        figures = {
            "mse": np.square(truth - mean), "mae": error, "crps": crps,
            "smape": 200 * np.abs(real - forecast) / np.where(size > 0, size, 1),
        }  # fmt: skip
        figures |= {"coverage": 100.0 * inside} if self.levels else {}
        for name, rows in figures.items():
            self.sums[name] = self.sums.get(name, 0.0) + float(rows[there].sum())
        ratios = error / np.where(naive > 0, naive, 1)
        self.sums["mase"] = self.sums.get("mase", 0.0) + float(ratios[moves].sum())
        self.values, self.scaled = self.values + int(there.sum()), self.scaled + int(moves.sum())

    def scores(self) -> dict[str, float]:
        """The mean of each error."""
        names = [name for name in ("mse", "mae", "mase", "smape", "crps", "coverage") if name in self.sums]
        counts = {name: self.scaled if name == "mase" else self.values for name in names}
        return {name: round(self.sums[name] / max(1, counts[name]), 4) for name in names}


def naive_errors(series: SeriesSet) -> list[np.ndarray]:
    """For each series, the mean absolute error in training of the value a season ago, of each target in its unit."""
    found = []
    for each, ends in zip(series.series, series.ends, strict=True):
        rows = each.values[: ends["train"][1]]
        season = series.format.season if len(rows) > series.format.season else 1
        gaps = np.abs(rows[season:] - rows[:-season])
        there = ~np.isnan(gaps)
        found.append(np.where(there, gaps, 0).sum(0) / np.maximum(there.sum(0), 1))
    return found


def season_ago(windows: Windows, chosen: np.ndarray) -> np.ndarray:
    """Forecasts of the values a season ago, or the last ones where the series is shorter."""
    season, horizon, rows = windows.set.format.season, windows.set.horizon, []
    for number, start in windows.origins[chosen]:
        own = windows.steps[number]
        length = season if start - own.first >= season else 1
        rows.append(own.values[start - length : start][np.arange(horizon) % length])
    return np.stack(rows)


def regress(rows: Tensor, goals: Tensor, inputs: Tensor, truth: Tensor) -> tuple[float, Tensor]:
    """The squared error for other inputs, and the matrix of a ridge regression of goals on rows with the strength that
    is best there."""
    product, right, best = rows.T @ rows, rows.T @ goals, (math.inf, goals)
    for strength in STRENGTHS:
        matrix = torch.linalg.solve(product + strength * torch.eye(len(product), dtype=rows.dtype), right)
        best = min(best, (float((inputs @ matrix - truth).square().mean()), matrix), key=lambda found: found[0])
    return best


def as_rows(windows: Windows) -> tuple[Tensor, Tensor]:
    """The windows of all channels with their horizons, as far as these have no gaps; of very many every n-th. Where all
    horizons have gaps, each missing value is the last one before it."""
    rows = len(windows) * len(windows.set.columns.targets)
    batch = windows.batch(np.arange(0, len(windows), -(-rows // MOST_ROWS)))
    x, y = (rows.transpose(1, 2).flatten(0, 1) for rows in (batch.inputs["series"], batch.targets))
    whole = ~y.isnan().any(1)
    if not whole.any():
        y, whole = torch.from_numpy(filled(torch.cat([x[:, -1:], y], 1).T.numpy()).T[:, 1:]), ~whole
    return x[whole].double(), y[whole].double()


def ridge(train: Windows, valid: Windows) -> Tensor:
    """The matrix of a ridge regression of horizons on windows, both relative to the window's last value; validation
    chooses its strength."""
    (x, y), (inputs, truth) = as_rows(train), as_rows(valid)
    return regress(design(x), y - x[:, -1:], design(inputs), truth - inputs[:, -1:])[1]


def design(windows: Tensor) -> Tensor:
    """Windows relative to their last value, with a column of ones."""
    return torch.cat([windows - windows[:, -1:], torch.ones_like(windows[:, :1])], 1)


def on_line(matrix: Tensor, windows: Windows, chosen: np.ndarray) -> np.ndarray:
    """The forecasts of a ridge regression for some of the windows."""
    values = windows.batch(chosen).inputs["series"]
    rows = values.transpose(1, 2).flatten(0, 1).double()
    flat = design(rows) @ matrix + rows[:, -1:]
    return flat.unflatten(0, (len(values), -1)).transpose(1, 2).float().numpy()


def parts(windows: Windows) -> list[np.ndarray]:
    """The numbers of all windows, a few at a time."""
    return np.array_split(np.arange(len(windows)), max(1, -(-len(windows) // AT_ONCE)))


def simplest(windows: Windows, loaded: SeriesSet) -> dict[str, dict[str, Any]]:
    """The scores of the simplest forecasts: the values a season ago, and a ridge regression on the same window."""
    line = ridge(loaded.windows("train"), loaded.windows("valid"))
    errors = {"seasonal naive": Errors(), "ridge": Errors()}
    for chosen in parts(windows):
        none = np.zeros(0)
        errors["seasonal naive"].add(windows, chosen, season_ago(windows, chosen), none)
        errors["ridge"].add(windows, chosen, on_line(line, windows, chosen), none)
    return {name: each.scores() for name, each in errors.items()}
