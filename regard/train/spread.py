"""One process or many, as a run was started."""

import torch.distributed as dist
from torch import nn

from regard.train import processes
from regard.train.layout import parse
from regard.train.parallel import Objective, Parallel


def spread(model: nn.Module, objective: Objective, layout: str, seed: int | None = None) -> Parallel:
    """Return how this run's processes train a model, each its part."""
    if processes.count() == 1 or not dist.is_initialized():
        parse(layout, 1 if "=" in layout else None)
        return Parallel(model, objective, seed)
    if seed is None:  # each process would draw the same for other rows
        raise ValueError("--train.noise generator is for one process; go on with one, or begin a new run")
    from regard.train.distributed import Processes

    return Processes(model, objective, parse(layout, processes.count()), seed)
