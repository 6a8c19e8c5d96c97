"""Thousands of texts from a file to a file: in their order, shown as they go, and resumed where a run was stopped."""

import csv
import hashlib
import io
import itertools
import json
import os
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from regard.data.readers.arrow import SUFFIXES as ARROW
from regard.data.readers.packed import PACKED, check_packer, create, kind_of
from regard.data.readers.tables import CELLS, LINES
from regard.data.readers.text_files import has_mark
from regard.files import sync, write_atomically
from regard.tasks.engine_task import texts_as_json

NOT_WRITTEN = (*ARROW, ".json", ".xlsx", ".xls", ".ods")
"""Formats that would be taken for what they are not."""
ARRAY, VECTOR = ".npy", "embedding"
"""The format of vectors, and their field in a record."""


class Answers:
    """The file that answers go to: a table (.csv, .tsv), .jsonl with a record a line, an array (.npy), or plain lines.

    Until all are there it is called OUT.part, and OUT.part.json says what it answers. Answers may come in any order;
    they are written in that of the texts. An older file of that name is replaced when all are there. The records of a
    table or an array are lines of JSON until then, and what is to be packed (.csv.gz) is plain. `separator` stands
    between the columns of a table; only `vectors` are written as an array.
    """

    def __init__(
        self, out: Path, rows: Sequence[Any], settings: dict[str, Any], sources: Sequence[Path] = (),
        separator: str = ",", vectors: bool = False,
    ) -> None:  # fmt: skip
        self.out, self.part, self.about = out, Path(f"{out}.part"), Path(f"{out}.part.json")
        kind = kind_of(out)
        self.table, self.separator = kind in CELLS, separator if kind == ".csv" else "\t"
        self.plain, self.packed = is_plain(out), out.suffix.lower() in PACKED
        self.array = out.suffix.lower() == ARRAY
        check_packer(out)
        if out.is_dir() or not out.parent.is_dir():
            raise ValueError(f"{out} cannot be written: {'it is a directory' if out.is_dir() else 'no such directory'}")
        if kind in NOT_WRITTEN or kind == ARRAY and not (vectors and self.array):
            raise ValueError(f"{out}: answers are written as .csv, .tsv, .jsonl or lines (.txt); choose one of these")
        if out.resolve() in [source.resolve() for source in sources]:
            raise ValueError(f"{out} is the file of the texts; choose another --out")
        self.encoding = "utf-8-sig" if sources and has_mark(sources[0]) else "utf-8"
        digest = hashlib.sha256(json.dumps(list(rows), default=str).encode()).hexdigest()
        description = json.dumps({"texts": digest} | settings, sort_keys=True)
        self.total, self.waiting = len(rows), dict[int, str]()
        if self.part.exists() and self.about.exists() and b"\n" in self.part.read_bytes():
            if self.about.read_text() != description:
                raise ValueError(f"{self.part} belongs to other texts or options; delete it, or choose another --out")
            whole = self.part.read_bytes().rpartition(b"\n")
            os.truncate(self.part, len(whole[0]) + len(whole[1]))  # a line that was cut off is written again
            self.done = whole[0].count(b"\n") + bool(whole[1])
        else:
            self.part.write_bytes(b"")
            self.about.write_text(description)
            self.done = 0
        self.file = self.part.open("a", encoding="utf-8", newline="\n")

    def put(self, number: int, record: dict[str, Any], text: str) -> None:
        """Store one answer, as a record and as a line; it is written once all answers before it have been."""
        line = " ".join(text.splitlines()) if self.plain else json.dumps(record, ensure_ascii=False, default=str)
        self.waiting[number] = line
        while self.done in self.waiting:
            self.file.write(self.waiting.pop(self.done) + "\n")
            self.done += 1
        self.file.flush()

    def close(self) -> None:
        """Close the file: give it its final name and format if all answers are written, otherwise keep it for
        resuming."""
        self.file.close()
        if self.done < self.total:
            return
        if self.table or self.packed or self.array:
            write_atomically(self.out, self.write)
            self.part.unlink()
        else:
            sync(self.part)
            self.part.replace(self.out)
        self.about.unlink()

    def write(self, path: Path) -> None:
        """Write all lines, or the records as a table or an array; a record without a field has an empty cell there."""
        if self.array:
            self.write_array(path)
            return
        with self.part.open(encoding="utf-8", newline="\n") as lines, create(path) as file:
            with io.TextIOWrapper(file, encoding=self.encoding if self.table else "utf-8", newline="") as text:
                if not self.table:
                    text.writelines(lines)
                    return
                records = list(map(json.loads, lines))
                names = list(dict.fromkeys(name for record in records for name in record))
                writer = csv.writer(text, delimiter=self.separator, lineterminator="\n")
                writer.writerow(names)
                writer.writerows([cell(record.get(name)) for name in names] for record in records)

    def write_array(self, path: Path) -> None:
        """Write the vectors as rows of an array, one after the other."""
        with self.part.open(encoding="utf-8") as lines:
            vectors = (json.loads(line)[VECTOR] for line in lines)
            first = next(vectors)
            array = np.lib.format.open_memmap(path, mode="w+", dtype=np.float32, shape=(self.total, len(first)))
            for index, vector in enumerate(itertools.chain([first], vectors)):
                array[index] = vector
            array.flush()


Answer = tuple[dict[str, Any], str]
"""An answer as a record and as a line."""
Work = Callable[[Any, str, Sequence[str], dict[str, Any], int], list[Answer]]
"""(task, verb or method, texts, options, number of the first text among all) → the answer to each text."""


def answered(task: Any, verb: str, texts: Sequence[str], options: dict[str, Any], first: int) -> list[Answer]:
    """The answers of a verb."""
    render = task.verb(verb).render
    return [(answer, render(answer)) for answer in task.answers(verb, texts, **options)]


def generated(task: Any, method: str, texts: Sequence[str], options: dict[str, Any], first: int) -> list[Answer]:
    """The texts that a method generates; the number of a text among all seeds its samples."""
    return [written(output) for output in getattr(task, method)(texts, first=first, **options)]


def embedded(task: Any, method: str, texts: Sequence[str], options: dict[str, Any], first: int) -> list[Answer]:
    """The vectors of texts, as exact as they are."""
    return [({VECTOR: vector.tolist()}, "") for vector in getattr(task, method)(texts, **options)]


@dataclass(frozen=True, slots=True)
class Part:
    """Texts that are answered together, with their indices among all."""

    indices: Sequence[int]
    texts: list[str]
    options: dict[str, Any]
    """Those of the verb that have a value for each text."""
    first: int
    """The number of the first text among those that have an answer."""

    def answers(
        self, work: Work, task: Any, method: str, options: dict[str, Any]
    ) -> list[tuple[int, dict[str, Any], str]]:
        """The index and the answer of each text; an error names a text by its number among all."""
        try:
            answers = work(task, method, self.texts, options | self.options, self.first)
        except ValueError as error:
            if match := re.match(r"text (\d+)", text := str(error)):
                text = f"text {self.indices[int(match[1]) - 1] + 1}{text[match.end() :]}"
            raise ValueError(text) from None
        return [(index, *answer) for index, answer in zip(self.indices, answers, strict=True)]


def written(output: Any) -> tuple[dict[str, Any], str]:
    """A generated text, or several with their scores, as a record and as a line."""
    best = [{"text": output}] if isinstance(output, str) else texts_as_json(output)
    return {"answer": best[0]["text"]} | ({"answers": best} if len(best) > 1 else {}), best[0]["text"]


def is_plain(out: Path) -> bool:
    """Whether answers go to a file as plain lines: it is neither a table nor lines of JSON."""
    return kind_of(out) not in (*CELLS, *LINES, ARRAY)


def cell(value: Any) -> str:
    """A value of a record as the cell of a table."""
    if value is None or isinstance(value, str):
        return value or ""
    return json.dumps(value, ensure_ascii=False)


def with_answer(row: dict[str, Any], answer: dict[str, Any], taken: Iterable[str]) -> dict[str, Any]:
    """A row of the user's with the fields of an answer; those whose name is taken begin with predicted_."""
    return row | {f"predicted_{name}" if name in taken else name: value for name, value in answer.items()}
