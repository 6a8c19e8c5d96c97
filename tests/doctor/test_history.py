"""A run read back: whole, old, dead half way, or empty."""

import json

import pytest

from regard.doctor.history import History, render

WATCH = {
    "gradient": {"decoder.blocks.0": 0.5},
    "entropy": {"decoder.blocks.0.attention": [0.01, 0.995]},
    "ratio_median": 1,
}
FINDING = {"cause": "a frozen layer", "sentence": "x stood still", "cure": "let x learn", "weight": 0.9, "step": 2}


def run_of(path, *rows, tail=""):
    (path / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows) + tail)
    return History.read(path)


def test_findings_come_first_and_figures_follow(tmp_path):
    (tmp_path / "recipe.toml").write_text('name = "lm"\n[train]\nsteps = 10\n')
    history = run_of(
        tmp_path,
        {"step": 1, "loss": 3.0},
        {"step": 2, "loss": 2.0},
        {"step": 2, "watch": WATCH},
        {"step": 2, "finding": FINDING},
        {"step": 2, "valid_loss": 2.5},
    )
    assert history.figures("entropy")["decoder.blocks.0.attention head 1"] == [(2, 0.995)]
    assert history.figures("gradient") == {"decoder.blocks.0": [(2, 0.5)]}
    assert render(history.as_dict()).splitlines() == [
        f"{tmp_path}: 2 of 10 steps, loss 3.000 → 2.000, validation 2.500",
        "heads: 2, of them 1 attend to one position, 1 to all alike",
        "1. a frozen layer (step 2): x stood still",
        "   cure: let x learn",
    ]


def test_old_runs_have_losses_only(tmp_path):
    found = render(run_of(tmp_path, {"step": 1, "loss": 3.0}).as_dict())
    assert "the doctor did not watch this run" in found and found.endswith("nothing wrong seen")


def test_half_a_line_is_no_line(tmp_path):
    history = run_of(tmp_path, {"step": 1, "loss": 3.0}, tail='{"step": 2, "lo')
    assert history.as_dict()["steps"] == 1


def test_an_empty_file_is_a_run_that_did_nothing(tmp_path):
    assert run_of(tmp_path).as_dict()["loss"] is None
    assert "0 steps" in render(run_of(tmp_path).as_dict())


def test_what_is_no_run_is_said(tmp_path):
    with pytest.raises(ValueError, match="no metrics.jsonl; name the directory of a run"):
        History.read(tmp_path)


def test_rows_of_other_versions_are_read_as_far_as_they_are_known(tmp_path):
    history = run_of(
        tmp_path,
        {"step": 1, "loss": 3.0, "watch": None},
        {"step": 2, "watch": {"entropy": None, "dead": 1, "gradient": {"a": 1.0}}},
        {"step": 2, "finding": FINDING | {"severity": "high"}},
        {"step": 3, "finding": None, "spike": None},
        {"step": 3, "finding": {"cause": "half of one"}},
        {"step": 3, "finding": FINDING | {"cause": "no share", "weight": "much"}},
    )
    assert [one.cause for one in history.findings] == ["a frozen layer"] and history.spikes == []
    assert history.figures("dead") == {} and history.figures("gradient") == {"a": [(2, 1.0)]} and history.sampled == 1
    assert "a frozen layer (step 2): x stood still" in render(history.as_dict())
