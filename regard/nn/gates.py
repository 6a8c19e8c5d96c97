"""From gates to attention: a recurrent update is a weighted sum, whose weights are generalised in four steps.

Nothing here is made to be fast: each function is one line of the derivation, and equals the next one where the freedom
that it adds is not used. docs/gates.md explains them; the fourth step is `regard.nn.attention.Attention`.
"""

from collections.abc import Callable, Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from regard.nn.kernels import Full, attend
from regard.nn.masks import Mask, causal
from regard.nn.positions import Bias

Map = Callable[[Tensor], Tensor]
Score = Callable[[Tensor, Tensor], Tensor]
"""Queries B T C and candidates B S D to scores B T S."""
Mixed = tuple[Float[Tensor, "B T D"], Float[Tensor, "B T S"]]
"""The mixed values of each position, and their weights."""


def gated_update(gates: Float[Tensor, "B T D"], candidates: Float[Tensor, "B T D"]) -> Float[Tensor, "B T D"]:
    """h_t = u_t ⊙ h_{t−1} + (1 − u_t) ⊙ h̃_t from h_0 = 0, step by step: the last equation of a GRU."""
    h, states = torch.zeros_like(gates[:, 0]), []
    for u, candidate in zip(gates.unbind(1), candidates.unbind(1), strict=True):
        h = u * h + (1 - u) * candidate
        states.append(h)
    return torch.stack(states, dim=1)


def gate_weights(gates: Float[Tensor, "B T D"]) -> Float[Tensor, "B T T D"]:
    """Return the weight of candidate i in state t, for each unit: (∏_{i<j≤t} u_j)(1 − u_i), and 0 for i > t.

    Row t sums to 1 − ∏_{j≤t} u_j: the rest is the weight of the first state. Each row is the one above it times u_t,
    with one new entry, so the ratio of two candidates never changes.
    """
    T = gates.shape[1]
    time = torch.arange(T, device=gates.device)
    t, i = time[:, None, None], time[None, :, None]
    faded = torch.where(t > i, gates.unsqueeze(2), 1.0).cumprod(dim=1)
    return torch.where(t >= i, faded * (1 - gates).unsqueeze(1), 0.0)


def weighted_sum(weights: Float[Tensor, "B T S D"], candidates: Float[Tensor, "B S D"]) -> Float[Tensor, "B T D"]:
    """h_t = Σ_i w_ti ⊙ h̃_i: with `gate_weights`, exactly `gated_update`."""
    return torch.einsum("btsd,bsd->btd", weights, candidates)


def mix(scores: Float[Tensor, "B T S"], values: Float[Tensor, "B S D"]) -> Mixed:
    """h_t = Σ_i α_ti v_i with α ∝ exp(score) over the past; the last query is aligned with the last value."""
    T, S = scores.shape[1:]
    past = causal().at(S - T).dense(T, S, scores.device)
    mixed, weights = attend(scores.unsqueeze(1), values.unsqueeze(1), mask=past)
    return mixed.squeeze(1), weights.squeeze(1)


def free_weights(
    x: Float[Tensor, "B T C"], first: Float[Tensor, "B D"], candidate: Callable[[Tensor, Tensor], Tensor], score: Score
) -> Mixed:
    """Step 1: α_ti ∝ exp(ATT(h̃_i, x_t)). Candidates f(x_i, h_{i−1}) still depend on the state before them: a loop."""
    h, candidates, states, rows = first, [], [], []
    for t in range(x.shape[1]):
        candidates.append(candidate(x[:, t], h))
        seen = torch.stack(candidates, dim=1)
        mixed, weights = mix(score(x[:, t : t + 1], seen), seen)
        h = mixed[:, 0]
        states.append(h)
        rows.append(torch.nn.functional.pad(weights[:, 0], (0, x.shape[1] - t - 1)))
    return torch.stack(states, dim=1), torch.stack(rows, dim=1)


def free_candidates(x: Float[Tensor, "B T C"], candidate: Map, score: Score) -> Mixed:
    """Step 2: candidates f(x_i) depend on no state. All positions are computed at once; order is in the mask alone."""
    candidates = candidate(x)
    return mix(score(x, candidates), candidates)


def separate_keys_and_values(x: Float[Tensor, "B T C"], candidate: Map, query: Map, key: Map, value: Map) -> Mixed:
    """Step 3: separate projections for finding a candidate (key) and for its content (value); scores are q·k / √K."""
    q, k, v = query(x), key(candidate(x)), value(candidate(x))
    return mix(q @ k.transpose(-1, -2) * q.shape[-1] ** -0.5, v)


def several_heads(
    x: Float[Tensor, "B T C"], candidate: Map, heads: Sequence[tuple[Map, Map, Map]]
) -> tuple[Float[Tensor, "B T D"], Float[Tensor, "B H T T"]]:
    """Step 4: step 3 for each (query, key, value), concatenated: causal multi-head attention without output matrix."""
    outputs = [separate_keys_and_values(x, candidate, *head) for head in heads]
    return torch.cat([mixed for mixed, _ in outputs], dim=-1), torch.stack([weights for _, weights in outputs], dim=1)


def hard_lookup(
    q: Float[Tensor, "B H T K"], k: Float[Tensor, "B H S K"], v: Float[Tensor, "B H S C"]
) -> Float[Tensor, "B H T C"]:
    """Return the value of the key with the largest q·k (the first of several). Only values have a gradient."""
    best = (q @ k.transpose(-1, -2)).argmax(dim=-1, keepdim=True)
    return v.gather(2, best.expand(*best.shape[:3], v.shape[-1]))


def soft_lookup(
    q: Float[Tensor, "B H T K"], k: Float[Tensor, "B H S K"], v: Float[Tensor, "B H S C"], *, temperature: float
) -> Float[Tensor, "B H T C"]:
    """softmax(q·k / τ) · v: the hard lookup as τ → 0 (ties share), the plain mean as τ → ∞."""
    if temperature <= 0:
        raise ValueError(f"temperature={temperature} must be above 0; its limit at 0 is hard_lookup")
    return Full(heads=q.shape[1], head_dim=q.shape[3])(q, k, v, scale=1 / temperature)[0]


def location_attention(
    v: Float[Tensor, "B H T C"], bias: Bias, *, mask: Mask | None = None
) -> tuple[Float[Tensor, "B H T C"], Float[Tensor, "B H T T"]]:
    """Location-based attention: scores are the bias alone, whatever the content. Without a bias: content-based."""
    nothing = v.new_zeros(*v.shape[:3], 1)
    mixed, weights = Full(heads=v.shape[1], head_dim=1)(nothing, nothing, v, bias=bias, mask=mask, weights=True)
    assert weights is not None
    return mixed, weights
