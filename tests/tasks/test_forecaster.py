"""Forecasters from training to forecast: the future is never read, every window counts, metrics are the field's."""

import numpy as np
import pytest
import torch
from sklearn.metrics import mean_absolute_error, mean_pinball_loss, mean_squared_error

import regard
from regard.data.readers.series_tables import table_of
from regard.data.sets.series_windows import SeriesConfig
from regard.eval.scores import evaluate
from regard.inside.views import show_view
from regard.recipes import fit
from regard.tasks import EvalSet
from regard.tasks.forecast_scores import Errors, season_ago
from tests.cli.calling import call, fails

TINY = {"model.dim": 16, "model.depth": 1, "model.heads": 2, "model.patch": 4, "train.steps": 3, "train.eval_every": 3}
DAYS = np.arange(np.datetime64("2025-01-01"), np.datetime64("2025-08-09"))  # 220
COLUMNS = {"data.known": ("holiday",), "data.observed": ("weather",), "data.horizon": 5, "data.context": 21}
HEADER = "date,shop,y,holiday,weather"


def rows_of(change=lambda day, row: row):
    """A long table of two shops with a covariate that is known in advance and one that is not, as lists of cells."""
    rng = np.random.default_rng(0)
    rows = []
    for shop, level in (("north", 100), ("south", 7)):
        for place, day in enumerate(DAYS):
            value = level * (2 + np.sin(place * 2 * np.pi / 7) + 0.1 * rng.normal())
            cells = [f"{value:.4f}", str(int(place % 7 == 6)), "rain" if rng.random() < 0.3 else "sun"]
            rows.append(change(str(day), [str(day), shop, *cells]))
    return rows


def written(path, rows):
    path.write_text("\n".join([HEADER, *map(",".join, rows)]))
    return path


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("forecast")
    written(folder / "sales.csv", rows_of())
    fit("forecast", out=folder / "run", quiet=True, **TINY | COLUMNS | {"data.series": str(folder / "sales.csv")})
    return folder


@pytest.fixture(scope="module")
def task(folder):
    return regard.load(folder / "run")


def test_the_future_of_the_file_changes_no_forecast(folder, task, tmp_path):
    """Values and covariates that are not known in advance are other ones from that day on, or not there at all."""
    start = "2025-05-06"
    wanted = task.forecast(folder / "sales.csv", start=start)
    assert [each.name for each in wanted] == ["north", "south"] and wanted[0].dates[0] == start

    def wild(day, row):
        return row if day < start else [*row[:2], "99999", row[3], "rain"]

    def missing(day, row):
        return row if day < start else [*row[:2], "", row[3], ""]

    for change in (wild, missing):
        other = task.forecast(written(tmp_path / "other.csv", rows_of(change)), start=start)
        for one, two in zip(wanted, other, strict=True):
            np.testing.assert_array_equal(one.mean, two.mean)
            np.testing.assert_array_equal(one.past, two.past)
            for level in one.quantiles:
                np.testing.assert_array_equal(one.quantiles[level], two.quantiles[level])
    last = written(tmp_path / "cut.csv", rows_of(missing))  # without a start, after the last value
    for one, two in zip(wanted, task.forecast(last), strict=True):
        np.testing.assert_array_equal(one.mean, two.mean)
    known = written(tmp_path / "known.csv", rows_of(lambda day, row: row if day < start else [*row[:3], "1", row[4]]))
    assert any((one.mean != two.mean).any() for one, two in zip(wanted, task.forecast(known, start=start), strict=True))


def test_the_test_part_changes_nothing_of_training():
    """Neither scales nor season nor windows of training and validation, with their targets."""

    def loaded(change):
        text = "\n".join([HEADER, *map(",".join, rows_of(change))]).encode()
        config = SeriesConfig(series="x.csv", known=("holiday",), observed=("weather",), calendar=True)
        return config.arranged(table_of(text))

    test = str(DAYS[round(0.85 * len(DAYS)) + 1])
    mine = loaded(lambda day, row: row)
    other = loaded(lambda day, row: row if day < test else [*row[:2], "-5e6", "0", "sun"])
    assert mine.format == other.format and mine.context == other.context and mine.horizon == other.horizon
    for part in ("train", "valid"):
        one, two = mine.windows(part), other.windows(part)
        assert (one.origins == two.origins).all() and len(one) > 20
        for a, b in zip(one.batches(50), two.batches(50), strict=True):
            np.testing.assert_array_equal(a.targets, b.targets)
            for name in a.inputs:
                np.testing.assert_array_equal(a.inputs[name], b.inputs[name])
    first = mine.windows("test")
    assert first.origins[0, 1] == mine.ends[0]["test"][0]
    inputs = [each.windows("test").batch([0]).inputs["series"] for each in (mine, other)]
    np.testing.assert_array_equal(*inputs)  # its horizon is wild, what it is made from is not


def test_a_backtest_is_every_forecast_of_the_test_part(folder, task):
    """The scores are those of a user who forecasts from each day on: no window is left out, nor is the last one."""
    data = SeriesConfig(series=str(folder / "sales.csv"), horizon=5)
    scored = task.evaluate(EvalSet(data=data, own=data))
    loaded = task.loaded(EvalSet(data=data, own=data))
    begin, end = loaded.ends[0]["test"]
    assert (end, scored.scores["examples"]) == (220, 2 * (220 - begin - 5 + 1))
    forecasts, truth, naive = [], [], []
    for number, series in enumerate(loaded.series):
        scale = loaded.format.scales[series.name]
        values = (series.values[:, 0] - scale.mean[0]) / scale.std[0]
        gaps = np.abs(values[7 : loaded.ends[number]["train"][1]] - values[: loaded.ends[number]["train"][1] - 7])
        for first in range(begin, end - 4):
            own = task.forecast(folder / "sales.csv", start=series.grid.label(first))[number]
            rows = [own.mean, *own.quantiles.values()]
            forecasts.append([(row - scale.mean[0]) / scale.std[0] for row in rows])
            truth.append(values[first : first + 5])
            naive.append(gaps.mean())
    forecasts, truth = np.array(forecasts), np.array(truth)
    levels = task.model.config.quantiles
    pinball = [mean_pinball_loss(truth.ravel(), forecasts[:, i].ravel(), alpha=q) for i, q in enumerate(levels, 1)]
    wanted = {
        "mse": mean_squared_error(truth, forecasts[:, 0]), "mae": mean_absolute_error(truth, forecasts[:, 0]),
        "crps": 2 * np.mean(pinball), "mase": (np.abs(truth - forecasts[:, 0]).mean(1) / naive).mean(),
    }  # fmt: skip
    assert loaded.format.season == 7
    for name, value in wanted.items():
        assert scored.scores[name] == pytest.approx(value, abs=2e-4), name


def test_metrics_are_those_of_the_field():
    """Beside utilsforecast, where it is installed, and beside scikit-learn and an example by hand everywhere."""
    values = [10.0 + (i % 4) * 3 + 0.1 * i for i in range(40)]
    loaded = SeriesConfig(series="x.csv", horizon=4, context=8, season=4).arranged(table_of(values))
    windows = loaded.windows("test").take([0])
    train = np.array(values[: loaded.ends[0]["train"][1]])
    scale = loaded.format.scales[""]
    place = int(windows.origins[0, 1])
    truth, forecast = np.array(values[place : place + 4]), np.array([9.0, 14.0, 15.5, 21.0])
    errors = Errors()
    scaled = ((forecast - scale.mean[0]) / scale.std[0])[None, :, None]
    errors.add(windows, np.array([0]), scaled, np.zeros(0))
    scores = errors.scores()
    naive = mean_absolute_error(train[4:], train[:-4])
    assert scores["mase"] == pytest.approx(mean_absolute_error(truth, forecast) / naive, abs=1e-4)
    parts = [abs(a - b) / ((abs(a) + abs(b)) / 2) for a, b in zip(truth, forecast, strict=True)]
    assert scores["smape"] == pytest.approx(100 * sum(parts) / 4, abs=1e-3)
    assert scores["mse"] == pytest.approx(mean_squared_error(truth, forecast) / scale.std[0] ** 2, abs=1e-4)
    assert scores["crps"] == scores["mae"]
    np.testing.assert_allclose(
        season_ago(windows, np.array([0]))[0, :, 0] * scale.std[0] + scale.mean[0], values[place - 4 : place], rtol=1e-5
    )
    losses, pandas = pytest.importorskip("utilsforecast.losses"), pytest.importorskip("pandas")
    both = dict(unique_id=["a"] * 4, ds=range(4), y=truth, model=forecast)
    frame = pandas.DataFrame(both)
    before = pandas.DataFrame(dict(unique_id=["a"] * len(train), ds=range(len(train)), y=train))
    assert scores["mase"] == pytest.approx(losses.mase(frame, ["model"], 4, before)["model"][0], abs=1e-4)
    assert scores["smape"] == pytest.approx(200 * losses.smape(frame, ["model"])["model"][0], abs=1e-3)


def test_baselines_stand_beside_the_scores(folder):
    scored = evaluate(folder / "run", {})
    assert scored.lower and set(scored.baselines) == {"seasonal naive", "ridge"}
    assert scored.baselines["ridge"]["mse"] < 1 and set(scored.scores) >= {"mse", "mae", "mase", "smape", "crps"}


def test_padding_before_a_short_series_changes_nothing(task):
    """Of fewer steps than the context, alone or in a batch of longer ones."""
    values = rows_of()[:9]
    ahead = [["2025-01-" + day, "north", "", "0", "sun"] for day in ("10", "11", "12", "13", "14")]
    text = "\n".join([HEADER, *map(",".join, [*values, *ahead])])
    (short,) = task.forecast(text.encode())
    assert len(short.past) == 9 and np.isfinite(short.mean).all()


def test_a_look_has_the_forecast_and_names_patches_by_their_dates(folder, task, tmp_path):
    prepared = task.read(folder / "sales.csv", start="2025-08-01")
    data, draw = show_view(prepared, "forecast")
    assert [each["name"] for each in data["series"]] == ["north"]
    draw(tmp_path / "next.png")
    assert (tmp_path / "next.png").stat().st_size > 5000
    assert {"forecast", "heads", "ablation"} <= set(prepared.views)
    assert task.facts()["context"] == "21 steps"
    assert all(name.startswith("2025-0") for name in prepared.sequences[0].tokens)


TABLE = HEADER + "\n"
TWO = TABLE + "2025-01-01,north,1,0,sun\n2025-01-02,north,2,0,sun\n"


@pytest.mark.parametrize(("text", "options", "error"), [
    (TABLE + "2025-01-01,north,1,0,sun\n2025-01-02,north,x,0,sun\n", {}, "line 3: 'x' in 'y' is no number"),
    (TWO.replace("01-02", "01-01"), {}, "line 3: the date 2025-01-01 of 'north' occurs"),
    ("date,y\n2025-01-01,1\n2025-01-02,2\n", {}, "has no column 'holiday', which the model reads"),
    (TABLE + "2025-01-01,north,,0,sun\n2025-01-02,north,,0,sun\n", {}, "there is no value of 'north' before"),
    (TWO, {}, "holiday is not given for 2025-01-03"),
    (TWO, {"horizon": 6}, "trained for 5 steps; use at most 5"),
    (TWO, {"start": "2026-01-01"}, "is no step of the series"),
    (TWO, {"start": "04/03/2025"}, "may have the day or the month first; write it like 2025-01-01"),
    (TWO, {"start": "soon"}, "start='soon' is no date"),
    ("", {}, "the table is empty; give a table"),
])  # fmt: skip
def test_what_is_wrong_is_said_in_a_line(task, text, options, error):
    with pytest.raises(ValueError) as caught:
        task.forecast(text.encode(), **options)
    assert error in str(caught.value) and "\n" not in str(caught.value)


def test_constant_series_and_gaps_are_forecast(tmp_path):
    rows = [f"{day},{7 if i != 215 else ''},{i % 7}" for i, day in enumerate(DAYS) if i not in (20, 21)]
    (tmp_path / "two.csv").write_text("\n".join(["date,flat,week", *rows]))
    fit("forecast", out=tmp_path / "run", quiet=True, **TINY | {"data.series": str(tmp_path / "two.csv")})
    flat, week = regard.load(tmp_path / "run").forecast(tmp_path / "two.csv")
    assert flat.name == "flat" and np.abs(flat.mean - 7).max() < 0.1 and np.isnan(flat.past).any()
    assert np.isfinite(week.mean).all() and len(week.mean) == 7


def test_series_with_a_gap_in_every_horizon_are_trained_on_and_scored(tmp_path):
    rows = [f"{day},{i % 7 if i % 5 else ''}" for i, day in enumerate(DAYS)]
    (tmp_path / "gaps.csv").write_text("\n".join(["date,y", *rows]))
    fields = {"data.series": str(tmp_path / "gaps.csv"), "data.horizon": 7}
    fit("forecast", out=tmp_path / "run", quiet=True, **TINY | fields)
    scored = evaluate(tmp_path / "run", {})
    assert np.isfinite([scored.scores["mse"], scored.baselines["ridge"]["mse"]]).all()


def test_the_vector_of_a_short_window_is_the_mean_of_its_patches(task):
    model = task.model
    inputs = model.example(2) | {"lengths": torch.tensor([21, 6])}  # of five patches, two
    rows = model.features(**inputs)
    ahead = model.config.ahead
    assert torch.allclose(model.embed(**inputs)[1], rows[1, -(2 + ahead) :].mean(0), atol=1e-6)


def test_the_command_writes_tables_and_figures(folder, tmp_path, capsys):
    run, table = str(folder / "run"), str(folder / "sales.csv")
    known = ["2025-08-0" + day for day in "4567"]
    call("forecast", run, table, "--start", known[0], "--horizon", "4", "--out", tmp_path / "next.csv")
    lines = (tmp_path / "next.csv").read_text().splitlines()
    assert lines[0].startswith("date,series,mean,q0.1,") and len(lines) == 1 + 2 * 4
    assert [line.split(",")[0] for line in lines[1:5]] == known
    capsys.readouterr()
    assert "use at most 5, or train with --data.horizon 50" in fails(capsys, "forecast", run, table, "--horizon", "50")
