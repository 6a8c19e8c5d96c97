"""Checks of sizes, FLOPs and memory that no single command prints."""

from typing import Any

import torch

from regard.claims.checks.base import check, numbers
from regard.cost import (
    attention_entries,
    attention_matrix_bytes,
    cost,
    forward_flops,
    hardware_flops,
    patch_values,
    patches,
    training_flops,
)
from regard.registry import models


@check
def patch_count(side: int, patch: int) -> int:
    """Return the patches of a square image."""
    return patches(side, patch)


@check
def patch_size(patch: int) -> int:
    """Return the values of one patch of three channels."""
    return patch_values(patch)


@check
def entries(tokens: int, window: int | None = None) -> int:
    """Return the entries of an attention matrix; `window`: of all windows of so many tokens."""
    return attention_entries(tokens, window=window)


@check
def entries_ratio(more: int, fewer: int) -> float:
    """Return how many times more scores one number of tokens makes than another."""
    return attention_entries(more) / attention_entries(fewer)


@check
def kibibytes(tokens: int, layers: int, heads: int) -> float:
    """Return the KiB of all attention matrices in float32."""
    return attention_matrix_bytes(heads=heads, queries=tokens, keys=tokens, layers=layers) / 2**10


@check
def mebibytes(tokens: int, layers: int, heads: int) -> float:
    """Return the MiB of all attention matrices in float32."""
    return kibibytes(tokens, layers, heads) / 2**10


@check
def megabytes(tokens: int, layers: int, heads: int) -> float:
    """Return the 10⁶ bytes of all attention matrices in float32."""
    return attention_matrix_bytes(heads=heads, queries=tokens, keys=tokens, layers=layers) / 1e6


@check
def patch_expansion(patch: int, dim: int) -> float:
    """Return the width of a patch's vector as a multiple of its values."""
    return dim / patch_values(patch)


@check
def smaller_patches(power: int) -> float:
    """Return how many times more tokens (power 1) or comparisons (2) half the patch side gives, at 224 pixels."""
    return (patches(224, 8) / patches(224, 16)) ** power


@check
def flops_of(rule: str, parameters: int = 0, tokens: int = 0, hours: float = 0.0) -> float:
    """Return FLOPs by a rule: 2ND forward, 6ND training, or eight P100 of 9.5 TFLOP/s for some hours."""
    if rule == "forward":
        return float(forward_flops(parameters, tokens))
    return float(training_flops(parameters, tokens)) if rule == "training" else hardware_flops(8, 9.5e12, 3600 * hours)


def _cost(family: str, length: int | None = None, how: dict[str, Any] | None = None, **settings: Any) -> Any:
    """Return the cost of a family at a length."""
    options: dict[str, Any] = {**(how or {}), **({} if length is None else {"length": length})}
    with numbers(torch.float32):
        return cost(models[family].config_class(**settings), **options)


@check
def attention_growth(what: str, kernel: str = "full") -> float:
    """Return how many times more a layer's attention costs at 2048 tokens than at 1024: FLOPs, or stored weights."""
    costs = [_cost("gpt", length, kernel=kernel, max_len=2048, depth=1) for length in (1024, 2048)]
    if what == "flops":
        return costs[1].flops.attention / costs[0].flops.attention
    return sum(costs[1].memory.attention_matrices.values()) / sum(costs[0].memory.attention_matrices.values())


@check
def width_growth(what: str) -> float:
    """Return how many times more a layer costs at twice the width: FLOPs of attention, or of matrices but the head."""
    costs = [_cost("gpt", 1024, dim=dim, ffn_dim=4 * dim, heads=12, vocab_size=2, depth=1) for dim in (768, 1536)]
    return getattr(costs[1].flops, what) / getattr(costs[0].flops, what)


@check
def head_flops(heads: int) -> float:
    """Return the FLOPs of a layer with so many heads, relative to one head of the full width."""
    few, many = (_cost("gpt", 1024, heads=n, position="none", depth=1).flops.forward for n in (1, heads))
    return many / few


@check
def matrix_share(length: int) -> float:
    """Return the share of a GPT-2's FLOPs that are products with weight matrices, at a length of tokens."""
    flops = _cost("gpt", length, max_len=2048).flops
    return flops.matrices / flops.forward


@check
def reversible_memory() -> float:
    """Return the activations that a GPT-2's training keeps with reversible layers, as a share of those without."""
    sizes = [_cost("gpt", how={"training": True}, reversible=flag).memory.activations for flag in (True, False)]
    return sum(sizes[0].values()) / sum(sizes[1].values())


@check
def batch_memory() -> float:
    """Return the activations that a layer's training keeps with half the batch, as a share of those with all."""
    sizes = [_cost("gpt", how={"training": True, "batch": batch}, depth=1).memory.activations for batch in (4, 8)]
    return sum(sizes[0].values()) / sum(sizes[1].values())


@check
def image_growth(family: str) -> float:
    """Return how many times more FLOPs of attention an image of twice the side costs, in patches of 4 pixels."""
    sizes: dict[str, Any] = dict(patch=4)
    costs = [_cost(family, image=side, **sizes).flops.attention for side in (224, 448)]
    return costs[1] / costs[0]


@check
def precision_bytes(dtype: str) -> float:
    """Return the bytes of a weight matrix in a number type, relative to float32."""
    return torch.empty(0, dtype=getattr(torch, dtype)).element_size() / 4
