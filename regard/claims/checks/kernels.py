"""Checks of other scores and kernels, of Q = K = V, and of decoding with a cache."""

import math
from typing import Any

import torch

from regard.claims.checks.attention import DIM, HEADS, WORDS, layer, softmax, weights_of
from regard.claims.checks.base import build, check, gap
from regard.nn.gates import location_attention
from regard.nn.kernels import Additive, Full, General, Linear, build_kernel
from regard.nn.mask_expressions import read_mask
from regard.nn.positions import RelativeBias


@check
def additive_by_hand() -> float:
    """Return the gap of softmax(wᵀ tanh(W_q q + W_k k)) V, computed pair by pair, from the additive kernel."""
    q, k, v = torch.randn(5, 6), torch.randn(7, 6), torch.randn(7, 6)
    kernel: Any = Additive(heads=1, head_dim=6)
    scores = torch.stack([torch.stack([kernel.vector[0] @ (a + b).tanh() for b in k]) for a in q])
    return gap(kernel(q[None, None], k[None, None], v[None, None])[0][0, 0], scores.softmax(-1) @ v)


@check
def bilinear_by_hand() -> float:
    """Return the gap of scores q W_q W_kᵀ kᵀ with learned matrices from projections in front of a dot product."""
    x, (W_q, W_k) = torch.randn(1, 1, WORDS, 6), torch.randn(2, 6, 4)
    general: Any = General(heads=1, head_dim=6)
    general.matrix.data = (W_q @ W_k.T)[None]
    return gap(Full(heads=1, head_dim=4)(x @ W_q, x @ W_k, x, scale=1.0)[0], general(x, x, x, scale=1.0)[0])


@check
def angle_of_score() -> float:
    """Return the gap of |q| |k| cos θ from q·k."""
    q, k = torch.randn(2, 100, 16)
    return gap(q.norm(dim=-1) * k.norm(dim=-1) * torch.cosine_similarity(q, k, dim=-1), (q * k).sum(-1))


@check
def nearest_is_most_attended() -> float:
    """Return how often, over 2000 untrained queries, the most attended key is the one with the nearest input vector."""
    attention, x = layer(dim=64, heads=1), torch.randn(100, 20, 64)
    weights = weights_of(attention, x)[:, 0]
    near = torch.cdist(x, x) + 1e9 * torch.eye(20)
    weights = weights - 1e9 * torch.eye(20)
    return (weights.argmax(-1) == near.argmin(-1)).double().mean().item()


@check
def shared_projection_symmetry(shared: bool) -> float:
    """Return the asymmetry of the scores: the largest difference of q_i·k_j from q_j·k_i."""
    x = torch.randn(WORDS, DIM)
    W_q = torch.randn(DIM, DIM)
    W_k = W_q if shared else torch.randn(DIM, DIM)
    scores = (x @ W_q) @ (x @ W_k).T
    return gap(scores, scores.T)


@check
def own_weight(shared: bool) -> float:
    """Return the mean weight that a word gives itself, of 16 random words, with Q = K = V = X or with own matrices."""
    x = torch.randn(200, 1, 16, 32)
    q, k = (x, x) if shared else (x @ torch.randn(32, 32) / math.sqrt(32), x @ torch.randn(32, 32) / math.sqrt(32))
    weights = Full(heads=1, head_dim=32)(q, k, x, weights=True)[1][:, 0]
    return weights.diagonal(dim1=-2, dim2=-1).mean().item()


@check
def uniform_is_mean() -> float:
    """Return the gap of attention with equal scores from the mean of the values."""
    v = torch.randn(1, 1, WORDS, 4)
    zeros = torch.zeros_like(v)
    return gap(Full(heads=1, head_dim=4)(zeros, zeros, v)[0][:, :, 0], v.mean(2))


@check
def location_based() -> float:
    """Return the change of location-based weights when the content changes."""
    bias = RelativeBias(dim=DIM, heads=HEADS, head_dim=4, max_len=9).bias()
    assert bias is not None
    first, second = (location_attention(torch.randn(1, HEADS, WORDS, 4), bias)[1] for _ in range(2))
    return gap(first, second)


SIZES: dict[str, Any] = dict(vocab_size=53, dim=12, depth=2, heads=3, ffn_dim=29, max_len=16)
SOURCE = {"source": torch.tensor([[7, 8, 9, 3, 5]]), "lengths": torch.tensor([5])}


@check
@torch.no_grad()
def cached(family: str) -> float:
    """Return the gap of logits by a cache, one token at a time, from those of one pass over all tokens."""
    model, ids = build(family, **SIZES), torch.randint(53, (1, 6))
    rest = {name: SOURCE[name] for name in (*model.reads, "lengths") if model.reads}
    at_once = model(*rest.values(), ids)
    cache = model.new_cache(6)
    steps = [model.prefill(ids[:, :1], cache, **rest)] + [model.step(ids[:, t], cache) for t in range(1, 6)]
    return gap(torch.stack(steps, dim=1), at_once)


@check
@torch.no_grad()
def source_reads() -> int:
    """Return how often the encoder runs while four tokens are generated."""
    model, reads = build("transformer", **SIZES), []
    model.encoder.register_forward_hook(lambda *_: reads.append(1))
    cache = model.new_cache(4)
    model.prefill(torch.tensor([[1]]), cache, **SOURCE)
    for token in (11, 12, 13):
        model.step(torch.tensor([token]), cache)
    return len(reads)


@check
def word_of_weight(weights: list[float], text: str) -> str:
    """Return the word of a source that has the largest of these weights."""
    return text.split()[weights.index(max(weights))]


@check
def projection_ratio() -> float:
    """Return the parameters of the three projections of a layer without biases, as a multiple of one matrix d × d."""
    attention = layer(dim=64, heads=1, bias=False)
    return (attention.query.weight.numel() + attention.key_value.weight.numel()) / 64**2


@check
def ring_of_nodes() -> list[int]:
    """Return how many nodes each of four in a ring sees, where attention is masked to edges and the node itself."""
    return read_mask("edges(0-1, 1-2, 2-3, 3-0) | window(0)", 4).dense(4, 4)[0, 0].sum(-1).tolist()


@check
def linear_by_hand() -> float:
    """Return the gap of linear attention from its weights as an n × n matrix times the values."""
    q, k, v = torch.randn(3, 1, 2, WORDS, 4)
    kernel: Any = Linear(heads=2, head_dim=4)
    out, weights = kernel(q, k, v, weights=True)
    return gap(out, weights @ v)


@check
def fused_attention() -> float:
    """Return the gap of the fused kernel, which holds no n × n matrix, from the one that returns its weights."""
    q, k, v = torch.randn(3, 1, 2, 65, 4)
    kernel = Full(heads=2, head_dim=4)
    return gap(kernel(q, k, v)[0], kernel(q, k, v, weights=True)[0])


@check
def unused_weight() -> float:
    """Return the change of the output when a key with a weight above .9, whose value is zero, gets another value's
    place: the weight alone adds nothing."""
    k, v = torch.randn(1, 1, 6, 16), torch.randn(1, 1, 6, 16)
    v[:, :, 0] = 0
    out, weights = Full(heads=1, head_dim=16)(12 * k[:, :, :1], k, v, weights=True)
    assert weights[0, 0, 0, 0] > 0.9
    return gap(out, weights[..., 1:] @ v[:, :, 1:])


@check
def error_falls(kernel: str, few: int = 1, many: int = 8) -> float:
    """Return the error of a hashing kernel with many rounds as a share of that with few."""
    q, v = torch.randn(2, 1, 2, 256, 16)
    exact = Full(heads=2, head_dim=16)(q, q, v)[0]

    def error(rounds: int) -> float:
        built: Any = build_kernel(f"{kernel}:rounds={rounds}", heads=2, head_dim=16, max_len=256)
        return (built(q, q, v)[0] - exact).norm().item()

    return error(many) / error(few)


@check
def entropy_of_even(keys: int) -> float:
    """Return the entropy of the weights of so many equal scores."""
    weights = softmax([0.0] * keys)
    return -(weights * weights.log()).sum().item()
