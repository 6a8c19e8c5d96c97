"""Lecture 001: from recurrent networks to the Transformer, and its code from the ground up."""

import copy
import dataclasses
import math

import pytest
import torch
from torch import nn

from regard.cost import CONVNETS, convnet_cost
from regard.doctor.laws import close, differs
from regard.models import Seq2Seq, Seq2SeqConfig, Transformer, TransformerConfig
from regard.nn.attention import Attention, AttentionConfig
from regard.nn.gates import (
    free_candidates,
    free_weights,
    gate_weights,
    gated_update,
    hard_lookup,
    separate_keys_and_values,
    several_heads,
    soft_lookup,
    weighted_sum,
)
from regard.nn.kernels import Full
from regard.nn.masks import causal
from regard.nn.norm import build_norm
from regard.nn.positions import sinusoids
from regard.nn.recurrent import Recurrent


def gru_gates(layer: nn.GRU, x, h):
    """PyTorch's gates, in the lecture's words: h' = u ⊙ h + (1 − u) ⊙ h̃, so its z is the lecture's u."""
    W_r, W_u, W_n = layer.weight_ih_l0.chunk(3)
    U_r, U_u, U_n = layer.weight_hh_l0.chunk(3)
    b_r, b_u, b_n = layer.bias_ih_l0.chunk(3)
    c_r, c_u, c_n = layer.bias_hh_l0.chunk(3)
    r = (x @ W_r.T + b_r + h @ U_r.T + c_r).sigmoid()
    u = (x @ W_u.T + b_u + h @ U_u.T + c_u).sigmoid()
    candidate = (x @ W_n.T + b_n + r * (h @ U_n.T + c_n)).tanh()
    return u, candidate


def test_a_gru_is_a_weighted_sum_of_its_candidates():
    """h_t = Σ_i (∏_{j>i} u_j)(1 − u_i) h̃_i, exactly; the product on the slide is another number."""
    T, N = 7, 5
    recurrent = Recurrent("gru", 3, N, depth=1, dropout=0.0).double()
    x = torch.randn(1, T, 3, dtype=torch.float64)
    states, _ = recurrent(x)
    cell = nn.GRUCell(3, N).double()
    cell.load_state_dict({name.removesuffix("_l0"): value for name, value in recurrent.layers.state_dict().items()})

    h, gates, candidates = torch.zeros(N, dtype=torch.float64), [], []
    for t in range(T):
        u, candidate = gru_gates(recurrent.layers, x[0, t], h)
        close(cell(x[:, t], h[None])[0], u * h + (1 - u) * candidate, "the additive update")
        h = u * h + (1 - u) * candidate
        gates.append(u)
        candidates.append(candidate)
        ones = torch.ones_like(u)
        shares = [math.prod(gates[i + 1 :], start=ones) * (1 - gates[i]) for i in range(t + 1)]
        summed = sum(share * candidate for share, candidate in zip(shares, candidates, strict=True))
        close(summed, states[0, t], f"the sum after {t + 1} steps", 1e-12)
        close(sum(shares) + math.prod(gates, start=ones), ones, "the shares, with that of the first state", 1e-12)

    u, candidate = torch.stack(gates)[None], torch.stack(candidates)[None]
    close(gated_update(u, candidate), states, "the update in a loop", 1e-12)
    close(weighted_sum(gate_weights(u), candidate), states, "all states by one table of weights", 1e-12)
    slide = sum(
        math.prod(gates[i : T - i], start=ones) * math.prod([1 - g for g in gates[:i]], start=ones) * candidates[i]
        for i in range(T)
    )
    differs(slide, h, "the slide's product")


def test_the_four_questions():
    """Can we free the weights, free the candidates, separate keys and values, have several heads? Yes: attention."""
    B, T, D = 2, 6, 8
    x, first = torch.randn(B, T, D, dtype=torch.float64), torch.zeros(B, D, dtype=torch.float64)
    f = nn.Linear(D, D).double()
    score = lambda q, k: q @ k.transpose(1, 2)  # noqa: E731
    same = lambda x: x  # noqa: E731
    one, weights = free_weights(x, first, lambda x, h: f(x + h).tanh(), score)
    close(weights.sum(-1), torch.ones(B, T, dtype=torch.float64), "1: a softmax over the past")
    two, _ = free_candidates(x, lambda x: f(x).tanh(), score)
    differs(one, two, "2: candidates that knew the state before them")
    close(free_weights(x, first, lambda x, h: f(x).tanh(), score)[0], two, "2: no loop is needed without it")
    three, _ = separate_keys_and_values(x, lambda x: f(x).tanh(), lambda q: q * math.sqrt(D), same, same)
    close(three, two, "3: before keys and values are told apart")

    layer = Attention(AttentionConfig(dim=D, heads=2)).double()
    (k, v), (b, c) = layer.key_value.weight.chunk(2), layer.key_value.bias.chunk(2)
    matrices = [*zip(layer.query.weight.chunk(2), k.chunk(2), v.chunk(2), strict=True)]
    biases = [*zip(layer.query.bias.chunk(2), b.chunk(2), c.chunk(2), strict=True)]
    heads = [
        tuple(lambda x, m=m, n=n: x @ m.T + n for m, n in zip(*head, strict=True))
        for head in zip(matrices, biases, strict=True)
    ]
    four, _ = several_heads(x, same, heads)
    close(layer.out(four), layer(x, mask=causal()), "4: causal multi-head attention", 1e-12)


def test_soft_attention_becomes_hard_but_ties_are_shared():
    """Lecture 002: as τ → 0 attention becomes a lookup. It does where one key is best; equal ones are averaged."""
    q, k, v = torch.randn(3, 1, 1, 5, 4, dtype=torch.float64)
    close(soft_lookup(q, k, v, temperature=1e-4), hard_lookup(q, k, v), "a lookup")
    twice = torch.cat([k, k], dim=2)
    mean = (hard_lookup(q, k, v) + hard_lookup(q, k, -3 * v)) / 2
    close(soft_lookup(q, twice, torch.cat([v, -3 * v], dim=2), temperature=1e-4), mean, "two equal keys")


@pytest.mark.parametrize("depth", [1, 2])
def test_bahdanau(depth):
    """α ∝ exp(vᵀ tanh(W z_{t−1} + U h)), c = Σ α h, z_t = RNN([y_{t−1}; c_t], z_{t−1}), with our weights."""
    model = Seq2Seq(Seq2SeqConfig(vocab_size=53, dim=14, depth=depth, score="additive", dropout=0.0)).double()
    source, lengths, target = torch.randint(53, (3, 7)), torch.tensor([7, 2, 5]), torch.randint(53, (3, 5))
    got = model(source, lengths, target)
    E = model.embedding.weight * math.sqrt(14)
    for b in range(3):
        h, last = model.encoder(E[source[b : b + 1, : lengths[b]]])  # one sentence at a time: no padding
        z = model.bridge(last)[0]  # depth 1 D
        for t, y in enumerate(E[target[b]]):
            energies = [
                (model.kernel.vector[0] * (model.query.weight @ z[-1, 0] + model.key(h_j)).tanh()).sum() for h_j in h[0]
            ]
            alpha = torch.stack(energies).exp()
            alpha = alpha / alpha.sum()
            c = sum(a * h_j for a, h_j in zip(alpha, h[0], strict=True))
            _, z = model.decoder.layers(torch.cat([y, c])[None, None], z)
            scores = model.embedding.weight @ model.readout(torch.cat([z[-1, 0], c])).tanh()
            close(scores, got[b, t], f"sentence {b}, word {t}", 1e-6)


def lecture_attention(query, key, value, mask=None):
    """The lecture's function, as it stands there."""
    d_k = query.size(-1)
    scores = torch.matmul(query, key.transpose(-2, -1)) / math.sqrt(d_k)
    if mask is not None:
        scores = scores.masked_fill(mask == 0, -1e9)
    p_attn = scores.softmax(dim=-1)
    return torch.matmul(p_attn, value), p_attn


def test_the_attention_function():
    q, k, v = torch.randn(3, 2, 3, 7, 5, dtype=torch.float64)
    for mask, theirs in [(None, None), (causal(), torch.ones(7, 7).tril())]:
        wanted, wanted_weights = lecture_attention(q, k, v, theirs)
        out, weights = Full(heads=3, head_dim=5)(q, k, v, mask=mask, weights=True)
        close(out, wanted, "output")
        close(weights, wanted_weights, "weights")
        close(Full(heads=3, head_dim=5)(q, k, v, mask=mask)[0], wanted, "fast output")


def test_heads_divide_the_width():
    layer = Attention(AttentionConfig(dim=512, heads=8))
    assert layer.head_dim == 64 == 512 / 8
    one = Attention(AttentionConfig(dim=512, heads=1))
    assert sum(p.numel() for p in layer.parameters()) == sum(p.numel() for p in one.parameters())


def test_the_lectures_code_for_positions():
    d_model, max_len = 12, 50
    pe = torch.zeros(max_len, d_model)
    position = torch.arange(0, max_len).unsqueeze(1)
    div_term = torch.exp(torch.arange(0, d_model, 2) * -(math.log(10000.0) / d_model))
    pe[:, 0::2] = torch.sin(position * div_term)
    pe[:, 1::2] = torch.cos(position * div_term)
    close(sinusoids(max_len, d_model), pe, "PE", 1e-5)


def test_positions_and_pairs_count_from_zero():
    """i ∈ {1 … N}, l ∈ {1 … d} would leave out the first position and name 2d numbers; pairs are l = 0 … d/2 − 1."""
    table = sinusoids(4, 6)
    assert table.shape == (4, 6)
    assert table[0].tolist() == [0, 1, 0, 1, 0, 1]
    assert math.isclose(table[1, 0], math.sin(1), abs_tol=1e-7)  # the fastest wave has l = 0
    assert math.isclose(table[1, 4], math.sin(10_000 ** (-4 / 6)), abs_tol=1e-7)  # the slowest l = d/2 − 1


def test_layer_norm_has_three_definitions_and_pytorchs_is_used():
    d, eps = 5, 0.1
    x = torch.randn(3, d, dtype=torch.float64)
    centred = x - x.mean(-1, keepdim=True)
    ours = build_norm("layer", d, eps).double()(x)
    close(ours, centred / (centred.square().mean(-1, keepdim=True) + eps).sqrt(), "PyTorch: 1/d, ε under the root")
    code = centred / (x.std(-1, keepdim=True) + eps)  # this lecture: n − 1, ε outside
    formula = centred / (centred.square().mean(-1, keepdim=True).sqrt() + eps)  # lecture 002: 1/d, ε outside
    differs(code, ours, "n − 1 and ε outside the root")
    differs(formula, ours, "ε outside the root")
    differs(code, formula, "n − 1")
    no_eps = build_norm("layer", d, 1e-15).double()(x)
    close(centred / x.std(-1, keepdim=True), no_eps * math.sqrt((d - 1) / d), "n − 1 shrinks by √((d−1)/d)")


class LectureModel:
    """make_model(37000, 37000), of which only the shapes matter: layers are copies of one another."""

    def __new__(cls, vocab, d=512, d_ff=2048, N=6):
        attention, norm = nn.ModuleList(nn.Linear(d, d) for _ in range(4)), nn.LayerNorm(d)
        ffn = nn.ModuleList([nn.Linear(d, d_ff), nn.Linear(d_ff, d)])
        encoder = nn.ModuleList([attention, ffn, norm, copy.deepcopy(norm)])
        decoder = nn.ModuleList(copy.deepcopy(part) for part in (attention, attention, ffn, norm, norm, norm))
        clones = [copy.deepcopy(layer) for layer in (encoder, decoder) for _ in range(N)]
        ends = [nn.Embedding(vocab, d), nn.Embedding(vocab, d), nn.Linear(d, vocab), nn.LayerNorm(d), nn.LayerNorm(d)]
        return nn.ModuleList(clones + ends)


def test_make_model_has_101_million_parameters_and_63_million_tied():
    """The lecture gives no number."""
    count = lambda model: sum(p.numel() for p in model.parameters())  # noqa: E731
    with torch.device("meta"):
        lecture = LectureModel(37_000)
        untied = Transformer(TransformerConfig(vocab_size=37_000, tie="none", head_bias=True))
        tied = Transformer(TransformerConfig(vocab_size=37_000, tie="all", norm_place="post"))
    assert count(lecture) == count(untied) == 101_009_544
    assert round(count(tied) / 1e6, 1) == 63.1


def test_resnet_50_has_4_1_billion_multiply_adds():
    """25.5 million parameters are right; 4.3 × 10⁹ is 4.09 × 10⁹ multiply–adds of convolutions and the last layer."""
    parameters, work = 7 * 7 * 3 * 64 + 2 * 64, 7 * 7 * 3 * 64 * 112**2
    inner, width = 64, 64
    for stage, blocks in enumerate([3, 4, 6, 3]):
        side, inner = 56 // 2**stage, 64 * 2**stage
        for block in range(blocks):
            before = side * 2 if block == 0 and stage else side  # the 3 × 3 convolution has the stride
            convolutions = [(width * inner, before), (9 * inner * inner, side), (inner * 4 * inner, side)]
            if block == 0:
                convolutions.append((width * 4 * inner, side))
                parameters += 2 * 4 * inner
            parameters += sum(weights for weights, _ in convolutions) + 2 * (inner + inner + 4 * inner)
            work += sum(weights * side**2 for weights, side in convolutions)
            width = 4 * inner
    parameters, work = parameters + 2048 * 1000 + 1000, work + 2048 * 1000
    assert parameters == 25_557_032
    assert round(work / 1e9, 2) == 4.09
    found = convnet_cost(CONVNETS["resnet-50"])
    assert (found.parameters, found.multiply_adds) == (parameters, work)


def test_lr_net_50_has_23_4_million_parameters_by_assumption():
    """23.3 million and 4.3 × 10⁹, where each relation ends in a 1 × 1 convolution; 20.3 million without it."""
    found = convnet_cost(CONVNETS["lr-net-50"])
    assert found.parameters == 23_360_267 and round(found.multiply_adds / 1e9, 2) == 4.03
    assert abs(found.parameters / 23.3e6 - 1) < 0.01 and abs(found.multiply_adds / 4.3e9 - 1) < 0.07
    resnet = convnet_cost(CONVNETS["resnet-50"])
    assert abs(found.multiply_adds / resnet.multiply_adds - 1) < 0.02  # made to cost the same
    outputs = {"res1": 112, "res2": 56, "res3": 28, "res4": 14, "res5": 7, "head": 1}
    assert {stage.name: stage.side for stage in found.stages} == outputs
    totals = {
        how: convnet_cost(dataclasses.replace(CONVNETS["lr-net-50"], transform=how)) for how in ("before", "none")
    }
    assert round(totals["before"].multiply_adds / 1e9, 2) == 4.47
    assert round(totals["none"].parameters / 1e6, 1) == 20.3
    once = dataclasses.replace(CONVNETS["lr-net-50"], blocks=(3, 1, 1, 1))  # the table read as it stands
    assert convnet_cost(once).parameters < 12e6
