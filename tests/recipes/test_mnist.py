"""What the recipes reach on MNIST. It is not part of the project: REGARD_MNIST=mnist.npz names an .npz of x_train,
y_train, x_test and y_test, as Keras distributes it.

    REGARD_MNIST=mnist.npz pytest tests/recipes/test_mnist.py --slow -p no:xdist
"""

import os

import pytest

from regard.eval.probe import probe
from regard.eval.scores import evaluate
from regard.recipes import fit, recipe

MNIST = os.environ.get("REGARD_MNIST", "")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(2 * 3600),
    pytest.mark.skipif(not MNIST, reason="REGARD_MNIST names no file"),
]


@pytest.mark.parametrize(("name", "wanted"), [("vit", 98.8), ("swin", 99.0)])
def test_digits_are_read(name, wanted, tmp_path):
    fit(recipe(name, {"data.images": MNIST}), tmp_path, quiet=True)
    scores = evaluate(tmp_path, {}).scores
    assert scores["examples"] == 10_000 and scores["accuracy"] >= wanted, scores


@pytest.mark.parametrize(("name", "steps"), [("mae", 800), ("simclr", 500)])
def test_a_thousand_labels_are_enough(name, steps, tmp_path):
    """A linear classifier on what was learned without labels errs half as often as on the same encoder untrained."""
    fit(recipe(name, {"data.images": MNIST, "train.steps": steps}), tmp_path, quiet=True)
    found = probe(tmp_path, {}, labels=1000)
    assert found["error"] <= found["untrained"] / 2, found
