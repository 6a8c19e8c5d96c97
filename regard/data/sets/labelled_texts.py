"""Texts with labels, tags, answers, similarities or instructions: the user's files, or generated examples."""

from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Literal
from weakref import WeakValueDictionary

import numpy as np

from regard.data.generated.text_tasks import tasks
from regard.data.readers.columns import split_pairs
from regard.data.readers.examples import Examples as ReadExamples
from regard.data.readers.examples import Instruction, Labelled, read_examples
from regard.data.readers.hub_sets import HUB
from regard.data.readers.parts import find_parts
from regard.data.sets.base import TRAINED, TextData, check_tuning, idle_rank, idle_with
from regard.data.sets.overview import Overview
from regard.data.sets.text_overview import key_of, labels_in, overviews

Examples = list[Any]
HELD_OUT = 1000
"""Generated examples for validation, and for the test."""
LARGE = 1 << 23
"""Bytes of a file beyond which its examples are not counted before training: they are many."""
TEXTS = ("text", "second", "question", "passage", "a", "b", "prompt", "answer")
"""The fields of examples that are texts."""


@dataclass(frozen=True, slots=True)
class Size:
    """The number of a user's examples, their mean length in characters, and the number in the file for validation."""

    count: int
    characters: float
    held_out: int = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class ExamplesConfig(TextData):
    """Where examples come from (nothing given: generated ones), and the model to start from."""

    own: ClassVar[tuple[str, ...]] = ("train",)
    reading: ClassVar[tuple[str, ...]] = ("task", "lowercase", "max_len")
    splitting: ClassVar[tuple[str, ...]] = ("held_share", "together", "columns", "header", "names")
    absent: ClassVar[dict[str, Any]] = {"together": False}

    task: Literal["classify", "tag", "answer", "embed", "instruct"] = "classify"
    """The task of the examples."""
    train: str | None = None
    """A .jsonl, .json, .csv, .tsv, .parquet, .arrow or (tags) .conll file, also packed (.gz, .zst); a folder with
    train, valid and test files; or hf:owner/name, a dataset of the Hub."""
    valid: str | None = None
    """A file of the same kind for validation (nothing given: a part of the examples is held out)."""
    held_share: float = 0.0
    """Share of the examples, of every label alike, that is held out for validation (0: every tenth in order)."""
    together: bool = True
    """Whether examples with equal texts are held out together, so that none of them is in training as well."""
    test: str | None = None
    """A file of the same kind for the test (nothing given: the examples for validation)."""
    columns: tuple[str, ...] = ()
    """Names of fields in the files where they differ, as text=sentence,label=class; or numbers of columns from 1; with
    text=subject+body, several columns are one text."""
    header: bool | None = None
    """Whether the first row of a .csv or .tsv names its columns (none: as it looks; where it does not tell, you are
    asked)."""
    names: tuple[str, ...] = ()
    """Names of labels or tags that the files hold as numbers, in their order."""
    scale: float | None = None
    """The highest score that a similarity can have (none: 1, 5, 10 or 100, as the training scores tell)."""
    strict: bool = False
    """Whether a row with an empty text or label is an error; else such rows are skipped and counted."""
    vocab_size: int = 2000
    hidden: float = 0.0
    """Share of the words that training replaces by the mask token, so that their context must be used."""
    max_len: int = 256
    """Longest example in tokens; longer ones are cut."""
    probe: int = 0
    """Most examples for which a linear probe of the frozen encoder is trained beside and kept if clearly better; 0 for
    none."""
    refit: int = 0
    """Most examples for which, after validation, the training is repeated on all of them, those for validation too;
    0 for none."""
    epoch_size: int = 20_000
    """Fresh generated examples in an epoch."""

    def __post_init__(self) -> None:
        if (self.valid or self.test) and not self.train:
            raise ValueError("validation examples without training examples; give --data.train too")
        check_tuning(self.base, self.tune, self.rank)
        split_pairs(self.columns)
        if not 0 <= self.hidden < 1:
            raise ValueError(f"hidden={self.hidden} is not in [0, 1)")
        if self.hidden and self.task == "instruct":
            raise ValueError("words are masked for encoders, not for instruct; leave out hidden")
        if not 0 <= self.held_share < 1:
            raise ValueError(f"held_share={self.held_share} is not in [0, 1)")
        if self.max_len < 4 or self.epoch_size < 1:
            raise ValueError("max_len must be at least 4, epoch_size at least 1")

    @property
    def idle(self) -> dict[str, str]:
        tokens = idle_with("tokenizer", self.tokenizer, *TRAINED) | idle_with("base", self.base, *TRAINED)
        return tokens | idle_rank(self.tune) | idle_with("valid", self.valid, "held_share", "together")

    @property
    def parts(self) -> dict[str, str]:
        """The sources of train, valid and test: the named ones, or those in a folder of all three."""
        parts = find_parts(self.train, is_file=True) if self.train is not None else {}
        return parts | {name: getattr(self, name) for name in ("valid", "test") if getattr(self, name) is not None}

    def read(self, path: str) -> ReadExamples:
        """The examples of a source; while somebody holds them, they are not read again."""
        training, scale = self.parts.get("train", path), self.scale
        if self.task == "embed" and scale is None and path != training:
            scale = self.read(training).scale or 1.0  # the highest score of a small file may be below the top
        key = (path, stamp(path), self.task, self.columns, self.header, self.names, scale, self.strict)
        examples = KEPT.get(key)
        if examples is None:
            columns = split_pairs(self.columns)
            examples = KEPT[key] = read_examples(
                path, self.task, columns, header=self.header, names=self.names, scale=scale, strict=self.strict
            )
        return examples

    def split(self) -> tuple[Examples, Examples]:
        """The training and the validation examples; a label's only example is for training."""
        if self.train is None:
            return self.generated("train", 0), EMBEDDED[self.task]("valid", HELD_OUT, 0)
        parts = self.parts
        examples = self.read(parts["train"])
        if "valid" in parts:
            return examples, self.read(parts["valid"])
        if len(examples) < 2:
            raise ValueError(f"{self.train}: one example cannot be split; give --data.valid")
        keys = [key_of(self.task, example) if self.together else (i,) for i, example in enumerate(examples)]
        held = held_out_by(self.task, examples, keys, self.held_share)
        pairs = list(zip(examples, held, strict=True))
        return [example for example, out in pairs if not out], [example for example, out in pairs if out]

    def size(self) -> "Size | None":
        """The size of the user's files; none where they are large, or not there."""
        parts = {part: path for part, path in self.parts.items() if part != "test"}
        paths = [Path(path) for path in parts.values()]
        if not paths or not all(path.is_file() and path.stat().st_size <= LARGE for path in paths):
            return None
        examples = self.read(parts["train"])
        texts = [text for e in examples for name in TEXTS if isinstance(text := getattr(e, name, None), str)]
        held_out = len(self.read(parts["valid"])) if "valid" in parts else 0
        return Size(len(examples), sum(map(len, texts)) / len(examples), held_out)

    def generated(self, split: str, epoch: int) -> Examples:
        """Generated examples of an epoch; most tasks have new ones in every epoch."""
        return EMBEDDED[self.task](split, self.epoch_size, epoch * self.epoch_size)

    def held_out(self) -> Examples:
        """The test examples; the validation examples where no others exist."""
        if self.embedded:
            return EMBEDDED[self.task]("test", HELD_OUT, 0)
        test = self.parts.get("test")
        return self.read(test) if test is not None else self.split()[1]

    def overview(self) -> list[Overview]:
        """Summaries of the user's files: counts, columns, labels, first examples, and notes on what looks wrong."""
        return [] if self.train is None else list(overviews(self))


KEPT: WeakValueDictionary[tuple[Any, ...], ReadExamples] = WeakValueDictionary()
"""Examples that were read and are still in use."""


def stamp(path: str) -> tuple[int, int] | None:
    """Time and size of a file, which change with its content."""
    if path.startswith(HUB) or not Path(path).is_file():
        return None
    stat = Path(path).stat()
    return stat.st_mtime_ns, stat.st_size


def held_out_by(task: str, examples: Examples, keys: Sequence[Hashable], share: float) -> list[bool]:
    """Which examples are held out: those with equal keys together, as the first of them. Where that would leave a label
    to validation alone they stay in training; where nothing else could be held out, equal keys do not count."""
    firsts: dict[Hashable, Any] = {}
    for key, example in zip(keys, examples, strict=True):
        firsts.setdefault(key, example)
    single = list(firsts.values())
    held = stratified(task, single, share) if share else []
    out = {key for key, chosen in zip(firsts, held if any(held) else every_tenth(task, single), strict=True) if chosen}
    if len(firsts) < len(examples):
        rows = [(key, labels_in(task, [example]).keys()) for key, example in zip(keys, examples, strict=True)]
        trained = {label for key, labels in rows if key not in out for label in labels}
        out -= {key for key, labels in rows if not labels <= trained}
        if not out:
            return held_out_by(task, examples, range(len(examples)), share)
    return [key in out for key in keys]


def every_tenth(task: str, examples: Examples) -> list[bool]:
    """Which examples are held out: every tenth, except a label's only one."""
    counts = labels_in(task, examples) if task == "classify" else {}
    tenth = range(1, len(examples), 10)
    out = {i for i in tenth if counts.get(getattr(examples[i], "label", ""), 2) > 1} or set(tenth)
    return [i in out for i in range(len(examples))]


def stratified(task: str, examples: Examples, share: float) -> list[bool]:
    """Which examples are held out: the share of every label, or of every kind of entity by an example's rarest one,
    at random but always the same. A label's last example stays in training."""
    kinds = [{e.label} if task == "classify" else {x.label for x in getattr(e, "entities", ())} for e in examples]
    counts = Counter(kind for own in kinds for kind in own)
    groups: dict[str | None, list[int]] = {}
    for index, own in enumerate(kinds):
        groups.setdefault(min(own, key=lambda kind: (counts[kind], kind), default=None), []).append(index)
    rng, held, owed = np.random.default_rng(0), [False] * len(examples), 0.0
    for _, indices in sorted(groups.items(), key=lambda group: (len(group[1]), group[0] or "")):
        owed += share * len(indices)  # what rounding leaves to one label is made up by the next
        count = min(round(owed), len(indices) - 1)
        owed -= count
        for index in rng.permutation(indices)[:count]:
            held[index] = True
    trained = {kind for own, out in zip(kinds, held, strict=True) if not out for kind in own}
    return [out and own <= trained for own, out in zip(kinds, held, strict=True)]


def labels_of(task: str, examples: Examples) -> tuple[str, ...]:
    """The labels of examples, sorted; for tags, O and a B- and an I- label of each kind of entity; else none."""
    if task == "classify":
        return tuple(sorted({example.label for example in examples}))
    if task == "tag":
        kinds = sorted({entity.label for example in examples for entity in example.entities})
        return ("O", *(f"{prefix}-{kind}" for kind in kinds for prefix in "BI"))
    return ()


def sides_of(examples: Examples) -> tuple[list[str], list[str] | None]:
    """The first texts of labelled examples and, where some example has one, the second texts."""
    pairs = any(example.second is not None for example in examples)
    return [e.text for e in examples], [e.second or "" for e in examples] if pairs else None


def tag_of(offsets: tuple[int, int] | None, entities: Sequence[Any]) -> str:
    """The tag of a word at these characters: B-… where an entity begins with it, I-… inside one, else O."""
    assert offsets is not None
    for entity in entities:
        if entity.start <= offsets[0] < entity.end:
            return f"{'B' if offsets[0] == entity.start else 'I'}-{entity.label}"
    return "O"


def _facts(kind: str, split: str, count: int, start: int) -> Examples:
    """Generated sentences of a kind; the packages that write their values are imported only here."""
    from regard.data.generated import facts

    return getattr(facts, kind)(split, count, start=start)


def _languages(split: str, count: int, start: int) -> Examples:
    """Names in several languages; they are finite, and each epoch joins others."""
    from regard.data.generated.languages import languages

    return [Labelled(text, label) for text, label in languages(split, seed=start // max(1, count))]


def _instructions(split: str, count: int, start: int) -> Examples:
    return [Instruction(task.source, task.target) for task in tasks(split, count, start=start, shares={"date": 1})]


EMBEDDED: dict[str, Callable[[str, int, int], Examples]] = {
    "classify": _languages,
    "tag": partial(_facts, "tagged"),
    "answer": partial(_facts, "questions"),
    "embed": partial(_facts, "paraphrases"),
    "instruct": _instructions,
}
