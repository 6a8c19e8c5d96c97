"""Learning rates over a run. Steps count from 1: the lectures' formula divides by zero at step 0."""

import math
from collections.abc import Callable
from typing import Any

from regard.train.config import TrainConfig


def inverse_sqrt(step: int, *, dim: int, warmup: int) -> float:
    """The learning rate d^−½ · min(step^−½, step · warmup^−3⁄2) (Vaswani et al., 2017)."""
    return dim**-0.5 * min(step**-0.5, step * warmup**-1.5)


def peak_rate(config: TrainConfig, model: Any) -> float:
    """The learning rate at the end of the warm-up: the configured one, or the highest of `inverse_sqrt`."""
    if config.lr is not None:
        return config.lr
    dim = getattr(model.config, "dim", None)
    if dim is None:
        raise ValueError(f"{type(model.config).__name__} has no dim, which the default rate depends on; set --train.lr")
    return (dim * config.warmup_steps) ** -0.5


def warmup_steps(config: TrainConfig, step: int, used: int | float) -> int | float:
    """The steps of warm-up; under a time budget, a share of the run is estimated from the steps so far."""
    if config.minutes is None or config.warmup >= 1:
        return config.warmup_steps
    return config.warmup * step / max(used, 1e-9)


def warm(step: int, warmup: int | float) -> float:
    """Return the factor of a linear warm-up."""
    return min(1.0, step / max(1, warmup))


def _since_warmup(step: int, warmup: int | float, progress: float) -> float:
    """The used share of the budget that follows the warm-up, so that decay starts at the peak."""
    warming = progress * min(1.0, warmup / step)
    return min(1.0, (progress - warming) / max(1 - warming, 1e-9))


def _inverse_sqrt(step: int, warmup: int | float, progress: float) -> float:
    return warm(step, warmup) * min(1.0, math.sqrt(warmup / step)) if warmup else step**-0.5


def _cosine(step: int, warmup: int | float, progress: float) -> float:
    return warm(step, warmup) * 0.5 * (1 + math.cos(math.pi * _since_warmup(step, warmup, progress)))


def _linear(step: int, warmup: int | float, progress: float) -> float:
    return warm(step, warmup) * (1 - _since_warmup(step, warmup, progress))


def _trapezoid(step: int, warmup: int | float, progress: float) -> float:
    """Constant, then down to zero over the last third."""
    return warm(step, warmup) * min(1.0, 3 * max(0.0, 1 - progress))


def _constant(step: int, warmup: int | float, progress: float) -> float:
    return warm(step, warmup)


SCHEDULES: dict[str, Callable[[int, int | float, float], float]] = {
    "inverse-sqrt": _inverse_sqrt,
    "cosine": _cosine,
    "linear": _linear,
    "trapezoid": _trapezoid,
    "constant": _constant,
}
"""Factor on the peak learning rate from (step, warm-up steps, share of the budget that is used up)."""
