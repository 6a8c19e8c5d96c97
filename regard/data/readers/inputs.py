"""The texts of a file as inputs of a trained model, with the rows that they stand in: lines, or a table of any format,
whose header and other columns, such as the label, are no text."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from regard.data.readers.columns import (
    JOIN,
    by_name,
    cell_of,
    check_width,
    choose_columns,
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

    @property
    def empty(self) -> list[int]:
        """The indices of texts that hold nothing but space."""
        return [index for index, text in enumerate(self.texts) if not text.strip()]

    def place(self, index: int) -> str:
        """The place of a text in its file: "line 7"."""
        return f"{self.unit} {index + 1 if self.numbers is None else self.numbers[index]}"


def read_inputs(path: Path, columns: Mapping[str, str] | None = None) -> Inputs:
    """The texts of a file. `columns` are those of a model's training, {"text": "subject+body"}: where the table has
    them they are read, otherwise those with a usual name."""
    if not is_table(path):
        return Inputs(read_lines(path))
    aliases = [alias for known in FIELDS.values() for alias in known]
    stored = read_table(path, [*aliases, *names_of(columns or {})])
    table, own, _ = join_columns(stored, present(stored, columns or {}))
    if table.cells is None or stored.cells is None:
        texts, seconds = of_objects(table, own)
        numbers, rows = [number for number, _ in stored.objects], [row for _, row in stored.objects]
    else:
        check_width(table)
        fields, header = of_cells(table, own)
        body = [cells for _, cells in table.cells[header:]]
        texts = [cells[fields["text"]] for cells in body]
        seconds = [cells[fields["second"]] for cells in body] if "second" in fields else None
        names = column_names(stored, fields, header)
        numbers = [number for number, _ in stored.cells[header:]]
        rows = [dict(zip(names, cells, strict=True)) for _, cells in stored.cells[header:]]
    return Inputs(texts, seconds, rows, numbers, table.unit, table.separator)


def present(table: Table, columns: Mapping[str, str]) -> dict[str, str]:
    """The columns of a training that a table has, under the names of its fields."""
    named = {"text": columns.get("text", columns.get("prompt", "")), "second": columns.get("second", "")}
    names = names_in(table)

    def has(theirs: str) -> bool:
        try:
            return theirs in names or all(index_of(part.strip(), names, table) >= 0 for part in theirs.split(JOIN))
        except ValueError:
            return False

    return {name: theirs for name, theirs in named.items() if theirs and has(theirs)}


def of_objects(table: Table, own: Mapping[str, str]) -> tuple[list[str], list[str] | None]:
    """The texts of a table of objects and, where it has them, the second texts; a row without the usual text field may
    have its text under another known name."""
    names = names_in(table)
    fields = {name: names[index] for name, index in by_name(names, FIELDS, own).items()}
    if "text" not in fields:
        raise ValueError(f"{table.source}: no text, only {', '.join(map(repr, names))}; call its field text")
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


def of_cells(table: Table, own: Mapping[str, str]) -> tuple[dict[str, int], bool]:
    """The index of the column of each field in a table of cells, and whether its first row is a header."""
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
        shown = ", ".join(map(repr, names[:6]))
        raise ValueError(f"{table.source}: which column is the text? Give it a header with text; got {shown}") from None
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
