"""The lectures' figures: each is drawn, and shows the numbers that it should."""

import json
import math

import pytest
import torch

from regard.inside.draw.figures import FIGURES, draw_figure, saturation
from regard.nn.positions import alibi_slopes
from regard.registry import positions


@pytest.mark.parametrize("name", list(FIGURES))
def test_every_figure_is_drawn_and_documented(tmp_path, name):
    path = tmp_path / "x.png"
    rows = [{"step": step, "loss": 5 / step, "lr": step * 1e-4} for step in range(1, 30)]
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    figure = draw_figure(name, path, **({"runs": str(tmp_path)} if name == "training" else {}))
    assert path.stat().st_size > 10_000 and FIGURES[name].__doc__
    assert (figure.get_size_inches() < 15).all()
    box, size = figure.get_tightbbox(figure.canvas.get_renderer()), figure.get_size_inches()
    assert box.x0 >= 0 and box.y0 >= 0 and box.x1 <= size[0] and box.y1 <= size[1]


@pytest.mark.parametrize("scheme", [name for name in positions if name != "none"])
def test_every_position_scheme_can_be_drawn(scheme):
    assert len(draw_figure("positions", scheme=scheme, dim="32", length="20").axes) >= 3
    figure = draw_figure("positions", scheme=scheme, dim="32", length="20", dimensions="4,5")
    lines = [axes.lines for axes in figure.axes if axes.get_title(loc="left") == "some dimensions"]
    assert all([line.get_label() for line in drawn] == ["4", "5"] for drawn in lines)


def test_positions_show_the_decay_and_the_slopes():
    waves = draw_figure("positions", dim=64, length=40).axes[-1].lines[0].get_ydata()
    assert waves[0] == pytest.approx(1) and waves[10] < waves[1] < 1
    bias = draw_figure("positions", scheme="alibi", heads=4, length=9).axes[0].lines
    assert [line.get_ydata()[0] for line in bias[:4]] == pytest.approx((-9 * alibi_slopes(4)).tolist())
    turned = draw_figure("positions", scheme="rotary", dim=4, length=12).axes[-1].lines[0].get_ydata()
    assert turned[3] == pytest.approx((math.cos(3) + math.cos(0.03)) / 2, abs=1e-5)


def test_a_trained_scheme_is_drawn_as_it_is():
    learned = positions["learned"](dim=8, heads=2, head_dim=4, max_len=30)
    shown = draw_figure("positions", position=learned, scheme="learned", length=30).axes[0].images[0].get_array()
    torch.testing.assert_close(torch.tensor(shown), learned.table.detach())


def test_wrong_names_and_settings_carry_the_cure(tmp_path):
    with pytest.raises(ValueError, match="did you mean 'positions'"):
        draw_figure("position", tmp_path / "x.png")
    with pytest.raises(ValueError, match="has no setting 'shceme'; did you mean 'scheme'"):
        draw_figure("positions", shceme="alibi")
    with pytest.raises(ValueError, match="has neither position vectors nor a bias"):
        draw_figure("positions", scheme="none")
    with pytest.raises(ValueError, match="length takes a whole number or none, got 'long'"):
        draw_figure("masks", length="long")
    with pytest.raises(ValueError, match="a figure ends in"):
        draw_figure("masks", tmp_path / "x.gif")


def test_schedule_peaks_where_the_lecture_says():
    line = draw_figure("schedule", dims="256,512,1024", warmups=(4000,), steps=8000).axes[1].lines[0]
    peak = max(line.get_ydata())
    assert peak == pytest.approx(6.99e-4, rel=1e-3)
    assert line.get_ydata()[0] == pytest.approx(1.75e-7, rel=5e-3)
    given = draw_figure("schedule", schedules={"flat": lambda step: 0.5}, steps=10).axes
    assert len(given) == 1 and set(given[0].lines[0].get_ydata()) == {0.5}


def test_saturation_is_the_jacobian_that_autograd_finds():
    p = torch.randn(7, dtype=torch.float64)
    jacobian = torch.autograd.functional.jacobian(lambda s: s.softmax(-1), p)
    w = p.softmax(-1)
    closed = w.pow(2).sum() - 2 * w.pow(3).sum() + w.pow(2).sum() ** 2
    torch.testing.assert_close(closed.sqrt(), jacobian.norm())
    raw, scaled = saturation(1024, 32, 200, 1.0), saturation(1024, 32, 200, 1 / 32)
    assert raw[0][1] > 0.95 and scaled[0][1] < 0.4 and raw[1][1] < 0.1 * scaled[1][1]


def test_cost_grows_as_the_lecture_says():
    lines = draw_figure("attention-cost", heads=8).axes[1].lines
    at = dict(zip(lines[0].get_xdata(), lines[0].get_ydata(), strict=True))
    assert at[1024] == 33_554_432 and at[2048] == 4 * at[1024]
