"""Scores of models of graphs beside the same model without structure, and molecules. A minute or more each.

pytest --slow tests/recipes/test_graph_scores.py
"""

import pytest

import regard
from regard.data.sets.labelled_graphs import GraphsConfig
from regard.eval.scores import evaluate
from regard.recipes import fit
from regard.tasks import EvalSet

MINUTE = {"train.minutes": 1, "train.clock": "cpu", "train.eval_every": 1000, "model.depth": 2}
KINDS = {
    "distance": ({"model.encodings": ("distance",)}, 95, 25),
    "connected": ({"model.encodings": ("laplacian",)}, 95, 57),
    "triangles": (
        {"model.encodings": ("degree", "walk", "distance"), "model.steps": 4, "model.far": 2, "model.pooling": "sum"},
        95, 25,
    ),
}  # fmt: skip
"""For each kind of generated graphs: what shows the structure, the least accuracy with it, and the most without."""


def accuracy(out, kind):
    data = GraphsConfig(kind=kind)
    return regard.load(out).evaluate(EvalSet(data=data, own=data)).scores["accuracy"]


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("kind", KINDS)
def test_structure_is_what_is_learned(kind, tmp_path):
    fields, least, most = KINDS[kind]
    fit("graph", out=tmp_path / "with", quiet=True, **MINUTE | fields | {"data.kind": kind})
    assert accuracy(tmp_path / "with", kind) >= least
    without = MINUTE | {"train.minutes": 0.3, "model.encodings": (), "data.kind": kind}
    fit("graph", out=tmp_path / "without", quiet=True, **without)
    assert accuracy(tmp_path / "without", kind) <= most  # chance


@pytest.mark.slow
@pytest.mark.timeout(2 * 3600)
def test_molecules_are_far_better_than_counts_of_atoms(tmp_path):
    pytest.importorskip("rdkit")
    fields = {"model.attention": "edges", "model.pooling": "sum", "train.steps": 3000}
    fit("graph", out=tmp_path / "run", quiet=True, **fields)
    scored = evaluate(tmp_path / "run", {})
    assert scored.scores["mean_error"] <= 0.15, scored.scores
    assert scored.baselines["linear on counts of attributes"]["mean_error"] >= 0.3
