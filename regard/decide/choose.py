"""Which family to train on some data: each for the same CPU minutes with several seeds, and an answer where these allow
one."""

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from regard.bench.measure import Died, counted, in_child
from regard.bench.quality import store, stored
from regard.config import nearest
from regard.eval.scores import evaluate
from regard.recipes import recipe
from regard.runs.fit import fit_job, prepare
from regard.train.loop import read_metrics
from regard.train.progress import Line
from regard.why.statistics import CONFIDENCE, Interval, confidence_of_each, t_quantile

Plan = dict[str, Any]
CONTENDERS: dict[str, dict[str, Plan]] = {
    "lm": {"LSTM": {"name": "lm", "model": "lstm"}, "Transformer": {"name": "lm"}},
    "vit": {"CNN": {"name": "cnn-attention", "model.attention": 0}, "Transformer": {"name": "vit"}},
    "classify": {"Transformer": {"name": "classify"}},
}
"""Models for each kind of data, by the name of the recipe that reads it: a recipe and its overrides."""
SIMPLE = {"classify": "naive Bayes on words"}
"""A baseline that is a contender, too; it needs no training to speak of, and no seed changes it."""
TUNED = "fine-tuned"
FEWEST_STEPS = 30
"""Steps below which a run is too short to tell anything."""
UNKNOWN = "the seeds do not tell"


def measure_choice(
    kind: str, *, minutes: int | float = 5.0, seeds: int = 3, base: str | None = None,
    changes: Mapping[str, Any] | None = None, out: Path, say: Callable[[str], None] = lambda text: None,
) -> dict[str, Any]:  # fmt: skip
    """Train what is missing in `out`, and return the scores of every contender and the answer."""
    if kind not in CONTENDERS:
        raise ValueError(f"no models to choose from for {kind!r}; {nearest(kind, CONTENDERS)}")
    if seeds < 2:
        raise ValueError(f"--seeds {seeds} gives no interval; use 2 or more")
    if minutes <= 0:
        raise ValueError(f"--minutes {minutes:g} trains nothing; use a positive number")
    plans = plans_of(kind, minutes, base, changes or {})
    cells: dict[str, list[dict[str, Any]]] = {name: [] for name in plans}
    for seed in range(seeds):  # seed by seed, so that what was measured before an interruption is comparable
        for name, plan in plans.items():
            place, own = out / f"{name}-{seed}".replace(" ", "-"), {**plan, "train.seed": seed}
            done = stored(place, own)
            if done is None:
                say(f"{name}, seed {seed}: {minutes:g} CPU minutes")
                try:
                    done = in_child(train_one, own, place)
                except Died as died:
                    raise ValueError(f"{name}, seed {seed}: {died}") from None
                store(place, own, done)
            cells[name].append(done)
    first = next(iter(cells.values()))[0]
    if (simple := SIMPLE.get(kind)) and simple in first["baselines"]:
        score = first["baselines"][simple].get(first["metric"])
        cells[simple] = [] if score is None else [{**first, "score": score, "steps": None, "parameters": None}] * seeds
    cells = {name: runs for name, runs in cells.items() if runs}
    result: dict[str, Any] = {
        "kind": kind, "minutes": minutes, "seeds": seeds, "metric": first["metric"], "lower": first["lower"],
        "models": {name: summary(runs) for name, runs in cells.items()},
    }  # fmt: skip
    return result | answer(result)


def plans_of(kind: str, minutes: int | float, base: str | None, changes: Mapping[str, Any]) -> dict[str, Plan]:
    """The recipe and overrides of each contender; a mistake in them is known before anything is trained."""
    budget = {"train.minutes": minutes, "train.clock": "cpu", "train.epochs": None}
    plans = {name: {**budget, **plan, **changes} for name, plan in CONTENDERS[kind].items()}
    if base is not None:
        plans[TUNED] = {**budget, "name": CONTENDERS[kind]["Transformer"]["name"], **changes, "data.base": base}
        if kind == "classify":  # neither a second training nor another model beside it
            plans[TUNED] |= {"data.probe": 0, "data.refit": 0}
    for plan in plans.values():
        configured(plan)
    return plans


def configured(plan: Plan) -> Any:
    """The recipe of a plan."""
    return recipe(plan["name"], {key: value for key, value in plan.items() if key != "name"})


def train_one(plan: Plan, out: Path) -> dict[str, Any]:
    """Train or resume a run, with one thread, and score it on what it held out; meant for a fresh process."""
    torch.set_num_threads(1)
    settings, resume = configured(plan), (out / "recipe.toml").exists()
    fit_job(prepare(settings.data, settings, out, resume, Line(True)), out, resume=resume, quiet=True)
    scored = evaluate(out, {})
    steps = [row for row in read_metrics(out / "metrics.jsonl") if "tokens" in row]
    metric = scored.judged[0]
    return {
        "metric": metric, "lower": scored.lower, "score": scored.scores[metric], "steps": len(steps),
        "seconds": steps[-1]["seconds"], "baselines": scored.baselines, "parameters": parameters(out),
    }  # fmt: skip


def parameters(run: Path) -> int:
    """The number of parameters of a run's model."""
    from regard.hub.checkpoint import peek_model

    return sum(parameter.numel() for parameter in peek_model(run).parameters())


def summary(runs: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The scores of a contender over its seeds."""
    scores = [run["score"] for run in runs]
    return {
        "scores": scores, "mean": statistics.fmean(scores), "deviation": statistics.stdev(scores),
        "steps": None if runs[0]["steps"] is None else min(run["steps"] for run in runs),
        "parameters": runs[0]["parameters"],
    }  # fmt: skip


def answer(result: Mapping[str, Any]) -> dict[str, Any]:
    """The best contender, where its mean is better than every other one by more than the seeds explain."""
    models, sign = result["models"], -1 if result["lower"] else 1
    short = [name for name, row in models.items() if row["steps"] is not None and row["steps"] < FEWEST_STEPS]
    order = sorted(models, key=lambda name: -sign * models[name]["mean"])
    best, others = order[0], order[1:]
    intervals = {
        name: unpaired_interval(
            [sign * score for score in models[best]["scores"]], [sign * score for score in models[name]["scores"]],
            confidence_of_each(len(others)),
        )
        for name in others
    }  # fmt: skip
    unclear = [name for name, interval in intervals.items() if interval.low <= 0]
    if short:
        reason = f"{short[0]} made {counted(models[short[0]]['steps'], 'step')}, too few to tell; raise --minutes"
    else:
        reason = f"{UNKNOWN} {best} from {' and '.join(unclear)}" if unclear else ""
    found = {name: {"mean": i.mean, "low": i.low, "high": i.high} for name, i in intervals.items()}
    return {"best": best, "answer": UNKNOWN if reason else best, "reason": reason, "ahead_of": found}


def unpaired_interval(first: Sequence[float], second: Sequence[float], confidence: float = CONFIDENCE) -> Interval:
    """Return Welch's interval of the difference of two means."""
    parts = [statistics.variance(scores) / len(scores) for scores in (first, second)]
    mean, variance = statistics.fmean(first) - statistics.fmean(second), sum(parts)
    freedoms = (len(first) - 1, len(second) - 1)
    spread = sum(part**2 / freedom for part, freedom in zip(parts, freedoms, strict=True))
    freedom = min(freedoms) if spread == 0 else max(min(freedoms), math.floor(variance**2 / spread))
    reach = t_quantile(freedom, confidence) * math.sqrt(variance)
    return Interval(mean, mean - reach, mean + reach, len(first))
