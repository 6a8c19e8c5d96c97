"""Sentence pairs from the user's files: two parallel text files, TSV, or JSONL. Bad data names file and line."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from regard.data.generated.phrases import phrases
from regard.data.generated.text_tasks import tasks
from regard.data.sets.base import TRAINED, TextData, idle_with

Pairs = list[tuple[str, str]]
HELD_OUT = 1000
"""Embedded pairs for validation, and others for the test."""
SHARES = {"translate": 8, "language": 3, "date": 4, "summarize": 1}
"""How often each embedded task occurs. Summaries are long: one in sixteen is already a third of all tokens."""


@dataclass(frozen=True, kw_only=True, slots=True)
class PairsConfig(TextData):
    """Where sentence pairs come from (nothing given: the embedded English → German phrases), and their tokens."""

    own: ClassVar[tuple[str, ...]] = ("source", "pairs")
    reading: ClassVar[tuple[str, ...]] = ("lowercase", "max_len")

    source: str | None = None
    """Source sentences, one a line."""
    target: str | None = None
    """Their translations, line by line."""
    pairs: str | None = None
    """Instead of the two: one file, .tsv (source, tab, target) or .jsonl (objects with `keys`)."""
    valid_source: str | None = None
    """Source sentences for validation (nothing given: the last lines of the training data are held out)."""
    valid_target: str | None = None
    """Their translations."""
    valid_pairs: str | None = None
    """Instead of the two: one .tsv or .jsonl file."""
    keys: tuple[str, ...] = ("source", "target")
    """The two fields of a .jsonl object."""
    max_len: int = 256
    """Longest side of a training pair, in tokens; longer pairs are left out."""
    epoch_size: int = 20_000
    """Fresh embedded phrases in an epoch."""

    def __post_init__(self) -> None:
        for prefix in ("", "valid_"):
            source, target, pairs = (getattr(self, prefix + name) for name in ("source", "target", "pairs"))
            if pairs is not None and (source or target):
                raise ValueError(f"give either {prefix}pairs or {prefix}source and {prefix}target, not both")
            if (source is None) != (target is None):
                missing = f"{prefix}target" if target is None else f"{prefix}source"
                raise ValueError(f"{prefix}source and {prefix}target go together; {missing} is missing")
        if self.embedded and (self.valid_source or self.valid_pairs):
            raise ValueError("validation pairs without training pairs; give source and target, or pairs, too")
        if len(self.keys) != 2:
            raise ValueError(f"keys names two fields, source and target; got {len(self.keys)}")
        if self.epoch_size < 1 or self.max_len < 1:
            raise ValueError("epoch_size and max_len must be at least 1")

    def split(self) -> tuple[Pairs, Pairs]:
        """Training and validation pairs."""
        if self.embedded:
            return self.generated("train", self.epoch_size), self.generated("valid", HELD_OUT)
        train = read_pairs(self.source, self.target, self.pairs, self.keys)
        if self.valid_source or self.valid_pairs:
            return train, read_pairs(self.valid_source, self.valid_target, self.valid_pairs, self.keys)
        held = min(1000, len(train) // 20) or 1
        return train[:-held] or train, train[-held:]

    def held_out(self) -> Pairs:
        """The embedded test pairs; of the user's files, the validation pairs."""
        return self.generated("test", HELD_OUT) if self.embedded else self.split()[1]

    def generated(self, split: str, count: int, start: int = 0) -> Pairs:
        """Embedded pairs number `start`, `start` + 1 … of a split."""
        return [(phrase.source, phrase.target) for phrase in phrases(split, count, start=start)]


@dataclass(frozen=True, kw_only=True, slots=True)
class TasksConfig(PairsConfig):
    """Texts with the name of a task before them, and their answers (nothing given: four embedded tasks)."""

    vocab_size: int = 1000
    base: str | None = None
    """A T5 run or checkpoint whose weights and tokenizer to start from."""

    @property
    def idle(self) -> dict[str, str]:
        return idle_with("tokenizer", self.tokenizer, *TRAINED) | idle_with("base", self.base, *TRAINED)

    def generated(self, split: str, count: int, start: int = 0) -> Pairs:
        """Embedded examples number `start`, `start` + 1 … of a split."""
        return [(task.source, task.target) for task in tasks(split, count, start=start, shares=SHARES)]


def read_pairs(source: str | None, target: str | None, pairs: str | None, keys: tuple[str, ...]) -> Pairs:
    """All pairs of two files, or of one, in order: also those with an empty side, so that lines can be counted."""
    if pairs is not None:
        path = Path(pairs)
        readers = {".tsv": _read_tsv, ".jsonl": _read_jsonl}
        if path.suffix not in readers:
            raise ValueError(f"{path}: pairs come as .tsv or .jsonl; two text files go in as source and target")
        found = list(readers[path.suffix](path, keys))
    else:
        assert source is not None and target is not None
        left, right = read_lines(Path(source)), read_lines(Path(target))
        if len(left) != len(right):
            raise ValueError(
                f"{source} has {len(left):,} lines, {target} has {len(right):,}; "
                "line by line they must be translations of each other"
            )
        found = list(zip(left, right, strict=True))
    if not any(s.strip() and t.strip() for s, t in found):
        raise ValueError(f"{pairs or source}: no pair has text on both sides")
    return found


def read_lines(path: Path) -> list[str]:
    """The lines of a UTF-8 text file; what cannot be read is named by file and line."""
    try:
        raw = path.read_bytes()
    except FileNotFoundError:
        raise ValueError(f"{path}: no such file; check the path") from None
    except IsADirectoryError:
        raise ValueError(f"{path}: is a directory; give a text file") from None
    if not raw.strip():
        raise ValueError(f"{path}: the file is empty; give one with a text a line")
    return split_lines(raw, path)


def split_lines(raw: bytes, path: Path) -> list[str]:
    """Lines end at newlines and nowhere else: Unicode's other separators would shift two files apart."""
    lines = raw.split(b"\n")
    return [_decode(line, path, number) for number, line in enumerate(lines if lines[-1] else lines[:-1], 1)]


def _decode(line: bytes, path: Path, number: int) -> str:
    try:
        return line.decode("utf-8").removesuffix("\r")
    except UnicodeDecodeError as error:
        raise ValueError(
            f"{path}, line {number}: not UTF-8 (byte {error.start}); convert it: iconv -f latin1 -t utf-8 {path}"
        ) from None


def _read_tsv(path: Path, keys: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    for number, line in enumerate(read_lines(path), 1):
        parts = line.split("\t")
        if not line.strip():
            parts = ["", ""]
        if len(parts) != 2:
            raise ValueError(f"{path}, line {number}: a pair is two texts with a tab between, got {len(parts)}")
        yield parts[0], parts[1]


def _read_jsonl(path: Path, keys: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    for number, line in enumerate(read_lines(path), 1):
        if not line.strip():
            yield "", ""
            continue
        try:
            row = json.loads(line)
        except json.JSONDecodeError as error:
            raise ValueError(f"{path}, line {number}: not JSON ({error})") from None
        for key in keys:
            if not isinstance(row, dict) or not isinstance(row.get(key), str):
                raise ValueError(f"{path}, line {number}: no text under {key!r}; --data.keys names the two fields")
        yield row[keys[0]], row[keys[1]]
