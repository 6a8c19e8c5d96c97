"""Which column of a table is what: by its name, by other names in use, or by what it holds; doubt is an error."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from regard.config import nearest
from regard.data.readers.tables import Table

RENAME = "add it, or say what it is called: --data.columns {0}=NAME"
Row = dict[str, Any]
Known = Mapping[str, tuple[str, ...]]
"""The fields of a task, each with the names that are understood, its own first."""
PAIRS = (
    ("text", "second"), ("sentence1", "sentence2"), ("premise", "hypothesis"), ("question1", "question2"),
    ("text_a", "text_b"), ("text1", "text2"), ("question", "sentence"), ("question", "passage"),
)  # fmt: skip
"""Names of the columns of two texts."""
INDEX = ("", "unnamed: 0", "__index_level_0__")
"""Names that pandas gives the numbers of rows; such a column is passed over."""
SPELLED = ("_text", "_name")
"""Endings of a column that spells the numbers of another: label_text beside label."""
LOOKED_AT = 1000
JOIN = "+"
"""Between the names of columns that are read as one text: text=subject+body."""


@dataclass(frozen=True, slots=True)
class Chosen:
    """The column of each field, whether there is a header, and the columns that are not used."""

    fields: dict[str, Any]
    """Our name of a field, and the name of its column or, without a header, its number from 0."""
    header: bool | None = None
    """Whether the first row is a header; None where columns have names of their own."""
    unused: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    """Choices that a user may want to know of."""


@dataclass(frozen=True, slots=True)
class Column:
    """The cells of one column, with properties that help to guess what it holds."""

    cells: list[str] = field(repr=False)

    @property
    def words(self) -> float:
        """Mean number of words; text without spaces counts a word for eight characters."""
        return sum(max(len(cell.split()), len(cell) / 8) for cell in self.cells) / max(1, len(self.cells))

    @property
    def numeric(self) -> bool:
        """Whether all cells are numbers."""
        return bool(self.cells) and all(map(is_number, self.cells))

    @property
    def repeats(self) -> bool:
        """Whether few values occur again and again, as labels do."""
        return len(self.cells) >= 6 and len(set(self.cells)) <= len(self.cells) / 3 and self.words < 5

    @property
    def counts(self) -> bool:
        """Whether the cells are whole numbers that all differ, as ids do."""
        return len(self.cells) > 2 and all(map(str.isdigit, self.cells)) and len(set(self.cells)) == len(self.cells)


def is_number(cell: str) -> bool:
    """Whether a cell is a number."""
    try:
        float(cell.replace(",", "."))
    except ValueError:
        return False
    return True


def columns_in(rows: Sequence[Sequence[str]]) -> list[Column]:
    """The columns of rows of cells; rows that are too short or too long are passed over."""
    width = len(rows[0]) if rows else 0
    return [Column([row[i].strip() for row in rows if len(row) == width]) for i in range(width)]


def names_in(table: Table) -> list[str]:
    """The names of a table's columns: the cells of its first row, or the keys of its first objects."""
    if table.cells is None:
        return list(dict.fromkeys(name for _, row in table.objects[:100] for name in row))
    return [cell.strip() for cell in table.cells[0][1]] if table.cells else []


def split_pairs(pairs: Sequence[str]) -> dict[str, str]:
    """Columns by field, from words such as text=sentence."""
    for pair in pairs:
        if "=" not in pair:
            raise ValueError(
                f"columns are given as text=sentence,label=class, got {pair!r}; several are joined by +: text=a+b"
            )
    return dict(pair.split("=", 1) for pair in pairs)


def check_width(table: Table) -> None:
    """Raise an error for a row that has more or fewer cells than the first."""
    width = len(table.cells[0][1]) if table.cells else 0
    for number, cells in table.cells or ():
        if len(cells) != width:
            raise ValueError(
                f"{table.source}, line {number}: got {len(cells)} columns, but {width} in the first line; "
                "put texts with separators in quotes"
            )


def join_columns(table: Table, columns: Mapping[str, str]) -> tuple[Table, dict[str, str], set[str]]:
    """Add a column for each field that is given as several, "text=subject+body": their texts, one a line. Return the
    table, the columns of fields in it, and the names of those that were joined."""
    names, fields, used = names_in(table), dict(columns), set[str]()
    for name, theirs in columns.items():
        if JOIN not in theirs or theirs in names:
            continue
        check_width(table)
        parts = [index_of(part.strip(), names, table) for part in theirs.split(JOIN)]
        used |= {label for i in parts for label in (names[i], f"column {i + 1}")}
        if table.cells is None:
            keys = [names[i] for i in parts]
            rows = [(number, row | {theirs: joined([row.get(key) for key in keys])}) for number, row in table.objects]
            table = replace(table, objects=rows)
            continue
        cells = [(number, [*row, joined([row[i] for i in parts])]) for number, row in table.cells]
        if all(part.strip().isdigit() for part in theirs.split(JOIN)):
            fields[name] = str(len(cells[0][1]))
        else:
            cells[0][1][-1] = theirs
        table = replace(table, cells=cells)
    return table, fields, used


def names_of(columns: Mapping[str, str]) -> list[str]:
    """The names of columns that the user gave: each of several that are joined, too."""
    return [part for theirs in columns.values() for part in (theirs, *theirs.split(JOIN))]


def find_columns(
    table: Table, known: Known, optional: Sequence[str], columns: Mapping[str, str], header: bool | None = None
) -> tuple[Table, dict[str, str], Chosen]:
    """Join the columns that are one text, and choose those of each field."""
    table, fields, used = join_columns(table, columns)
    chosen = choose_columns(table, known, optional, fields, header)
    return table, fields, replace(chosen, unused=tuple(name for name in chosen.unused if name not in used))


def index_of(part: str, names: Sequence[str], table: Table) -> int:
    """The index of a column by its name or, in a table of cells, by its number from 1."""
    lowered = [name.lower() for name in names]
    if part in names or part.lower() in lowered:
        return list(names).index(part) if part in names else lowered.index(part.lower())
    if table.cells is not None and part.isdigit() and 0 < int(part) <= len(names):
        return int(part) - 1
    shown = ", ".join(map(repr, names))
    raise ValueError(f"{table.source}: there is no column {part!r}, only {shown}; {nearest(part, names)}")


def joined(values: Sequence[Any]) -> str:
    """Cells as one text, a line each; empty ones are left out."""
    return "\n".join(cell for cell in map(cell_of, values) if cell.strip())


def choose_columns(
    table: Table, known: Known, optional: Sequence[str], columns: Mapping[str, str], header: bool | None = None
) -> Chosen:
    """Choose the column of each field by the header, by the names that the user gave, and by the contents. A note says
    where another column has names for a label's numbers: one file alone cannot decide for the others."""
    chosen = choose_fields(table, known, optional, columns, header)
    label = chosen.fields.get("label")
    if label is None or "label" in columns or "text" not in chosen.fields:
        return chosen
    names, start = names_in(table), 1 if chosen.header else 0
    if table.cells is None:
        rows = [[cell_of(row.get(name)) for name in names] for _, row in table.objects[:LOOKED_AT]]
    else:
        rows = [cells for _, cells in table.cells[start : LOOKED_AT + start] if len(cells) == len(names)]
    spelled = spelling_of(label, columns_in(rows), chosen.fields.values())
    if spelled is None:
        return chosen
    theirs = [names[i] if chosen.header is not False else f"column {i + 1}" for i in (spelled, label)]
    note = f"{theirs[0]!r} has names for the numbers in {theirs[1]!r}; to learn those: --data.columns label={theirs[0]}"
    return replace(chosen, notes=(*chosen.notes, note))


def spelling_of(label: int, columns: Sequence[Column], used: Collection[int]) -> int | None:
    """The index of a column that has one name for each number in the label's; None where the labels are no numbers, or
    no column has."""
    if label >= len(columns) or not all(map(str.isdigit, filter(None, columns[label].cells))):
        return None
    for index, column in enumerate(columns):
        if index in used or not column.repeats or column.numeric:
            continue
        pairs = {(number, name) for number, name in zip(columns[label].cells, column.cells, strict=True) if number}
        if len(pairs) == len({number for number, _ in pairs}) == len({name for _, name in pairs if name}) > 1:
            return index
    return None


def cell_of(value: Any) -> str:
    """A value of a table of objects as it would stand in a cell."""
    return "" if value is None or value != value else str(value)


def choose_fields(
    table: Table, known: Known, optional: Sequence[str], columns: Mapping[str, str], header: bool | None = None
) -> Chosen:
    """Choose the column of each field by the header, by the names that the user gave, and by the contents."""
    if table.cells is None:
        names = names_in(table)
        if header is not None:
            raise ValueError(f"{table.source}: its fields have names; --data.header is for .csv and .tsv files")
        fields = by_name(names, known, columns)
        return Chosen(fields, unused=left_over(names, fields))
    number, first = table.cells[0] if table.cells else (1, [])
    where = f"{table.source}, line {number}: "
    names = [cell.strip() for cell in first]
    rest = [cells for _, cells in table.cells[1 : LOOKED_AT + 1] if len(cells) == len(first)]
    numbered = {name: int(theirs) - 1 for name, theirs in columns.items() if theirs.isdigit() and theirs not in names}
    if numbered and len(numbered) == len(columns):
        return by_number(numbered, names, rest, header, where)
    fields = {} if header is False else by_name(names, known, columns)
    required = [name for name in known if name not in optional or name in columns]
    like = header if header is not None else header_like(names, rest)
    if columns or any(names[i].lower() == name for name, i in fields.items()) or fields and like is not False:
        fields, notes = only_one_left(fields, [name for name in required if name not in columns], names, rest)
        for name in required:
            if name not in fields:
                wanted = columns.get(name, name)
                close = nearest(wanted, names) if name in columns else ""
                cure = close if close.startswith("did") else RENAME.format(name)
                raise ValueError(f"{where}the header has no {wanted!r}, only {', '.join(map(repr, first))}; {cure}")
        unused = left_over(names, {name: names[i] for name, i in fields.items()})
        return Chosen(fields, True, unused, notes)
    if like and first:
        guess = guess_fields(columns_in(rest), required)
        shown = ",".join(f"{name}={names[guess[name]] if name in guess else 'NAME'}" for name in required)
        raise ValueError(
            f"{where}it looks like a header ({', '.join(map(repr, names[:8]))}), but has no {' or '.join(required)}; "
            f"say what is what: --data.columns {shown} (or --data.header false: it is an example)"
        )
    return without_header([names, *rest], list(known), required, where)


def by_name(names: Sequence[str], known: Known, columns: Mapping[str, str]) -> dict[str, Any]:
    """The index of the column of each field that has a known name, or the name that the user gave."""
    lowered = [name.strip().lower() for name in names]
    keys = {name: i for i, name in reversed(list(enumerate(lowered)))}
    fields: dict[str, Any] = {}
    for name in known:
        if name in columns:
            exact = columns[name] in names
            index = list(names).index(columns[name]) if exact else keys.get(columns[name].strip().lower())
            if index is not None:
                fields[name] = index
    pairs = [pair for pair in PAIRS if "second" in known and all(name in keys for name in pair)]
    if pairs and not fields.keys() & {"text", "second"}:
        fields |= {"text": keys[pairs[0][0]], "second": keys[pairs[0][1]]}
    for name, aliases in known.items():
        if name in fields or name in columns or name == "second" and "text" in fields:
            continue
        free = [alias for alias in aliases if alias in keys and keys[alias] not in fields.values()]
        if free:
            fields[name] = keys[free[0]]
    for name in fields.keys() - columns.keys():
        spelled = [keys[lowered[fields[name]] + end] for end in SPELLED if lowered[fields[name]] + end in keys]
        fields[name] = spelled[0] if spelled and name == "label" else fields[name]
    return fields


def left_over(names: Sequence[str], fields: Mapping[str, Any]) -> tuple[str, ...]:
    """The names of columns that are not read."""
    used = {names[i] if isinstance(i, int) else i for i in fields.values()}
    return tuple(name for name in names if name not in used and name.strip().lower() not in INDEX)


def header_like(names: Sequence[str], rest: Sequence[Sequence[str]]) -> bool | None:
    """Whether the first row has names and the others do not; None where the rows leave it open."""
    filled = [name for name in names if name]
    plain = all(
        len(name) <= 40 and len(name.split()) <= 4 and name[-1] not in ".!?" and not is_number(name) for name in filled
    )
    if not plain or not filled or len(set(filled)) < len(filled):
        return False
    columns = columns_in(rest)
    for name, column in zip(names, columns, strict=False):
        if not name or not column.cells:
            continue
        if column.numeric or column.repeats and name not in column.cells:
            return True
        if len(column.cells) > 2 and len(name.split()) == 1 and min(len(cell.split()) for cell in column.cells) > 2:
            return True
    return None if columns else False


def only_one_left(
    fields: dict[str, Any], required: Sequence[str], names: Sequence[str], rest: Sequence[Sequence[str]]
) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Assign the last unused column to the last required field, where exactly one of each is left; return the fields
    and notes for the user."""
    missing = [name for name in required if name not in fields]
    free = [i for i, name in enumerate(names) if i not in fields.values() and name.lower() not in INDEX]
    if not {"text", "label"} >= set(required) or len(missing) != 1 or len(free) != 1 or not rest:
        return fields, ()
    column = columns_in(rest)[free[0]]
    if column.counts or missing[0] != "label" and column.numeric:
        return fields, ()
    return fields | {missing[0]: free[0]}, (f"{names[free[0]]!r} is the only other column: taken as {missing[0]}",)


def guess_fields(columns: Sequence[Column], required: Sequence[str]) -> dict[str, int]:
    """The columns that look like text and label, for a suggestion."""
    if set(required) != {"text", "label"} or len(columns) < 2:
        return {}
    text = max(range(len(columns)), key=lambda i: columns[i].words)
    others = [i for i in range(len(columns)) if i != text and any(columns[i].cells)]
    others = others or [i for i in range(len(columns)) if i != text]
    kinds = {i: (columns[i].counts, Column([*filter(None, columns[i].cells)]).numeric) for i in others}
    return {"text": text, "label": min(others, key=lambda i: (*kinds[i], len(set(columns[i].cells))))}


def by_number(
    fields: dict[str, int], names: list[str], rest: Sequence[Sequence[str]], header: bool | None, where: str
) -> Chosen:
    """Return the columns that the user gave by number; raise an error for a number that the table does not have."""
    for name, index in fields.items():
        if not 0 <= index < len(names):
            raise ValueError(f"{where}got {len(names)} columns, and {name} is to be column {index + 1}; count from 1")
    if header is None:
        header = bool(header_like(names, rest))
    unused = tuple(names[i] if header else f"column {i + 1}" for i in range(len(names)) if i not in fields.values())
    return Chosen(fields, header, unused)


def without_header(rows: Sequence[Sequence[str]], fields: list[str], required: list[str], where: str) -> Chosen:
    """The columns of a table without a header, by their order; raise an error where the contents do not fit it."""
    columns, width = columns_in(rows), len(rows[0])
    if width not in (len(fields), len(required)) or not width:
        shown = ",".join(f"{name}={i}" for i, name in enumerate(required, 1))
        raise ValueError(
            f"{where}got {width} columns; give {', '.join(required)}, or a header with these names"
            + (f" (or say which are which: --data.columns {shown})" if width > len(required) else "")
        )
    if required == ["text", "label"] and width == 2:
        if columns[0].repeats and len(set(columns[1].cells)) > len(rows) / 2 and columns[1].words > columns[0].words:
            values = len(set(columns[0].cells))
            note = f"no header: the first column has {values} values again and again, so it is taken as the label"
            return Chosen({"text": 1, "label": 0}, False, (), (note,))
    if required == ["text", "label"] and width == 3 and not all(
        column.words >= 2 and not column.counts for column in columns[:2]
    ):  # fmt: skip
        guess = guess_fields(columns, required)
        shown = ",".join(f"{name}={guess[name] + 1}" for name in required)
        raise ValueError(
            f"{where}three columns and no header, and not the two texts and a label that this stands for; say which "
            f"are which: --data.columns {shown} (or text=1,second=2,label=3)"
        )
    order = fields if width == len(fields) else required
    return Chosen({name: i for i, name in enumerate(order)}, False)


def named_rows(table: Table, chosen: Chosen, columns: Mapping[str, str]) -> Iterator[tuple[int, Row]]:
    """The rows with the fields under our names; of objects, the other fields too."""
    if table.cells is not None:
        check_width(table)
        for number, cells in table.cells[1:] if chosen.header else table.cells:
            yield number, {name: cells[i] for name, i in chosen.fields.items()}
        return
    names = names_in(table)
    for number, row in table.objects:
        for name, theirs in columns.items():
            if theirs not in row:
                where = f"{table.source}, {table.unit} {number}: "
                raise ValueError(f"{where}no field {theirs!r}, where columns looks for the {name}")
        ours = {name: row[names[i]] for name, i in chosen.fields.items() if names[i] in row}
        yield number, row | ours
