"""What a recipe says of itself, it is held to."""

import sys

import pytest

from regard.tasks import load
from regard.recipes import Recipe, fit, recipe
from regard.recipes.report import held_out_pairs, score
from regard.registry import recipes


@pytest.mark.parametrize("name", list(recipes))
def test_every_recipe_states_command_minutes_and_score(name):
    text = sys.modules[recipes[name].__module__].__doc__
    assert f"regard train {name}" in text and "minutes" in text and "%" in text


def test_a_recipe_survives_its_file(tmp_path):
    plan = recipe("translate", {"model": "seq2seq", "model.cell": "lstm", "train.lr": 1e-3, "data.lowercase": True})
    plan.save(tmp_path / "recipe.toml")
    assert Recipe.load(tmp_path / "recipe.toml") == plan


def test_naming_the_default_preset_changes_nothing_but_the_size():
    for own in ({}, {"data.pairs": "x.tsv"}):
        small = recipe("translate", {**own, "model.preset": "small"}).model
        plain = recipe("translate", own).model
        assert small.dim == 256 and (small.dropout, small.position) == (plain.dropout, plain.position)


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_the_embedded_phrases_are_learned(tmp_path):
    """The demo's figure: 98 % of 1,000 held-out phrases, with a little room for another seed or machine."""
    fit(recipe("translate"), tmp_path, quiet=True)
    scores, _ = score(load(tmp_path), held_out_pairs(tmp_path, {}, None))
    assert scores["sentences"] == 1000 and scores["exact_match"] >= 97
