"""Examples for fine-tuning from the user's files: JSONL, CSV, TSV or CoNLL. Errors name file, line and cure."""

import csv
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path
from typing import Any

from regard.config import nearest
from regard.data.readers.text_files import read_lines


@dataclass(frozen=True, slots=True)
class Labelled:
    """A text, or two texts, with a class."""

    text: str
    label: str
    second: str | None = None
    line: int | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Entity:
    """An entity of a text: the characters start … end, and its label."""

    start: int
    end: int
    label: str


@dataclass(frozen=True, slots=True)
class Tagged:
    """A text and its entities in their order; none overlaps another."""

    text: str
    entities: tuple[Entity, ...]
    line: int | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Question:
    """A question on a passage; `answer` and the character it starts at, or None for both where there is no answer."""

    question: str
    passage: str
    answer: str | None
    start: int | None
    line: int | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Similar:
    """Two texts and their similarity, from 0 to 1."""

    a: str
    b: str
    score: float
    line: int | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Instruction:
    """A prompt and the answer to it."""

    prompt: str
    answer: str
    line: int | None = field(default=None, compare=False, repr=False)


RENAME = "add it, or say what it is called: --data.columns text=sentence"
Row = dict[str, Any]
Rows = Iterator[tuple[int, Row]]
# Other names that are understood without `columns`.
_ALIASES = {"context": "passage"}


def read_examples(path: str | Path, task: str, columns: Mapping[str, str] | None = None) -> list[Any]:
    """All examples of a file for a task (classify, tag, answer, embed, instruct), as one of the classes above.

    `columns` maps our names of fields to those in the file: {"text": "sentence"}. A table without a header has its
    columns in this order: text, label (or text, second, label) · question, passage, answer · a, b, score · prompt,
    answer.
    """
    if task not in _TASKS:
        raise ValueError(f"unknown task {task!r}; {nearest(task, _TASKS)}")
    fields, build = _TASKS[task]
    for name in columns or {}:
        if name not in fields:
            raise ValueError(f"columns: {task} has no field {name!r}; {nearest(name, fields)}")
    path = Path(path)
    readers = _TAG_READERS if task == "tag" else _READERS
    if path.suffix.lower() not in readers:
        raise ValueError(f"{path}: {task} reads {', '.join(readers)} files; convert it, or rename it to what it is")
    examples = []
    for number, row in readers[path.suffix.lower()](path, fields, dict(columns or {})):
        try:
            examples.append(replace(build(row), line=number))
        except ValueError as error:
            raise ValueError(f"{path}, line {number}: {error}") from None
    if not examples:
        raise ValueError(f"{path}: not one example; a header alone is no data")
    return examples


# From here on, files as rows of named fields, with the line where each begins.
def _lines(path: Path) -> list[str]:
    first, *rest = read_lines(path)
    return [first.removeprefix("\ufeff"), *rest]  # spreadsheets write a byte order mark


def read_objects(path: Path, fields: tuple[str, ...], columns: dict[str, str]) -> Rows:
    """The objects of a .jsonl file."""
    for number, line in enumerate(_lines(path), 1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except json.JSONDecodeError as error:
            raise ValueError(f"{path}, line {number}: not JSON ({error}); write one object a line") from None
        if not isinstance(row, dict):
            shown = ", ".join(f'"{name}": …' for name in fields)
            raise ValueError(f"{path}, line {number}: not an object; write one a line, like {{{shown}}}")
        for name, theirs in columns.items():
            if theirs not in row:
                raise ValueError(f"{path}, line {number}: no field {theirs!r}, where columns looks for the {name}")
        row |= {name: row[alias] for alias, name in _ALIASES.items() if alias in row and name not in row}
        yield number, row | {name: row[theirs] for name, theirs in columns.items()}


def _read_table(path: Path, fields: tuple[str, ...], columns: dict[str, str]) -> Rows:
    """Rows of a .csv or .tsv; a first row with a known name is a header."""
    rows = read_cells(path)
    number, first = next(rows, (1, []))
    ours = {columns.get(name, name).lower(): name for name in fields}
    ours |= {alias: name for alias, name in _ALIASES.items() if name in fields and name not in columns}
    names = [ours.get(cell.strip().lower()) for cell in first]
    required = [name for name in fields if name not in _OPTIONAL or name in columns]
    if columns or any(names):
        for name in required:
            if name not in names:
                raise ValueError(
                    f"{path}, line {number}: the header has no {columns.get(name, name)!r}, "
                    f"only {', '.join(map(repr, first))}; " + RENAME
                )
    elif len(first) in (len(fields), len(required)):
        names = list(fields if len(first) == len(fields) else required)
        rows = chain([(number, first)], rows)
    else:
        raise ValueError(
            f"{path}, line {number}: got {len(first)} columns; give {', '.join(required)}, or a header with these names"
        )
    for number, cells in rows:
        if len(cells) != len(names):
            raise ValueError(f"{path}, line {number}: got {len(cells)} columns, but {len(names)} in the first line")
        yield number, {name: cell for name, cell in zip(names, cells, strict=True) if name is not None}


def read_cells(path: Path) -> Iterator[tuple[int, list[str]]]:
    """The rows of a .csv or .tsv file as cells, with the line where each begins."""
    lines = _lines(path)
    if path.suffix.lower() == ".tsv":  # quotes are characters like others there
        yield from ((number, line.split("\t")) for number, line in enumerate(lines, 1) if line.strip())
        return
    reader, begin = csv.reader((line + "\n" for line in lines), strict=True), 1
    try:
        for cells in reader:
            if cells:
                yield begin, cells
            begin = reader.line_num + 1
    except csv.Error as error:
        raise ValueError(
            f"{path}, line {begin}: not CSV ({error}); put texts in quotes, and double quotes in them"
        ) from None


def _read_conll(path: Path, fields: tuple[str, ...], columns: dict[str, str]) -> Rows:
    """The sentences of a CoNLL file: a word and its tag a line, first and last column; a blank line ends a sentence."""
    if columns:
        raise ValueError(f"{path}: its columns have no names that columns could map; the word is first, the tag last")
    words: list[str] = []
    tags: list[str] = []
    begin = 1
    for number, line in enumerate([*_lines(path), ""], 1):
        cells = line.split("\t") if "\t" in line else line.split()
        if not line.strip():
            if words:
                yield begin, _sentence(words, tags)
            words, tags, begin = [], [], number + 1
        elif cells[0] != "-DOCSTART-":
            prefix, _, label = cells[-1].partition("-")
            if len(cells) < 2 or not cells[0].strip():
                raise ValueError(f"{path}, line {number}: got one column; give a word, a tab or a space, and its tag")
            if prefix not in tuple("OBIESLU") or (prefix == "O") == bool(label):
                raise ValueError(f"{path}, line {number}: the tag {cells[-1]!r} is neither O nor like B-NAME or I-NAME")
            words.append(cells[0])
            tags.append(cells[-1])


def _sentence(words: list[str], tags: list[str]) -> Row:
    """Words and tags (IOB1, IOB2, IOBES, BILOU) as a text with entities, read as conlleval does."""
    position, is_open = 0, False
    entities: list[Row] = []
    for word, tag in zip(words, tags, strict=True):
        prefix, _, label = tag.partition("-")
        if is_open and prefix in "IEL" and entities[-1]["label"] == label:
            entities[-1]["end"] = position + len(word)
        elif prefix != "O":
            entities.append({"start": position, "end": position + len(word), "label": label})
        is_open = prefix in "BI"
        position += len(word) + 1
    return {"text": " ".join(words), "entities": entities}


# From here on, rows as examples.
def _text(row: Row, name: str) -> str:
    if name not in row:
        raise ValueError(f"no {name!r}, only {', '.join(map(repr, row)) or 'nothing'}; {RENAME}")
    if not isinstance(row[name], str):
        raise ValueError(f"{name!r} is no text: {json.dumps(row[name])[:40]}; put it in quotes")
    if not row[name].strip():
        raise ValueError(f"{name!r} is empty; fill it, or leave out the line")
    return row[name]


def _labelled(row: Row) -> Labelled:
    if isinstance(row.get("label"), int):
        row = row | {"label": json.dumps(row["label"])}
    second = _text(row, "second") if row.get("second") is not None else None
    return Labelled(_text(row, "text"), _text(row, "label").strip(), second)


def _tagged(row: Row) -> Tagged:
    text, items, entities = _text(row, "text"), row.get("entities"), []
    if not isinstance(items, list):
        raise ValueError("no list 'entities'; an example without any has []")
    for item in items:
        match item:
            case {"start": int(start), "end": int(end), "label": str(label)} if label.strip():
                entities.append(Entity(start, end, label))
            case _:
                raise ValueError(f"an entity is like {_SHOWN}; got {json.dumps(item)[:60]}")
        if not 0 <= start < end <= len(text):
            raise ValueError(
                f"the entity {start} … {end} lies outside the text of {len(text)} characters; "
                "start counts from 0, end is one behind the last"
            )
    entities.sort(key=lambda entity: entity.start)
    for former, other in zip(entities, entities[1:], strict=False):
        if other.start < former.end:
            raise ValueError(
                f"the entities {former.start} … {former.end} and {other.start} … {other.end} overlap; keep one of them"
            )
    return Tagged(text, tuple(entities))


def _question(row: Row) -> Question:
    question, passage = _text(row, "question"), _text(row, "passage")
    answer = row.get("answer")
    if "answers" in row and answer is None:  # as in SQuAD
        match row["answers"]:
            case {"text": [text, *_], "answer_start": [start, *_]}:
                answer = {"text": text, "start": start}
            case {"text": []}:
                pass
            case _:
                raise ValueError('"answers" is {"text": [...], "answer_start": [...]}; for one answer use "answer"')
    elif "answer" not in row:
        raise ValueError(f"no 'answer', only {', '.join(map(repr, row))}; null says that the passage does not answer")
    match answer:
        case None | "":
            return Question(question, passage, None, None)
        case str(text):
            start = passage.find(text)
        case {"text": str(text), "start": int(start)}:
            pass
        case _:
            raise ValueError(f"an answer is a text, {{'text', 'start'}} or null; got {json.dumps(answer)[:60]}")
    if not text or start < 0 or passage[start : start + len(text)] != text:
        where = f"at character {start} of" if text in passage else "in"
        raise ValueError(f"the answer {text[:40]!r} is not {where} the passage; copy it from there, or give null")
    return Question(question, passage, text, start)


def _similar(row: Row) -> Similar:
    try:
        score = float(row["score"])
    except (KeyError, TypeError, ValueError):
        raise ValueError(f"no number under 'score': {row.get('score')!r}; give one from 0 to 1") from None
    if not 0 <= score <= 1:
        raise ValueError(f"the score {score:g} is not from 0 to 1; divide all scores by the highest")
    return Similar(_text(row, "a"), _text(row, "b"), score)


def _instruction(row: Row) -> Instruction:
    return Instruction(_text(row, "prompt"), _text(row, "answer"))


_SHOWN = '{"start": 0, "end": 4, "label": "NAME"}'
_OPTIONAL = ("second",)
_TASKS: dict[str, tuple[tuple[str, ...], Callable[[Row], Any]]] = {
    "classify": (("text", "second", "label"), _labelled),
    "tag": (("text", "entities"), _tagged),
    "answer": (("question", "passage", "answer"), _question),
    "embed": (("a", "b", "score"), _similar),
    "instruct": (("prompt", "answer"), _instruction),
}
TASKS = tuple(_TASKS)
_READERS = {".jsonl": read_objects, ".csv": _read_table, ".tsv": _read_table}
_TAG_READERS = {".conll": _read_conll, ".bio": _read_conll, ".jsonl": read_objects}
