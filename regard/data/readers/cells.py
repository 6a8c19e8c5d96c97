"""Tables of cells: which character separates the columns of a .csv or .tsv file, and how its quotes are meant."""

import ast
import csv
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, islice
from pathlib import Path
from typing import Any

SEPARATORS = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "vertical bars"}
MISSING = frozenset({"", "na", "n/a", "nan", "null", "none", "?", "-"})
"""Cells without a value among numbers, in lower case."""
LOOKED_AT = 1000
"""Rows that the choice of a separator looks at."""
LONGEST, DEEPEST = 1 << 18, 100
"""Most characters of a cell that is read as a list, and most brackets that are open in it at once."""
Cells = list[tuple[int, list[str]]]

csv.field_size_limit(1 << 27)  # a text may be a book


@dataclass(frozen=True, slots=True)
class Dialect:
    """The format of a table as text: its separator, its quotes, and the line where it begins."""

    separator: str
    quoted: bool = True
    """Whether a cell in quotes may hold the separator and newlines; otherwise quotes are characters like others."""
    escaped: bool = False
    """Whether a backslash comes before a quote in a text, as databases write it; otherwise the quote is doubled."""
    first: int = 1
    """The line where the table begins."""

    def words(self) -> str:
        """The dialect in words."""
        return f"separated by {SEPARATORS[self.separator]}" + (", quotes after backslashes" if self.escaped else "")

    def rows(self, lines: Sequence[str]) -> Iterator[tuple[int, list[str]]]:
        """The rows of a table with the line where each begins; blank lines are passed over."""
        lines = lines[self.first - 1 :]
        if not self.quoted:
            for number, line in enumerate(lines, self.first):
                if line.strip():
                    yield number, line.split(self.separator)
            return
        escapes: dict[str, Any] = {"escapechar": "\\", "doublequote": True} if self.escaped else {}
        reader = csv.reader((line + "\n" for line in lines), delimiter=self.separator, strict=True, **escapes)
        begin = self.first
        for cells in reader:
            if cells:
                yield begin, cells
            begin = reader.line_num + self.first


def read_cells(lines: Sequence[str], path: Path, kind: str, known: Iterable[str] = ()) -> tuple[Cells, Dialect]:
    """The rows of a table of this kind (.csv or .tsv) and its dialect; `known` are names that a header may have."""
    dialect = find_dialect(lines, kind, {name.lower() for name in known})
    rows: Cells = []
    try:
        for row in dialect.rows(lines):
            rows.append(row)
    except csv.Error as error:
        begin = next_line(rows, lines, dialect)
        raise ValueError(
            f"{path}, line {begin}: not CSV ({error}); put texts in quotes, and double quotes in them"
        ) from None
    return rows, dialect


def next_line(rows: Cells, lines: Sequence[str], dialect: Dialect) -> int:
    """The line where the row after these begins."""
    if not rows:
        return dialect.first
    number, cells = rows[-1]
    number += 1 + sum(cell.count("\n") for cell in cells)
    while number <= len(lines) and not lines[number - 1].strip():
        number += 1
    return number


def find_dialect(lines: Sequence[str], kind: str, known: set[str]) -> Dialect:
    """The dialect in which all rows have equally many columns; the suffix decides where several or none do so."""
    first = next((line for line in lines if line.strip()), "").strip()
    if first.lower().startswith("sep=") and len(first) == 5 and first[4] in SEPARATORS:  # written by a spreadsheet
        return Dialect(first[4], first=list(lines).index(next(line for line in lines if line.strip())) + 2)
    if kind == ".tsv":
        return find_tabs(lines, known)
    fitting = {
        dialect: columns for separator in SEPARATORS for escaped in (False, True)
        if (columns := width(dialect := Dialect(separator, escaped=escaped), lines)) > 1
    }  # fmt: skip
    if not fitting:
        return Dialect(",")
    named = [dialect for dialect in fitting if known & names(dialect, lines)]
    return (named or list(fitting))[0]


def find_tabs(lines: Sequence[str], known: set[str]) -> Dialect:
    """The dialect of a .tsv: quotes are characters, unless cells hold doubled quotes, tabs or newlines in quotes."""
    plain, quoted = Dialect("\t", quoted=False), Dialect("\t")
    columns = width(plain, lines)
    if width(quoted, lines) > 1 and (columns < 2 or doubles_quotes(lines)):
        return quoted
    if columns == 1:  # no tab anywhere: perhaps a .csv under another name, which its header tells
        for separator in ",;|":
            other = Dialect(separator)
            if width(other, lines) > 1 and known & names(other, lines):
                return other
    return plain


def doubles_quotes(lines: Sequence[str]) -> bool:
    """Whether every cell that begins with a quote ends with one, and quotes inside of them are doubled; some are."""
    cells = [cell for line in lines[:LOOKED_AT] for cell in line.split("\t") if cell.startswith('"')]
    inner = [cell[1:-1] for cell in cells if len(cell) > 1 and cell.endswith('"')]
    return len(inner) == len(cells) and any('""' in text for text in inner) and not any(
        '"' in text.replace('""', "") for text in inner
    )  # fmt: skip


def names(dialect: Dialect, lines: Sequence[str]) -> set[str]:
    """The cells of the first row in the form in which they are compared with names of a header."""
    return {cell.strip().lower() for _, cells in islice(dialect.rows(lines), 1) for cell in cells}


def width(dialect: Dialect, lines: Sequence[str]) -> int:
    """The number of columns where all of the first rows agree; 0 where they do not, or are not of this dialect."""
    try:
        counts = Counter(len(cells) for _, cells in islice(dialect.rows(lines), LOOKED_AT))
    except csv.Error:
        return 0
    return next(iter(counts)) if len(counts) == 1 else 0


def as_list(cell: Any) -> Any:
    """A list that a table holds as its text, "['EU', 'rejects']", as pandas writes it."""
    if not isinstance(cell, str) or not cell.lstrip().startswith(("[", "{")) or len(cell) > LONGEST:
        return cell
    if max(accumulate((letter in "([{") - (letter in ")]}") for letter in cell)) > DEEPEST:
        return cell
    try:
        return ast.literal_eval(cell)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return cell
