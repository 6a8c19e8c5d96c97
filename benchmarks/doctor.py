"""Faults that the doctor finds, and false alarms on healthy runs: `python benchmarks/doctor.py --seeds 3`

Trains each healthy set-up of tests/doctor/faults.py and each with its fault, examines each module of
tests/doctor/broken.py with and without its own, and prints the rank of the right cause in the doctor's shortlist.
About three minutes of one core for three seeds. With --cost instead, what watching costs: the same recipe with and
without, in turns, and the time that the doctor's own calls take.
"""

import argparse
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).parents[1]))

from regard.doctor.exam import examine_module  # noqa: E402
from regard.doctor.watch import Watch  # noqa: E402
from regard.recipes import recipe  # noqa: E402
from regard.runs import fit as runs  # noqa: E402
from regard.runs.fit import fit_job, prepare  # noqa: E402
from regard.train.progress import Line  # noqa: E402
from tests.doctor.broken import FAULTS as MODULES  # noqa: E402
from tests.doctor.faults import FAULTS, HEALTHY, examine  # noqa: E402


def table(seeds: int, scratch: Path) -> bool:
    """Prints fault by seed; whether all is as it should be."""
    good = True
    print("| fault | cause that the doctor names | place, by seed | healthy twin |\n|---|---|---|---|")
    silent = {}
    for name, make in HEALTHY.items():
        found = [len(examine(make(seed), scratch / f"{name} {seed}")) for seed in range(seeds)]
        silent[name] = "silent" if not any(found) else f"{found} findings"
        good &= not any(found)
    for name, (cause, twin, broken) in FAULTS.items():
        places = []
        for seed in range(seeds):
            found = [one.cause for one in examine(broken(HEALTHY[twin](seed)), scratch / f"broken {name} {seed}")]
            places.append(found.index(cause) + 1 if cause in found else None)
        good &= all(place in (1, 2) for place in places)
        print(f"| {name} | {cause} | {', '.join(map(str, places))} | {twin}: {silent[twin]} |", flush=True)
    for name, cause, broken, healthy in MODULES:
        lists = [[one.cause for one in examine_module(broken(seed), name).findings] for seed in range(seeds)]
        places = [found.index(cause) + 1 if cause in found else None for found in lists]
        count = sum(len(examine_module(healthy(seed), name).findings) for seed in range(seeds))
        good &= all(place in (1, 2) for place in places) and not count
        told = f"{count} findings" if count else "silent"
        print(f"| a module: {name} | {cause} | {', '.join(map(str, places))} | {told} |", flush=True)
    return good


class Timed(Watch):
    """The doctor, and the time that it takes by itself."""

    seconds = 0.0

    def on_batch(self, *args: Any) -> None:
        self.time(super().on_batch, *args)

    def on_gradients(self, *args: Any) -> None:
        self.time(super().on_gradients, *args)

    def on_update(self, *args: Any) -> Any:
        return self.time(lambda *args: list(super(Timed, self).on_update(*args)), *args)

    @classmethod
    def time(cls, call: Any, *args: Any) -> Any:
        started = time.process_time()
        result = call(*args)
        cls.seconds += time.process_time() - started
        return result


def cost(name: str, steps: int, rounds: int, scratch: Path) -> None:
    """Prints what the doctor adds to the time of a recipe, after a warm-up round: with and without it in turns (noisy),
    and the time inside its own calls as a share of the rest."""
    ratios, shares = [], []
    runs.Watch = Timed
    for number in range(rounds + 1):
        seconds, own = {}, 0.0
        for watch in (0, 50) if number % 2 else (50, 0):
            fields = {"train.steps": steps, "train.watch": watch, "train.eval_every": 10**6, "train.save_every": 10**6}
            plan, out = recipe(name, fields), scratch / f"{name}-{number}-{watch}"
            job = prepare(plan.data, plan, out, False, Line(True))
            Timed.seconds, started = 0.0, time.process_time()
            fit_job(job, out, quiet=True)
            seconds[watch] = time.process_time() - started
            own = Timed.seconds if watch else own
        if number:
            ratios.append(seconds[50] / seconds[0] - 1)
            shares.append(own / (seconds[50] - own))
            told = f"{seconds[0]:.2f} s alone, {seconds[50]:.2f} s watched, {ratios[-1]:+.2%}"
            print(f"{name}: {told}; in its own calls {own:.2f} s, {shares[-1]:.2%} of the rest", flush=True)
    between = f"{statistics.median(ratios):+.2%} ({min(ratios):+.2%} to {max(ratios):+.2%})"
    inside = f"{statistics.median(shares):.2%} ({min(shares):.2%} to {max(shares):.2%})"
    print(f"{name}, {steps} steps, median of {rounds} rounds: with against without {between}, its own calls {inside}")


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--seeds", type=int, default=3)
    options.add_argument("--cost", metavar="RECIPE", help="measure what watching costs this recipe instead")
    options.add_argument("--steps", type=int, default=100)
    options.add_argument("--rounds", type=int, default=5)
    asked = options.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as scratch:
        if asked.cost:
            cost(asked.cost, asked.steps, asked.rounds, Path(scratch))
        elif not table(asked.seeds, Path(scratch)):
            sys.exit("a fault was missed, or a healthy run was blamed")


if __name__ == "__main__":
    main()
