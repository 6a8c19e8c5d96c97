"""What the recipes say that they reach, on held-out examples, by their defaults. Minutes each."""

import pytest

from regard.doctor.outcome import better_baseline
from regard.eval.scores import evaluate
from regard.recipes import fit, recipe

REACHED = {
    "classify": {"accuracy": 90},
    "tag": {"f1": 97},
    "answer": {"exact_match": 95},
    "t5": {"translate_exact_match": 95, "language_exact_match": 95, "date_exact_match": 95},
}


@pytest.mark.slow
@pytest.mark.timeout(3 * 3600)
@pytest.mark.parametrize("name", REACHED)
def test_a_recipe_reaches_what_it_says(name, tmp_path):
    fit(recipe(name), tmp_path, quiet=True)
    scored = evaluate(tmp_path, {})
    scores = scored.scores
    assert scores["examples"] >= 1000
    assert {key: scores[key] for key in REACHED[name] if scores[key] < REACHED[name][key]} == {}, scores
    assert better_baseline(scores, scored.baselines, scored.judged, scored.lower) is None
