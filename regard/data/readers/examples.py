"""Examples for fine-tuning from the user's files, in any format of tables, or CoNLL. Errors name file, line, cure."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from regard.config import nearest
from regard.data.readers import conll
from regard.data.readers.cells import as_list
from regard.data.readers.columns import RENAME, Chosen, Known, Row, find_columns, named_rows, names_in, names_of
from regard.data.readers.packed import kind_of
from regard.data.readers.scores import find_scale
from regard.data.readers.tables import SUFFIXES, Table, is_table, read_table, refusal, report_skipped
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


class Examples(list[Any]):
    """The examples of a source, with what was understood of it."""

    def __init__(self, examples: Sequence[Any], table: Table, chosen: Chosen, scale: float | None = None) -> None:
        super().__init__(examples)
        self.source, self.about, self.unit, self.chosen, self.scale = (
            str(table.source), table.about, table.unit, chosen, scale,
        )  # fmt: skip
        names = names_in(table) if table.cells is None or chosen.header else []
        self.columns = {
            name: str(names[i]).strip() if names else f"column {i + 1}" for name, i in chosen.fields.items()
        }
        """The column of each field, by its name or its number."""


def read_examples(
    path: str | Path, task: str, columns: Mapping[str, str] | None = None, *, header: bool | None = None,
    names: Sequence[str] = (), scale: float | None = None, strict: bool = False,
) -> Examples:  # fmt: skip
    """All examples of a source for a task (classify, tag, answer, embed, instruct), as one of the classes above.

    `columns` maps our names of fields to those in the file, {"text": "sentence"}, or to several as one text,
    {"text": "subject+body"}. A table without a header has its columns in this order: text, label (or text, second,
    label) · question, passage, answer · a, b, score · prompt, answer. `names` spell labels that are numbers, `scale` is
    the highest score that a similarity can have. Rows with an empty cell are skipped and counted, or, if `strict` or if
    they are the larger part, an error.
    """
    if task not in _TASKS:
        raise ValueError(f"unknown task {task!r}; {nearest(task, _TASKS)}")
    known, build = _TASKS[task]
    columns = dict(columns or {})
    for name in columns:
        if name not in known:
            raise ValueError(f"columns: {task} has no field {name!r}; {nearest(name, known)}")
    path = Path(path)
    table, chosen = tagged_words(path, columns) if task == "tag" and has_words(path) else (None, Chosen({}))
    if table is None:
        if task == "classify" and kind_of(path) in LABELLED_LINES and not is_table(path):
            table = labelled_lines(path)
        elif not is_table(path):
            own = _WORDS + (".jsonl", ".json", ".parquet", ".arrow", ".feather") if task == "tag" else SUFFIXES
            raise ValueError(refusal(path, task, own))
        else:
            aliases = [alias for names_ in known.values() for alias in names_]
            shown = ", ".join(f'"{name}": …' for name in FIELDS[task])
            table = read_table(path, [*aliases, *names_of(columns)], f"{{{shown}}}")
        if task == "tag" and table.cells is not None:
            raise ValueError(refusal(path, task, (*_WORDS, ".jsonl", ".json", ".parquet", ".arrow", ".feather")))
        table, columns, chosen = find_columns(table, known, _OPTIONAL, columns, header)
    spelled = spelling(table, chosen, names)
    rows = [(number, row) for number, row in named_rows(table, chosen, columns)]
    if task == "embed":
        scale = scale or find_scale(table, rows)
    examples, missing = [], dict[str, list[int]]()
    for number, row in rows:
        try:
            if spelled:
                row = row | {NAMES: spelled}
            if scale:
                row = row | {SCALE: scale}
            examples.append(replace(build(row), line=number))
        except ValueError as error:
            if strict or not isinstance(error, Missing):
                raise ValueError(f"{path}, {table.unit} {number}: {error}") from None
            missing.setdefault(str(error), []).append(number)
    if missing:
        report_skipped(table, missing, len(rows))
    if not examples:
        raise ValueError(f"{path}: not one example; a header alone is no data")
    return Examples(examples, table, chosen, scale)


NAMES, SCALE = "\0names", "\0scale"
"""Keys of a row under which the names of labels and the scale of scores go to the functions that make examples."""
_WORDS = (".conll", ".bio")
LABELLED_LINES = (".txt", ".ft", "")
"""Files of texts with labels in the layout of fastText, or with a tab between them."""


def has_words(path: Path) -> bool:
    """Whether a file has a word and its tag a line."""
    kind = kind_of(path)
    return kind in conll.SUFFIXES and (kind != ".tsv" or conll.holds_words(read_lines(path)))


def tagged_words(path: Path, columns: Mapping[str, str]) -> tuple[Table, Chosen]:
    """The sentences of a file with a word and its tag a line."""
    if columns:
        raise ValueError(f"{path} has no names of columns, only a word first and its tag last; leave out columns")
    rows = list(conll.read_words(read_lines(path), path))
    return Table(path, "a word and its tag a line", objects=rows), Chosen({"text": 0, "entities": 1})


def labelled_lines(path: Path) -> Table:
    """The lines of a file in the layout of fastText, `__label__x text`, or with a tab between text and label."""
    lines = [line for line in read_lines(path)]
    if all(line.startswith("__label__") for line in lines if line.strip()):
        rows = []
        for number, line in enumerate(lines, 1):
            label, _, text = line.strip().partition(" ")
            if text.startswith("__label__"):
                raise ValueError(f"{path}, line {number}: several labels; one is learnt for each text")
            if line.strip():
                rows.append((number, {"label": label.removeprefix("__label__"), "text": text}))
        return Table(path, "lines of fastText", objects=rows)
    if all("\t" in line for line in lines if line.strip()):
        return read_table(path, [alias for names in _TASKS["classify"][0].values() for alias in names], kind=".tsv")
    raise ValueError(
        f"{path}: classify reads {', '.join(SUFFIXES)} files, and lines with a tab between text and label; these have "
        "no labels"
    )


def spelling(table: Table, chosen: Chosen, names: Sequence[str]) -> Sequence[str]:
    """The names of labels that a table holds as numbers: the user's, or those that it brings along."""
    column = chosen.fields.get("label", chosen.fields.get("entities"))
    if names or column is None or table.cells is not None:
        return tuple(names)
    keys = list(dict.fromkeys(name for _, row in table.objects[:100] for name in row))
    return table.names.get(keys[column], ()) if column < len(keys) else ()


class Missing(ValueError):  # noqa: N818  a row can be left out
    """Raised for a row with an empty cell."""


# From here on, rows as examples.
def _text(row: Row, name: str) -> str:
    if name not in row:
        raise ValueError(f"no {name!r}, only {', '.join(map(repr, row)) or 'nothing'}; {RENAME.format(name)}")
    if row[name] is None or isinstance(row[name], float) and row[name] != row[name]:  # as pandas leaves out values
        raise Missing(f"{name!r} is no text: null; fill it, or leave out the line")
    if not isinstance(row[name], str):
        raise ValueError(f"{name!r} is no text: {json.dumps(row[name], default=str)[:40]}; put it in quotes")
    if not row[name].strip():
        raise Missing(f"{name!r} is empty; fill it, or leave out the line")
    return row[name]


def _labelled(row: Row) -> Labelled:
    label = row.get("label")
    if isinstance(label, list):
        if len(label) != 1:
            raise ValueError(f"got {len(label)} labels; one is learnt for each text")
        label = label[0]
    if isinstance(label, float) and label.is_integer():
        label = int(label)
    if isinstance(label, int) or isinstance(label, str) and label.strip().isdigit() and row.get(NAMES):
        row = row | {"label": spelled_label(label, row.get(NAMES))}
    elif isinstance(label, str):
        row = row | {"label": label}
    second = _text(row, "second") if row.get("second") is not None else None
    return Labelled(_text(row, "text"), _text(row, "label").strip(), second)


def spelled_label(label: Any, names: Sequence[str] | None) -> str:
    """The name of a label that is a number; the number itself where there are no names."""
    if not names or isinstance(label, bool):
        return json.dumps(label)
    if not 0 <= int(label) < len(names):
        raise ValueError(f"the label {label} is none of the {len(names)} names; correct it, or --data.names")
    return names[int(label)]


def _tagged(row: Row) -> Tagged:
    items, entities = row.get("entities"), []
    if isinstance(row.get("text"), list) and isinstance(items, list):  # words, and a tag for each
        row = row | conll.from_lists(row["text"], items, row.get(NAMES, ()))
        items = row["entities"]
    text = _text(row, "text")
    if not isinstance(items, list):
        raise ValueError("no list 'entities'; an example without any has []")
    for item in items:
        match item:
            case {"start": int(start), "end": int(end), "label": str(label)} if label.strip():
                entities.append(Entity(start, end, label))
            case [int(start), int(end), str(label)] if label.strip():  # as spaCy and doccano write them
                entities.append(Entity(start, end, label))
            case _:
                raise ValueError(f"an entity is like {_SHOWN}; got {json.dumps(item, default=str)[:60]}")
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
    if isinstance(answer, str) and answer.startswith("{"):
        answer = as_list(answer)
    if isinstance(answer, dict | list) and not isinstance(answer, str) and "start" not in answer:
        row, answer = row | {"answers": answer}, None  # `columns` may name the column so
    if "answers" in row and answer is None:  # as in SQuAD
        match as_list(row["answers"]):
            case [{"text": str(text), "answer_start": int(start)}, *_]:
                answer = {"text": text, "start": start}
            case []:
                pass
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
            raise ValueError(
                f"an answer is a text, {{'text', 'start'}} or null; got {json.dumps(answer, default=str)[:60]}"
            )
    if not text or start < 0 or passage[start : start + len(text)] != text:
        where = f"at character {start} of" if text in passage else "in"
        raise ValueError(f"the answer {text[:40]!r} is not {where} the passage; copy it from there, or give null")
    return Question(question, passage, text, start)


def _similar(row: Row) -> Similar:
    try:
        score = float(row["score"])
    except (KeyError, TypeError, ValueError):
        raise ValueError(f"no number under 'score': {row.get('score')!r}; give one from 0 to 1") from None
    scale = row.get(SCALE, 1.0)
    if not 0 <= score <= scale:
        raise ValueError(f"the score {score:g} is not from 0 to {scale:g}; correct it, or --data.scale")
    return Similar(_text(row, "a"), _text(row, "b"), score / scale)


def _instruction(row: Row) -> Instruction:
    if isinstance(row.get("messages"), list) and "answer" not in row:
        row = row | _exchange(row["messages"])
    if isinstance(row.get("input"), str) and row["input"].strip() and "instruction" in row:  # as in Alpaca
        row = row | {"prompt": f"{_text(row, 'prompt')}\n{row['input']}"}
    return Instruction(_text(row, "prompt"), _text(row, "answer"))


def _exchange(messages: list[Any]) -> Row:
    """The prompt and the answer of a list of messages with one exchange."""
    match messages:
        case [{"role": "user", "content": str(prompt)}, {"role": "assistant", "content": str(answer)}]:
            return {"prompt": prompt, "answer": answer}
        case [
            {"role": "system", "content": str(system)},
            {"role": "user", "content": str(prompt)},
            {"role": "assistant", "content": str(answer)},
        ]:
            return {"prompt": f"{system}\n{prompt}", "answer": answer}
    raise ValueError(f"'messages' are one of a user and one of an assistant, got {len(messages)}; write one exchange")


_SHOWN = '{"start": 0, "end": 4, "label": "NAME"}'
_OPTIONAL = ("second",)
FIELDS = {
    "classify": ("text", "second", "label"), "tag": ("text", "entities"), "answer": ("question", "passage", "answer"),
    "embed": ("a", "b", "score"), "instruct": ("prompt", "answer"),
}  # fmt: skip
"""The fields of each task; `KNOWN` has the other names that are understood."""
KNOWN: dict[str, Known] = {
    "classify": {
        "text": (
            "text", "sentence", "review", "content", "comment", "tweet", "message", "body", "document", "utterance",
            "review_text", "reviewtext", "sentence1", "premise", "question1", "text_a", "text1", "question", "query",
            "headline", "title", "input", "sms", "phrase", "comment_text", "abstract", "description", "passage",
        ),
        "second": ("second", "sentence2", "hypothesis", "question2", "text_b", "text2"),
        "label": (
            "label", "labels", "class", "category", "target", "sentiment", "gold_label", "intent", "topic", "emotion",
            "polarity", "stars", "rating", "is_duplicate", "class index", "airline_sentiment", "y", "output",
        ),
    },
    "tag": {
        "text": ("text", "tokens", "words", "sentence"),
        "entities": ("entities", "ner_tags", "spans", "tags", "labels", "label", "ner"),
    },
    "answer": {
        "question": ("question", "query"),
        "passage": ("passage", "context", "paragraph", "document", "text"),
        "answer": ("answer", "answers"),
    },
    "embed": {
        "a": ("a", "sentence1", "sentence_a", "text1", "text_a", "question1", "premise", "anchor", "s1", "sent1"),
        "b": ("b", "sentence2", "sentence_b", "text2", "text_b", "question2", "hypothesis", "positive", "s2", "sent2"),
        "score": (
            "score", "similarity", "similarity_score", "relatedness_score", "relatedness", "label", "gold", "rating",
        ),
    },
    "instruct": {
        "prompt": ("prompt", "instruction", "question", "input", "query", "source"),
        "answer": ("answer", "output", "response", "completion", "target"),
    },
}  # fmt: skip
_TASKS: dict[str, tuple[Known, Callable[[Row], Any]]] = {
    "classify": (KNOWN["classify"], _labelled),
    "tag": (KNOWN["tag"], _tagged),
    "answer": (KNOWN["answer"], _question),
    "embed": (KNOWN["embed"], _similar),
    "instruct": (KNOWN["instruct"], _instruction),
}
TASKS = tuple(_TASKS)
