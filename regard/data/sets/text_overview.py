"""Overviews of files of texts, shown by `regard data` and before training."""

from collections.abc import Iterator, Mapping
from typing import Any

from regard.data.sets.overview import SHOWN, Overview, counted, label_notes, shared_note, shortened, unseen_note

TEXTS = {
    "classify": ("text", "second"), "tag": ("text",), "answer": ("question", "passage"), "embed": ("a", "b"),
    "instruct": ("prompt",),
}  # fmt: skip
"""The inputs of an example of each task; two with equal inputs are the same."""
MISSING = ("nan", "none", "null", "n/a")
"""Texts that stand for a cell without one."""


def overviews(data: Any) -> Iterator[Overview]:
    """An overview of each part of the texts that a data config names."""
    train: Any = None
    for part, source in data.parts.items():
        examples = data.read(source)
        labels, inputs = labels_in(data.task, examples), [key_of(data.task, example) for example in examples]
        notes = [*examples.chosen.notes]
        if part == "train":
            train = labels, inputs
            notes += label_notes(labels, len(examples), "examples") if data.task == "classify" else []
            notes += repeated(data.task, examples, inputs)
            notes += shared_by_split(data) if len(set(inputs)) < len(inputs) and "valid" not in data.parts else []
        elif train is not None:
            notes += unseen_note(train[0], labels, part) if labels else []
            notes += shared_note(train[1], inputs, part)
        empty = sum(text.strip().lower() in MISSING for key in inputs for text in key if text)
        if empty:
            notes.append(f"{empty:,} texts are {', '.join(MISSING[:3])} or the like: cells without a text?")
        yield Overview(
            source=source, part=part, count=len(examples), unit="examples", about=examples.about,
            header=examples.chosen.header, columns=examples.columns, unused=examples.chosen.unused, labels=labels,
            scale=examples.scale if examples.scale != 1 else None,
            examples=[shown(data.task, example) for example in examples[:SHOWN]] if part == "train" else (),
            notes=notes, kept=examples,
        )  # fmt: skip


def shared_by_split(data: Any) -> list[str]:
    """A note on examples held out for validation whose texts are in training too."""
    try:
        learned, held = ([key_of(data.task, example) for example in part] for part in data.split())
    except ValueError:  # which training explains
        return []
    return shared_note(learned, held, "validation")


def labels_in(task: str, examples: Any) -> Mapping[str, int]:
    """The labels of examples with their counts: classes, or kinds of entities."""
    if task == "classify":
        return counted(example.label for example in examples)
    if task == "tag":
        return counted(entity.label for example in examples for entity in example.entities)
    return {}


def key_of(task: str, example: Any) -> tuple[str, ...]:
    """The inputs of an example."""
    return tuple(getattr(example, name) or "" for name in TEXTS[task])


def repeated(task: str, examples: Any, inputs: list[tuple[str, ...]]) -> list[str]:
    """A note on texts that occur again, and on those with another label there."""
    if task != "classify":
        return []
    first: dict[tuple[str, ...], str] = {}
    twice = other = 0
    for key, example in zip(inputs, examples, strict=True):
        label = first.setdefault(key, example.label)
        other += label != example.label
    twice = len(inputs) - len(first)
    if not twice:
        return []
    plural = "texts occur" if twice > 1 else "text occurs"
    return [f"{twice:,} {plural} again" + (f", {other:,} of them with another label" if other else "")]


def shown(task: str, example: Any) -> str:
    """An example in one line, as it was read."""
    texts = " | ".join(shortened(text) for text in key_of(task, example) if text)
    if task == "classify":
        return f"{texts} → {example.label}"
    if task == "tag":
        spans = [f"{example.text[e.start : e.end]} ({e.label})" for e in example.entities]
        return f"{texts} → {', '.join(spans) or 'no entity'}"
    if task == "embed":
        return f"{texts} → {example.score:.2f}"
    return f"{texts} → {'no answer' if example.answer is None else shortened(example.answer)}"
