"""Checks of families of text models: who sees whom, what is predicted, what is hidden."""

from typing import Any

import numpy as np
import torch
from torch import Tensor

from regard.claims.checks.base import build, check
from regard.data.sets.batches import IGNORE
from regard.data.sets.masked_text import hide

SIZES: dict[str, Any] = dict(vocab_size=53, dim=12, depth=2, heads=3, ffn_dim=29, max_len=16)
IDS = torch.tensor([[11, 22, 33, 44, 5, 16, 27]])


def reach_of_ids(model: Any, features: Tensor) -> Tensor:
    """Return the size of the gradient that features have from each of IDS, which are all different."""
    noise = torch.randn(features.shape, generator=torch.Generator().manual_seed(5), dtype=features.dtype)
    table = next(p for p in model.parameters() if p.dim() == 2 and len(p) == 53)
    (gradient,) = torch.autograd.grad((features * noise).sum(), table)
    return gradient.abs().sum(1)[IDS[0]]


def features_of(family: str) -> tuple[Any, Tensor]:
    model = build(family, **SIZES)
    lengths = (torch.tensor([7]),) if family == "bert" else ()
    return model, model.features(IDS, *lengths)


@check
def sees(family: str, side: str, position: int = 3) -> float:
    """Return the least gradient (left) or the largest one (right) that a position of seven has from tokens there."""
    model, features = features_of(family)
    sizes = reach_of_ids(model, features[:, position])
    return sizes[:position].min().item() if side == "left" else sizes[position + 1 :].max().item()


@check
def first_token_sees() -> float:
    """Return the least gradient that the first token's vector has from any token of a text in both directions."""
    model, features = features_of("bert")
    return reach_of_ids(model, features[:, 0]).min().item()


@check
def hidden_share() -> float:
    """Return the share of tokens that a masked language model must predict, over 300 texts of 100 words."""
    rng, chosen = np.random.default_rng(0), 0
    for _ in range(300):
        ids = rng.integers(10, 50, 100).tolist()
        words = [(i, i + 1) for i in range(100)]
        _, targets = hide(ids, words, rng, rate=0.15, mask=1, ordinary=np.arange(10, 50))
        chosen += sum(target != IGNORE for target in targets)
    return chosen / 30_000


@check
def cross_sees_all() -> float:
    """Return the least gradient that the first target position has from any source token."""
    model = build("transformer", **SIZES | {"tie": "none"})
    features = model.features(IDS, torch.tensor([7]), torch.tensor([[1, 2, 3]]))[:, 0]
    noise = torch.randn(features.shape, generator=torch.Generator().manual_seed(5), dtype=features.dtype)
    (gradient,) = torch.autograd.grad((features * noise).sum(), model.source_embedding.weight)
    return gradient.abs().sum(1)[IDS[0]].min().item()


@check
def source_sides() -> float:
    """Return the least gradient that an encoder's middle vector has from any source token, left or right."""
    model = build("transformer", **SIZES | {"tie": "none"})
    encoded = model.encode(IDS, torch.tensor([7]))[0][:, 3]
    noise = torch.randn(encoded.shape, generator=torch.Generator().manual_seed(5), dtype=encoded.dtype)
    (gradient,) = torch.autograd.grad((encoded * noise).sum(), model.source_embedding.weight)
    return gradient.abs().sum(1)[IDS[0]].min().item()


@check
def first_positions_predict() -> list[int]:
    """Return the shape of an encoder–decoder's logits for a source of 7 and a target of 3 tokens, vocabulary 53."""
    model = build("transformer", **SIZES)
    return list(model(IDS, torch.tensor([7]), torch.tensor([[1, 2, 3]])).shape[1:])
