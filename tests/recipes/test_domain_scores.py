"""Scores of forecasters, and of language models on code and DNA, beside the simplest baselines: minutes.

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
def test_code_beside_programs_that_compress(tmp_path):
    """Two minutes are too few to be below them; docs/tokens.md says so."""
    fields = {"data.kind": "code", "train.minutes": 2, "train.clock": "cpu"}
    fit("lm", out=tmp_path / "run", quiet=True, **fields)
    scored = evaluate(tmp_path / "run", {})
    assert scored.scores["bits_per_byte"] < 1.75 and scored.baselines["bz2"]["bits_per_byte"] < 1.75
    assert regard.load(tmp_path / "run").tokenizer.kind == "code"


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_dna_is_learned_and_not_beyond_its_rules(tmp_path):
    fit("lm", out=tmp_path / "run", quiet=True, **{"data.kind": "dna", "train.minutes": 2, "train.clock": "cpu"})
    scored = evaluate(tmp_path / "run", {})
    bits = scored.scores["bits_per_byte"]
    assert (
        scored.baselines["the rules of the data"]["bits_per_byte"] < bits < scored.baselines["uniform"]["bits_per_byte"]
    )
