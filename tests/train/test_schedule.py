import pytest

from regard.train.schedule import SCHEDULES, inverse_sqrt


def test_inverse_sqrt_schedule_is_the_papers_shape():
    """The factor on the default peak (d · warmup)^−½ gives the formula itself."""
    dim, warmup = 512, 4000
    for step in (1, 17, 3999, 4000, 4001, 100_000):
        rate = (dim * warmup) ** -0.5 * SCHEDULES["inverse-sqrt"](step, warmup, 0.0)
        assert rate == pytest.approx(inverse_sqrt(step, dim=dim, warmup=warmup))


@pytest.mark.parametrize("name", SCHEDULES)
def test_warm_up_is_linear_and_no_factor_exceeds_one(name):
    factors = [SCHEDULES[name](step, 10, (step - 1) / 100) for step in range(1, 101)]
    assert factors[0] == pytest.approx(0.1, rel=0.01)
    assert all(0 <= factor <= 1 for factor in factors)
    assert factors[9] == pytest.approx(1)


@pytest.mark.parametrize("name", ["cosine", "linear", "trapezoid"])
def test_ends_at_zero(name):
    assert SCHEDULES[name](100, 10, 1.0) == pytest.approx(0)
