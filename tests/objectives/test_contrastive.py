"""The contrastive loss, against its formulas in numpy."""

import numpy as np
import pytest
import torch

from regard.data.sets.batches import Batch
from regard.objectives.contrastive import SHARPEST, contrastive, image_text_contrast


def unit(x):
    return x / np.linalg.norm(x, axis=1, keepdims=True)


def by_hand(left, right, temperature, same):
    """−log of each one's share among all that are wrong and itself, both ways."""
    likeness = np.exp(unit(left) @ unit(right).T / temperature)
    total = 0.0
    for i in range(len(left)):
        for row, marks in ((likeness[i], same[i]), (likeness[:, i], same[:, i])):
            total -= np.log(row[i] / sum(row[j] for j in range(len(row)) if j == i or not marks[j])) / 2
    return total


@pytest.mark.parametrize("share", [0.0, 0.4])
def test_the_sum_over_pairs(share):
    rng = np.random.default_rng(3)
    left, right, same = rng.normal(size=(7, 5)), rng.normal(size=(7, 5)), rng.random((7, 7)) < share
    found = contrastive(torch.tensor(left), torch.tensor(right), 0.3, torch.tensor(same))
    assert found.item() == pytest.approx(by_hand(left, right, 0.3, same))
    if not share:
        assert contrastive(torch.tensor(left), torch.tensor(right), 0.3).item() == pytest.approx(found.item())


def test_two_views_of_pictures():
    """SimCLR's: each of 2 N views among all but itself."""
    rng = np.random.default_rng(4)
    views = rng.normal(size=(2 * 4, 6))
    likeness = np.exp(unit(views) @ unit(views).T / 0.5)
    wanted = -sum(np.log(likeness[i, (i + 4) % 8] / (likeness[i].sum() - likeness[i, i])) for i in range(8))
    x = torch.tensor(views)
    found = contrastive(x, x.roll(4, 0), 0.5, torch.eye(8, dtype=torch.bool).roll(4, 0))
    assert found.item() == pytest.approx(wanted)


class Given:
    """A model that has its vectors ready."""

    def __init__(self, left, right, temperature=0.2):
        self.left, self.right = left, right
        self.temperature = torch.tensor(temperature, dtype=torch.float64, requires_grad=True)

    def features(self):
        return self.left, self.right


def test_texts_that_are_right_too_are_no_wrong_answers():
    left, right = torch.randn(4, 3).double(), torch.randn(4, 3).double()
    same = np.eye(4, dtype=bool)
    same[0, 2] = same[2, 0] = same[1, 3] = True
    loss, count = image_text_contrast(Given(left, right), Batch({}, torch.tensor(same), ()))
    assert count == 4 and loss.item() == pytest.approx(by_hand(left.numpy(), right.numpy(), 0.2, same))
    alone, _ = image_text_contrast(Given(left, right), Batch({}, torch.ones(4, 4).bool(), ()))
    assert alone.item() == pytest.approx(0, abs=1e-9), "where nothing is wrong there is nothing to learn"


def test_the_temperature_learns_down_to_a_limit():
    left, right = torch.randn(5, 3).double(), torch.randn(5, 3).double()
    targets = torch.eye(5, dtype=torch.bool)
    for temperature, moves in ((0.2, True), (SHARPEST / 2, False)):
        model = Given(left, right, temperature)
        image_text_contrast(model, Batch({}, targets, ()))[0].backward()
        assert (model.temperature.grad.abs() > 0) == moves
