"""The metrics of a model on held-out examples, or on the user's files."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from regard.config import override
from regard.data.notices import track
from regard.data.sets.labelled_texts import ExamplesConfig, labels_of
from regard.data.terminal import echo
from regard.eval.attention_metrics import with_attention
from regard.eval.baselines import with_baselines
from regard.files import same_file
from regard.hub.remote import find
from regard.runs.checksums import changed_sources
from regard.runs.choice import VALIDATED, is_validated, learned
from regard.runs.recipe import Recipe
from regard.tasks import EvalSet, Scored, load
from regard.tasks.baselines import best_constant
from regard.tasks.loading import Quantize
from regard.tasks.metrics import label_scores, label_table

TEST_EXAMPLES = 1000
"""Default number of examples that are classified by a prompt."""


def evaluate(
    run: str | Path, changes: Mapping[str, Any], *, limit: int | None = None, few_shot: int | None = None,
    quantize: Quantize | None = None, **options: Any,
) -> Scored:  # fmt: skip
    """The scores of a model on the data that `changes` name, or on what was held out of its training."""
    path = find(run)
    task = load(path if few_shot is not None else scored_weights(path, changes), quantize)
    if few_shot is not None:
        if task.verb("generate") is None:
            raise ValueError("examples in a prompt are for language models; score this one without --few-shot")
        data = chosen_data(ExamplesConfig(), None, {"data.task": "classify"} | dict(changes))
        return classify_by_prompt(task, data, few_shot, limit)
    return score(task, path, changes, limit, **options)


def score(task: Any, run: Path, changes: Mapping[str, Any], limit: int | None, **options: Any) -> Scored:
    """The scores of a loaded task, beside those of its baselines."""
    test = eval_set(task, run, changes, limit)
    return with_baselines(task, test, with_attention(task, test, task.evaluate(test, **options)))


def scored_weights(run: Path, changes: Mapping[str, Any]) -> Path:
    """The folder of the weights to score: where a run has also learned its held-out examples, and these are to be
    scored, that of the weights which have not seen them."""
    if not is_validated(run):
        return run
    own = Recipe.load(run / "recipe.toml").data
    data = chosen_data(own, None, changes)
    if not learned(run, own, data, "valid", "test"):
        return run
    if changed := [name for name in own.splitting if getattr(data, name) != getattr(own, name)]:
        raise ValueError(
            f"with another --data.{changed[0].replace('_', '-')} than in training, examples would be scored that {run} "
            "was trained on; leave it out, or give --data.test FILE"
        )
    echo(
        f"the held-out examples are scored by {run / VALIDATED}, trained without them; {run} itself was then trained "
        "on all examples (give --data.test FILE to score it)",
        err=True,
    )
    return run / VALIDATED


def eval_set(task: Any, run: Path, changes: Mapping[str, Any], limit: int | None = None) -> EvalSet:
    """The data of a model's evaluation: those of its run with the user's changes, or the embedded ones of its task."""
    stored = run / "recipe.toml"
    recipe = Recipe.load(stored) if stored.exists() else None
    own = recipe.data if recipe is not None and isinstance(recipe.data, task.data) else task.default_data()
    data = chosen_data(own, task.default_data(), changes)
    for source in changed_sources(data, run):
        echo(f"{source} has changed since {run} was trained: held-out examples may be others", err=True)
    named = frozenset(key.removeprefix("data.").replace("-", "_") for key in changes)
    return EvalSet(
        data=data, own=own, named=named, limit=limit, run=str(run),
        recipe=recipe.name if recipe is not None else "",
    )  # fmt: skip


def chosen_data(own: Any, default: Any, changes: Mapping[str, Any]) -> Any:
    """Return a run's data config with the user's changes; where these name other files, only the fields that say how
    examples are read are kept."""
    fields = {key.removeprefix("data.").replace("-", "_"): value for key, value in changes.items()}
    if default is not None and not fields.keys() <= set(type(own).__dataclass_fields__):
        own = default
    if any(field in fields and not same_file(fields[field], getattr(own, field)) for field in own.own):
        own = type(own)(**{field: getattr(own, field) for field in own.reading})
    return override(own, fields)


def classify_by_prompt(task: Any, data: ExamplesConfig, shots: int, limit: int | None) -> Scored:
    """Classification by examples in the prompt: the label with the highest probability after them."""
    if data.task != "classify":
        raise ValueError(f"--few-shot is for classification, not for {data.task}")
    train, examples = data.split()[0], data.held_out()[: limit or TEST_EXAMPLES]
    labels = labels_of("classify", train)
    front = "".join(f"Text: {example.text}\nLabel: {example.label}\n\n" for example in pick(train, labels, shots))
    predicted = []
    for example in track(examples, "texts:", len(examples)):
        prompt = f"{front}Text: {example.text}\nLabel:"
        scores = task.score([prompt] * len(labels), [f" {label}" for label in labels])
        predicted.append(labels[scores.index(max(scores))])
    expected = [example.label for example in examples]
    scores = label_scores(predicted, expected) | {"shots": shots}
    baselines = {"most frequent label": {"accuracy": best_constant(expected)}}
    return Scored(scores=scores, outputs=predicted, baselines=baselines, **label_table(predicted, expected))


def pick(examples: list[Any], labels: tuple[str, ...], count: int) -> list[Any]:
    """Return the first examples of each label, alternating between labels."""
    by_label = {label: [example for example in examples if example.label == label] for label in labels}
    rounds = range(max(map(len, by_label.values())))
    mixed = [by_label[label][i] for i in rounds for label in labels if i < len(by_label[label])]
    return mixed[:count]
