"""Pairs of texts: translations, and tasks with their answers; the user's files or embedded pairs."""

from dataclasses import dataclass
from typing import Any, ClassVar

from regard.data.generated.text_tasks import Summaries, tasks
from regard.data.readers.pairs import Pairs, read_pairs
from regard.data.sets.base import TRAINED, TextData, idle_rank, idle_with
from regard.data.sets.overview import SHOWN, Overview, shared_note, shortened

HELD_OUT = 1000
"""Embedded pairs for validation, and others for the test."""
SHARES = {"translate": 8, "language": 3, "date": 4}
"""The frequency of each embedded task but summaries."""
SUMMARY_SHARES = {"reports": 3, "docstrings": 1}
"""The frequency of summaries. They are long: so few are already a third of all tokens."""


@dataclass(frozen=True, kw_only=True, slots=True)
class PairsConfig(TextData):
    """Where sentence pairs come from (nothing given: the embedded English → German phrases), and their tokens."""

    own: ClassVar[tuple[str, ...]] = ("source", "pairs")
    beside: ClassVar[tuple[str, ...]] = ("target", "valid_source", "valid_target", "valid_pairs")
    reading: ClassVar[tuple[str, ...]] = ("lowercase", "max_len")

    source: str | None = None
    """Source sentences, one a line."""
    target: str | None = None
    """Their translations, line by line."""
    pairs: str | None = None
    """Instead of the two: one file, .tsv (source, tab, target), or .jsonl, .json, .csv or .parquet with `keys`."""
    valid_source: str | None = None
    """Source sentences for validation (nothing given: the last lines of the training data are held out)."""
    valid_target: str | None = None
    """Their translations."""
    valid_pairs: str | None = None
    """Instead of the two: one file."""
    keys: tuple[str, ...] = ("source", "target")
    """The two fields of an object, or columns of a table."""
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

    def overview(self) -> list[Overview]:
        """Summaries of the user's pairs: counts, first examples, and notes on what looks wrong."""
        if self.embedded:
            return []
        train, valid = self.split()
        named = bool(self.valid_source or self.valid_pairs)
        empty = sum(not (source.strip() and target.strip()) for source, target in train)
        notes = [f"{empty:,} pairs have an empty side, and are left out"] if empty else []
        source = self.pairs or f"{self.source} and {self.target}"
        shown = [f"{shortened(a)} → {shortened(b)}" for a, b in train if a.strip() and b.strip()][:SHOWN]
        parts = [(source, "train", train, shown, notes)]
        if named:
            shared = shared_note(train, valid, "valid")
            parts.append((self.valid_pairs or str(self.valid_source), "valid", valid, [], shared))
        return [
            Overview(source=path, part=part, count=len(pairs), unit="pairs", about="texts", examples=first, notes=words)
            for path, part, pairs, first, words in parts
        ]

    def held_out(self) -> Pairs:
        """The embedded test pairs; of the user's files, the validation pairs."""
        return self.generated("test", HELD_OUT) if self.embedded else self.split()[1]

    def generated(self, split: str, count: int, start: int = 0) -> Pairs:
        """Embedded pairs number `start`, `start` + 1 … of a split."""
        from regard.data.generated.phrases import phrases

        return [(phrase.source, phrase.target) for phrase in phrases(split, count, start=start)]


@dataclass(frozen=True, kw_only=True, slots=True)
class TasksConfig(PairsConfig):
    """Texts with the name of a task before them, and their answers (nothing given: four embedded tasks)."""

    absent: ClassVar[dict[str, Any]] = {"summaries": "docstrings"}

    vocab_size: int = 1000
    summaries: Summaries = "reports"
    """Texts of the embedded summaries (docstrings: what runs before version 0.2 learned)."""

    @property
    def idle(self) -> dict[str, str]:
        tokens = idle_with("tokenizer", self.tokenizer, *TRAINED) | idle_with("base", self.base, *TRAINED)
        return tokens | idle_rank(self.tune) | idle_with("pairs", self.pairs, "summaries")

    def generated(self, split: str, count: int, start: int = 0) -> Pairs:
        """Embedded examples number `start`, `start` + 1 … of a split."""
        shares = SHARES | {"summarize": SUMMARY_SHARES[self.summaries]}
        mixed = tasks(split, count, start=start, shares=shares, summaries=self.summaries)
        return [(task.source, task.target) for task in mixed]
