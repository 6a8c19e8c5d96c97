"""Growth with area: what is counted grows as the lectures say, and what is measured is a forward pass."""

import json

import pytest

from regard.bench import area
from regard.bench.area import AreaConfig, draw_area, measure_area, render_area
from tests.cli.calling import call, fails

SIDES = (32, 64, 128, 256)


def test_attention_grows_with_the_square_for_vit_and_linearly_for_swin(monkeypatch, tmp_path):
    monkeypatch.setattr(area, "in_child", lambda work, name, sizes, *more, **how: 1e-6 * sizes.image**2)
    found = measure_area(AreaConfig(sides=SIDES, dim=32, window=4))
    exponents = {name: part["attention"]["exponent"] for name, part in found["models"].items()}
    assert exponents == {"vit": 2.0, "swin": 1.0}
    assert found["models"]["vit"]["seconds"]["exponent"] == found["models"]["vit"]["last"] == 1.0
    assert found["models"]["swin"]["flops"]["exponent"] == pytest.approx(1, abs=0.01)
    shown = render_area(found).splitlines()
    assert shown[2].split() == ["time", "32²", "64²", "128²", "256²", "grows", "as"]
    assert shown[3].split()[-5:] == ["area^1.00,", "at", "the", "end", "1.00"]
    figure = draw_area(found, tmp_path / "area.png")
    names = [text.get_text() for text in figure.axes[1].get_legend().get_texts()]
    assert names == ["vit  area^2.00", "swin  area^1.00", "slope 1", "slope 2"]


def test_ctrl_c_ends_it_with_what_was_measured(monkeypatch, tmp_path):
    def child(work, name, sizes, *more, **how):
        if sizes.image == 128:
            raise KeyboardInterrupt
        return 0.5

    monkeypatch.setattr(area, "in_child", child)
    found = measure_area(AreaConfig(sides=SIDES, dim=32))
    assert found["interrupted"] and len(found["models"]["vit"]["points"]) == 2 and "swin" not in found["models"]
    assert "too few points" in render_area(found)
    draw_area(found, tmp_path / "area.png")


def test_at_the_command_line(capsys, tmp_path):
    words = ["--sides", "16,24", "--dim", "32", "--depth", "2", "--repeats", "1", "--json"]
    call("bench", "area", *words, "--out", tmp_path / "area.png")
    said = capsys.readouterr()
    found = json.loads(said.out)
    assert [point["side"] for point in found["models"]["swin"]["points"]] == [16, 24]
    assert all(point["seconds"] > 0 for part in found["models"].values() for point in part["points"])
    assert "vit, 16 × 16:" in said.err and (tmp_path / "area.png").stat().st_size > 5000


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--sides", "512..64"], "must rise"),
        (["--sides", "2,64"], "no patch of 4 × 4 pixels fits into an image of 2 × 2"),
        (["--dim", "16"], "dim=16 must be at least 32"),
        (["--max-seconds", "0"], "max_seconds=0.0 must be positive"),
    ],
)
def test_mistakes_are_one_line(words, message, capsys):
    assert message in fails(capsys, "bench", "area", *words)
