"""Rules against their own sentences, and everything that can be done with two of them."""

import itertools

import pytest
import torch

from regard.nn.masks import causal, edges, everything, padding, prefix, segments, window
from tests.laws.rules import LITERAL, MASKS, RULES, B, N, dense, table

PAIRS = list(itertools.product(RULES, repeat=2))


@pytest.mark.parametrize("name", RULES)
def test_rule_is_its_sentence(name):
    rule, says = RULES[name]
    assert torch.equal(dense(rule), table(says))


@pytest.mark.parametrize("name", [name for name in MASKS if MASKS[name] is not None])
@pytest.mark.parametrize(("start", "T"), [(0, 4), (2, 5), (6, 1)])
def test_a_block_of_queries_is_a_block_of_the_whole(name, start, T):
    got = dense(MASKS[name].at(start), T, N)
    assert torch.equal(got, table(LITERAL[name])[:, start : start + T])


@pytest.mark.parametrize(("left", "right"), PAIRS)
def test_any_two_combine(left, right):
    (a, says_a), (b, says_b) = RULES[left], RULES[right]
    assert torch.equal(dense(a & b), table(says_a) & table(says_b))
    assert torch.equal(dense(a | b), table(says_a) | table(says_b))
    assert torch.equal(dense(a & ~b), table(says_a) & ~table(says_b))
    assert torch.equal(dense(~(a | b)), ~table(says_a) & ~table(says_b))  # De Morgan
    assert torch.equal(dense((a & b).at(3), 2, N), (table(says_a) & table(says_b))[:, 3:5])


@pytest.mark.parametrize("name", RULES)
def test_twice_not_is_the_rule(name):
    rule, says = RULES[name]
    assert torch.equal(dense(~rule), ~table(says))
    assert torch.equal(dense(~~rule), table(says))


def test_shapes_are_ready_to_broadcast():
    assert causal().dense(4, N).shape == (1, 1, 4, N)
    assert RULES["padding"][0].dense(4, N).shape == (B, 1, 4, N)
    assert (causal() & RULES["padding"][0]).dense(4, N).shape == (B, 1, 4, N)


def test_a_rule_is_evaluated_once_for_each_shape_and_place(monkeypatch):
    rule = causal() & RULES["padding"][0]
    first = rule.dense(N, N)
    assert rule.dense(N, N) is first
    moved = rule.at(2)
    assert moved.dense(5, N) is not rule.dense(5, N)
    assert not torch.equal(moved.dense(5, N), rule.dense(5, N))
    assert torch.equal(rule.dense(N, N), first) and rule.start == 0
    assert torch.equal(moved.at(0).dense(5, N), rule.dense(5, N))
    assert rule.at(0) is rule


def test_a_start_survives_combining_and_selecting():
    lengths = RULES["padding"][0]
    wanted = dense((causal() & lengths).at(4), 2, N)
    assert torch.equal(dense(causal().at(4) & lengths, 2, N), wanted)
    assert torch.equal(dense(causal() & lengths.at(4), 2, N), wanted)
    assert torch.equal(dense(~causal().at(4), 2, N), ~dense(causal().at(4), 2, N))
    rows = torch.tensor([2, 0])
    assert torch.equal((causal() & lengths).at(4).select(rows).dense(2, N)[:, 0], wanted[rows])
    with pytest.raises(ValueError, match="begins at position 4"):
        causal().at(4) & lengths.at(3)


def test_everything_is_neutral():
    rule = window(2)
    assert (rule & everything()) is rule and (everything() & rule) is rule
    assert (rule | everything()).is_everything and (everything() | rule).is_everything


def test_what_rules_know_about_themselves():
    lengths = RULES["padding"][0]
    assert causal().is_causal and not (causal() & lengths).is_causal and not (causal() | prefix(2)).is_causal
    for rule, says in RULES.values():
        above = table(says).triu(1).any().item()
        assert not rule.hides_future or not above
    assert (causal() & lengths).hides_future and (window(2) & causal()).hides_future
    assert not (causal() | lengths).hides_future and (causal() | causal()).hides_future
    assert not (~causal()).hides_future
    for rule, says in RULES.values():
        same = all(torch.equal(row, table(says)[:, 0]) for row in table(says).unbind(1))
        assert not rule.is_keywise or same
    assert (lengths & prefix(3)).is_keywise and not (lengths & causal()).is_keywise and (~lengths).is_keywise


@pytest.mark.parametrize("name", RULES)
def test_rows_of_a_batch_can_be_selected(name):
    rule, says = RULES[name]
    rows = torch.tensor([2, 2, 0, 1])
    wanted = table(says)[rows]
    for selected in (rule.select(rows), ~((~rule).select(rows)), (rule & rule).select(rows)):
        assert torch.equal(selected.dense(N, N).expand(4, 1, N, N)[:, 0], wanted)


def test_rules_read_as_they_are_written():
    rule = ~(causal() & padding(torch.tensor([3, 1]))) | window(2)
    assert repr(rule) == "(~(causal() & padding([3, 1])) | window(radius=2))"


def test_segments_and_edges_see_what_their_tensors_say():
    packed = segments(torch.tensor([[0, 0, 1]]))
    assert packed.dense(3, 3)[0, 0].tolist() == [[True, True, False], [True, True, False], [False, False, True]]
    chain = edges(torch.tensor([[True, True], [False, True]]))
    assert chain.dense(2, 2)[0, 0].tolist() == [[True, True], [False, True]]
