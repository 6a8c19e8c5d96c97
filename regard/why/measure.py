"""All arms of a component with all seeds, stored as they finish, and what they say about its claims."""

import hashlib
import json
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from math import log2
from pathlib import Path
from typing import Any

import torch

from regard.files import held, write_text
from regard.train.loop import read_metrics
from regard.train.observer import Row
from regard.why.component import Arm, Claim, Component
from regard.why.run import problem_of, run_arm, training
from regard.why.statistics import Interval, paired_interval, verdict_of

RUNS, UNFINISHED = "runs.jsonl", "unfinished"
LEARNED = 0.05
"""Share of its first loss by which at least one arm must have come down, or nothing was learned."""

Run = dict[str, Any]


def measure(
    component: Component, *, seeds: int | None, steps: int | None, out: Path, same: bool = False,
    say: Callable[[str], None] = lambda text: None,
) -> dict[str, Any]:  # fmt: skip
    """Train what is missing in `out`, and return the results; with `same`, the first arm twice instead of the others.

    Runs with one seed start from equal weights, where shapes agree, and read the same batches.
    """
    seeds = component.seeds if seeds is None else seeds
    if seeds < 2:
        raise ValueError(f"--seeds {seeds} gives no interval; use 2 or more, 5 for a verdict worth reading")
    steps = component.steps if steps is None else steps
    if steps < 1:
        raise ValueError(f"--steps {steps} trains nothing; use 1 or more")
    plan = [(component.reference, seed) for seed in range(2 * seeds)] if same else pairs(component, seeds)
    out.mkdir(parents=True, exist_ok=True)
    threads = torch.get_num_threads()
    with held(out):
        store = Store(out / RUNS, component, steps)
        torch.set_num_threads(1)  # CPU seconds of one core
        try:
            for number, (arm, seed) in enumerate(plan, start=1):
                if (arm.name, seed) not in store.runs:
                    say(f"{component.name}: {arm.name}, seed {seed} ({number} of {len(plan)})")
                    folder = out / UNFINISHED / f"{arm.name}-{seed}-{store.marks[arm.name]}"
                    store.add(run_arm(component, arm, seed, steps, folder))
        finally:
            torch.set_num_threads(threads)
    runs = store.runs
    result = {"component": component.name, "question": component.question, "steps": steps, "seeds": seeds}
    if same:
        chosen = [runs[component.reference.name, seed] for seed in range(2 * seeds)]
        return result | {"same": True, "arms": [component.reference.name], "claims": judge_same(component, chosen)}
    by_seed = [{arm.name: runs[arm.name, seed] for arm in component.arms} for seed in range(seeds)]
    reason, claims = too_small(by_seed), [judge(claim, by_seed, len(component.claims)) for claim in component.claims]
    for found in [claim[key] for claim in claims for key in ("steps", "cpu")] if reason else ():
        found["verdict"] = "too small to tell"
    return result | {
        "same": False,
        "arms": [summary(arm, [each[arm.name] for each in by_seed]) for arm in component.arms],
        "too_small": reason,
        "claims": claims,
    }


def pairs(component: Component, seeds: int) -> list[tuple[Arm, int]]:
    """Return every arm with every seed, seed by seed, so that what was measured before an interruption is paired."""
    return [(arm, seed) for seed in range(seeds) for arm in component.arms]


class Store:
    """Finished runs as lines of JSON. Each line has the checksum of its settings: others are not mixed with them."""

    def __init__(self, path: Path, component: Component, steps: int) -> None:
        self.path = path
        self.marks = {arm.name: checksum(component, arm, steps) for arm in component.arms}
        self.runs: dict[tuple[str, int], Run] = {}
        for run in read_metrics(path) if path.exists() else ():  # without a last line that was cut
            if self.marks.get(run["arm"]) != run["settings"]:
                raise ValueError(
                    f"{path} has runs with other settings (arm {run['arm']}); choose another --out, or remove it"
                )
            self.runs[run["arm"], run["seed"]] = run

    def add(self, run: Run) -> None:
        """Store a run; the file is written anew, so that it is whole at every moment."""
        self.runs[run["arm"], run["seed"]] = {"settings": self.marks[run["arm"]], **run}
        lines = (json.dumps(each) + "\n" for each in self.runs.values())
        write_text(self.path, "".join(lines))


def checksum(component: Component, arm: Arm, steps: int) -> str:
    """Return a checksum of everything that decides a run but the seed and the code."""
    fields = [component.name, arm.name, dict(component.problem.model), dict(arm.model), asdict_of(component, arm)]
    train = asdict(training(component, arm, 0, steps))
    return hashlib.sha256(json.dumps([*fields, train], sort_keys=True, default=str).encode()).hexdigest()[:12]


def asdict_of(component: Component, arm: Arm) -> dict[str, Any]:
    problem = problem_of(component, arm)
    return {name: getattr(problem, name) for name in problem.__dataclass_fields__ if name not in ("model", "train")}


# ---- scores of a run, and verdicts ----------------------------------------------------------------------------


def at_end(run: Run) -> dict[str, int | float]:
    """Return a run's metrics after all its steps."""
    return run["curve"][-1] | whole_run(run)


def whole_run(run: Run) -> dict[str, int | float]:
    """Return the metrics of a whole run; time also as its logarithm, whose differences are ratios on every machine."""
    spent, steps = run["curve"][-1]["cpu"], run["curve"][-1]["step"]
    return run["once"] | {"log2_cpu": log2(max(1e-9, spent) / max(1, steps))}


def at_cpu(run: Run, seconds: float) -> dict[str, int | float]:
    """Return a run's metrics after so many CPU seconds, interpolated between measurements."""
    curve: Sequence[Row] = run["curve"]
    if seconds >= curve[-1]["cpu"]:
        return at_end(run)
    after = next(number for number, point in enumerate(curve) if point["cpu"] > seconds)
    first, second = curve[after - 1], curve[after]
    share = (seconds - first["cpu"]) / (second["cpu"] - first["cpu"])
    return {name: first[name] + share * (second[name] - first[name]) for name in first} | whole_run(run)


def judge(claim: Claim, by_seed: Sequence[Mapping[str, Run]], family: int) -> dict[str, Any]:
    """Return the intervals and verdicts of a claim, one of a family, at equal steps and at equal CPU seconds."""
    by_steps, by_cpu = [], []
    for runs in by_seed:
        budget = min(runs[arm]["curve"][-1]["cpu"] for _, arm, _ in claim.terms)
        by_steps.append(claim.difference({arm: at_end(run) for arm, run in runs.items()}))
        by_cpu.append(claim.difference({arm: at_cpu(run, budget) for arm, run in runs.items()}))
    about = {"text": claim.text, "lecture": claim.lecture, "least": claim.least, "unit": claim.unit}
    steps, cpu = (judged(differences, claim.least, family) for differences in (by_steps, by_cpu))
    return about | {"steps": steps, "cpu": cpu}


def judged(differences: Sequence[float], least: float, family: int) -> dict[str, Any]:
    interval = paired_interval(differences, family)
    return described(interval) | {"verdict": verdict_of(interval, least)}


def described(interval: Interval) -> dict[str, Any]:
    return {name: round(getattr(interval, name), 6) for name in ("mean", "low", "high")} | {"pairs": interval.count}


def judge_same(component: Component, runs: Sequence[Run], seed: int = 0) -> list[dict[str, Any]]:
    """Pair runs of one arm at random, and judge every metric of the claims as if the two were different arms."""
    order = list(runs)
    random.Random(seed).shuffle(order)
    half = len(order) // 2
    strictest = {metric: claim for claim in sorted(component.claims, key=lambda claim: -claim.least)
                 for metric in claim.metrics}  # fmt: skip
    results = []
    for metric, claim in strictest.items():
        differences = [at_end(a)[metric] - at_end(b)[metric] for a, b in zip(order[:half], order[half:], strict=True)]
        found = judged(differences, claim.least, len(strictest))
        found["verdict"] = "no difference" if found["verdict"] == "not visible at this size" else "a difference"
        results.append({"metric": metric, "text": f"{metric}: the same arm twice", "lecture": "", "least": claim.least,
                        "unit": claim.unit, "steps": found, "cpu": found})  # fmt: skip
    return results


def too_small(by_seed: Sequence[Mapping[str, Run]]) -> str:
    """Return why the runs are too short to say anything; empty where they are not."""
    best = 0.0
    for runs in by_seed:
        for run in runs.values():
            first, last = run["curve"][0]["loss"], run["curve"][-1]["loss"]
            best = max(best, 1 - last / first)
    if best >= LEARNED:
        return ""
    return f"no arm learned anything: the best loss came down by {max(0.0, best):.1%}; use more --steps"


def summary(arm: Arm, runs: Sequence[Run]) -> dict[str, Any]:
    """Return the means of an arm's metrics over seeds, its size and its CPU seconds."""
    ends = [at_end(run) for run in runs]
    means = {name: round(sum(end[name] for end in ends) / len(ends), 5) for name in ends[0] if name != "step"}
    diverged = sum(run["diverged"] is not None for run in runs)
    return {"name": arm.name, "about": arm.about, "parameters": runs[0]["parameters"], "diverged": diverged,
            "metrics": means, "sample": runs[0]["sample"]}  # fmt: skip
