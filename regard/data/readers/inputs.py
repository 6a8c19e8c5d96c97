"""The texts of a table as inputs of a trained model; its header and its other columns, such as the label, are none."""

from pathlib import Path
from typing import Any

from regard.data.readers.columns import by_name, choose_columns, header_like
from regard.data.readers.examples import KNOWN
from regard.data.readers.tables import Table, read_table

FIELDS = {**KNOWN["classify"], "text": ("prompt", *KNOWN["classify"]["text"], "source", "instruction")}
"""The fields of a table of inputs, and the names that they go by; a label may be there, and is not read."""


def read_inputs(path: Path) -> tuple[list[str], list[str] | None]:
    """The texts of a table and, where it has them, the second texts."""
    table = read_table(path, [alias for aliases in FIELDS.values() for alias in aliases])
    rows, fields = named(table) if table.cells is None else celled(table)
    for number, row in rows:
        if not isinstance(row[fields["text"]], str):
            raise ValueError(f"{path}, {table.unit} {number}: its text is {str(row[fields['text']])[:40]}; fill it")
    seconds = [str(row[fields["second"]] or "") for _, row in rows] if "second" in fields else None
    return [row[fields["text"]] for _, row in rows], seconds


def named(table: Table) -> tuple[list[tuple[int, Any]], dict[str, Any]]:
    """The rows of a table of objects, and the index of each field in a row; a row without the usual text field may have
    its text under another known name."""
    names = list(dict.fromkeys(name for _, row in table.objects[:100] for name in row))
    fields = by_name(names, FIELDS, {})
    if "text" not in fields:
        raise ValueError(f"{table.source}: no text, only {', '.join(map(repr, names))}; call its field text")
    rows = [(number, [row.get(name) for name in names]) for number, row in table.objects]
    others = [names.index(alias) for alias in FIELDS["text"] if alias in names and "second" not in fields]
    for _, row in rows:
        texts = (row[i] for i in (fields["text"], *others) if isinstance(row[i], str))
        row[fields["text"]] = next(texts, row[fields["text"]])
    return rows, fields


def celled(table: Table) -> tuple[list[tuple[int, Any]], dict[str, Any]]:
    """The rows of a table of cells without its header, and the index of each field in a row."""
    assert table.cells is not None
    width = len(table.cells[0][1])
    for number, cells in table.cells:
        if len(cells) != width:
            raise ValueError(
                f"{table.source}, line {number}: got {len(cells)} columns, but {width} in the first line; put texts in "
                "quotes, or give a .txt with a text a line"
            )
    names = [cell.strip() for cell in table.cells[0][1]]
    rest = [cells for _, cells in table.cells[1:1000]]
    fields = by_name(names, FIELDS, {})
    if "text" in fields and ("text" in map(str.lower, names) or header_like(names, rest) is not False):
        return table.cells[1:], fields
    if width == 1:
        return table.cells, {"text": 0}
    try:
        chosen = choose_columns(table, FIELDS, ("second",), {})
    except ValueError:
        shown = ", ".join(map(repr, names[:6]))
        raise ValueError(f"{table.source}: which column is the text? Give it a header with text; got {shown}") from None
    return table.cells[1:] if chosen.header else table.cells, chosen.fields
