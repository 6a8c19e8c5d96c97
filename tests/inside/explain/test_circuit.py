"""The views on a circuit that is known: all of them name the induction head."""

import pytest
import torch

from regard.inside.capture.weights import look
from regard.inside.explain import ablation, aligners, attention, erasure, gradient, lens, patch, rollout
from regard.inside.explain.patterns import followers, induction, previous
from regard.models import build, preset
from tests.inside.explain.asking import question
from tests.inside.explain.circuit import INDUCTION, PREVIOUS, circuit

IDS = torch.tensor([[0, 4, 9, 2, 7, 5, 4, 9, 2, 7]])
REPEATED = [6, 7, 8]
"""Places whose next token was there before."""


def best(found):
    """The layer and head with the largest value."""
    return max(
        ((name, head) for name in found for head in range(len(found[name]))), key=lambda one: found[one[0]][one[1]]
    )


def test_the_circuit_does_its_task():
    said = circuit()(IDS)[0]
    assert said.argmax(-1)[REPEATED].tolist() == IDS[0, [7, 8, 9]].tolist()


def test_where_they_look():
    with torch.no_grad(), look(model := circuit()) as seen:
        model(IDS)
    weights = {name: seen.attention[name] for name in seen.names}
    found = {name: induction(one, IDS) for name, one in weights.items()}
    assert best(found) == INDUCTION and found[INDUCTION[0]][INDUCTION[1]] > 0.9
    assert best({name: previous(one) for name, one in weights.items()}) == PREVIOUS
    assert followers(torch.tensor([[1, 2, 1, 2, 3]])).nonzero().tolist() == [[0, 2, 1], [0, 3, 2]]


def test_ablation_names_the_two_heads_of_the_circuit():
    effects = ablation(question(circuit(), IDS, REPEATED))
    flat = {(name, head): float(value) for name, one in effects.items() for head, value in enumerate(one)}
    assert set(sorted(flat, key=lambda one: -flat[one])[:2]) == {PREVIOUS, INDUCTION}
    assert min(flat[PREVIOUS], flat[INDUCTION]) > 1 and sum(abs(one) < 1e-6 for one in flat.values()) == 2


def test_patching_names_the_head_that_carries_the_token_and_where_it_was():
    """The token that followed last time is another: only the induction head brings it to the end."""
    model, other = circuit(), IDS.clone()
    other[0, 3] = 8
    first, second = question(model, IDS[:, :8], [7], [2]), question(model, other[:, :8], [7], [8])
    found = patch(first, second)
    assert best(found.heads) == INDUCTION and found.heads[INDUCTION[0]][INDUCTION[1]] > 0.99
    assert found.heads[PREVIOUS[0]][PREVIOUS[1]].abs() < 0.01
    (places,) = found.positions.values()
    assert places.shape == (3, 8) and found.labels["decoder"][3] == "2 | 8"
    assert [int(row.argmax()) for row in places] == [3, 3, 7]
    torch.testing.assert_close(places[-1, -1], torch.tensor(1.0))
    assert found.difference[0] > 1 and found.difference[1] < -1


def test_tokens_that_matter():
    """The answer rests on the token that followed last time, and on what tells where that was."""
    asked = question(circuit(), IDS, [8])
    for view in (gradient, erasure):
        row = view(asked)[0]
        assert set(row.topk(2).indices.tolist()) == {4, 8} and row[[1, 5]].abs().max() < 0.05 * row.max()
    assert erasure(asked)[0].topk(3).indices[2] == 3  # a key that the gradient of weights does not see
    for view in (attention, rollout):
        row = view(asked)[0]
        assert row[9] == 0 and abs(float(row.sum()) - 1) < 1e-5  # nothing of what comes later
    assert lens(asked)[:, 0, 7].tolist()[-1] > 0.9 > 0.2 > lens(asked)[1, 0, 7]


def test_what_is_taken_away_tells_nothing_of_the_future():
    torch.manual_seed(2)
    model = build("gpt", preset("gpt", "tiny", dim=16, depth=2, heads=2, ffn_dim=32, vocab_size=12, dropout=0.0)).eval()
    other = IDS.clone()
    other[0, -1] = 1
    first, second = (erasure(question(model, ids, [3, 6])) for ids in (IDS, other))
    torch.testing.assert_close(first, second)
    assert first[0, :4].abs().min() > 1e-4 and first[0, 4:].abs().max() < 1e-6


def test_mistakes():
    asked = question(circuit(), IDS, [8])
    with pytest.raises(ValueError, match="the first text has 10 tokens, the other 9"):
        patch(asked, question(circuit(), IDS[:, :9], [8]))
    with pytest.raises(ValueError, match="both texts lead to '7'"):
        patch(asked, asked)
    with pytest.raises(ValueError, match="GPT has no source to align with"):
        aligners(asked)
