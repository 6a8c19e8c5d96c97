"""What passes through an encoder and a decoder, and how orders are compared."""

import numpy as np
import pytest
import torch

from regard.inside.explain.agreement import Agreement, correlate, spearman
from regard.inside.explain.rollout import flow

S, T = 5, 3


def test_flow_is_a_product_of_what_each_layer_does_to_all_tokens():
    """Source and target tokens side by side, one large matrix for each layer."""
    kinds = ["encoder", "encoder", "decoder", "cross", "decoder", "cross"]
    shapes = {"encoder": (S, S), "decoder": (T, T), "cross": (T, S)}
    steps = [(kind, torch.rand(*shapes[kind]).softmax(-1)) for kind in kinds]
    for stay, go in ((0.5, 0.5), (1.0, 1.0)):
        everything = torch.eye(S + T)
        for kind, weights in steps:
            layer = torch.eye(S + T)
            rows = slice(0, S) if kind == "encoder" else slice(S, S + T)
            columns = slice(S, S + T) if kind == "decoder" else slice(0, S)
            layer[rows] *= stay
            layer[rows, columns] += go * weights
            everything = layer @ everything
        torch.testing.assert_close(flow(steps, stay=stay, go=go), everything[S:, :S])
    torch.testing.assert_close(everything[S:].sum(-1), torch.full((T,), 16.0))  # all paths are counted


def test_rank_correlation_is_scipys():
    stats = pytest.importorskip("scipy.stats")
    values = np.random.default_rng(0).integers(0, 4, (3, 12)).astype(float)  # with ties
    np.testing.assert_allclose(spearman(values), stats.spearmanr(values.T).statistic, atol=1e-12)
    assert np.isnan(spearman(np.stack([values[0], np.ones(12)]))[0, 1])


def test_agreement_is_the_mean_over_outputs_of_what_each_can_see():
    first = torch.tensor([[1.0, 2, 3, 9], [1, 2, 3, 4], [5, 5, 5, 5]])
    second = torch.tensor([[3.0, 2, 1, 0], [1, 2, 3, 4], [1, 2, 3, 4]])
    visible = torch.tensor([[True, True, True, False], [True] * 4, [True] * 4])
    found = correlate({"a": first, "b": second}, visible)
    torch.testing.assert_close(found, torch.tensor([[1.0, 0.0], [0.0, 1.0]], dtype=torch.double))
    assert correlate({"a": first[:, :2], "b": second[:, :2]}, visible[:, :2]).isnan().all()


@pytest.mark.parametrize(
    ("near", "wanted"), [(0.9, "may be read as an explanation"), (0.5, "a hint, not"), (0.1, "None of them explains")]
)
def test_what_agreement_means(near, wanted):
    found = torch.eye(3)
    found[0, 2], found[1, 2] = near, -0.2
    weights = {view: torch.zeros(1, 4) for view in ("gradient", "rollout", "ablation")}
    told = Agreement(weights, found).meaning
    assert wanted in told and f"gradient is nearest (ρ = {near:.2f}) and rollout farthest (ρ = -0.20)" in told
    assert "too few tokens" in Agreement(weights, found * float("nan")).meaning
