"""Thousands of texts from a file to a file: in their order, shown as they go, and resumed where a run was stopped."""

import hashlib
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from regard.data.readers.inputs import read_inputs
from regard.data.readers.tables import is_table
from regard.data.readers.text_files import read_lines

FIELDS = ("prompt", "text", "source")


def read_records(path: Path) -> list[dict[str, Any]]:
    """A record for each text: the objects of a .jsonl file, the texts of another table, or lines, as {"text": …}."""
    if is_table(path) and path.suffix != ".jsonl":  # whose objects keep their other fields
        return [{"text": text} for text in read_inputs(path)[0]]
    if path.suffix != ".jsonl":
        return [{"text": line} for line in read_lines(path)]
    records = []
    for number, line in enumerate(read_lines(path), 1):
        try:
            record = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise ValueError(f"{path}, line {number}: not JSON ({error}); write one object a line") from None
        if not isinstance(record, dict) or not any(isinstance(record.get(name), str) for name in FIELDS):
            raise ValueError(f"{path}, line {number}: no text; write an object with the field {' or '.join(FIELDS)}")
        records.append(record)
    return records


def text_of(record: dict[str, Any]) -> str:
    return next(record[name] for name in FIELDS if isinstance(record.get(name), str))


class Answers:
    """The file that answers go to: .jsonl with a record a line, or plain lines.

    Until all are there it is called OUT.part, and OUT.part.json says what it answers. Answers may come in any order;
    they are written in that of the texts. An older file of that name is replaced when all are there.
    """

    def __init__(self, out: Path, texts: Sequence[str], settings: dict[str, Any], source: Path | None = None) -> None:
        self.out, self.part, self.about = out, Path(f"{out}.part"), Path(f"{out}.part.json")
        if out.is_dir() or not out.parent.is_dir():
            raise ValueError(f"{out} cannot be written: {'it is a directory' if out.is_dir() else 'no such directory'}")
        if source is not None and out.resolve() == source.resolve():
            raise ValueError(f"{out} is the file of the texts; choose another --out")
        digest = hashlib.sha256(json.dumps(list(texts)).encode()).hexdigest()
        description = json.dumps({"texts": digest} | settings, sort_keys=True)
        self.total, self.waiting = len(texts), dict[int, str]()
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

    def put(self, number: int, answer: dict[str, Any], text: str) -> None:
        """Store one answer; it is written once all answers before it have been."""
        plain = self.out.suffix != ".jsonl"
        self.waiting[number] = " ".join(text.splitlines()) if plain else json.dumps(answer, ensure_ascii=False)
        while self.done in self.waiting:
            self.file.write(self.waiting.pop(self.done) + "\n")
            self.done += 1
        self.file.flush()

    def close(self) -> None:
        """Close the file: rename it to its final name if all answers are written, otherwise keep it for resuming."""
        self.file.close()
        if self.done == self.total:
            self.part.replace(self.out)
            self.about.unlink()
