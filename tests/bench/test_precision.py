"""`regard bench precision`: the rounding of numbers is that of their formats, and a model trains with each."""

import pytest

from regard.bench.precision import (
    TYPES,
    PrecisionConfig,
    draw_precision,
    measure_precision,
    render_precision,
    rounding_error,
)


def test_rounding_errors_are_those_of_the_bits():
    """Between 1 and 2 values are evenly spaced, so the mean error is a quarter of the step, over about 1.44."""
    for name, bits in {"float16": 10, "bfloat16": 7, "e4m3": 3, "e5m2": 2}.items():
        expected = 0.25 * 2.0**-bits * 0.69
        assert rounding_error(TYPES[name], 0.0) == pytest.approx(expected, rel=0.02)
    assert rounding_error(TYPES["float16"], -30.0) == 1.0 > rounding_error(TYPES["bfloat16"], -30.0)
    assert rounding_error(TYPES["e4m3"], 12.0) > 0.8 > rounding_error(TYPES["e5m2"], 12.0)


def test_a_model_trains_with_products_of_each_format(tmp_path):
    result = measure_precision(PrecisionConfig(steps=2, dim=32, depth=1, rows=2, length=8))
    errors = {name: row["gradient_error"] for name, row in result["training"].items()}
    assert errors["float32"] == 0.0 < errors["float16"] < errors["bfloat16"] < errors["fp8"] < 1.0
    assert len(render_precision(result).splitlines()) == 2 + 4 + 1 + 6
    draw_precision(result, tmp_path / "precision.png")
    assert (tmp_path / "precision.png").stat().st_size > 5000
