"""The texts of a file, or of all that match a pattern, as inputs of a trained model, with the rows that they stand in:
lines, or a table of any format, whose header and other columns, such as the label, are no text."""

import glob
from bisect import bisect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatch
from itertools import accumulate
from pathlib import Path
from typing import Any

from regard.config import nearest
from regard.data.readers.columns import (
    JOIN,
    by_name,
    cell_of,
    check_width,
    choose_columns,
    columns_in,
    guess_fields,
    header_like,
    index_of,
    join_columns,
    names_in,
    names_of,
)
from regard.data.readers.examples import KNOWN
from regard.data.readers.tables import Table, is_table, read_table
from regard.data.readers.text_files import read_lines

FIELDS = {**KNOWN["classify"], "text": ("prompt", *KNOWN["classify"]["text"], "source", "instruction")}
"""The fields of a table of inputs, and the names that they go by; a label may be there, and is not read."""


@dataclass(frozen=True, slots=True)
class Inputs:
    """Texts, and the row of the user's file that each stands in."""

    texts: list[str]
    """An empty text where the cell is empty."""
    seconds: list[str] | None = None
    """The second texts of a table of pairs."""
    rows: list[dict[str, Any]] | None = None
    """All fields of each row by the user's names; none for plain lines."""
    numbers: list[int] | None = None
    """The line, item or row of each text; none: counted from 1."""
    unit: str = "line"
    separator: str = ","
    """The character between the columns of the table."""
    files: tuple[Path, ...] = ()
    """The files that the texts come from."""
    starts: tuple[int, ...] = (0,)
    """The index of the first text of each of them."""

    @property
    def empty(self) -> list[int]:
        """The indices of texts that hold nothing but space."""
        return [index for index, text in enumerate(self.texts) if not text.strip()]

    def place(self, index: int) -> str:
        """The place of a text in its file: "line 7"; of several files with the file's name."""
        place = f"{self.unit} {index + 1 if self.numbers is None else self.numbers[index]}"
        return f"{self.files[bisect(self.starts, index) - 1]}, {place}" if len(self.files) > 1 else place


PATTERN = "*?["
"""Characters that make a path a pattern."""


def matching(path: Path) -> list[Path]:
    """The files that a pattern such as corpus/*.jsonl stands for, by name; a path that is no pattern is its own."""
    if path.exists() or not any(character in str(path) for character in PATTERN):
        return [path]
    files = sorted(file for name in glob.glob(str(path), recursive=True) if (file := Path(name)).is_file())
    if not files:
        raise ValueError(f"{path}: no file matches; quote the pattern, and look with: ls {path}")
    return files


def matches(file: Path, pattern: Path) -> bool:
    """Whether a file would be one of those that a pattern stands for."""
    return not pattern.exists() and fnmatch(str(file.resolve()), str(pattern.absolute()))


def read_inputs(path: Path, columns: Mapping[str, str] | None = None, named: Mapping[str, str] | None = None) -> Inputs:
    """The texts of a file, or of all files that match a pattern. `columns` are those of a model's training, {"text":
    "subject+body"}: where the table has them they are read, otherwise those with a usual name. Those that the user
    `named` must be there."""
    files = matching(path)
    return joined([read_file(file, columns or {}, named or {}) for file in files], files)


def joined(parts: Sequence[Inputs], files: Sequence[Path]) -> Inputs:
    """The inputs of several files, one after the other."""
    first, starts = parts[0], tuple(accumulate([len(part.texts) for part in parts[:-1]], initial=0))
    for part, file in zip(parts, files, strict=True):
        for what, ours, theirs in (("rows", first.rows, part.rows), ("second texts", first.seconds, part.seconds)):
            if (ours is None) != (theirs is None):
                having, lacking = (file, files[0]) if ours is None else (files[0], file)
                raise ValueError(f"{having} has {what}, and {lacking} has none; give files of one format")
    if len(parts) == 1:
        return replace(first, files=tuple(files))

    def every(name: str) -> Any:
        return None if getattr(first, name) is None else [one for part in parts for one in getattr(part, name)]

    numbers = [number for part in parts for number in part.numbers or range(1, len(part.texts) + 1)]
    return replace(
        first, texts=every("texts"), seconds=every("seconds"), rows=every("rows"), numbers=numbers, files=tuple(files),
        starts=starts,
    )  # fmt: skip


def read_file(path: Path, columns: Mapping[str, str], named: Mapping[str, str]) -> Inputs:
    """The texts of one file."""
    for name in named:
        if name not in FIELDS:
            raise ValueError(f"--columns: an input has no {name!r}; {nearest(name, FIELDS)}")
    if not is_table(path):
        if named:
            raise ValueError(f"{path} is read as a text a line; leave out --columns, or give a table such as .csv")
        return Inputs(read_lines(path))
    trained = {"text": columns.get("text", columns.get("prompt", "")), "second": columns.get("second", "")}
    aliases = [alias for known in FIELDS.values() for alias in known]
    named = {name: theirs for name, theirs in named.items() if name in trained}  # a label is not read
    stored = read_table(path, [*aliases, *names_of(trained), *names_of(named)])
    check_named(stored, named)
    own = present(stored, {name: theirs for name, theirs in trained.items() if theirs and name not in named})
    table, own, _ = join_columns(stored, own | named)
    if table.cells is None or stored.cells is None:
        texts, seconds = of_objects(table, own, trained["text"])
        numbers, rows = [number for number, _ in stored.objects], [row for _, row in stored.objects]
    else:
        check_width(table)
        fields, header = of_cells(table, own, trained["text"])
        body = [cells for _, cells in table.cells[header:]]
        texts = [cells[fields["text"]] for cells in body]
        seconds = [cells[fields["second"]] for cells in body] if "second" in fields else None
        names = column_names(stored, fields, header)
        numbers = [number for number, _ in stored.cells[header:]]
        rows = [dict(zip(names, cells, strict=True)) for _, cells in stored.cells[header:]]
    return Inputs(texts, seconds, rows, numbers, table.unit, table.separator)


def check_named(table: Table, columns: Mapping[str, str]) -> None:
    """Raise an error for a column that a table does not have; of several that are joined, for each."""
    names = names_in(table)
    for theirs in columns.values():
        for part in [] if theirs in names else theirs.split(JOIN):
            index_of(part.strip(), names, table)


def present(table: Table, columns: Mapping[str, str]) -> dict[str, str]:
    """The columns of a training that a table has, by field; raise an error where it has a part of those joined."""
    chosen = {}
    for name, theirs in columns.items():
        parts = [theirs] if has(table, theirs) else [part.strip() for part in theirs.split(JOIN)]
        missing = [part for part in parts if not has(table, part)]
        if not missing:
            chosen[name] = theirs
        elif len(missing) < len(parts):
            raise no_column(table, missing[0])
    return chosen


def has(table: Table, column: str) -> bool:
    """Whether a table has a column of this name or number."""
    try:
        return index_of(column, names_in(table), table) >= 0
    except ValueError:
        return False


def no_column(table: Table, trained: str) -> ValueError:
    """The error for a table without a text: the column wanted, those that it has, and the option to name one."""
    names = names_in(table)
    rows = [[cell_of(row.get(name)) for name in names] for _, row in table.objects[:1000]]
    rows = rows if table.cells is None else [cells for _, cells in table.cells[1:1000]]
    text = guess_fields(columns_in(rows), ("text", "label")).get("text")
    header = table.cells is None or header_like(names, rows) is not False
    guess = "NAME" if text is None or text >= len(names) else names[text] if header else text + 1
    wanted = f"no column {trained!r}, as in training" if trained else "no column with the name of a text"
    shown = ", ".join(map(repr, names[:8])) + ", …" * (len(names) > 8)
    return ValueError(f"{table.source}: {wanted}, only {shown}; name the one to read: --columns text={guess}")


def of_objects(table: Table, own: Mapping[str, str], trained: str) -> tuple[list[str], list[str] | None]:
    """The texts of a table of objects and, where it has them, the second texts; a row without the usual text field may
    have its text under another known name. An error names the column that was `trained` on."""
    names = names_in(table)
    fields = {name: names[index] for name, index in by_name(names, FIELDS, own).items()}
    if "text" not in fields:
        raise no_column(table, trained)
    others = [] if "second" in fields or own else [alias for alias in FIELDS["text"] if alias in names]
    texts = []
    for number, row in table.objects:
        values = [row.get(name) for name in (fields["text"], *others)]
        text = next((value for value in values if isinstance(value, str)), values[0])
        if not isinstance(text, str) and cell_of(text):
            raise ValueError(f"{table.source}, {table.unit} {number}: its text is {str(text)[:40]}; put it in quotes")
        texts.append(cell_of(text))
    seconds = [cell_of(row.get(fields["second"])) for _, row in table.objects] if "second" in fields else None
    return texts, seconds


def of_cells(table: Table, own: Mapping[str, str], trained: str) -> tuple[dict[str, int], bool]:
    """The index of the column of each field in a table of cells, and whether its first row is a header. An error names
    the column that was `trained` on."""
    assert table.cells is not None
    names = names_in(table)
    fields = by_name(names, FIELDS, own)
    rest = [cells for _, cells in table.cells[1:1000]]
    if "text" in fields and (own or "text" in map(str.lower, names) or header_like(names, rest) is not False):
        return fields, True
    if len(names) == 1:
        return {"text": 0}, False
    try:
        chosen = choose_columns(table, FIELDS, ("second", "label") if own else ("second",), own)
    except ValueError:
        raise no_column(table, trained) from None
    return chosen.fields, bool(chosen.header)


def column_names(table: Table, fields: Mapping[str, int], header: bool) -> list[str]:
    """A name for each column: those of the header, where a name that occurs again gets its number; without one, those
    of fields, and numbers."""
    ours = {index: name for name, index in fields.items()}
    names: list[str] = []
    for index, name in enumerate(names_in(table)):
        name = name if header else ours.get(index, f"column {index + 1}")
        names.append(f"{name} {index + 1}".strip() if name in names else name)
    return names
