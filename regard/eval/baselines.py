"""Scores beside those of the simplest predictors of the task, saved in the run with a figure of the confusions."""

import contextlib
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from regard.doctor.findings import Finding
from regard.doctor.outcome import judge
from regard.files import write_text
from regard.tasks import EvalSet, Scored

SCORES, CONFUSION = "scores.json", "confusion.png"


def with_baselines(task: Any, test: EvalSet, scored: Scored) -> Scored:
    """Return a task's scores with those of its baselines, as far as the training data are still there to make them, and
    with the options that hold out more examples."""
    fields = getattr(type(test.data), "__dataclass_fields__", {})
    if "test" in fields and test.limit is None and not test.data.embedded and "test" not in test.data.parts:
        share = "--data.held-share 0.3, or " if "held_share" in fields and "valid" not in test.data.parts else ""
        scored = replace(scored, more=f"{share}--data.test FILE")
    try:
        baselines = scored.baselines | task.baselines(test, scored)
        return replace(scored, baselines=baselines, learned=task.learned(test))
    except (ValueError, OSError, ImportError):  # files that were moved, an extra that is missing: scores stand alone
        return scored


def keep(scored: Scored, out: Path) -> Finding | None:
    """Write scores.json and confusion.png into a run; return the doctor's finding if a baseline is as good."""
    record = scored.as_json() | {"metrics": scored.judged, "lower": scored.lower}
    write_text(out / SCORES, json.dumps(record, ensure_ascii=False, indent=1) + "\n")
    if scored.confusion is not None:
        with contextlib.suppress(ImportError):  # without matplotlib the table stands alone
            from regard.inside.draw.confusion import draw_confusion

            draw_confusion(scored.confusion.labels, scored.confusion.counts, out / CONFUSION)
    return judge(out)
