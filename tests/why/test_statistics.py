"""Intervals and verdicts, on numbers whose truth is known."""

import numpy as np
import pytest

from regard.why.statistics import Interval, paired_interval, t_quantile, verdict_of


@pytest.mark.parametrize("freedom", [1, 2, 3, 4, 9, 30, 200])
def test_quantiles_are_scipys(freedom):
    stats = pytest.importorskip("scipy.stats")
    assert t_quantile(freedom) == pytest.approx(stats.t.ppf(0.975, freedom), rel=1e-4)


def test_an_interval_is_the_textbooks():
    stats = pytest.importorskip("scipy.stats")
    differences = [0.3, -0.1, 0.25, 0.4, 0.05]
    found = paired_interval(differences)
    wanted = stats.ttest_1samp(differences, 0).confidence_interval(0.95)
    assert (found.low, found.high) == pytest.approx((wanted.low, wanted.high), rel=1e-4)
    assert found.mean == pytest.approx(0.18) and found.count == 5


@pytest.mark.parametrize(
    ("mean", "reach", "verdict"),
    [
        (0.5, 0.2, "supported"),
        (-0.5, 0.2, "contradicted"),
        (0.5, 0.6, "not visible at this size"),
        (0.05, 0.01, "not visible at this size"),  # sure, but smaller than what counts
        (-0.05, 0.01, "not visible at this size"),
        (0.0, 0.0, "not visible at this size"),
    ],
)
def test_verdicts(mean, reach, verdict):
    assert verdict_of(Interval(mean, mean - reach, mean + reach, 5), least=0.1) == verdict


def test_one_pair_is_no_interval():
    with pytest.raises(ValueError, match="at least 2 pairs, got 1; use --seeds 2 or more"):
        paired_interval([1.0])


@pytest.mark.parametrize("seeds", [3, 5])
def test_equal_arms_differ_as_seldom_as_promised(seeds):
    """Of many comparisons of an arm with itself, one in twenty is outside of its interval; with a smallest difference
    that counts, far fewer are."""
    random = np.random.default_rng(0)
    intervals = [paired_interval(row.tolist()) for row in random.normal(size=(4000, seeds))]
    outside = sum(interval.excludes_zero for interval in intervals) / len(intervals)
    assert outside == pytest.approx(0.05, abs=0.011)  # three standard errors
    judged = sum(verdict_of(interval, 1.0) != "not visible at this size" for interval in intervals) / len(intervals)
    assert judged < outside


def test_intervals_of_a_family_hold_together():
    """Four questions at once: all intervals hold in nineteen families of twenty or more."""
    random = np.random.default_rng(2)
    families = [[paired_interval(row.tolist(), family=4) for row in rows] for rows in random.normal(size=(1500, 4, 5))]
    wrong = sum(any(interval.excludes_zero for interval in family) for family in families) / len(families)
    assert 0.03 < wrong < 0.066


def test_a_true_difference_is_found():
    random = np.random.default_rng(1)
    rows = random.normal(1.0, 0.3, size=(500, 5))
    assert sum(verdict_of(paired_interval(row.tolist()), 0.1) == "supported" for row in rows) > 480
