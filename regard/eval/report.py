"""The report after training: scores on held-out data, samples, and commands to try next."""

import json
import sys
from pathlib import Path

from regard.eval.attention_metrics import with_attention
from regard.eval.scores import eval_set
from regard.inside import draw_view
from regard.tasks import Samples, Scored, Task, load
from regard.tasks.base import shortened
from regard.train.loop import Fitted


def report(out: Path, fitted: Fitted, *, as_json: bool, program: str = "regard") -> None:
    """Print scores, samples and next steps of the run in `out`; `program` is what commands begin with."""
    print("scoring held-out examples; the run is saved, Ctrl-C leaves it at that …", file=sys.stderr)
    try:
        scored, samples = results(out)
    except ValueError as error:  # the run is whole, whatever its held-out data are
        print(f"not scored: {error}", file=sys.stderr)
        scored, samples = None, Samples(commands=[f"regard eval {out} --help"])
    training = {"steps": fitted.step, "minutes": round(fitted.seconds / 60, 2), "valid_loss": fitted.valid_loss}
    if as_json:
        print(json.dumps((scored.scores if scored else {}) | training, ensure_ascii=False))
        return
    print(f"\n{fitted.step} steps in {fitted.seconds / 60:.1f} minutes; validation loss {fitted.valid_loss:.4f}")
    if scored:
        print("on held-out data: " + scored.render())
    for text, answer in samples.rows:
        print(f"\n  {shortened(text)}\n    → {shortened(answer)}" if text else f"\n  {answer}")
    print("\nTry next:")
    for command in samples.commands:
        print(f"  {program}{command.removeprefix('regard')}")


def results(out: Path) -> tuple[Scored | None, Samples]:
    """The scores and samples of a run; its figures are drawn into it."""
    task = load(out)
    test = eval_set(task, out, {})
    scored = None
    if task.is_scored(test):
        scored = with_attention(task, test, task.evaluate_after_training(test))
    samples = task.samples(test, out)
    draw(task, samples, out)
    return scored, samples


def draw(task: Task, samples: Samples, out: Path) -> None:
    """Draw the views and save the images that a task shows after training."""
    for name, (view, item) in samples.views.items():
        try:
            draw_view(task, view, item, out / name)
            print(f"{view}: {out / name}", file=sys.stderr)
        except ValueError as error:  # such as a model without attention, which has no alignment
            print(error, file=sys.stderr)
    for name, image in samples.images.items():
        image.save(out / name)
        print(f"samples: {out / name}", file=sys.stderr)
