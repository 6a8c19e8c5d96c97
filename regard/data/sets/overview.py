"""Overviews of the user's data: the columns that were recognised, labels with counts, examples, and warnings."""

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

SHOWN = 3
"""Examples that are shown."""
WIDTH = 90
"""Characters of a text that are shown."""
MOST_LABELS = 12
"""Labels that are listed with their counts."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Overview:
    """A summary of a file or folder of data as it was read, to be shown before training."""

    source: str
    part: str
    """train, valid or test."""
    count: int
    unit: str
    """The name of what `count` counts: examples, images."""
    about: str
    """The format in words."""
    header: bool | None = None
    columns: Mapping[str, str] = field(default_factory=dict)
    """The column of each field."""
    unused: Sequence[str] = ()
    labels: Mapping[str, int] = field(default_factory=dict)
    """Labels and how often each occurs."""
    scale: float | None = None
    """The score that 1 stands for, where scores were divided by it."""
    examples: Sequence[str] = ()
    notes: Sequence[str] = ()
    kept: Any = field(default=None, repr=False)
    """The examples themselves, so that training need not read them again."""

    def lines(self) -> list[str]:
        """The overview in lines."""
        header = {True: ", with a header", False: ", without a header", None: ""}[self.header]
        lines = [f"{self.part}: {self.source}, {self.count:,} {self.unit} ({self.about}{header})"]
        if self.columns:
            taken = ", ".join(f"{ours} ← {theirs}" for ours, theirs in self.columns.items())
            unused = f"; not used: {', '.join(self.unused[:8])}{', …' * (len(self.unused) > 8)}" if self.unused else ""
            lines.append(f"  columns: {taken}{unused}")
        if self.labels:
            most = sorted(self.labels.items(), key=lambda item: (-item[1], item[0]))
            listed = ", ".join(f"{label} {count:,}" for label, count in most[:MOST_LABELS])
            more = f", and {len(most) - MOST_LABELS} more" if len(most) > MOST_LABELS else ""
            lines.append(f"  {len(most)} label{'s' * (len(most) > 1)}: {listed}{more}")
        if self.scale:
            lines.append(f"  scores: 0 to {self.scale:g}, divided by {self.scale:g} (--data.scale sets another)")
        lines += [f"  e.g. {example}" for example in self.examples]
        return lines + [f"  note: {note}" for note in self.notes]

    def as_json(self) -> dict[str, Any]:
        """The overview as JSON."""
        return {name: value for name, value in asdict(replace(self, kept=None)).items() if name != "kept"}


def shortened(text: Any) -> str:
    """A text in quotes on one line, cut where it is long."""
    words = " ".join(str(text).split())
    return json.dumps(words if len(words) <= WIDTH else words[: WIDTH - 1] + "…", ensure_ascii=False)


def label_notes(counts: Mapping[str, int], count: int, unit: str) -> list[str]:
    """Notes on labels that look wrong: a single label, labels that occur once, nearly as many labels as examples."""
    notes = []
    single = [label for label, number in counts.items() if number == 1]
    if len(counts) == 1:
        notes.append(f"all {unit} have the label {next(iter(counts))!r}; there is nothing to tell apart")
    elif count >= 20 and len(counts) > count / 2:
        notes.append(
            f"{len(counts):,} labels for {count:,} {unit}: is another column the label? --data.columns label=NAME"
        )
    elif single and count > len(counts):
        listed = ", ".join(map(repr, single[:5])) + ", …" * (len(single) > 5)
        notes.append(f"{len(single)} label{'s' * (len(single) > 1)} with one example only: {listed}")
    return notes


def unseen_note(train: Iterable[str], other: Mapping[str, int], part: str) -> list[str]:
    """A note on labels that occur in another part, but not in training."""
    known = set(train)
    unseen = {label: count for label, count in other.items() if label not in known}
    if not unseen:
        return []
    listed = ", ".join(map(repr, list(unseen)[:5])) + ", …" * (len(unseen) > 5)
    count = sum(unseen.values())
    plural = "have labels" if count > 1 else "has a label"
    return [f"{count:,} in {part} {plural} that training lacks, and can only be wrong: {listed}"]


def shared_note(train: Iterable[Any], other: Sequence[Any], part: str) -> list[str]:
    """A note on examples of another part that training has too."""
    known = set(train)
    shared = sum(item in known for item in other)
    if not shared:
        return []
    return [f"{shared:,} of {len(other):,} in {part} are in training too; its score will be too good"]


def counted(labels: Iterable[str]) -> dict[str, int]:
    """Labels with their counts, the most frequent first."""
    return dict(Counter(labels).most_common())
