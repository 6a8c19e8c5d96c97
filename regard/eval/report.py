"""The report after training: scores on held-out data, samples, and commands to try next."""

import time
from dataclasses import replace
from pathlib import Path

from regard.data.terminal import echo, to_json
from regard.doctor.findings import as_dict
from regard.eval.attention_metrics import with_attention
from regard.eval.baselines import CONFUSION, SCORES, keep, with_baselines
from regard.eval.scores import eval_set, scored_weights
from regard.inside import draw_view
from regard.modalities import modality_of
from regard.registry import modalities
from regard.tasks import EvalSet, Samples, Scored, Task, load
from regard.tasks.base import quoted, shortened
from regard.tasks.page_examples import save_examples
from regard.train.loop import Fitted

LEAST_SECONDS, MOST_SECONDS, SHARE = 10.0, 120.0, 0.25
"""Scoring after training takes about this share of the training's seconds, within these bounds."""
GROWTH = 4
"""A trial of scoring takes so many times as many examples as the one before."""


def report(out: Path, fitted: Fitted, *, as_json: bool, program: str = "regard", score: bool = True) -> None:
    """Print scores, samples and next steps of the run in `out`; `program` is what commands begin with. With `score`
    off, nothing is scored and no samples are made."""
    scored, samples, finding = None, Samples(commands=[f"regard eval {out}"]), None
    if score:
        echo("scoring held-out examples; the run is saved, Ctrl-C leaves it at that …", err=True)
        budget = min(MOST_SECONDS, max(LEAST_SECONDS, SHARE * fitted.seconds))
        try:
            scored, samples = results(out, budget)
        except (ValueError, ImportError) as error:  # the run is whole, whatever its held-out data or extras are
            echo(f"not scored: {error}", err=True)
            samples = Samples(commands=[f"regard eval {out} --help"])
    else:
        (out / SCORES).unlink(missing_ok=True)  # those of an earlier training are not this one's
    if scored:
        finding = keep(scored, out)
        if (out / CONFUSION).exists() and scored.confusion:
            echo(f"confusions: {out / CONFUSION}", err=True)
    training = {"steps": fitted.step, "minutes": round(fitted.seconds / 60, 2), "valid_loss": fitted.valid_loss}
    if as_json:
        found = {"finding": as_dict(finding)} if finding else {}
        echo(to_json((scored.as_json() if scored else {}) | found | training))
        return
    echo(f"\n{fitted.step} steps in {fitted.seconds / 60:.1f} minutes; validation loss {fitted.valid_loss:.4f}")
    if scored:
        echo("on held-out data: " + scored.render())
    if scored and scored.total and scored.limit and scored.limit < scored.total:
        echo(f"scored {scored.limit:,} of {scored.total:,} {scored.unit}; {program} eval {out} scores all")
    if finding:
        echo(f"doctor: {finding}")
    for text, answer in samples.rows:
        echo(f"\n  {shortened(text)}\n    → {shortened(answer)}" if text else f"\n  {answer}")
    echo("\nTry next:")
    for command in [*samples.commands, f"regard serve {out}"]:
        echo(f"  {program}{command.removeprefix('regard')}")


def results(out: Path, budget: float = MOST_SECONDS) -> tuple[Scored | None, Samples]:
    """The scores of a run, in about `budget` seconds, and its samples; its figures are drawn into it."""
    task = load(out)
    test = eval_set(task, out, {})
    scored, weights = None, scored_weights(out, {})
    judged = task if weights == out else load(weights)  # the task itself may have learned what was held out
    if task.is_scored(test):
        test, scored = score_within(judged, test, budget)
        scored = with_baselines(judged, test, with_attention(judged, test, scored))
    samples = judged.samples(eval_set(task, out, {}), out)
    save_examples(task, samples, out)
    draw(task, samples, out)
    return scored, replace(samples, commands=commands_of(task, samples, out))


def commands_of(task: Task, samples: Samples, out: Path) -> list[str]:
    """The commands to try next, as they can be pasted: what is no text is saved in the run, if its modality can write
    it, and without a command that looks inside, there is one for the first example."""
    rows = [] if modalities[task.inputs[0]].files else [text for text, _ in samples.rows[:1] if text]
    inputs = samples.examples[0].inputs if samples.examples else rows
    writers = [None if isinstance(item, str) else modality_of(item, task.inputs).write for item in inputs]
    items = [write(item, out) if write else item for write, item in zip(writers, inputs, strict=True)]
    commands = list(samples.commands)
    for path in [item for item in items if isinstance(item, Path)][:1]:
        commands = [command.replace(f" {path.name}", f" {quoted(str(path))}") for command in commands]
    words = [quoted(str(item)) for item in items if isinstance(item, str | Path)]
    if words and len(words) == len(items) and not any(command.startswith("regard look ") for command in commands):
        commands.append(f"regard look {out} {' '.join(words)}")
    return commands


def score_within(task: Task, test: EvalSet, budget: float) -> tuple[EvalSet, Scored]:
    """Score all held-out examples if that takes at most `budget` seconds, else as many as fit: a few first, then more
    and more of them, while the time that these took says that the next trial will fit. Of few examples, all are scored
    unless that takes more than `MOST_SECONDS`."""
    limit, before = task.trial, (0, 0.0)
    started = time.monotonic()
    while True:
        began = time.monotonic()
        part = replace(test, limit=limit)
        scored = replace(task.evaluate_after_training(part), limit=limit)
        seconds, left = time.monotonic() - began, budget - (time.monotonic() - started)
        if (total := scored.total) is None:  # a task that does not say how many there are
            return test, task.evaluate_after_training(test)
        if limit >= total:
            return part, scored
        each = max(seconds - before[1], 0.05 * seconds) / (limit - before[0])
        few = total <= GROWTH * task.trial  # the first trial's time is mostly that of starting
        if seconds + each * (total - limit) <= (MOST_SECONDS if few else left):
            return test, task.evaluate_after_training(test)
        more = GROWTH * limit
        if seconds + each * (more - limit) > left:
            return part, scored
        limit, before = more, (limit, seconds)


def draw(task: Task, samples: Samples, out: Path) -> None:
    """Draw the views and save the images that a task shows after training."""
    for name, (view, item) in samples.views.items():
        try:
            draw_view(task, view, item, out / name)
            echo(f"{view}: {out / name}", err=True)
        except (ValueError, ImportError) as error:  # such as a model without attention; or no matplotlib
            echo(error, err=True)
    for name, image in samples.images.items():
        image.save(out / name)
        echo(f"samples: {out / name}", err=True)
