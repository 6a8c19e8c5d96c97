"""Scores on held-out examples: the metrics, the same metrics of the simplest predictors, and a table of classes."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import sqrt
from typing import Any

MOST_ROWS = 30
"""Classes up to which the whole table is printed; of more, those with the lowest figures."""
FEWER_ROWS = 10
"""Rows that are printed of a longer table, and confusions that are named."""
MOST_CLASSES = 50
"""Classes up to which a confusion matrix is part of the JSON."""
NOT_SHARES = ("rouge", "bits_per", "bleu", "chrf")
"""Beginnings or parts of the names of metrics that are no percentages."""
RATIOS = ("mse", "mae", "mase", "crps", "mean_error", "r2")
"""Metrics that are relative to the spread of the values or to another error, or in the values' own unit."""
SPELLED = {
    "f1": "F1", "ap": "AP", "ap50": "AP50", "ap75": "AP75", "bleu": "BLEU", "chrf": "chrF", "rouge-l": "ROUGE-L",
    "wer": "WER", "cer": "CER", "mse": "MSE", "mae": "MAE", "mase": "MASE", "crps": "CRPS", "smape": "sMAPE",
}  # fmt: skip
"""Words in the names of metrics that are abbreviations."""
RIGHT_OR_WRONG = ("accuracy", "exact_match")
"""Metrics that are the share of examples which are right."""
WIDE = 10.0
"""Width of an interval, in points, from which the examples are called few."""
UNJUDGED = ("examples", "shots")
"""Entries of scores that are no metrics."""


@dataclass(frozen=True, slots=True)
class Confusion:
    """A confusion matrix: counts of examples by their label (rows) and the predicted one (columns)."""

    labels: tuple[str, ...]
    counts: tuple[tuple[int, ...], ...]

    def largest(self, count: int = FEWER_ROWS) -> list[dict[str, Any]]:
        """The most frequent confusions: the label, the one predicted instead, how often, and of how many examples."""
        cells: list[dict[str, Any]] = [
            {"label": name, "predicted": self.labels[j], "count": value, "of": sum(row)}
            for i, (name, row) in enumerate(zip(self.labels, self.counts, strict=True))
            for j, value in enumerate(row)
            if i != j and value
        ]
        return sorted(cells, key=lambda cell: -cell["count"])[:count]


@dataclass(frozen=True, kw_only=True, slots=True)
class Scored:
    """Metrics by name, and the model's output for each example."""

    scores: dict[str, Any]
    outputs: list[str]
    expected: Sequence[Any] = ()
    """The right output for each example in the task's own form, from which baselines are computed."""
    details: Any = None
    """Further results for each example, which metrics of attention weights need."""
    summary: str = ""
    """The scores in a line for a terminal, where they are not all shares of examples."""
    baselines: dict[str, dict[str, float]] = field(default_factory=dict)
    """Metrics of the simplest predictors, by their names: {"most frequent label": {"accuracy": 20.0}}."""
    metrics: tuple[str, ...] = ()
    """The metrics that a model must be better in than a baseline (none: the first one)."""
    lower: bool = False
    """Whether lower values of these metrics are better."""
    classes: list[dict[str, Any]] = field(default_factory=list)
    """A row of figures for each class: its label, the metrics, and the number of its examples."""
    confusion: Confusion | None = None
    """Which labels were taken for which."""
    total: int | None = None
    """The number of held-out examples, of which `limit` may have left some out."""
    unit: str = "examples"
    """The name of what `total` counts."""
    limit: int | None = None
    """The most examples that were scored, where there was a limit."""
    unseen: dict[str, int] = field(default_factory=dict)
    """Labels of examples that the model was never trained on, with the number of such examples: always wrong."""
    learned: int = 0
    """Examples that the model was trained on, too."""
    more: str = ""
    """The options that give more held-out examples; named where these are few."""

    @property
    def judged(self) -> tuple[str, ...]:
        """The metrics that a model must be better in than a baseline."""
        return self.metrics or next(((name,) for name in self.scores if name not in UNJUDGED), ())

    @property
    def interval(self) -> tuple[float, float] | None:
        """The 95 % interval of the judged metric, in percent, where examples are right or wrong (Wilson's)."""
        metric, count = (self.judged or ("",))[0], self.scores.get("examples", 0)
        if metric not in RIGHT_OR_WRONG or not count:
            return None
        share, z = self.scores[metric] / 100, 1.959964
        middle, spread = share + z * z / (2 * count), z * sqrt(share * (1 - share) / count + (z / (2 * count)) ** 2)
        low, high = ((middle + sign * spread) / (1 + z * z / count) for sign in (-1, 1))
        return round(100 * max(0.0, low), 1), round(100 * min(1.0, high), 1)

    def as_json(self) -> dict[str, Any]:
        """Return the scores with baselines, figures of classes and confusions, as they are written to JSON."""
        more: dict[str, Any] = {"baselines": self.baselines} if self.baselines else {}
        if self.classes:
            more["classes"] = self.classes
        if self.confusion is not None:
            more["confusions"] = self.confusion.largest()
            if len(self.confusion.labels) <= MOST_CLASSES:
                more["confusion"] = {"labels": self.confusion.labels, "counts": self.confusion.counts}
        if self.limit and self.total and self.limit < self.total:
            more["held_out"] = self.total
        if self.interval is not None:
            more["interval"] = self.interval
        if self.unseen:
            more["unseen_labels"] = self.unseen
        if self.learned:
            more["in_training"] = self.learned
        return self.scores | more

    def render(self) -> str:
        """Return the scores as percentages (or their `summary`), the baselines, and the table of classes."""
        lines = [self.line(), self.few_line(), self.baseline_line(), *self.table(), self.confusion_line()]
        return "\n".join(filter(None, [*lines, self.unseen_line(), self.learned_line()]))

    def line(self) -> str:
        """Return the scores in one line, as percentages unless there is a `summary`."""
        if self.summary:
            return self.summary
        values = {name: value for name, value in self.scores.items() if name not in UNJUDGED and value is not None}
        numbers = "   ".join(f"{in_words(name)} {number(name, value)}" for name, value in values.items())
        return f"{numbers}   ({self.count()})"

    def count(self) -> str:
        """Return the number of scored examples in words."""
        return f"{self.scores['examples']:,} example{'s' * (self.scores['examples'] != 1)}"

    def few_line(self) -> str:
        """Return how far the score may be off where the examples are few, and the options that give more of them."""
        if self.interval is None or self.interval[1] - self.interval[0] < WIDE:
            return ""
        low, high = self.interval
        fact = f"95 % interval of the {in_words(self.judged[0])} from {self.count()}: {low:g} to {high:g} %"
        return fact + (f"; for more examples: {self.more}" if self.more else "")

    def unseen_line(self) -> str:
        """Return the labels that the model was never trained on in one line."""
        names = sorted(self.unseen, key=lambda name: -self.unseen[name])
        rows = [f"{name!r} ({self.unseen[name]:,})" for name in names[:FEWER_ROWS]] + ["…"] * (len(names) > FEWER_ROWS)
        return f"never trained on, so always wrong: {', '.join(rows)}" if rows else ""

    def learned_line(self) -> str:
        """Return how many of the examples are no test of the model."""
        return f"{self.learned:,} of {self.count()} in training too: the score is too good" if self.learned else ""

    def baseline_line(self) -> str:
        """Return the baselines in one line, without those that the summary names."""
        own = {name: row for name, row in self.baselines.items() if name not in self.summary}
        rows = []
        for name, row in own.items():
            values = [(metric, row[metric]) for metric in self.judged if metric in row]
            rows.append(f"{name}: " + ", ".join(f"{in_words(metric)} {number(metric, x)}" for metric, x in values))
        return "for comparison: " + "; ".join(rows) if rows else ""

    def table(self) -> list[str]:
        """Return the figures of each class as lines; of very many classes, those with the lowest figures."""
        if not self.classes:
            return []
        names = [name for name in self.classes[0] if name not in ("label", "count")]
        rows, more = self.classes, ""
        if len(rows) > MOST_ROWS:
            rows = sorted(rows, key=lambda row: (row[names[-1]] is None, row[names[-1]] or 0))[:FEWER_ROWS]
            more = f"… the lowest {FEWER_ROWS} of {len(self.classes):,} classes; all of them with --json"
        width = max(len("label"), *(len(str(row["label"])[:40]) for row in rows)) + 2
        lines = [f"{'label':{width}}" + "".join(f"{in_words(name):>11}" for name in names) + f"{'count':>9}"]
        for row in rows:
            values = "".join(f"{'–' if row[name] is None else format(row[name], '.1f'):>11}" for name in names)
            lines.append(f"{str(row['label'])[:40]:{width}}{values}{row['count']:>9,}")
        return [*lines, *([more] if more else [])]

    def confusion_line(self) -> str:
        """Return the largest confusions in one line."""
        cells = self.confusion.largest(3) if self.confusion is not None and len(self.confusion.labels) > 2 else []
        parts = [f"{cell['label']} as {cell['predicted']} ({cell['count']:,} of {cell['of']:,})" for cell in cells]
        return "most often confused: " + ", ".join(parts) if parts else ""


def in_words(metric: str) -> str:
    """The name of a metric for a terminal: "macro F1"."""
    words = [SPELLED.get(word, word) for word in metric.replace("rouge_l", "rouge-l").split("_")]
    return " ".join(words)


def number(metric: str, value: float) -> str:
    """A metric's value for a terminal, in percent where it is a share."""
    if metric in RATIOS:
        return f"{value:.3f}"
    return f"{value:.1f}" if any(part in metric for part in NOT_SHARES) else f"{value:.1f} %"
