"""Checks of the attention core: weights, scale, masks, heads, lookup."""

import math
from typing import Any

import torch
from torch import Tensor, nn

from regard.claims.checks.base import check, gap, reach, words
from regard.inside.explain.worked_attention import load_example, work_out
from regard.nn.attention import Attention, AttentionConfig
from regard.nn.gates import hard_lookup, soft_lookup
from regard.nn.kernels import Full, attend
from regard.nn.masks import Mask, causal, padding

DIM, HEADS, WORDS = 12, 3, 7


def layer(**changes: Any) -> Attention:
    return Attention(AttentionConfig(**{"dim": DIM, "heads": HEADS, **changes}))


def weights_of(attention: Attention, x: Tensor, context: Tensor | None = None, mask: Mask | None = None) -> Tensor:
    """Return the weights B H T S of a layer."""
    return attention.kernel(*attention.project(x, context), mask=mask, weights=True)[1]


def softmax(scores: list[float] | Tensor) -> Tensor:
    """Return the core's own softmax of a row of scores."""
    row = torch.as_tensor(scores, dtype=torch.float64)[None, None, None]
    return attend(row, torch.zeros(1, 1, row.shape[-1], 1))[1][0, 0, 0]


@check
def row_sum() -> float:
    """Return the largest distance from 1 of the sum of a query's weights."""
    return (weights_of(layer(), words(WORDS, DIM)).sum(-1) - 1).abs().max().item()


@check
def least_weight() -> float:
    """Return the smallest weight of a layer whose inputs are large."""
    return weights_of(layer(), 9 * words(WORDS, DIM)).min().item()


@check
def comparisons(tokens: int) -> int:
    """Return the number of query–key scores of self-attention over so many tokens."""
    x = torch.randn(1, 1, tokens, 2)
    return Full(heads=1, head_dim=2)(x, x, x, weights=True)[1].numel()


@check
def comparisons_ratio(more: int, fewer: int) -> float:
    """Return how many times more scores one number of tokens makes than another."""
    return comparisons(more) / comparisons(fewer)


@check
def weights_without_values() -> float:
    """Return the change of the weights when all values are replaced."""
    q, k, v, w = torch.randn(4, 1, 2, WORDS, 4)
    kernel = Full(heads=2, head_dim=4)
    return gap(kernel(q, k, v, weights=True)[1], kernel(q, k, w, weights=True)[1])


@check
def weights_of_other_inputs() -> float:
    """Return the change of the weights from one input to another, with the parameters as they are."""
    attention = layer()
    return gap(*(weights_of(attention, words(WORDS, DIM)) for _ in range(2)))


@check
def mixing_of_other_inputs() -> float:
    """Return the change of a fully connected layer's mixing of positions from one input to another: its Jacobian's."""
    mixing = nn.Linear(WORDS, WORDS)
    jacobians = [torch.autograd.functional.jacobian(mixing, torch.randn(WORDS)) for _ in range(2)]
    return gap(*jacobians)


@check
def far_weight() -> float:
    """Return the weight of the farthest of 200 words where it alone matches the query."""
    k = torch.randn(1, 1, 200, 16)
    return Full(heads=1, head_dim=16)(8 * k[:, :, :1], k, k, weights=True)[1][0, 0, 0, 0].item()


@check
def score_spread(dim: int, scaled: bool, samples: int = 20_000) -> float:
    """Return the standard deviation of q·k for normal q and k, as scores of the kernel if scaled."""
    q, k = torch.randn(2, samples, dim)
    return ((q * k).sum(-1) / (math.sqrt(dim) if scaled else 1)).std().item()


def rows_of_weights(dim: int, scaled: bool, keys: int = 16, queries: int = 500) -> Tensor:
    q, k = torch.randn(1, 1, queries, dim), torch.randn(1, 1, keys, dim)
    return Full(heads=1, head_dim=dim)(q, k, k, scale=None if scaled else 1.0, weights=True)[1][0, 0]


@check
def largest_weight(dim: int, scaled: bool) -> float:
    """Return the mean of the largest of 16 weights."""
    return rows_of_weights(dim, scaled).amax(-1).mean().item()


@check
def softmax_gradient(dim: int, scaled: bool) -> float:
    """Return the mean size (Frobenius) of the softmax's Jacobian diag(w) − w wᵀ over 500 queries."""
    w = rows_of_weights(dim, scaled)
    jacobian = torch.diag_embed(w) - w[:, :, None] * w[:, None, :]
    return torch.linalg.matrix_norm(jacobian).median().item()


@check
def scale_gain(dim: int) -> float:
    """Return how many times larger the softmax's Jacobian is with the scale than without."""
    return softmax_gradient(dim, True) / softmax_gradient(dim, False)


@check
def largest_of_softmax(scores: list[float], factor: float = 1.0) -> float:
    """Return the largest weight of scores that are multiplied by a factor."""
    return softmax([factor * score for score in scores]).max().item()


@check
def most_attended(example: str, query: str | None = None) -> str:
    """Return the word with the largest weight in a worked example."""
    loaded = load_example(example)
    weights = work_out(loaded, query).weights
    return loaded.words[weights.index(max(weights))]


@check
def largest_feature(example: str) -> str:
    """Return the feature that is largest in the output of a worked example."""
    loaded = load_example(example)
    output = work_out(loaded).output
    assert output is not None
    return loaded.features[output.index(max(output))]


@check
def sum_of(numbers: list[float]) -> float:
    """Return the sum of the lecture's numbers."""
    return math.fsum(numbers)


@check
def hard_limit(temperature: float, tied: bool = False) -> float:
    """Return the distance of soft from hard lookup at a temperature; `tied`: with each key twice, and other values."""
    q, k, v = torch.randn(3, 1, 1, 5, 4)
    if tied:
        k, v = torch.cat([k, k], dim=2), torch.cat([v, -3 * v], dim=2)
    return gap(soft_lookup(q, k, v, temperature=temperature), hard_lookup(q, k, v))


@check
def lookup_gradient(soft: bool) -> float:
    """Return the size of the gradient that the query gets from a lookup; a hard one has none."""
    q, k, v = torch.randn(1, 1, 1, 4, requires_grad=True), *torch.randn(2, 1, 1, 5, 4)
    out = soft_lookup(q, k, v, temperature=1.0) if soft else hard_lookup(q, k, v)
    return torch.autograd.grad(out.sum(), q)[0].abs().max().item() if out.requires_grad else 0.0


@check
def visible_keys(length: int) -> list[int]:
    """Return the number of keys that each query may see under the causal mask."""
    return causal().dense(length, length)[0, 0].sum(-1).tolist()


@check
def future_weight() -> float:
    """Return the largest weight of a key to the right of its query under a causal mask."""
    return weights_of(layer(), words(WORDS, DIM), mask=causal()).triu(1).max().item()


@check
def masked_row_sum() -> float:
    """Return the largest distance from 1 of the sum of a query's weights under a causal mask."""
    return (weights_of(layer(), words(WORDS, DIM), mask=causal()).sum(-1) - 1).abs().max().item()


@check
def future_gradient(masked: bool) -> float:
    """Return the gradient that the first output has from the last input."""
    x = words(WORDS, DIM)
    return reach(layer()(x, mask=causal() if masked else None)[:, :1], x)[0, -1].item()


@check
def weight_of_score(score: float) -> float:
    """Return the softmax weight of a score among 31 others that are normally distributed."""
    return softmax(torch.cat([torch.tensor([score]), torch.randn(31)]))[0].item()


@check
def padding_weight() -> float:
    """Return the largest weight of a padded key."""
    return weights_of(layer(), words(WORDS, DIM), mask=padding(torch.tensor([4])))[..., 4:].max().item()


@check
def heads_by_hand() -> float:
    """Return the gap of Concat(head₁ … head_h) W, each head softmax(QKᵀ/√d_k)V of projections of its own, from ours."""
    attention, x = layer(), words(WORDS, DIM)
    (K, V), (b, c) = attention.key_value.weight.chunk(2), attention.key_value.bias.chunk(2)
    outputs = []
    for i in range(HEADS):
        rows = slice(i * attention.head_dim, (i + 1) * attention.head_dim)
        q = x @ attention.query.weight[rows].T + attention.query.bias[rows]
        k, v = x @ K[rows].T + b[rows], x @ V[rows].T + c[rows]
        outputs.append((q @ k.mT / math.sqrt(attention.head_dim)).softmax(-1) @ v)
    return gap(attention.out(torch.cat(outputs, dim=-1)), attention(x))


@check
def averaged_heads() -> float:
    """Return the gap of a layer whose heads are averaged from one whose heads are concatenated, both with equal W."""
    attention, x = layer(), words(WORDS, DIM)
    mixed = attention.kernel(*attention.project(x))[0]
    mean = mixed.mean(1, keepdim=True).expand_as(mixed)
    return gap(attention.merge(mean, mean), attention(x))


@check
def head_parameters(heads: int, dim: int = 512) -> int:
    """Return the parameters of an attention layer."""
    return sum(p.numel() for p in layer(dim=dim, heads=heads).parameters())


@check
def head_size(dim: int, heads: int) -> int:
    """Return the width of a head."""
    return layer(dim=dim, heads=heads).head_dim


@check
def value_shape(words_: int, dim: int = 6, out: int = 10) -> list[int]:
    """Return the shape of W_v as the lectures write it, inputs × outputs, in a layer that has read so many words."""
    attention = layer(dim=dim, heads=1, head_dim=out)
    attention(words(words_, dim))
    return list(attention.key_value.weight.chunk(2)[1].T.shape)


@check
def heads_differ() -> float:
    """Return the gap of the weights of two heads of an untrained layer."""
    weights = weights_of(layer(), words(WORDS, DIM))
    return gap(weights[:, 0], weights[:, 1])


@check
def cross_weights(queries: int, keys: int) -> list[int]:
    """Return the shape of cross-attention's weights: queries of one sequence, keys of another."""
    return list(weights_of(layer(), words(queries, DIM), words(keys, DIM)).shape[-2:])


@check
def cross_sources(side: str) -> float:
    """Return the change of cross-attention's keys (or queries) when the target (or source) is replaced."""
    attention, x, y, other = layer(), words(4, DIM), words(6, DIM), words(6, DIM)
    first, second = attention.project(x, y), attention.project(x, other)
    return gap(first[0], second[0]) if side == "queries" else gap(first[1], second[1])


@check
def permuted(positions: bool = False) -> float:
    """Return the gap of permuted outputs from the outputs of permuted inputs."""
    attention, x, order = layer(), words(WORDS, DIM), torch.randperm(WORDS)
    table = torch.randn(WORDS, DIM) if positions else torch.zeros(WORDS, DIM)
    return gap(attention(x[:, order] + table), attention(x + table)[:, order])


@check
def variable_length() -> int:
    """Return how many of the lengths 5 and 500 the same layer reads."""
    attention = layer()
    return sum(attention(words(n, DIM)).shape == (1, n, DIM) for n in (5, 500))
