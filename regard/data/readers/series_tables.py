"""Tables of values over time: wide, with a column for each series, or long, with a column that names them.

Rows may come in any order and leave dates out; a missing value is an empty cell.
"""

import csv
import io
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from regard.config import nearest, one_line
from regard.data.notices import notify_once
from regard.data.readers.cells import MISSING, read_cells
from regard.data.readers.columns import check_width
from regard.data.readers.dates import Grid, grid_of, label_of, reader_of
from regard.data.readers.tables import Table, read_table
from regard.data.readers.text_files import as_text

DATES = ("date", "ds", "datetime", "timestamp", "time", "date_time", "day", "week", "month", "year", "period")
"""Names of the column of dates."""
ITEMS = ("unique_id", "item_id", "series_id", "id", "item", "series", "store", "name")
"""Names of the column that names the series of a long table."""
VALUES = ("y", "value", "target", "values")
"""Names of the column of values in a long table."""
SPARSE, FEW = 20, 1000
"""The grid of dates may have this many times as many steps as there are rows, and this many more."""
LOOKED_AT = 200
"""Rows that show whether a column has dates."""


@dataclass(frozen=True, slots=True)
class Columns:
    """The columns of a table: dates, names of series, what is forecast, and covariates."""

    date: str | None = None
    """None: rows are equally far apart, in order."""
    item: str | None = None
    """None: all rows are of one series."""
    targets: tuple[str, ...] = ()
    known: tuple[str, ...] = ()
    """Covariates that are known for the horizon, such as holidays."""
    observed: tuple[str, ...] = ()
    """Covariates that are known up to the forecast."""
    categories: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """The values of covariates that are words; each value is a number of its own, 1 where it holds."""

    @property
    def widths(self) -> dict[str, int]:
        """The number of numbers of each covariate."""
        return {name: len(self.categories.get(name, "1")) for name in (*self.known, *self.observed)}


@dataclass(frozen=True, slots=True, eq=False)
class Series:
    """Values at regular steps; NaN where one is missing."""

    name: str
    values: np.ndarray
    """Steps × targets."""
    covariates: np.ndarray
    """Steps × numbers of all covariates, those that are known in advance first."""
    grid: Grid

    def __len__(self) -> int:
        return len(self.values)

    @property
    def end(self) -> int:
        """The step after the last one that has a value."""
        filled = np.flatnonzero(~np.isnan(self.values).all(1))
        return int(filled[-1]) + 1 if len(filled) else 0


def table_of(item: Any) -> Table:
    """The rows of a file, of the bytes of a CSV file, or of numbers: a list, or one of rows of several channels."""
    if isinstance(item, Table):
        return item
    if isinstance(item, bytes):
        lines = as_text(item, Path("the table")).removesuffix("\n").split("\n")
        cells, dialect = read_cells(lines, Path("the table"), ".csv", DATES)
        return Table(Path("the table"), "a table", cells=cells, separator=dialect.separator)
    if isinstance(item, str | Path):
        return read_table(item, known=(*DATES, *ITEMS, *VALUES))
    rows = np.array(item, dtype=np.float64)  # None becomes NaN
    rows = rows.reshape(len(rows), -1)
    cells = [(i, ["" if math.isnan(x) else repr(float(x)) for x in row]) for i, row in enumerate(rows, 1)]
    return Table(Path("the series"), "numbers", cells=[(0, [""] * rows.shape[1]), *cells], unit="step")


def header_of(table: Table) -> tuple[list[str], list[tuple[int, list[str]]]]:
    """The names of the columns, and the rows with their numbers; without a header, columns are called 1, 2, …"""
    if table.cells is None:
        names = list(dict.fromkeys(name for _, row in table.objects for name in row))
        return names, [(number, [cell(row.get(name)) for name in names]) for number, row in table.objects]
    if not table.cells:
        raise ValueError(f"{table.source} is empty; give a table with a row for each step")
    check_width(table)
    first = [each.strip() for each in table.cells[0][1]]
    rows = [(number, [each.strip() for each in row]) for number, row in table.cells]
    if all(is_number(each) or reader_of([each]) for each in first) and any(first):
        return [str(i) for i in range(1, len(first) + 1)], rows
    if twice := [name for name, count in Counter(first).items() if count > 1 and name]:
        raise ValueError(f"{table.source}: the header has {twice[0]!r} twice; rename one of them")
    return first, rows[1:]


def cell(value: Any) -> str:
    """A value of JSON or parquet as the text of a cell."""
    return "" if value is None else str(value).strip()


def is_number(text: str) -> bool:
    """Whether a cell is a number, or says that there is none."""
    try:
        return text.lower() in MISSING or math.isfinite(float(text.replace(",", ".")))
    except ValueError:
        return False


def choose_columns(table: Table, given: Columns) -> Columns:
    """The columns of a table: those that the user gave, the others by their names and by what they hold."""
    names, rows = header_of(table)
    if not rows:
        raise ValueError(f"{table.source} has a header and no rows; give a table with a row for each step")
    lowered = {name.lower(): name for name in reversed(names)}
    for name in filter(None, (given.date, given.item, *given.targets, *given.known, *given.observed)):
        if name not in names:
            raise ValueError(f"{table.source} has no column {name!r}; {nearest(name, names)}")
    some = rows[:LOOKED_AT]
    held = {name: [row[i] for _, row in some] for i, name in enumerate(names)}
    taken = {*given.targets, *given.known, *given.observed, given.item}
    date = given.date
    if date is None:
        named = [lowered[name] for name in DATES if name in lowered]
        able = []
        for name in [name for name in dict.fromkeys((*named, *names)) if name not in taken]:
            found = reader_of(held[name]) or (reader_of(held[name][:1]) if name in named else None)
            if found is not None and (name in named or not found[1]):
                able.append(name)
        date = next(iter(sorted(able, key=lambda name: len(set(held[name])) < len(some))), None)
    free = [name for name in names if name not in taken | {date} and name]
    item = given.item
    if item is None and date is not None and repeated(rows, names, date):
        words = [name for name in free if not all(map(is_number, held[name]))]
        named = [lowered[name] for name in ITEMS if lowered.get(name) in free]
        item = next((name for name in (*named, *words) if name in named or not repeated(rows, names, date, name)), None)
    free = [name for name in free if name != item and not name.lower().startswith("unnamed: 0")]
    targets = given.targets
    if not targets:
        numeric = [name for name in free if 2 * sum(map(is_number, held[name])) > len(some)]
        named = [lowered[name] for name in VALUES if lowered.get(name) in numeric]
        targets = tuple(named[:1] if item is not None and named else numeric[:1] if item is not None else numeric)
        if not names[0] and not targets:
            targets = tuple(names)
    if not targets:
        number, row = rows[0]
        what = next((f"{row[names.index(name)]!r} in {name!r}" for name in free), "only dates")
        raise ValueError(f"{table.source}, {table.unit} {number}: no column of numbers to forecast, got {what}")
    return Columns(date, item, targets, given.known, given.observed, dict(given.categories))


def repeated(rows: Sequence[tuple[int, list[str]]], names: list[str], *columns: str) -> bool:
    """Whether some rows have the same cells in these columns."""
    indices = [names.index(name) for name in columns]
    return len({tuple(row[index] for index in indices) for _, row in rows}) < len(rows)


def with_categories(table: Table, columns: Columns) -> Columns:
    """The columns with the values of those covariates that are words."""
    names, rows = header_of(table)
    found = dict(columns.categories)
    for name in (*columns.known, *columns.observed):
        held = [row[names.index(name)] for _, row in rows]
        if name not in found and not all(map(is_number, held)):
            values = sorted({each for each in held if each.lower() not in MISSING})
            if len(values) > 64:
                raise ValueError(f"{table.source}: {name!r} has {len(values):,} different words; at most 64 are read")
            found[name] = tuple(values)
    return Columns(columns.date, columns.item, columns.targets, columns.known, columns.observed, found)


def read_series(table: Table, columns: Columns) -> list[Series]:
    """The series of a table, each on its grid of dates, in the order of their first rows."""
    names, rows = header_of(table)
    indices = indices_of(names, columns, table, rows)
    parse = stamps_of(table, rows, indices.get("date"))
    groups: dict[str, list[int]] = {}
    for index, (_, row) in enumerate(rows):
        groups.setdefault(row[indices["item"]] if "item" in indices else "", []).append(index)
    values = np.stack([numbers(table, rows, indices[name], name) for name in columns.targets], 1)
    covariates = [covariate(table, rows, indices[name], name, columns) for name in columns.widths]
    beside = np.concatenate(covariates, 1) if covariates else np.zeros((len(rows), 0))
    return [
        on_grid(table, rows, name, np.array(lines), None if parse is None else parse[0], values, beside,
                numbers_only=parse is not None and parse[1])
        for name, lines in groups.items()
    ]  # fmt: skip


def indices_of(names: Sequence[str], columns: Columns, table: Table, rows: "Rows") -> dict[str, int]:
    """The index of each column; targets of a table with none of their names are found by their order, dates that have
    another name by what they are."""
    indices: dict[str, int] = {}
    for role, name in (("date", columns.date), ("item", columns.item)):
        if name is not None and name in names:
            indices[role] = names.index(name)
    wanted = (*columns.targets, *columns.widths)
    missing = [name for name in wanted if name not in names]
    free = [i for i, name in enumerate(names) if i not in indices.values()]
    if columns.date is not None and "date" not in indices:
        readers = {i: reader_of([row[i] for _, row in rows[:LOOKED_AT]]) for i in free if names[i] not in wanted}
        if (dated := next((i for i, found in readers.items() if found is not None and not found[1]), None)) is not None:
            indices["date"] = dated
            free.remove(dated)
    strangers = bool(wanted) and len(missing) == len(wanted) and not columns.widths
    if strangers and len(free) == len(columns.targets):
        return indices | dict(zip(columns.targets, free, strict=True))
    if strangers and "date" not in indices and len(free) == len(columns.targets) + 1:
        return {"date": free[0]} | dict(zip(columns.targets, free[1:], strict=True))
    if missing:
        shown = ", ".join(map(repr, names[:8])) + ", …" * (len(names) > 8)
        raise ValueError(f"{table.source} has no column {missing[0]!r}, which the model reads, only {shown}")
    return indices | {name: names.index(name) for name in wanted}


Rows = Sequence[tuple[int, list[str]]]


def stamps_of(table: Table, rows: Rows, column: int | None) -> tuple[np.ndarray, bool] | None:
    """The date of each row, and whether dates are plain numbers; None without a column of dates."""
    if column is None:
        return None
    cells = [row[column] for _, row in rows]
    found = reader_of(cells) or reader_of(cells[:1])
    if found is None:
        raise ValueError(f"{where(table, rows[0])}: {one_line(repr(cells[0]), 40)} is no date; write 2026-01-31 13:00")
    stamps = np.zeros(len(rows), dtype=np.int64)
    for index, text in enumerate(cells):
        try:
            stamps[index] = found[0](text)
        except (ValueError, OverflowError):
            what = "the date is missing" if not text else f"{one_line(repr(text), 40)} is no date like {cells[0]!r}"
            raise ValueError(f"{where(table, rows[index])}: {what}; write 2026-01-31 13:00") from None
    return stamps, found[1]


def where(table: Table, row: tuple[int, list[str]]) -> str:
    """The file and the line of a row."""
    return f"{table.source}, {table.unit} {row[0]}"


def numbers(table: Table, rows: Rows, column: int, name: str) -> np.ndarray:
    """The numbers of a column, NaN where one is missing."""
    result = np.full(len(rows), np.nan)
    for index, row in enumerate(rows):
        text = row[1][column]
        if text.lower() in MISSING:
            continue
        try:
            value = float(text.replace(",", ".") if table.separator != "," and text.count(",") == 1 else text)
        except ValueError:
            fact = f"{one_line(repr(text), 40)} in {name!r} is no number"
            raise ValueError(f"{where(table, row)}: {fact}; write 1234.5, or leave a missing one empty") from None
        if not math.isfinite(value) or abs(value) > 1e30:
            raise ValueError(f"{where(table, row)}: {text} in {name!r} is infinite, or too large; leave it empty")
        result[index] = value
    return result


def covariate(table: Table, rows: Rows, column: int, name: str, columns: Columns) -> np.ndarray:
    """The numbers of a covariate: its own, or for words a 1 in the column of each value."""
    if name not in columns.categories:
        return numbers(table, rows, column, name)[:, None]
    known = columns.categories[name]
    held = np.array([row[column] for _, row in rows])
    missing = np.array([text.lower() in MISSING for text in held])
    return np.where(missing[:, None], np.nan, held[:, None] == np.array(known)[None]).astype(np.float64)


def on_grid(
    table: Table, rows: Rows, name: str, indices: np.ndarray, stamps: np.ndarray | None, values: np.ndarray,
    covariates: np.ndarray, *, numbers_only: bool,
) -> Series:  # fmt: skip
    """The rows of one series in the order of their dates, with steps of missing values where dates are left out."""
    if stamps is None:
        return Series(name, values[indices], covariates[indices], Grid(1))
    order = indices[np.argsort(stamps[indices], kind="stable")]
    own, of, unit = stamps[order], f" of {name!r}" if name else "", "number" if numbers_only else "second"
    if len(twice := np.flatnonzero(np.diff(own) == 0)):
        first, second = sorted(order[[twice[0], twice[0] + 1]])
        fact = f"the date {label_of(int(own[twice[0]]), unit)}{of} occurs twice, in {table.unit} {rows[first][0]} too"
        cure = "keep one row for a date" + ("" if name else ", or name the series: --data.item NAME")
        raise ValueError(f"{where(table, rows[second])}: {fact}; {cure}")
    grid = grid_of(own, numbers=numbers_only)
    steps = grid.steps(own)
    whole = np.round(steps).astype(np.int64)
    if len(beside := np.flatnonzero(np.abs(steps - whole) > 1e-6)):
        raise ValueError(
            f"{where(table, rows[order[beside[0]]])}: {label_of(int(own[beside[0]]), unit)}{of} is no whole number of "
            f"steps of a {grid.words} after {grid.label(0)}; give rows at equal steps"
        )
    if whole[-1] + 1 > SPARSE * len(order) + FEW:
        widest = int(np.argmax(np.diff(whole)))
        missing = whole[widest + 1] - whole[widest] - 1
        raise ValueError(
            f"{where(table, rows[order[widest + 1]])}: {missing:,} steps of a {grid.words} are missing before "
            f"{label_of(int(own[widest + 1]), unit)}{of}; correct the date, or leave out what is before"
        )
    if (np.diff(order) < 0).any():
        notify_once(f"{table.source}: the rows are not in the order of their dates; they were sorted")
    if gaps := int(whole[-1]) + 1 - len(order):
        label = grid.label(int(whole[np.argmax(np.diff(whole) > 1)]) + 1)
        notify_once(f"{table.source}: {gaps:,} of {whole[-1] + 1:,} steps{of} are missing, the first at {label}")
    return Series(name, spread(values[order], whole), spread(covariates[order], whole), grid)


def spread(rows: np.ndarray, steps: np.ndarray) -> np.ndarray:
    """Rows at their steps, NaN between them."""
    filled = np.full((int(steps[-1]) + 1, rows.shape[1]), np.nan)
    filled[steps] = rows
    return filled


def as_csv(table: Table) -> str:
    """A table as the text of a CSV file."""
    names, rows = header_of(table)
    out = io.StringIO()
    csv.writer(out, lineterminator="\n").writerows([names, *(row for _, row in rows)])
    return out.getvalue()
