"""The toy of superposition: what is rare shares dimensions, what is not keeps its own."""

import pytest
import torch

from regard.inside import draw_figure
from regard.inside.latent.superposition import represented, squeeze


@pytest.fixture(scope="module")
def toys():
    return squeeze(5, 2, (1.0, 0.3, 0.03), steps=1200)[0]


def test_rare_features_fit_where_frequent_ones_do_not(toys):
    dense, some, sparse = represented(toys).tolist()
    assert dense == 2 and sparse == 5 and dense <= some <= sparse


def test_dense_features_are_the_most_important_at_right_angles(toys):
    lengths = toys[0].norm(dim=0)
    assert (lengths[:2] > 0.9).all() and (lengths[2:] < 0.4).all()
    assert abs(torch.cosine_similarity(toys[0][:, 0], toys[0][:, 1], dim=0)) < 0.1


def test_sparse_features_are_a_pentagon(toys):
    angles = torch.atan2(toys[2][1], toys[2][0]).sort().values
    between = torch.cat([angles.diff(), angles[:1] + 2 * torch.pi - angles[-1:]]).rad2deg()
    assert (between - 72).abs().max() < 10


def test_mistakes_and_settings(tmp_path):
    with pytest.raises(ValueError, match="5 features cannot be squeezed into 6"):
        squeeze(5, 6, (1.0,))
    with pytest.raises(ValueError, match="lie above 0"):
        draw_figure("superposition", None, shares="1,0")
