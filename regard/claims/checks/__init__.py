"""Checks: functions that compute the figure of a claim which no command prints; importing registers them."""

from regard.claims.checks import (  # noqa: F401
    attention,
    blocks,
    costs,
    families,
    images,
    kernels,
    positions,
    recurrence,
    times,
    tokens,
    trained,
)
from regard.claims.checks.base import CHECKS

__all__ = ["CHECKS"]
