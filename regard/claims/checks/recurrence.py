"""Checks of what came before: recurrent networks, their gates, gradients over a distance, the bottleneck."""

import math
from typing import Any

import torch
from torch import Tensor, nn

from regard.claims.checks.base import build, check, gap, reach, words
from regard.nn.attention import Attention, AttentionConfig
from regard.nn.gates import free_candidates, free_weights, gate_weights, gated_update, several_heads, weighted_sum
from regard.nn.masks import causal
from regard.nn.recurrent import Recurrent


def recurrent(cell: str, dim: int = 32, **settings: Any) -> Recurrent:
    return Recurrent(cell, dim, dim, depth=1, dropout=0.0, **settings)


@check
def recurrent_future(cell: str = "lstm") -> float:
    """Return the gradient that a recurrent network's state has from later inputs."""
    x = words(9, 32)
    return reach(recurrent(cell)(x)[0][:, :4], x)[0, 4:].max().item()


@check
def last_state_sees() -> float:
    """Return the least gradient that the last state has from any of 20 inputs."""
    x = words(20, 32)
    return reach(recurrent("gru")(x)[0][:, -1:], x).min().item()


@check
def gradient_over_distance(kind: str, distance: int) -> float:
    """Return the gradient from an input so many positions back, as a share of that from the one before the last."""
    x = words(distance + 1, 32, rows=20)
    if kind == "attention":
        out = Attention(AttentionConfig(dim=32, heads=1))(x)
    else:
        out = recurrent(kind)(x)[0]
    sizes = reach(out[:, -1:], x).mean(0)
    return (sizes[0] / sizes[-2]).item()


@check
def decay_of_gradient(kind: str) -> float:
    """Return the factor by which the gradient shrinks with each further position, over 40 of them."""
    return gradient_over_distance(kind, 41) ** (1 / 40)


@check
def jacobian_product() -> float:
    """Return the gap of the product of ∂h_i/∂h_{i−1} from ∂h_t/∂h_0 over 6 steps."""
    cell, inputs, h = nn.RNNCell(8, 8), torch.randn(6, 1, 8), torch.zeros(1, 8)

    def whole(state: Tensor) -> Tensor:
        for x in inputs:
            state = cell(x, state)
        return state

    product = torch.eye(8)
    total = torch.autograd.functional.jacobian(whole, h)[0, :, 0]
    for x in inputs:
        product = torch.autograd.functional.jacobian(lambda s, x=x: cell(x, s), h)[0, :, 0] @ product
        h = cell(x, h).detach()
    return gap(product, total)


@check
def vanishing_of_contractions(norm: float, steps: int) -> float:
    """Return the norm of a product of so many random Jacobians that each have a given norm."""
    product = torch.eye(16)
    for _ in range(steps):
        jacobian = torch.randn(16, 16)
        product = jacobian / torch.linalg.matrix_norm(jacobian, 2) * norm @ product
    return torch.linalg.matrix_norm(product, 2).item()


@check
def recurrent_state(length: int) -> int:
    """Return the numbers of state that a recurrent model keeps after so many tokens."""
    model = build("lstm", vocab_size=53, dim=16, depth=2, dropout=0.0)
    cache = model.new_cache(length)
    model.prefill(torch.randint(53, (1, length)), cache)
    return sum(part.numel() for part in cache.state)


@check
def bottleneck_vectors(score: str, length: int) -> int:
    """Return the number of vectors that a decoder sees of a source of so many words."""
    model = build("seq2seq", vocab_size=53, dim=14, score=score, dropout=0.0)
    cache = model.new_cache(5)
    model.read(cache, torch.randint(53, (1, length)), torch.tensor([length]))
    return cache.values.shape[1]


@check
def contexts_differ() -> float:
    """Return the change of attention's context from one step of a recurrent decoder to the next."""
    kernel_sees: list[Tensor] = []
    model = build("seq2seq", vocab_size=53, dim=14, score="additive", dropout=0.0)
    model.kernel.register_forward_hook(lambda module, inputs, out: kernel_sees.append(out[0]))
    model(torch.randint(53, (1, 7)), torch.tensor([7]), torch.randint(53, (1, 3)))
    first, second = (torch.cat([seen.flatten(0, 2) for seen in kernel_sees])[i] for i in (0, 1))
    return gap(first, second)


@check
def encoder_sees_both_sides() -> float:
    """Return the least gradient that a bidirectional encoder's middle state has from any input."""
    x = words(9, 32)
    return reach(recurrent("gru", bidirectional=True)(x)[0][:, 4:5], x).min().item()


def _gru(steps: int = 7, dim: int = 5) -> tuple[Tensor, Tensor, Tensor]:
    """Return states, gates and candidates of a GRU, all T D."""
    layer, x, h = recurrent("gru", dim), torch.randn(1, steps, dim), torch.zeros(dim)
    cell = layer.layers
    (W_r, W_u, W_n), (U_r, U_u, U_n) = cell.weight_ih_l0.chunk(3), cell.weight_hh_l0.chunk(3)
    (b_r, b_u, b_n), (c_r, c_u, c_n) = cell.bias_ih_l0.chunk(3), cell.bias_hh_l0.chunk(3)
    gates, candidates = [], []
    for word in x[0]:
        r = (W_r @ word + b_r + U_r @ h + c_r).sigmoid()
        u = (W_u @ word + b_u + U_u @ h + c_u).sigmoid()
        candidates.append((W_n @ word + b_n + r * (U_n @ h + c_n)).tanh())
        gates.append(u)
        h = u * h + (1 - u) * candidates[-1]
    return layer(x)[0][0], torch.stack(gates), torch.stack(candidates)


@check
def gru_update() -> float:
    """Return the gap of h_t = u_t ⊙ h_{t−1} + (1 − u_t) ⊙ h̃_t from PyTorch's GRU."""
    states, gates, candidates = _gru()
    return gap(gated_update(gates[None], candidates[None])[0], states)


@check
def gru_unrolled(formula: str) -> float:
    """Return the gap of a GRU's states as a weighted sum of its candidates: our weights, or the lecture's."""
    states, gates, candidates = _gru()
    if formula == "ours":
        return gap(weighted_sum(gate_weights(gates[None]), candidates[None])[0], states)
    ones, T = torch.ones_like(gates[0]), len(gates)
    slide: Any = sum(
        math.prod(gates[i : T - i], start=ones) * math.prod(1 - gates[:i], start=ones) * candidates[i] for i in range(T)
    )
    return gap(slide, states[-1])


@check
def freed_weights() -> float:
    """Return the gap of causal multi-head attention from gates that were freed four times: weights, candidates, keys
    and values, heads."""
    x, layer = words(6, 8), Attention(AttentionConfig(dim=8, heads=2))
    (k, v), (b, c) = layer.key_value.weight.chunk(2), layer.key_value.bias.chunk(2)
    matrices = zip(layer.query.weight.chunk(2), k.chunk(2), v.chunk(2), strict=True)
    biases = zip(layer.query.bias.chunk(2), b.chunk(2), c.chunk(2), strict=True)
    heads: Any = [
        tuple(lambda y, m=m, n=n: y @ m.T + n for m, n in zip(*head, strict=True))
        for head in zip(matrices, biases, strict=True)
    ]
    return gap(layer.out(several_heads(x, lambda y: y, heads)[0]), layer(x, mask=causal()))


@check
def freed_candidates() -> float:
    """Return the gap of free candidates, all computed at once, from free weights with candidates of no state."""
    x, f = words(6, 8), nn.Linear(8, 8)
    score: Any = lambda q, k: q @ k.transpose(1, 2)  # noqa: E731
    looped, _ = free_weights(x, torch.zeros(1, 8), lambda x, h: f(x).tanh(), score)
    return gap(looped, free_candidates(x, lambda x: f(x).tanh(), score)[0])


@check
def energies_of_state(step: str) -> float:
    """Return the gap of Bahdanau's first weights, computed from a state of the decoder, from those of the model.

    `before` is the state with which the step begins, `after` the one with which it ends.
    """
    model = build("seq2seq", vocab_size=53, dim=14, score="additive", dropout=0.0)
    seen: list[tuple[Tensor, ...]] = []
    model.kernel.register_forward_pre_hook(lambda module, inputs: seen.append(inputs))
    source, lengths, target = torch.randint(53, (1, 7)), torch.tensor([7]), torch.randint(53, (1, 2))
    model(source, lengths, target)
    queries = torch.cat([inputs[0].flatten(0, 2) for inputs in seen])
    h, last = model.encoder(model.embedding.weight[source] * math.sqrt(14))
    z = model.bridge(last)[0][-1, 0]
    if step == "before":
        return gap(queries[0], model.query.weight @ z)
    return gap(queries[0], queries[1])


@check
def gain_of_gates() -> float:
    """Return the factor of a step's gradient in an LSTM against that in a plain recurrent network, both untrained."""
    return decay_of_gradient("lstm") / decay_of_gradient("rnn")
