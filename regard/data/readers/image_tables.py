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
"""What the column of paths may be called."""
KNOWN = {
    "label": ("label", "class", "category", "target"),
    "caption": ("caption", "text", "sentence", "description", "comment", "title"),
}
"""The same of what is said of an image, the first that occurs; of captions also in the plural, or several with
numbers: caption1 …"""
Rows = Iterator[tuple[int, str, list[str]]]


def lists_images(table: Path) -> bool:
    """Whether the first rows of a table name image files."""
    if table.suffix.lower() == ".jsonl":
        cells = [str(value) for _, row in islice(read_objects(table, ("path",), {}), 2) for value in row.values()]
    else:
        cells = [cell for _, row in islice(read_cells(table), 2) for cell in row]
    return any(map(is_image, cells))


def read_table(table: Path, what: str) -> Rows:
    """Line, path, and what is said of each image: its `label`, one `caption` or several, or ("") nothing."""
    found = False
    for number, path, said in (object_rows if table.suffix.lower() == ".jsonl" else cell_rows)(table, what):
        if not path or what and not said:
            empty = what if path else "path"
            raise ValueError(f"{table}, line {number}: the {empty} is empty; fill it, or leave out the line")
        found = True
        yield number, path, said
    if not found:
        raise ValueError(f"{table}: not one image; a header alone is no data")


def object_rows(table: Path, what: str) -> Rows:
    """Of a .jsonl; captions are a text or a list of texts, labels may be numbers."""
    for number, row in read_objects(table, ("path", what), {}):
        where = f"{table}, line {number}: "
        path = next((row[key] for key in row if key.lower() in PATHS), None)
        if not isinstance(path, str):
            raise ValueError(where + missing("path", PATHS, row))
        values = [list(row.values())[i] for i in places_of(row, what)]
        if what and not values:
            raise ValueError(where + missing(what, KNOWN[what], row))
        if what == "label":
            values = [json.dumps(one) if isinstance(one, int) else one for one in values[:1]]
        texts: list[Any] = [
            text for one in values for text in (one if isinstance(one, list) and what == "caption" else [one])
        ]
        if not all(isinstance(text, str) for text in texts):
            kinds = "a text or a whole number" if what == "label" else "a text or a list of texts"
            raise ValueError(f"{where}a {what} is {kinds}; put it in quotes")
        yield number, path.strip(), [text.strip() for text in texts if text.strip()]


def cell_rows(table: Path, what: str) -> Rows:
    """Of a .csv or .tsv; a first row that names an image is no header: there the path comes first."""
    rows = read_cells(table)
    number, first = next(rows)
    names = [cell.strip().lower() for cell in first]
    place = next((i for i, name in enumerate(names) if name in PATHS), None)
    said = places_of(names, what)
    unknown = place is None and not said
    if any(map(is_image, first)) or unknown and (table.parent / first[0].strip()).is_file():
        if what and len(first) < 2 or what == "label" and len(first) > 2:
            count = "one column" if len(first) < 2 else f"{len(first)} columns"
            raise ValueError(f"{table}, line {number}: got {count}; give the path and the {what}")
        place, said = 0, list(range(1, len(first)))
        yield number, first[0].strip(), [cell.strip() for cell in first[1:] if cell.strip()]
    elif place is None or what and not said:
        lacks = missing("path", PATHS, names) if place is None else missing(what, KNOWN[what], names)
        raise ValueError(f"{table}, line {number}: the header has {lacks}")
    for number, cells in rows:
        if len(cells) != len(first):
            raise ValueError(
                f"{table}, line {number}: got {len(cells)} columns, but {len(first)} in the first line; "
                f"put {what or 'text'}s with commas in quotes"
            )
        yield number, cells[place].strip(), [cells[i].strip() for i in said if cells[i].strip()]


def places_of(names: Iterable[str], what: str) -> list[int]:
    """Which of these columns hold it: label; caption, captions, Caption 3 …"""
    stems = [name.lower() for name in names]
    if what == "caption":
        stems = [name.rstrip("0123456789").rstrip("_ -").removesuffix("s") for name in stems]
    word = next((word for word in KNOWN.get(what, ()) if word in stems), None)
    return [i for i, stem in enumerate(stems) if stem == word]


def missing(what: str, known: Sequence[str], names: Any) -> str:
    """What to say of a table without a column."""
    return f"no {what}, only {', '.join(map(repr, names)) or 'nothing'}; call its column {' or '.join(known)}"
