"""Texts answered by Ray Data actors: processes on one machine or many, each with the model loaded. Ray starts one that
dies again, and gives its texts to another.
"""

import json
import logging
import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict
from typing import Any

from regard.tasks.bulk import Part, Work
from regard.train.device import AUTO, ENVIRONMENT

Row = dict[str, str]
"""A part of the texts, or its answers, as JSON: what goes between processes is text."""


class Actor:
    """A process that has a model, and answers parts of the texts with it."""

    def __init__(self, load: Callable[[], Any], device: str, work: Work, method: str, options: dict[str, Any]) -> None:
        self.work, self.method, self.options, self.task, self.problem = work, method, options, None, ""
        os.environ[ENVIRONMENT] = device
        try:
            self.task = load()
        except (ValueError, OSError) as error:
            self.problem = str(error)

    def __call__(self, row: Row) -> Row:
        answers: list[Any] = []
        problem = self.problem
        try:
            if not problem:
                part = Part(**json.loads(row["part"]))
                answers = part.answers(self.work, self.task, self.method, self.options)
        except ValueError as error:  # the user's mistake, as a line and not as Ray shows errors
            problem = str(error)
        return {"answers": json.dumps(answers, default=str), "problem": problem}


def answers_of_actors(
    load: Callable[[], Any], parts: Iterable[Part], work: Work, method: str, options: dict[str, Any], *,
    device: str, count: int | None,
) -> Iterator[tuple[int, dict[str, Any], str]]:  # fmt: skip
    """Yield the index and the answer of each text, as soon as its part is answered. `load` returns the task in an
    actor; `count` is the number of actors, by default one for each GPU of the cluster, or CPU."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # nothing is sent anywhere
    os.environ.setdefault("RAY_BACKEND_LOG_LEVEL", "fatal")  # or it warns of how Ray Data starts its actors
    try:
        import ray
        import ray.data
    except ImportError:
        raise ImportError("--engine ray needs an extra: pip install 'regard[ray]'") from None
    rows = [{"part": json.dumps(asdict(part))} for part in parts]
    if not rows:
        return
    ray.init(log_to_driver=False, logging_level=logging.ERROR, include_dashboard=False)
    try:
        logging.getLogger("ray.data").setLevel(logging.ERROR)
        context = ray.data.DataContext.get_current()
        context.enable_progress_bars = False
        each, actors = shares(ray.cluster_resources(), device, count)
        dataset = ray.data.from_items(rows, override_num_blocks=len(rows)).map(
            Actor, fn_constructor_args=(load, "cuda" if "num_gpus" in each else device, work, method, options),
            concurrency=min(actors, len(rows)), **each,
        )  # fmt: skip
        for row in dataset.iter_rows():
            if row["problem"]:
                raise ValueError(row["problem"])
            yield from json.loads(row["answers"])
    finally:
        ray.shutdown()


def shares(resources: dict[str, float], device: str, count: int | None) -> tuple[dict[str, int], int]:
    """Return what each actor takes of a cluster, and the number of actors; an error if there are not as many."""
    kind = device.partition(":")[0]
    unit = "GPU" if kind == "cuda" or kind == AUTO and resources.get("GPU") else "CPU"
    most = int(resources.get(unit, 0))
    if (count or 1) > most:
        cure = f"use --actors {most}" if most else "add machines, or use --device cpu"
        raise ValueError(f"--actors {count or 1}: each takes a {unit}, and the cluster has {most}; {cure}")
    return {f"num_{unit.lower()}s": 1}, count or most
