"""One reader for tables of all formats: a file, a folder that `datasets` saved, or the name of a dataset on the Hub."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from regard.data.notices import notify_once
from regard.data.readers.arrow import SUFFIXES as ARROW
from regard.data.readers.arrow import Names, read_arrow
from regard.data.readers.cells import Cells, read_cells
from regard.data.readers.hub_sets import HUB, fetch_set
from regard.data.readers.objects import Objects, read_objects
from regard.data.readers.packed import PACKED, kind_of
from regard.data.readers.text_files import as_text, read_bytes

CELLS = (".csv", ".tsv", ".tab")
LINES = (".jsonl", ".ndjson")
SUFFIXES = (".jsonl", ".csv", ".tsv", ".json", ".parquet", ".arrow", ".feather")
"""The formats that errors name."""
CURES = {
    ".xlsx": "save it as CSV UTF-8 in the spreadsheet",
    ".xls": "save it as CSV UTF-8 in the spreadsheet",
    ".ods": "save it as CSV UTF-8 in the spreadsheet",
    ".pkl": "pickles can run code and are never loaded; save it with to_parquet or to_json(orient='records')",
    ".pickle": "pickles can run code and are never loaded; save it with to_parquet or to_json(orient='records')",
    ".zip": "unpack it with unzip, and name the file inside",
    ".tgz": "unpack it with tar -xzf, and name the file inside",
    ".tar": "unpack it with tar -xf, and name the file inside",
    ".h5": "save it as .parquet or .csv",
    ".db": "export the table as CSV",
    ".sqlite": "export the table as CSV",
    ".xml": "convert it to .csv or .jsonl",
    ".md": "convert it to .csv or .jsonl",
}
"""Formats that are not read, and what to do instead."""


@dataclass(frozen=True, slots=True)
class Table:
    """The rows of a source with their numbers: cells, of which the first row may be a header, or named fields."""

    source: Path
    about: str
    """The format in words."""
    cells: Cells | None = None
    objects: Objects = field(default_factory=list)
    unit: str = "line"
    """The name of a numbered row in errors: a line of a file, an item of an array, a row of a table."""
    names: Names = field(default_factory=dict)
    """The names of the classes of columns that hold their numbers."""
    separator: str = ","
    """The character between cells."""

    def __len__(self) -> int:
        return len(self.objects if self.cells is None else self.cells)


def read_table(source: str | Path, known: Iterable[str] = (), shown: str = "{…}", kind: str | None = None) -> Table:
    """The rows of a source. `known` are names that a header may have; `kind` is the suffix, where it is another."""
    path, name = Path(source), str(source)
    if name.startswith(HUB):
        rows, names = read_arrow(fetch_set(name))
        return Table(path, "a dataset of the Hub", objects=numbered(rows), unit="row", names=names)
    kind = kind or kind_of(path)
    packed = f", packed as {path.suffix.lower()}" if path.suffix.lower() in PACKED else ""
    if path.is_dir() and (saved := saved_set(path)):
        rows, names = read_arrow(saved)
        return Table(path, "a dataset saved by `datasets`", objects=numbered(rows), unit="row", names=names)
    if kind in ARROW:
        if packed:
            raise ValueError(f"{path} is packed, but parquet and arrow files are compressed inside; unpack it")
        rows, names = read_arrow([path])
        about = "parquet" if kind in (".parquet", ".pq") else "arrow"
        return Table(path, about, objects=numbered(rows), unit="row", names=names)
    raw = read_bytes(path, folder="a file", empty="examples")
    text = as_text(raw, path)
    if kind in CELLS:
        cells, dialect = read_cells(
            text.removesuffix("\n").split("\n"), path, ".csv" if kind == ".csv" else ".tsv", known
        )
        return Table(path, f"a table {dialect.words()}{packed}", cells=cells, separator=dialect.separator)
    objects, unit, about = read_objects(text, path, kind in LINES, shown)
    return Table(path, about + packed, objects=objects, unit=unit)


def numbered(rows: list[dict[str, Any]]) -> Objects:
    """Rows with their numbers, from 1."""
    return list(enumerate(rows, 1))


def is_table(source: str | Path) -> bool:
    """Whether a source is a table by its name."""
    kind = kind_of(source)
    if str(source).startswith(HUB) or kind in (*CELLS, *LINES, ".json", *ARROW):
        return True
    return Path(source).is_dir() and bool(saved_set(Path(source)))


def saved_set(folder: Path) -> list[Path]:
    """The arrow files of a folder that `Dataset.save_to_disk` wrote; of several parts, those of the training set."""
    if (folder / "dataset_dict.json").is_file():
        folder = folder / "train"
    return sorted(folder.glob("*.arrow")) if (folder / "state.json").is_file() else []


def report_skipped(table: Table, causes: Mapping[str, Sequence[int]], count: int) -> None:
    """Print how many of `count` rows were skipped for each cause; raise an error where they are the larger part.

    `causes` maps each error to the numbers of its rows.
    """
    skipped = sum(map(len, causes.values()))
    if 2 * skipped > count:
        error, numbers = next(iter(causes.items()))
        raise ValueError(f"{table.source}, {table.unit} {numbers[0]}: {error}")
    parts = []
    for error, numbers in causes.items():
        places = f"{table.unit} {numbers[0]}" + ", …" * (len(numbers) > 1)
        parts.append(f"{error.partition(';')[0]} in {len(numbers):,} ({places})")
    notify_once(
        f"{table.source}: skipped {skipped:,} of {count:,} rows: {', '.join(parts)}; --data.strict stops instead"
    )


def refusal(source: str | Path, task: str, kinds: Iterable[str]) -> str:
    """The error for a source whose suffix is none of these kinds."""
    path = Path(source)
    cure = CURES.get(kind_of(path), "convert it, or rename it to what it is")
    return f"{path}: {task} reads {', '.join(kinds)} files; {cure}"
