"""Growth that is known, measured; kernels that die; and the picture."""

import pytest
import torch

from regard.bench import growth
from regard.bench.growth import GrowthConfig, draw_result, efficient_kernels, measure_growth, one_pass, render_growth
from regard.registry import kernels

SMALL = dict(heads=1, head_dim=8, repeats=1)


def test_memory_of_a_square_is_found_and_the_dead_are_lines_in_the_table(own):
    lengths = (256, 512, 1024, 2048, 4096)
    config = GrowthConfig(
        kernels=("square", "killed", "starved", "picky"), lengths=lengths, passes=("forward",), **SMALL
    )
    found = measure_growth(config)["kernels"]
    square = found["square"]["forward"]
    assert square["stopped"] is None and square["memory"]["exponent"] == pytest.approx(2, abs=0.25)
    last = square["points"][-1]
    inputs = 3 * 4096 * 8 * 4
    assert last["memory"] == pytest.approx(4096**2 * 4, rel=0.1)
    assert last["memory"] <= last["total"] <= last["memory"] + 3 * inputs < last["process"]
    assert found["killed"]["forward"]["stopped"] == "stopped at 512: killed, most likely out of memory"
    assert found["starved"]["forward"]["stopped"] == "stopped at 512: out of memory"
    assert [point["length"] for point in found["killed"]["forward"]["points"]] == [256]
    assert found["killed"]["forward"]["time"] is None
    assert found["picky"]["forward"]["stopped"] is None, "its keys are its queries, and it got no mask"
    assert not found["picky"]["causal"] and found["square"]["causal"]


def test_training_takes_gradients_and_more_memory():
    config = GrowthConfig(kernels=("full",), lengths=(2048,), **(SMALL | {"head_dim": 64}))
    found = measure_growth(config)["kernels"]["full"]
    forward, training = (found[which]["points"][0] for which in ("forward", "training"))
    tensor = 2048 * 64 * 4
    assert 0 < forward["memory"] < training["memory"]
    assert training["total"] > 8 * tensor, "q, k, v and the output with the gradient of each"


@pytest.mark.parametrize("layer", [False, True])
@pytest.mark.parametrize("name", efficient_kernels())
def test_every_kernel_can_be_measured(name, layer, monkeypatch):
    """Forward there is nothing to go back through; training goes back each time."""
    seen = []
    backward = torch.Tensor.backward
    monkeypatch.setattr(torch.Tensor, "backward", lambda self, *more: seen.append(self) or backward(self, *more))
    config = GrowthConfig(kernels=(name,), lengths=(33,), layer=layer, heads=2, head_dim=8)
    one_pass(config, name, 33, "forward")()
    assert not seen
    run = one_pass(config, name, 33, "training")
    run()
    run()
    assert [tuple(out.shape) for out in seen] == [(1, 33, 16) if layer else (1, 2, 33, 8)] * 2


def power(p):
    """A measurement that follows the length to the power p."""

    def fake(work, config, name, length, which, *more, **how):
        seconds = 1e-9 * length**p * (3 if which == "training" else 1)
        return {"seconds": seconds, "passes": 3, "memory": 512 * length, "total": 2048 * length, "process": 1 << 30}

    return fake


LADDER = dict(kernels=("full", "linformer"), lengths=tuple(1024 << i for i in range(7)), max_seconds=5.0)


def test_tables_and_stops(monkeypatch):
    monkeypatch.setattr(growth, "in_child", power(2))
    found = measure_growth(GrowthConfig(**LADDER))
    full = found["kernels"]["full"]
    assert full["forward"]["time"] == {"exponent": 2.0, "from": 1024, "to": 65536}
    assert full["forward"]["memory"]["exponent"] == 1.0
    assert full["training"]["stopped"] == "stopped before 64k: about 13 s a pass expected"
    shown = render_growth(found)
    for piece in (
        "8 heads of 64", "linformer ↔", "n^2.00 1k–64k", "n^1.00 1k–32k", "4.29 s", "33.55 MB",
        "full, training: stopped before 64k: about 13 s a pass expected", "less what it held with the inputs",
    ):  # fmt: skip
        assert piece in shown, piece
    both = measure_growth(GrowthConfig(**LADDER, causal=False, passes=("forward",)))
    assert "full ↔" in render_growth(both) and "training" not in render_growth(both)


def test_ctrl_c_ends_it_with_what_was_measured(monkeypatch, tmp_path):
    calls = []

    def child(*arguments, **how):
        calls.append(arguments)
        if len(calls) == 6:
            raise KeyboardInterrupt
        return power(1)(*arguments)

    monkeypatch.setattr(growth, "in_child", child)
    found = measure_growth(GrowthConfig(**LADDER))
    assert found["interrupted"] and len(found["kernels"]["full"]["forward"]["points"]) == 5
    assert "training" not in found["kernels"]["full"] and "linformer" not in found["kernels"]
    assert "n^1.00 1k–16k" in render_growth(found)
    draw_result(found, tmp_path / "part.png")


def test_ctrl_c_before_the_first_point_still_prints_and_draws(monkeypatch, tmp_path):
    def child(*arguments, **how):
        raise KeyboardInterrupt

    monkeypatch.setattr(growth, "in_child", child)
    found = measure_growth(GrowthConfig(**LADDER))
    assert found["interrupted"] and render_growth(found)
    draw_result(found, tmp_path / "none.png")


def test_the_picture_has_two_logarithmic_axes_exponents_and_guides(monkeypatch, tmp_path):
    monkeypatch.setattr(growth, "in_child", power(2))
    figure = draw_result(measure_growth(GrowthConfig(**LADDER)), tmp_path / "scaling.png")
    assert (tmp_path / "scaling.png").stat().st_size > 5000
    assert len(figure.axes) == 4, "time and memory, forward and training"
    for axes in figure.axes:
        assert (axes.get_xscale(), axes.get_yscale()) == ("log", "log")
        named = [text.get_text() for text in axes.get_legend().get_texts()]
        exponent = "n^2.00" if axes.get_ylabel() == "time" else "n^1.00"
        assert named == [f"full  {exponent}", f"linformer  {exponent}", "slope 1", "slope 2"]
        for line, slope in zip(axes.get_lines()[-2:], (1, 2), strict=True):
            (x0, x1), (y0, y1) = line.get_data()
            assert line.get_linestyle() == "--" and y1 / y0 == pytest.approx((x1 / x0) ** slope)


def test_mistakes_are_known_first():
    with pytest.raises(ValueError, match="unknown kernel 'ful'; did you mean 'full'"):
        GrowthConfig(kernels=("full", "ful"), lengths=(256,))
    with pytest.raises(ValueError, match="no setting 'radis'; did you mean 'radius'"):
        GrowthConfig(kernels=("window:radis=3",), lengths=(256,))
    with pytest.raises(ValueError, match="heads=0 must be at least 1"):
        GrowthConfig(kernels=("full",), lengths=(256,), heads=0)
    with pytest.raises(ValueError, match="max_seconds=0.0 must be positive"):
        GrowthConfig(kernels=("full",), lengths=(256,), max_seconds=0.0)
    with pytest.raises(ValueError, match="name at least one kernel"):
        GrowthConfig(kernels=(), lengths=(256,))


def test_the_default_is_full_and_what_is_cheaper():
    names = efficient_kernels()
    assert names[0] == "full" and {"window", "linear", "linformer", "reformer"} <= set(names) <= set(kernels)
    assert not {"additive", "dot", "general", "normalized"} & set(names)
