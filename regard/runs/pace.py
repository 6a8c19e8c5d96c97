"""Defaults for steps, batch size and time between validations, from the number of examples that the user has."""

import math
from typing import Any

MOST = 32
"""Examples of a batch are no more than this, unless the fewest are."""
SELECTED = 50
"""Validation examples from which on the metric of every validation is more than noise."""
STOPPED = 100
"""Validation examples from which on training may stop early."""
MOST_HELD_OUT = 2000
"""Validation examples are no more than this: more would only take time."""


def share_held_out(count: int) -> float:
    """The share of `count` examples that is held out for validation: a tenth, of few examples up to a fifth."""
    held = min(MOST_HELD_OUT, max(0.1 * count, min(0.2 * count, SELECTED)))
    return round(held / count, 4)


def rows_of(count: int, least: int) -> int:
    """The examples of a batch: they grow with the square root of their number, from `least` on."""
    return max(least, min(MOST, round(math.sqrt(count) / 2)))


def paced(count: int, held_out: int, rows: float, *, epochs: float, least: int) -> dict[str, Any]:
    """Fields of a TrainConfig for `count` training and `held_out` validation examples in batches of about `rows`.

    There are at least `least` updates: of few examples, more passes. A run is validated ten times and may stop early;
    where few examples are held out, three times, since the best of many noisy figures is luck.
    """
    steps = max(least, math.ceil(epochs * count / max(1.0, rows)))
    validations = 10 if held_out >= SELECTED else 3
    return dict(
        epochs=epochs, min_steps=least, select="metric", patience=5 if held_out >= STOPPED else 0,
        eval_every=math.ceil(steps / validations), save_every=max(50, math.ceil(steps / 4)),
    )  # fmt: skip
