"""`regard choose`: an answer only where the seeds allow one."""

import json

import numpy as np
import pytest

from regard.decide import choose
from regard.decide.choose import UNKNOWN, answer, plans_of, unpaired_interval
from regard.decide.contenders import render
from tests.cli.calling import call, fails


def result_of(**scores):
    models = {
        name: {"scores": values, "mean": float(np.mean(values)), "deviation": float(np.std(values, ddof=1)),
               "steps": 100, "parameters": 10}
        for name, values in scores.items()
    }  # fmt: skip
    return {"kind": "lm", "metric": "bits_per_byte", "lower": True, "minutes": 1.0, "seeds": 3, "models": models}


def test_welchs_interval_is_that_of_scipy():
    stats = pytest.importorskip("scipy.stats")
    first, second = [1.0, 2.0, 2.5, 4.0], [0.5, 0.7, 0.4]
    interval = unpaired_interval(first, second)
    theirs = stats.ttest_ind(first, second, equal_var=False).confidence_interval(0.95)
    assert interval.mean == pytest.approx(np.mean(first) - np.mean(second))
    assert interval.low <= theirs.low and interval.high >= theirs.high, "degrees of freedom are rounded down"
    assert interval.high - interval.low < 1.3 * (theirs.high - theirs.low)


def test_an_answer_where_the_seeds_allow_one():
    clear = result_of(LSTM=[2.2, 2.21, 2.19], Transformer=[1.8, 1.81, 1.82])
    assert answer(clear)["answer"] == "Transformer", "lower bits are better"
    unclear = result_of(LSTM=[1.8, 2.4, 1.9], Transformer=[1.7, 2.3, 1.95])
    found = answer(unclear)
    assert found["answer"] == UNKNOWN and found["reason"] == "the seeds do not tell Transformer from LSTM"
    assert "no answer: the seeds do not tell Transformer from LSTM" in render(unclear | found)
    clear["models"]["LSTM"]["steps"] = 3
    assert answer(clear)["reason"] == "LSTM made 3 steps, too few to tell; raise --minutes"
    twice = result_of(A=[1.0, 1.1, 1.2], B=[1.0, 1.1, 1.2])
    assert answer(twice)["answer"] == UNKNOWN, "two equal models"


def test_all_kinds_have_recipes_that_fit():
    for kind in choose.CONTENDERS:
        plans = plans_of(kind, 1.0, None, {})
        assert all(plan["train.clock"] == "cpu" and plan["train.minutes"] == 1.0 for plan in plans.values())


def test_mistakes_are_one_line(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert "no models to choose from for 'lmm'; did you mean 'lm'?" in fails(capsys, "choose", "lmm")
    assert "--seeds 1 gives no interval" in fails(capsys, "choose", "lm", "--seeds", "1")
    assert "--minutes 0 trains nothing" in fails(capsys, "choose", "lm", "--minutes", "0")
    assert "unknown key 'data.txt'; did you mean 'data.text'?" in fails(
        capsys, "choose", "lm", "--data.txt", "book.txt"
    )
    assert not list(tmp_path.iterdir()), "nothing is left behind"


def test_a_choice_in_one_command_and_again(tmp_path, capsys, monkeypatch):
    text = tmp_path / "a.txt"
    text.write_text("".join(f"The {i % 7} cats see {i % 5} dogs in May.\n" for i in range(400)))
    calls = []

    def here(work, plan, out):
        calls.append(out.name)
        return work(plan, out)

    monkeypatch.setattr(choose, "in_child", here)
    monkeypatch.setattr(choose, "FEWEST_STEPS", 1)
    words = ("choose", "lm", "--data.text", text, "--minutes", "0.01", "--seeds", "2", "--out", tmp_path / "out",
             "--data.kind", "char", "--model.dim", "16", "--model.depth", "1", "--quiet", "--json")  # fmt: skip
    call(*words)
    result = json.loads(capsys.readouterr().out)
    assert calls == ["LSTM-0", "Transformer-0", "LSTM-1", "Transformer-1"]
    assert result["models"].keys() == {"LSTM", "Transformer"} and result["answer"] in ("LSTM", "Transformer", UNKNOWN)
    assert {"seeds.png", "report.html", "report.md", "result.json"} <= {p.name for p in (tmp_path / "out").iterdir()}
    call(*words)
    assert len(calls) == 4 and json.loads(capsys.readouterr().out) == result, "what is stored is not trained again"
