"""Paired differences: their intervals, which hold together with 95 %, and the verdict on a claim."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Literal

import numpy as np

Verdict = Literal["supported", "not visible at this size", "contradicted"]
CONFIDENCE = 0.95


@cache
def t_quantile(freedom: int, confidence: float = CONFIDENCE) -> float:
    """Return the number that |t| exceeds with probability 1 − confidence, by Student's distribution."""
    density = math.gamma((freedom + 1) / 2) / (math.sqrt(freedom * math.pi) * math.gamma(freedom / 2))

    def inside(t: float) -> float:
        """The probability of |T| < t; with T = √ν tan θ the integrand is a power of a cosine, without long tails."""
        end = math.atan(t / math.sqrt(freedom))
        angles = np.linspace(0, end, 4001)
        heights = density * math.sqrt(freedom) * np.cos(angles) ** (freedom - 1)
        return float((heights[1:] + heights[:-1]).sum()) * end / 4000

    low, high = 0.0, 1000.0
    while high - low > 1e-6 * high:
        middle = (low + high) / 2
        low, high = (middle, high) if inside(middle) < confidence else (low, middle)
    return high


@dataclass(frozen=True, slots=True)
class Interval:
    """The mean of paired differences and its interval."""

    mean: float
    low: float
    high: float
    count: int

    @property
    def excludes_zero(self) -> bool:
        return self.low > 0 or self.high < 0

    def __str__(self) -> str:
        return f"{self.mean:+.3g} [{self.low:+.3g}, {self.high:+.3g}]"


def paired_interval(differences: Sequence[float], family: int = 1) -> Interval:
    """Return the t-interval of the mean of at least two differences, wide enough that `family` such intervals hold
    together with 95 %."""
    count = len(differences)
    if count < 2:
        raise ValueError(f"an interval needs at least 2 pairs, got {count}; use --seeds 2 or more")
    mean = math.fsum(differences) / count
    variance = math.fsum((each - mean) ** 2 for each in differences) / (count - 1)
    reach = t_quantile(count - 1, confidence_of_each(family)) * math.sqrt(variance / count)
    return Interval(mean, mean - reach, mean + reach, count)


def confidence_of_each(family: int) -> float:
    """Return the confidence that each of so many intervals needs, so that all hold together with 95 % (Bonferroni)."""
    return 1 - (1 - CONFIDENCE) / family


def verdict_of(interval: Interval, least: float) -> Verdict:
    """Judge a claim by differences that are positive where it holds; means below `least` do not count."""
    if interval.excludes_zero and abs(interval.mean) >= least:
        return "supported" if interval.mean > 0 else "contradicted"
    return "not visible at this size"
