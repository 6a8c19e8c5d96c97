"""The same model under each kernel: figures of real runs, refusals with a reason, nothing trained twice."""

import json

import pytest

from regard.bench import quality
from regard.bench.measure import Died
from regard.bench.quality import measure_quality, render_quality
from regard.recipes import fit, recipe
from tests.recipes.tiny import SIZES, write_files

NAMES = ("full", "window:radius=64", "linformer")


@pytest.fixture(scope="module")
def changes(tmp_path_factory):
    sizes = {key: value for key, value in SIZES.items() if key not in ("train.steps", "train.eval_every")}
    return sizes | {"model.max_len": 32} | write_files(tmp_path_factory.mktemp("text"))["lm"]


@pytest.fixture(scope="module")
def trained(changes, tmp_path_factory):
    out = tmp_path_factory.mktemp("kernels")
    return out, measure_quality(NAMES, out, steps=6, changes=changes)


def test_figures_are_those_of_the_runs(trained, changes, tmp_path):
    out, found = trained
    full, window, linformer = (found["kernels"][name] for name in NAMES)
    fitted = fit(recipe("lm", {**changes, "train.steps": 6, "train.eval_every": 6}), tmp_path / "run", quiet=True)
    assert full["loss"] == pytest.approx(fitted.valid_loss, abs=1e-3)
    assert window["loss"] == pytest.approx(full["loss"], abs=1e-3), "a window as wide as the context"
    assert full["to_full"] == 0 and window["to_full"] == pytest.approx(0, abs=1e-3)
    assert full["parameters"] == window["parameters"] > 1000
    assert full["memory"] > 0 and full["tokens_per_second"] > 0 and full["seconds"] > 0
    assert "cannot" in linformer["refused"] and "full" in linformer["refused"]
    assert sorted(path.name for path in out.iterdir()) == ["full", "window-radius-64"]
    shown = render_quality(found)
    assert "gpt, 6 steps" in shown and "refused: kernel 'linformer' cannot" in shown and "+0.0%" in shown


def test_what_is_finished_is_not_trained_again(trained, changes, monkeypatch):
    out, found = trained
    monkeypatch.setattr(quality, "in_child", lambda *arguments: pytest.fail("trained again"))
    assert measure_quality(NAMES, out, steps=6, changes=changes) == found
    with pytest.raises(ValueError, match="full was trained with other settings; choose another --out"):
        measure_quality(NAMES, out, steps=7, changes=changes)


def test_a_run_that_dies_is_a_line_and_one_that_is_stopped_ends_it(changes, tmp_path, monkeypatch):
    def child(work, name, asked, *more):
        if asked["model.kernel"] == "full":
            raise Died("out of memory")
        raise KeyboardInterrupt

    monkeypatch.setattr(quality, "in_child", child)
    found = measure_quality(("full", "linear", "window"), tmp_path, steps=6, changes=changes)
    assert found["interrupted"] and found["kernels"] == {"full": {"failed": "out of memory"}}
    assert "out of memory" in render_quality(found) and json.dumps(found)


def test_mistakes_are_known_first(changes, tmp_path):
    with pytest.raises(ValueError, match="unknown kernel 'lineer'; did you mean 'linear'"):
        measure_quality(("full", "lineer"), tmp_path, changes=changes)
    with pytest.raises(ValueError, match="name them with --kernels"):
        measure_quality(("full",), tmp_path, changes={"model.kernel": "full"})
    with pytest.raises(ValueError, match="did you mean 'train.lr'"):
        measure_quality(("full",), tmp_path, changes={"train.lt": "1"})
    assert not list(tmp_path.iterdir())
