"""Each step from gates to attention equals the next one where the freedom that it adds is not used."""

import math
import re
from pathlib import Path

import pytest
import torch
from torch import nn

from regard.doctor.laws import close, differs
from regard.nn.attention import Attention, AttentionConfig
from regard.nn.gates import (
    free_candidates,
    free_weights,
    gate_weights,
    gated_update,
    hard_lookup,
    location_attention,
    mix,
    separate_keys_and_values,
    several_heads,
    soft_lookup,
    weighted_sum,
)
from regard.nn.masks import causal
from regard.registry import positions

B, T, D = 2, 7, 6


def normal(*shape):
    return torch.randn(*shape, dtype=torch.float64)


def dot(q, k):
    return q @ k.transpose(-1, -2)


@pytest.fixture
def gates():
    return torch.rand(B, T, D, dtype=torch.float64)


def test_the_loop_is_the_weighted_sum(gates):
    """With equal gradients, also for gates that are shut (0) or open (1)."""
    gates[0, 2, 1], gates[0, 4, 1], gates[1, 3, 2] = 0.0, 1.0, 0.0
    candidates = normal(B, T, D)
    one, other = ([t.clone().requires_grad_() for t in (gates, candidates)] for _ in range(2))
    loop, summed = gated_update(*one), weighted_sum(gate_weights(other[0]), other[1])
    close(summed, loop, "the sum", 1e-12)
    towards = normal(B, T, D)
    (loop * towards).sum().backward()
    (summed * towards).sum().backward()
    for a, b, what in zip(one, other, ("gates", "candidates"), strict=True):
        close(b.grad, a.grad, f"the gradient of the {what}", 1e-12)


def test_gate_weights_are_shares_of_one_with_the_first_state(gates):
    weights = gate_weights(gates)
    assert (weights >= 0).all()
    assert weights.sum(-1).triu(1).eq(0).all() and weights.sum(-1).tril().ne(0).sum() == B * T * (T + 1) // 2
    close(weights.sum(2) + gates.cumprod(1), torch.ones_like(gates), "the shares", 1e-12)


def test_gates_settle_a_comparison_once_freed_weights_do_not(gates):
    """w_ti / w_tj is the same in every later state: this is what "dependent weights" means."""

    def comparisons(weights):
        return (weights[:, :, 0] / weights[:, :, 1])[:, 1:]  # of the first two candidates, in states 1 …

    fixed = comparisons(gate_weights(gates))
    close(fixed, fixed[:, :1].expand_as(fixed), "gates", 1e-9)
    x = normal(B, T, D)
    free = comparisons(free_candidates(x, torch.tanh, dot)[1])
    differs(free, free[:, :1].expand_as(free), "freed weights")


def test_free_weights_can_do_what_gates_do():
    """A softmax reaches every row of weights that sums to one: scores are their logarithms."""
    gates = torch.rand(B, T, 1, dtype=torch.float64) * 0.9 + 0.05
    gates[:, 0] = 0.0  # the first candidate replaces the first state, so that nothing is missing from the rows
    weights, candidates = gate_weights(gates), normal(B, T, D)
    states, found = mix(weights[..., 0].log(), candidates)
    close(found, weights[..., 0], "weights")
    close(states, gated_update(gates.expand(B, T, D), candidates), "states")


def test_step_1_waits_for_its_states_and_step_2_does_not():
    x, first = normal(B, T, D), torch.zeros(B, D, dtype=torch.float64)
    into, back = normal(D, D), normal(D, D)
    recurrent, weights = free_weights(x, first, lambda x, h: (x @ into + h @ back).tanh(), dot)
    close(weights.sum(-1), torch.ones(B, T, dtype=torch.float64), "weights")
    assert weights.triu(1).eq(0).all()
    free, _ = free_candidates(x, lambda x: (x @ into).tanh(), dot)
    differs(free[:, 1:], recurrent[:, 1:], "candidates without a state")
    same, same_weights = free_weights(x, first, lambda x, h: (x @ into).tanh(), dot)
    close(free, same, "where the state is not used, the loop can be left out")
    close(free_candidates(x, lambda x: (x @ into).tanh(), dot)[1], same_weights, "weights")


def test_step_3_is_step_2_where_keys_are_values():
    x, into = normal(B, T, D), normal(D, D)
    f, same = (lambda x: (x @ into).tanh()), (lambda x: x)
    wanted, _ = free_candidates(x, f, lambda q, k: dot(q, k) / math.sqrt(D))
    close(separate_keys_and_values(x, f, same, same, same)[0], wanted, "keys that are values")
    shrink = normal(D, 3)
    apart, weights = separate_keys_and_values(x, f, same, same, lambda x: x @ shrink)
    close(apart, wanted @ shrink, "other values, the same weights")
    differs(separate_keys_and_values(x, f, same, lambda k: -k, same)[0], wanted, "other keys")


def heads_of(layer: Attention):
    """The maps of each head of a layer, row by row from its matrices."""
    K, inner = layer.head_dim, layer.heads * layer.head_dim

    def rows(linear, start):
        return lambda x: nn.functional.linear(x, linear.weight[start : start + K], linear.bias[start : start + K])

    return [
        (rows(layer.query, h * K), rows(layer.key_value, h * K), rows(layer.key_value, inner + h * K))
        for h in range(layer.heads)
    ]


def test_step_4_is_attention():
    """The same matrices, a causal mask: equal outputs, equal gradients."""
    layer = Attention(AttentionConfig(dim=D, heads=3)).double()
    x = normal(B, T, D).requires_grad_()
    wanted = layer(x, mask=causal())
    heads = heads_of(layer)
    mixed, weights = several_heads(x, lambda x: x, heads)
    assert weights.shape == (B, 3, T, T)
    close(layer.out(mixed), wanted, "four steps", 1e-12)
    one, _ = separate_keys_and_values(x, lambda x: x, *heads[0])
    close(one, mixed[..., :2], "one head is step 3", 1e-12)

    towards, parameters = normal(B, T, D), [x, *layer.parameters()]
    for got, expected in zip(
        torch.autograd.grad((layer.out(mixed) * towards).sum(), parameters),
        torch.autograd.grad((wanted * towards).sum(), parameters),
        strict=True,
    ):
        close(got, expected, "gradient", 1e-12)


def test_torch_agrees_with_step_4():
    """An implementation that nobody here wrote."""
    theirs = nn.MultiheadAttention(D, 3, batch_first=True, dtype=torch.float64)
    hidden = torch.ones(T, T, dtype=torch.bool).triu(1)
    x = normal(B, T, D)
    wanted, weights = theirs(x, x, x, attn_mask=hidden, average_attn_weights=False)
    parts = zip(theirs.in_proj_weight.split(2), theirs.in_proj_bias.split(2), strict=True)
    maps = [lambda x, w=w, b=b: x @ w.T + b for w, b in parts]  # three heads of queries, then keys, then values
    mixed, found = several_heads(x, lambda x: x, list(zip(maps[:3], maps[3:6], maps[6:], strict=True)))
    close(theirs.out_proj(mixed), wanted, "output", 1e-12)
    close(found, weights, "weights", 1e-12)


def test_soft_becomes_hard_as_the_temperature_falls():
    """The error is at most 2 · (S − 1) · exp(−gap/τ) times the largest value."""
    q, k, v = normal(B, 3, T, D), normal(B, 3, 11, D), normal(B, 3, 11, 5)
    hard = hard_lookup(q, k, v)
    scores = dot(q, k).topk(2, dim=-1).values
    gap, errors = scores[..., 0] - scores[..., 1], []
    for temperature in (1.0, 0.1, 0.01, 0.001):
        error = (soft_lookup(q, k, v, temperature=temperature) - hard).abs().amax(-1)
        assert (error <= 2 * 10 * (-gap / temperature).exp() * v.abs().max() + 1e-12).all()
        errors.append(error.max().item())
    assert errors == sorted(errors, reverse=True) and errors[0] > 0.5
    clear = torch.eye(5, dtype=torch.float64).expand(1, 1, 5, 5)
    close(soft_lookup(clear, clear, v[:1, :1, :5], temperature=0.02), v[:1, :1, :5], "a dictionary", 1e-12)
    close(soft_lookup(q, k, v, temperature=1e9), v.mean(2, keepdim=True).expand(hard.shape), "the mean", 1e-6)


def test_ties_are_shared_by_soft_and_not_by_hard():
    q, k = torch.ones(1, 1, 1, 1), torch.tensor([1.0, 1.0, 0.0]).view(1, 1, 3, 1)
    v = torch.tensor([2.0, 4.0, 9.0]).view(1, 1, 3, 1)
    assert soft_lookup(q, k, v, temperature=1e-3).item() == 3.0
    assert hard_lookup(q, k, v).item() == 2.0


def test_only_soft_lookup_teaches_queries_and_keys():
    q, k, v = (normal(1, 1, 4, 3).requires_grad_() for _ in range(3))
    soft = torch.autograd.grad(soft_lookup(q, k, v, temperature=1.0).square().sum(), [q, k, v])
    assert all(grad.abs().max() > 0 for grad in soft)
    hard = torch.autograd.grad(hard_lookup(q, k, v).square().sum(), [q, k, v], allow_unused=True)
    assert hard[0] is None and hard[1] is None and hard[2].abs().max() > 0


@pytest.mark.parametrize("temperature", [0.0, -1.0])
def test_no_temperature_below_zero(temperature):
    q = torch.ones(1, 1, 1, 1)
    with pytest.raises(ValueError, match="must be above 0; its limit at 0 is hard_lookup"):
        soft_lookup(q, q, q, temperature=temperature)


def test_content_follows_the_token_and_location_the_place():
    """Permuted keys and values: by content nothing changes; by place the weights stay where they were."""
    order = torch.randperm(T)
    q, k, v = normal(B, 3, T, D), normal(B, 3, T, D), normal(B, 3, T, 5)
    found = soft_lookup(q, k, v, temperature=1.0)
    close(soft_lookup(q, k[:, :, order], v[:, :, order], temperature=1.0), found, "by content")

    bias = positions["alibi"](dim=D, heads=3, head_dim=2, max_len=T).bias()
    mixed, weights = location_attention(v, bias, mask=causal())
    other, same = location_attention(v[:, :, order], bias, mask=causal())
    assert torch.equal(weights, same)
    differs(other, mixed, "by place")
    close(mixed, weights @ v, "the mixture")
    assert weights.triu(1).eq(0).all()


def test_the_page_about_gates_runs():
    page = (Path(__file__).parents[2] / "docs" / "gates.md").read_text(encoding="utf-8")
    (code,) = re.findall(r"```python\n(.*?)```", page, flags=re.DOTALL)
    exec(compile(code, "docs/gates.md", "exec"), {})
