"""Families on a toy task: runs are trained once, and scored at lengths and distances beyond those of training."""

import json

import pytest

from regard.bench import toys
from regard.bench.toys import ladders, measure_toys, render_toys, rungs
from regard.data.sets.toy_tasks import ToyConfig
from regard.train.loop import Interrupted
from tests.cli.calling import call, fails

SMALL = {"data.length": "2", "data.distance": "4", "train.steps": "2", "train.batch_tokens": "256",
         "data.epoch_size": "200", "train.eval_every": "2"}  # fmt: skip


def test_rungs():
    assert rungs(8, 16) == [2, 4, 6, 8, 10, 12, 14, 16] and rungs(2, 4) == [1, 2, 3, 4] and rungs(10, 16)[-1] == 15
    kinds = ladders(ToyConfig(task="copy", length=4))
    assert list(kinds) == ["length"] and [data.length for data in kinds["length"]] == [1, 2, 3, 4, 5, 6, 7, 8]


def test_scores_by_length_and_distance_and_a_second_time_from_the_runs(tmp_path):
    result = measure_toys(("lstm", "gpt:position=none"), tmp_path, examples=3, changes=SMALL)
    assert list(result["models"]) == ["lstm", "gpt:position=none"]
    row = result["models"]["lstm"]
    assert list(row["length"]) == ["1", "2", "3", "4"] and list(row["distance"]) == [
        "1",
        "2",
        "3",
        "4",
        "5",
        "6",
        "7",
        "8",
    ]
    assert all(0 <= share <= 100 for kind in ("length", "distance") for share in row[kind].values())
    stamps = [path.stat().st_mtime_ns for path in tmp_path.rglob("model.safetensors")]
    assert measure_toys(("lstm", "gpt:position=none"), tmp_path, examples=3, changes=SMALL) == result
    assert stamps == [path.stat().st_mtime_ns for path in tmp_path.rglob("model.safetensors")]
    with pytest.raises(ValueError, match="was trained with other settings"):
        measure_toys(("lstm",), tmp_path, examples=4, changes=SMALL)


def test_what_was_scored_before_ctrl_c_is_kept(tmp_path, monkeypatch):
    def scored(run, plan, examples, quiet):
        if plan.family == "gpt":
            raise Interrupted
        return {"length": {"1": 50.0}}

    monkeypatch.setattr(toys, "scored", scored)
    result = measure_toys(("lstm", "gpt"), tmp_path, examples=3, changes=SMALL)
    assert result["interrupted"] and list(result["models"]) == ["lstm"] and "lstm" in render_toys(result)


def test_the_command(capsys, tmp_path):
    fields = [word for name, value in SMALL.items() for word in (f"--{name.replace('_', '-')}", value)]
    words = ["bench", "toys", "--models", "rnn", "--examples", "2", "--quiet", "--runs", tmp_path / "runs", *fields]
    call(*words, "--out", tmp_path / "toys.png")
    assert "distance, trained to 4" in capsys.readouterr().out and (tmp_path / "toys.png").stat().st_size > 5000
    call(*words, "--json")
    assert json.loads(capsys.readouterr().out)["task"] == "copy"
    assert "data.task takes copy|sort|recall|addition|parity, got 'party'" in fails(
        capsys, *words, "--data.task", "party"
    )
