"""Tables of images: in each row of a .csv, .tsv or .jsonl a path, and perhaps its label or its captions."""

import json
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from regard.data.readers.examples import read_cells, read_objects
from regard.data.readers.image_files import is_image

TABLES = (".csv", ".tsv", ".jsonl")
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
    if table.suffix.lower() == ".jsonl":
        cells = [str(value) for _, row in islice(read_objects(table, ("path",), {}), 2) for value in row.values()]
    else:
        cells = [cell for _, row in islice(read_cells(table), 2) for cell in row]
    return any(map(is_image, cells))


def read_table(table: Path, column: str) -> Rows:
    """Line, path and texts of each image: its `label`, one `caption` or more or, for column "", none."""
    empty_table = True
    for number, path, texts in (object_rows if table.suffix.lower() == ".jsonl" else cell_rows)(table, column):
        if not path or column and not texts:
            empty = column if path else "path"
            raise ValueError(f"{table}, line {number}: the {empty} is empty; fill it, or leave out the line")
        empty_table = False
        yield number, path, texts
    if empty_table:
        raise ValueError(f"{table}: not one image; a header alone is no data")


def object_rows(table: Path, column: str) -> Rows:
    """The rows of a .jsonl; captions are a text or a list of texts, labels may be numbers."""
    for number, row in read_objects(table, ("path", column), {}):
        where = f"{table}, line {number}: "
        path = next((row[key] for key in row if key.lower() in PATHS), None)
        if not isinstance(path, str):
            raise ValueError(where + missing("path", PATHS, row))
        values = [list(row.values())[i] for i in columns_of(row, column)]
        if column and not values:
            raise ValueError(where + missing(column, KNOWN[column], row))
        if column == "label":
            values = [json.dumps(value) if isinstance(value, int) else value for value in values[:1]]
        texts: list[Any] = [
            text for value in values for text in (value if isinstance(value, list) and column == "caption" else [value])
        ]
        if not all(isinstance(text, str) for text in texts):
            kinds = "a text or a whole number" if column == "label" else "a text or a list of texts"
            raise ValueError(f"{where}a {column} is {kinds}; put it in quotes")
        yield number, path.strip(), [text.strip() for text in texts if text.strip()]


def cell_rows(table: Path, column: str) -> Rows:
    """The rows of a .csv or .tsv; without a header, which no row with an image file is, the path comes first."""
    rows = read_cells(table)
    number, first = next(rows)
    names = [cell.strip().lower() for cell in first]
    path_column = next((i for i, name in enumerate(names) if name in PATHS), None)
    texts = columns_of(names, column)
    unknown = path_column is None and not texts
    if any(map(is_image, first)) or unknown and (table.parent / first[0].strip()).is_file():
        if column and len(first) < 2 or column == "label" and len(first) > 2:
            count = "one column" if len(first) < 2 else f"{len(first)} columns"
            raise ValueError(f"{table}, line {number}: got {count}; give the path and the {column}")
        path_column, texts = 0, list(range(1, len(first)))
        yield number, first[0].strip(), [cell.strip() for cell in first[1:] if cell.strip()]
    elif path_column is None or column and not texts:
        lacks = missing("path", PATHS, names) if path_column is None else missing(column, KNOWN[column], names)
        raise ValueError(f"{table}, line {number}: the header has {lacks}")
    for number, cells in rows:
        if len(cells) != len(first):
            raise ValueError(
                f"{table}, line {number}: got {len(cells)} columns, but {len(first)} in the first line; "
                f"put {column or 'text'}s with commas in quotes"
            )
        yield number, cells[path_column].strip(), [cells[i].strip() for i in texts if cells[i].strip()]


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
