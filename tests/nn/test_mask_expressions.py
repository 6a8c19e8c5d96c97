"""Masks written as text are the rules that they name, and nothing in them is executed."""

import pytest
import torch

from regard.nn.mask_expressions import RULES, read_mask
from regard.nn.masks import causal, global_tokens, padding, segments, window


def same(text, rule, length=9):
    return torch.equal(read_mask(text, length).dense(length, length), rule.dense(length, length))


def test_expressions_are_the_rules_they_name():
    assert same("causal & window(4) | global(1)", causal() & window(4) | global_tokens(1))
    assert same("~(causal | window(2))", ~(causal() | window(2)))
    assert same("padding(5)", padding(torch.tensor([5])))
    assert same("segments(2, 3) & causal", segments(torch.tensor([[0, 0, 1, 1, 1, 1, 1, 1, 1]])) & causal())
    assert not same("causal & window(4)", causal() & window(3))


def test_edges_are_seen_from_both_ends_and_no_others():
    seen = read_mask("edges(0-1, 1-3)", 4).dense(4, 4)[0, 0]
    assert seen.nonzero().tolist() == [[0, 1], [1, 0], [1, 3], [3, 1]]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("causl", "did you mean 'causal'"),
        ("window", "takes one whole number"),
        ("window(-1)", "neither a whole number nor an edge"),
        ("window(2.5)", "neither a whole number"),
        ("strided(0)", "at least 1"),
        ("causal(3)", "takes no number"),
        ("causal & ", "is no expression"),
        ("causal + window(1)", "is no rule"),
        ("edges(0-9)", "there are 5"),
        ("segments()", "length of each segment"),
        ("__import__('os').system('true')", "is no rule"),
        ("(" * 500 + "causal" + ")" * 500, "is no expression"),
    ],
)
def test_what_is_no_mask_is_said_in_one_line(text, message):
    with pytest.raises(ValueError, match=message) as error:
        read_mask(text, 5)
    assert "\n" not in str(error.value)


def test_every_rule_has_a_name_here():
    import regard.nn.masks as masks

    rules = {name for name, each in vars(masks).items() if isinstance(each, type) and each.__module__ == masks.__name__}
    tensors = {"valid_keys", "neighbours"}  # flags of a feature map and lists of edges have no short form
    public = {name for name in rules if name[0].islower()} - tensors
    assert {name.removesuffix("_tokens") for name in public} == set(RULES)
