"""Tables of series: dates, gaps, several series, covariates; and mistakes in them, each with its line."""

import json
import math
from datetime import date

import numpy as np
import pytest
from numpy import nan
from statsmodels.datasets import co2, sunspots

from regard.data.generated.series import EMBEDDED, path_of
from regard.data.readers.dates import Grid, grid_of, iso, reader_of
from regard.data.readers.series_format import Scale, SeriesFormat, filled, load_format, measure, save_format
from regard.data.readers.series_tables import Columns, choose_columns, read_series, table_of, with_categories
from regard.data.sets.series_windows import SeriesConfig


def read(text, **given):
    table = table_of(text.encode())
    columns = with_categories(table, choose_columns(table, Columns(**given)))
    return read_series(table, columns)


def days(count, first="2024-01-01"):
    return [str(np.datetime64(first) + i) for i in range(count)]


@pytest.mark.parametrize(
    "dates, unit, count, after",
    [
        (["2024-01-01 00:00:00", "2024-01-01 01:00:00", "2024-01-01 02:00:00"], "second", 3600, "2024-01-01 03:00"),
        (["2024-01-01", "2024-01-02", "2024-01-03"], "second", 86_400, "2024-01-04"),
        (["20240101", "20240108", "20240115"], "second", 7 * 86_400, "2024-01-22"),
        (["2023-11-30", "2023-12-31", "2024-01-31"], "month", 1, "2024-02-29"),
        (["2023-11-15", "2024-02-15", "2024-05-15"], "month", 3, "2024-08-15"),
        (["2019-01-01", "2020-01-01", "2021-01-01"], "month", 12, "2022-01-01"),
        (["1700", "1701", "1702"], "number", 1, "1703"),
        (["31/01/2024", "01/02/2024", "02/02/2024"], "second", 86_400, "2024-02-03"),
        (["01/31/2024", "02/01/2024", "02/02/2024"], "second", 86_400, "2024-02-03"),
        (["01.02.2024", "02.02.2024", "03.02.2024"], "second", 86_400, "2024-02-04"),
        (["2024-03-31T01:00+01:00", "2024-03-31T03:00+02:00", "2024-03-31T04:00+02:00"], "second", 3600,
         "2024-03-31 03:00"),
    ],
)  # fmt: skip
def test_dates_and_their_step_are_recognised(dates, unit, count, after):
    (series,) = read(
        ("year" if dates[0] == "1700" else "when") + ",y\n" + "\n".join(f"{date},{i}" for i, date in enumerate(dates))
    )
    assert (series.grid.unit, series.grid.count) == (unit, count)
    assert series.grid.label(len(series)) == after
    assert series.values[:, 0].tolist() == [0, 1, 2]


@pytest.mark.parametrize("form", ["%m/%d/%Y", "%d/%m/%Y"])
def test_months_are_not_taken_for_days(form):
    """Every date has a day that could be a month: steps are of about one length in one of the two readings alone."""
    dates = [date(2020 + month // 12, month % 12 + 1, 1).strftime(form) for month in range(36)]
    (series,) = read("date,y\n" + "\n".join(f"{each},1" for each in dates))
    assert (series.grid.unit, series.grid.count, len(series)) == ("month", 1, 36)


def test_working_days_leave_weekends_out():
    dates = [day for day in days(28) if np.is_busday(day)]
    (series,) = read("date,y\n" + "\n".join(f"{date},1" for date in dates))
    assert series.grid.unit == "business day" and len(series) == 20
    assert series.grid.label(20) == "2024-01-29" and series.grid.label(25) == "2024-02-05"


@pytest.mark.parametrize("unit, count", [("second", 900), ("month", 1), ("business day", 1), ("number", 3)])
def test_a_date_is_found_where_its_grid_puts_it(unit, count):
    grid = Grid(iso("2023-01-31 09:30"), unit, count)
    stamps = np.array([grid.stamp(place) for place in range(40)])
    assert grid.steps(stamps) == pytest.approx(np.arange(40))
    assert (np.diff(stamps) > 0).all()
    assert grid_of(stamps, numbers=unit == "number").unit == unit


def test_gaps_are_missing_values_and_rows_may_come_in_any_order():
    (series,) = read("date,a,b\n2024-01-05,5,\n2024-01-01,1,10\n2024-01-02,2,NA\n2024-01-04,4,40\n")
    np.testing.assert_array_equal(series.values, [[1, 10], [2, nan], [nan, nan], [4, 40], [5, nan]])
    np.testing.assert_array_equal(filled(series.values), [[1, 10], [2, 10], [2, 10], [4, 40], [5, 40]])


def test_a_missing_value_is_never_that_of_a_later_step():
    values = np.array([[nan], [nan], [3.0], [nan], [5.0]])
    np.testing.assert_array_equal(filled(values), [[0], [0], [3], [3], [5]])
    other = values.copy()
    other[4] = 99
    np.testing.assert_array_equal(filled(values)[:4], filled(other)[:4])


def test_a_long_table_has_a_series_for_each_name():
    rows = [f"{date},{name},{i},{'rain' if i % 2 else 'sun'}" for name in "ab" for i, date in enumerate(days(3))]
    first, second = read("ds,unique_id,y,weather\n" + "\n".join(rows), observed=("weather",))
    assert (first.name, second.name) == ("a", "b")
    assert first.values[:, 0].tolist() == [0, 1, 2]
    assert first.covariates.tolist() == [[0, 1], [1, 0], [0, 1]]  # rain, sun


def test_lists_and_arrays_are_series_without_dates():
    columns = Columns(targets=("y",))
    (series,) = read_series(table_of([1, None, 3.5]), columns)
    np.testing.assert_array_equal(series.values, [[1], [nan], [3.5]])
    (series,) = read_series(table_of(np.array([[1.0, 2], [3, 4]])), Columns(targets=("a", "b")))
    assert series.values.tolist() == [[1, 2], [3, 4]]


@pytest.mark.parametrize(
    "text, error",
    [
        ("date,y\n2024-01-01,1\n2024-01-02,x\n2024-01-03,3", "line 3: 'x' in 'y' is no number; write 1234.5, or leave"),
        ("date,y\n2024-01-01,1\n2024-01-02,inf\n2024-01-03,3", "line 3: inf in 'y' is infinite"),
        ("date,y\n2024-01-02,1\n2024-01-01,2\n2024-01-02,3", "line 4: the date 2024-01-02 occurs twice, in line 2"),
        (
            "date,y\n2024-01-01,1\n2024-01-02,2\n2024-01-03 05:00,3\n2024-01-04,4",
            "4: 2024-01-03 05:00 is no whole",
        ),
        ("date,y\n2024-01-01,1\n2024-01-02,2\nsoon,3", "line 4: 'soon' is no date like '2024-01-01'"),
        ("date,y\n2024-01-01,1\n2024-01-02,2\n,3", "line 4: the date is missing"),
        (
            "date,y\n1024-01-01,1\n2024-01-02,2\n2024-01-03,3\n2024-01-04,4",
            "line 3: 365,243 steps of a day",
        ),
        ("date,y,y\n2024-01-01,1,2", "the header has 'y' twice"),
        ("date,y\n", "has a header and no rows"),
        ("date,y\n2024-01-01,one\n2024-01-02,two", "line 2: no column of numbers to forecast, got 'one' in 'y'"),
        ("date,y\n2024-01-01,1,3\n", "line 2: got 3 columns, but 2 in the first line"),
    ],
)
def test_a_mistake_in_a_table_is_one_line_with_its_place(text, error):
    with pytest.raises(ValueError) as caught:
        read(text)
    assert error in str(caught.value) and "\n" not in str(caught.value)


def test_columns_of_another_table_are_never_mixed_up():
    """Dates with another name are found; targets by their order only where the table has none of their names."""
    columns = Columns("date", None, ("a", "b"))

    def values(text):
        (series,) = read_series(table_of(text.encode()), columns)
        return series.values.tolist(), series.grid.label(0)

    assert values("when,b,a\n2024-01-02,3,4\n2024-01-01,1,2\n") == ([[2, 1], [4, 3]], "2024-01-01")
    assert values("when,x,y\n2024-01-01,1,2\n2024-01-02,3,4\n") == ([[1, 2], [3, 4]], "2024-01-01")
    with pytest.raises(ValueError, match="has no column 'a', which the model reads"):
        values("when,b,c\n2024-01-01,1,2\n2024-01-02,3,4\n")


def test_columns_that_a_table_does_not_have_are_named():
    with pytest.raises(ValueError, match="has no column 'hollidays'; did you mean 'holidays'"):
        read("date,y,holidays\n2024-01-01,1,0", known=("hollidays",))


def test_the_embedded_series_are_those_of_statsmodels():
    """Read by pandas there, from files that the package names."""
    (ours,) = SeriesConfig(name="co2").load().series
    theirs = co2.load_pandas().data["co2"]
    np.testing.assert_array_equal(ours.values[:, 0], theirs.to_numpy())
    assert [ours.grid.label(0), ours.grid.label(len(ours) - 1)] == [str(theirs.index[i].date()) for i in (0, -1)]
    (ours,) = SeriesConfig(name="sunspots").load().series
    np.testing.assert_array_equal(ours.values[:, 0], sunspots.load_pandas().data["SUNACTIVITY"])
    for name in EMBEDDED:
        assert path_of(name).is_file()


def test_windows_are_those_of_their_part_and_their_season_is_found():
    loaded = SeriesConfig().load()
    assert (loaded.context, loaded.horizon, loaded.format.season) == (336, 24, 168)
    train, valid, test = (loaded.windows(part) for part in ("train", "valid", "test"))
    assert [len(train), len(valid), len(test)] == [2520 - 336 - 23, 540 - 23, 540 - 23]
    assert train.origins[:, 1].max() + 24 == valid.origins[:, 1].min() == 2520
    own = SeriesConfig(series=str(path_of("electricity"))).load()
    assert own.format.season in (24, 168) and own.context == 336
    batch = test.batch([0, 516])
    values = loaded.series[0].values[:, 0]
    scale = measure(loaded.series[0].values[:2520])
    wanted = (values[3060 - 336 : 3060] - scale.mean[0]) / scale.std[0]
    np.testing.assert_allclose(batch.inputs["series"][0, :, 0], wanted, rtol=1e-5)
    np.testing.assert_allclose(batch.targets[1, :, 0] * scale.std[0] + scale.mean[0], values[-24:], rtol=1e-5)


def test_short_series_and_long_horizons():
    table = table_of(list(range(30)))
    with pytest.raises(ValueError, match="30 steps, and a horizon of 96 needs at least 290"):
        SeriesConfig(series="x.csv", horizon=96).arranged(table)
    loaded = SeriesConfig(series="x.csv", horizon=5, context=12).arranged(table)
    assert len(loaded.windows("train")) > 0 and len(loaded.windows("test")) == 1


def test_a_constant_series_has_a_scale():
    assert measure(np.full((9, 1), 7.0)) == Scale((7.0,), (1.0,))
    assert measure(np.full((9, 1), nan)) == Scale((0.0,), (1.0,))


def test_the_calendar_goes_round_in_its_seasons():
    grid = Grid(iso("2024-01-01"), "second", 3600)
    rows = grid.calendar(np.arange(24 * 14))
    assert rows.shape == (24 * 14, 6) and np.abs(rows).max() <= 1
    np.testing.assert_allclose(rows[:24, :2], rows[24:48, :2], atol=1e-9)
    np.testing.assert_allclose(rows[:168, :4], rows[168:, :4], atol=1e-9)
    assert np.abs(rows[:24, 2:4] - rows[24:48, 2:4]).max() > 0.1
    later = Grid(iso("2024-01-08"), "second", 3600).calendar(np.arange(168))
    np.testing.assert_allclose(later[:, :4], rows[:168, :4], atol=1e-9)


def test_a_format_is_saved_and_damage_is_noticed(tmp_path):
    columns = Columns("date", None, ("y",), ("holiday",), (), {"holiday": ("no", "yes")})
    form = SeriesFormat(columns, 7, True, {"": Scale((1.5,), (2.5,))}, Scale((0.0, 0.0), (1.0, 1.0)))
    save_format(form, tmp_path)
    assert load_format(tmp_path) == form
    stored = json.loads((tmp_path / "series.json").read_text())
    for change in (
        {"season": 0}, {"season": "week"}, {"scales": {"": {"mean": [1], "std": [0]}}}, {"scales": {"": {"mean": [1]}}},
        {"scales": {"": {"mean": [math.nan], "std": [1]}}}, {"columns": {"date": "x"}}, {"calendar": 3},
    ):  # fmt: skip
        (tmp_path / "series.json").write_text(json.dumps(stored | change))
        with pytest.raises(ValueError, match="series.json"):
            load_format(tmp_path)


def test_what_is_no_date_is_none():
    assert reader_of(["soon", "later"]) is None and reader_of([""]) is None
    assert reader_of(["1.5", "2.5"]) is None
