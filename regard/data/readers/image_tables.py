"""Tables of images: in each row of a table of any format a path, and perhaps its label or its captions."""

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from regard.data.readers.image_files import is_image
from regard.data.readers.packed import kind_of
from regard.data.readers.tables import Table
from regard.data.readers.tables import read_table as read_rows
from regard.data.readers.text_files import as_text, read_bytes

TABLES = (".csv", ".tsv", ".jsonl", ".json", ".parquet", ".arrow", ".feather")
PATHS = (
    "path", "image", "file", "filename", "file_name", "filepath", "file_path", "image_name", "image_path", "img",
    "picture",
)  # fmt: skip
"""Names of the column of paths."""
KNOWN = {
    "label": ("label", "class", "category", "target"),
    "caption": ("caption", "text", "sentence", "description", "comment", "title"),
}
"""Names of the column of labels or captions; the first that occurs is read. Captions may have several columns,
in the plural or with numbers: caption1 …"""
Rows = Iterator[tuple[int, str, list[str]]]


def lists_images(table: Path) -> bool:
    """Whether the first rows of a table name image files."""
    if kind_of(table) == ".txt":
        return any(is_image(begin) for begin in begins(table))
    rows = open_table(table)
    cells = [cell for _, row in (rows.cells or [])[:2] for cell in row]
    cells += [str(value) for _, row in rows.objects[:2] for value in row.values()]
    return any(map(is_image, cells))


def is_image_table(table: Path) -> bool:
    """Whether a file is a table by its suffix, or a .txt whose lines begin with image files."""
    return kind_of(table) in TABLES or kind_of(table) == ".txt" and table.is_file() and lists_images(table)


def begins(table: Path) -> list[str]:
    """The first cells of the first lines of a text file: of `a.png,A dog`, `a.png#0<tab>A dog` and `a.png|0| A dog`."""
    lines = as_text(read_bytes(table, folder="a table", empty="an image a line"), table).split("\n")[:2]
    return [re.split("[\t,|#]", line)[0] for line in lines]


def open_table(table: Path) -> Table:
    """The rows of a table of images; a .txt has the layout of a .tsv or a .csv."""
    kind = None
    if kind_of(table) == ".txt":
        raw = as_text(read_bytes(table, folder="a table", empty="an image a line"), table)
        kind = ".tsv" if "\t" in raw.partition("\n")[0] else ".csv"
    known = [*PATHS, *(name for names in KNOWN.values() for name in names)]
    return read_rows(table, known, '{"path": …, "label": …}', kind)


def read_table(table: Path, column: str) -> Rows:
    """Line, path and texts of each image: its `label`, one `caption` or more or, for column "", none."""
    empty_table, rows = True, open_table(table)
    for number, path, texts in (object_rows if rows.cells is None else cell_rows)(rows, column):
        if not path or column and not texts:
            empty = column if path else "path"
            raise ValueError(f"{table}, {rows.unit} {number}: the {empty} is empty; fill it, or leave out the line")
        empty_table = False
        yield number, path, texts
    if empty_table:
        raise ValueError(f"{table}: not one image; a header alone is no data")


def object_rows(table: Table, column: str) -> Rows:
    """The rows of a table with named fields; captions are a text or a list of texts, labels may be numbers."""
    for number, row in table.objects:
        where = f"{table.source}, {table.unit} {number}: "
        key = next((key for key in row if key.lower() in PATHS), None)
        path = row[key] if key is not None else None
        if isinstance(path, dict) and "bytes" in path:
            raise ValueError(f"{where}the image itself is in the table; save the images as files with their labels")
        if not isinstance(path, str):
            raise ValueError(where + missing("path", PATHS, row))
        columns = columns_of(row, column)
        values, names = (
            [list(row.values())[i] for i in columns],
            table.names.get(list(row)[columns[0]] if columns else ""),
        )
        if column and not values:
            raise ValueError(where + missing(column, KNOWN[column], row))
        if column == "label":
            values = [spelled(value, names) if isinstance(value, int) else value for value in values[:1]]
        texts: list[Any] = [
            text for value in values for text in (value if isinstance(value, list) and column == "caption" else [value])
        ]
        if not all(isinstance(text, str) for text in texts):
            kinds = "a text or a whole number" if column == "label" else "a text or a list of texts"
            raise ValueError(f"{where}a {column} is {kinds}; put it in quotes")
        yield number, path.strip(), [text.strip() for text in texts if text.strip()]


def spelled(label: int, names: Sequence[str] | None) -> str:
    """A label that is a number by its name, where there are names."""
    return names[label] if names and 0 <= label < len(names) else json.dumps(label)


def cell_rows(table: Table, column: str) -> Rows:
    """Yield number, path and texts of each row of a table of cells. If the first row names an image file, there is no
    header and the path is the first column."""
    assert table.cells is not None
    rows, source = iter(table.cells), table.source
    number, first = next(rows, (1, [""]))
    names = [cell.strip().lower() for cell in first]
    path_column = next((i for i, name in enumerate(names) if name in PATHS), None)
    texts = columns_of(names, column)
    unknown = path_column is None and not texts
    if any(is_image(without_number(cell)) for cell in first) or (
        unknown and first[0].strip() and (source.parent / first[0].strip()).is_file()
    ):
        if column and len(first) < 2 or column == "label" and len(first) > 2:
            count = "one column" if len(first) < 2 else f"{len(first)} columns"
            raise ValueError(f"{source}, line {number}: got {count}; give the path and the {column}")
        path_column, texts = 0, list(range(1, len(first)))
        yield number, without_number(first[0]), [cell.strip() for cell in first[1:] if cell.strip()]
    elif path_column is None or column and not texts:
        lacks = missing("path", PATHS, names) if path_column is None else missing(column, KNOWN[column], names)
        raise ValueError(f"{source}, line {number}: the header has {lacks}")
    for number, cells in rows:
        if len(cells) > len(first) == 2 and path_column == 0 and kind_of(source) == ".txt":
            cells = [cells[0], ",".join(cells[1:])]  # a caption with commas that are not in quotes
        if len(cells) != len(first):
            raise ValueError(
                f"{source}, line {number}: got {len(cells)} columns, but {len(first)} in the first line; "
                f"put {column or 'text'}s with commas in quotes"
            )
        yield number, without_number(cells[path_column]), [cells[i].strip() for i in texts if cells[i].strip()]


def without_number(cell: str) -> str:
    """The path in a cell; Flickr's lists number the captions of an image: dog.jpg#0."""
    path, mark, number = cell.strip().rpartition("#")
    return path if mark and number.isdigit() and is_image(path) else cell.strip()


def columns_of(names: Iterable[str], column: str) -> list[int]:
    """The indices of the columns with labels or captions: label; caption, captions, Caption 3 …"""
    stems = [name.lower() for name in names]
    if column == "caption":
        stems = [name.rstrip("0123456789").rstrip("_ -").removesuffix("s") for name in stems]
    word = next((word for word in KNOWN.get(column, ()) if word in stems), None)
    return [i for i, stem in enumerate(stems) if stem == word]


def missing(column: str, known: Sequence[str], names: Any) -> str:
    """The part of an error message about a column that a table lacks."""
    return f"no {column}, only {', '.join(map(repr, names)) or 'nothing'}; call its column {' or '.join(known)}"
