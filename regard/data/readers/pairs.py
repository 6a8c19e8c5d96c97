"""Pairs of texts: two files line by line, or one table."""

from pathlib import Path
from typing import Any

from regard.data.readers.packed import kind_of
from regard.data.readers.tables import SUFFIXES, is_table, read_table
from regard.data.readers.text_files import read_lines

Pairs = list[tuple[str, str]]


def read_pairs(source: str | None, target: str | None, pairs: str | None, keys: tuple[str, ...]) -> Pairs:
    """All pairs of two files, or of one, in order; also those with an empty side, so that lines can be counted."""
    if pairs is not None:
        path = Path(pairs)
        if not is_table(path):
            kinds = ", ".join(SUFFIXES)
            raise ValueError(f"{path}: pairs come as {kinds}; two text files go in as source and target")
        rows = tabbed(path) if kind_of(path) == ".tsv" else paired(path, keys)
    else:
        assert source is not None and target is not None
        left, right = read_lines(Path(source)), read_lines(Path(target))
        if len(left) != len(right):
            raise ValueError(
                f"{source} has {len(left):,} lines, {target} has {len(right):,}; "
                "line by line they must be translations of each other"
            )
        rows = list(zip(left, right, strict=True))
    if not any(s.strip() and t.strip() for s, t in rows):
        raise ValueError(f"{pairs or source}: no pair has text on both sides")
    return rows


def tabbed(path: Path) -> Pairs:
    """The pairs of a file with a tab between the two texts of a line."""
    rows = []
    for number, line in enumerate(read_lines(path), 1):
        parts = line.split("\t") if line.strip() else ["", ""]
        if len(parts) != 2:
            raise ValueError(f"{path}, line {number}: a pair is two texts with a tab between, got {len(parts)}")
        rows.append((parts[0], parts[1]))
    return rows


def paired(path: Path, keys: tuple[str, ...]) -> Pairs:
    """The pairs of a table: two fields or, as in datasets of the Hub, both under `translation`; or two columns."""
    if kind_of(path) in (".jsonl", ".ndjson"):  # blank lines are counted
        blank = [number for number, line in enumerate(read_lines(path), 1) if not line.strip()]
    table = read_table(path, keys)
    if table.cells is not None:
        names = [cell.strip() for cell in table.cells[0][1]]
        header = all(key in names for key in keys)
        columns = [names.index(key) for key in keys] if header else [0, 1]
        if not header and len(names) != 2:
            raise ValueError(
                f"{path}, line 1: no columns {keys[0]!r} and {keys[1]!r}; --data.keys names the two fields"
            )
        rows = []
        for number, cells in table.cells[header:]:
            if len(cells) != len(names):
                raise ValueError(f"{path}, line {number}: got {len(cells)} columns, but {len(names)} in the first line")
            rows.append((cells[columns[0]], cells[columns[1]]))
        return rows
    pairs: dict[int, tuple[str, str]] = {}
    for number, row in table.objects:
        both: Any = row.get("translation") if isinstance(row.get("translation"), dict) else row
        names = list(keys)
        if both is not row and len(both) == 2 and not all(key in both for key in keys):
            names = list(both)
        for key in names:
            if not isinstance(both.get(key), str):
                raise ValueError(
                    f"{path}, {table.unit} {number}: no text under {key!r}; --data.keys names the two fields"
                )
        pairs[number] = (both[names[0]], both[names[1]])
    if kind_of(path) in (".jsonl", ".ndjson"):
        pairs |= dict.fromkeys(blank, ("", ""))
    return [pairs[number] for number in sorted(pairs)]
