"""The doctor's judgement of a finished run: is it better than the simplest predictors of its task?"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from regard.config import read_json, read_toml, reading
from regard.doctor.findings import Finding
from regard.train.loop import read_metrics

FEW_STEPS = 200
"""Steps below which a run is called short."""
FALLEN = 0.9
"""The share of the first training loss above which the last one has hardly fallen."""
APART = 1.3
"""The ratio of the last validation loss to the lowest one above which the training data were learned by heart."""


def judge(run: Path) -> Finding | None:
    """The finding that a run is no better than a baseline, from its scores.json; None if it is, or was not scored."""
    try:
        record = read_json(run / "scores.json")
        scores, baselines = dict(record), dict(record["baselines"])
        better = better_baseline(scores, baselines, list(record["metrics"]), bool(record["lower"]))
        if better is None:
            return None
        metric, name = better
        words = f"{metric.replace('_', ' ')} {scores[metric]:g} against {baselines[name][metric]:g}"
    except (OSError, ValueError, LookupError, TypeError, AttributeError):  # no such file, or a damaged one
        return None
    why, cure = likely_cause(run)
    return Finding("no better than a baseline", f"{words} of the baseline “{name}”; {why}", cure, 0.8)


def better_baseline(
    scores: Mapping[str, Any], baselines: Mapping[str, Mapping[str, float]], metrics: Sequence[str], lower: bool
) -> tuple[str, str] | None:
    """Return a metric and the best baseline in it, if that is at least as good as the model's own score; else None."""
    sign = -1 if lower else 1
    for metric in metrics:
        if scores[metric] == (0 if lower else 100):  # nothing can be better
            continue
        known = {name: sign * row[metric] for name, row in baselines.items() if metric in row}
        if known and (best := max(known, key=lambda name: known[name])) and known[best] >= sign * scores[metric]:
            return metric, best
    return None


def likely_cause(run: Path) -> tuple[str, str]:
    """The most likely reason why a run learned too little, by its losses and its recipe, and the cure."""
    rows = read_metrics(run / "metrics.jsonl") if (run / "metrics.jsonl").is_file() else []
    losses = [row["loss"] for row in rows if isinstance(row.get("loss"), int | float)]
    valid = [row["valid_loss"] for row in rows if isinstance(row.get("valid_loss"), int | float)]
    recipe = read_toml(run / "recipe.toml") if (run / "recipe.toml").is_file() else {}
    with reading(run / "recipe.toml"):
        base = recipe.get("data", {}).get("base", "none") not in ("none", None)
        minutes = recipe.get("train", {}).get("minutes", "none")
    pretrained = "" if base else ", or start from a pretrained model: regard finetune"
    if 0 < len(losses) < FEW_STEPS:
        timed = isinstance(minutes, int | float)  # then the clock decides, and a number of steps has no effect
        longer = f"--train.minutes {10 * minutes:g}" if timed else f"--train.steps {max(500, 10 * len(losses))}"
        return f"{len(losses)} steps are few", f"train longer: {longer}{pretrained}"
    if len(valid) > 1 and valid[-1] > APART * min(valid):
        return (
            "the validation loss rose again, so that the training data were learned by heart",
            f"give more data, a smaller model or more dropout{pretrained}",
        )
    if losses and losses[-1] > FALLEN * losses[0]:
        return (
            "the training loss hardly fell",
            "raise --train.lr or train longer; if it stays, check that labels belong to their inputs",
        )
    return "the data are few or hard for this model", f"give more data or train longer{pretrained}"
