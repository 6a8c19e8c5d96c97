"""Scores of forecasters, and of language models on code, DNA and bytes, beside the simplest baselines: minutes.

pytest --slow tests/recipes/test_domain_scores.py
"""

import pytest

import regard
from regard.eval.scores import evaluate
from regard.recipes import fit

SERIES = {"electricity": 0.070, "sunspots": 0.70, "co2": 0.0045}
"""The highest error of each series; that of carbon dioxide is above a ridge regression's."""
LOSES = ("co2",)


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("name", SERIES)
def test_series_beside_a_season_ago_and_a_line(name, tmp_path):
    pytest.importorskip("statsmodels")
    fit("forecast", out=tmp_path / "run", quiet=True, **{"data.name": name})
    scored = evaluate(tmp_path / "run", {})
    errors = {kind: scores["mse"] for kind, scores in scored.baselines.items()}
    assert scored.scores["mse"] < min(SERIES[name], errors["seasonal naive"])
    assert (scored.scores["mse"] < errors["ridge"]) == (name not in LOSES), errors


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize(("kind", "minutes"), [("dna", 3), ("code", 3), ("bytes", 2)])
def test_code_dna_and_bytes_beside_what_is_simplest(kind, minutes, tmp_path):
    fields = {"data.kind": kind, "train.minutes": minutes, "train.clock": "cpu"}
    fit("lm", out=tmp_path / "run", quiet=True, **fields)
    scored = evaluate(tmp_path / "run", {})
    bits = scored.scores["bits_per_byte"]
    simple = [each["bits_per_byte"] for name, each in scored.baselines.items() if name != "the rules of the data"]
    assert bits < min(simple), scored.baselines
    if kind == "dna":
        assert bits > scored.baselines["the rules of the data"]["bits_per_byte"]
    assert regard.load(tmp_path / "run").tokenizer.kind == kind
