"""A small config for each registered family, and example inputs for what its `forward` takes.

A new family needs one line in SMALL, and one in ARGUMENTS if it takes an argument that no other family has.
Sizes are unequal, and prime where they can be, so that no two axes can be confused.
"""

import dataclasses
import inspect
from typing import Any

import torch
from torch import Tensor, nn

import regard.models  # noqa: F401  registers the families
from regard.registry import kernels, models, positions

VOCAB = 97
SIZES = dict(dim=20, heads=3, head_dim=10, ffn_dim=29, max_len=37, dropout=0.0)  # heads · head_dim is not dim

SMALL: dict[str, list[dict[str, Any]]] = {
    "transformer": [
        dict(SIZES, depth=2),
        dict(SIZES, depth=1, decoder_depth=2, norm_place="post", tie="output", head_bias=True, position="learned"),
        dict(SIZES, depth=1, heads=4, kv_heads=2, norm="rms", activation="swiglu", bias=False, tie="none",
             position="rotary", embedding_scale=False),
        dict(SIZES, depth=1, kv_heads=1, activation="gelu", position="alibi"),
        dict(SIZES, depth=1, norm_place="post", final_norm=True, activation="geglu", position="relative"),
    ],
    "seq2seq": [
        dict(dim=14, dropout=0.0),
        dict(dim=14, dropout=0.0, score="none", cell="lstm"),
        dict(dim=14, dropout=0.0, score="dot", cell="rnn", depth=2),
        dict(dim=14, dropout=0.0, score="general", cell="lstm", depth=2),
        dict(dim=14, dropout=0.0, score="additive", cell="gru", depth=2),
    ],
}  # fmt: skip

ARGUMENTS = {
    "source": lambda B, V: torch.randint(V, (B, 7)),
    "lengths": lambda B, V: torch.tensor([4, 7, 2, 6, 5, 1, 3])[:B],
    "target": lambda B, V: torch.randint(V, (B, 5)),
}

CASES = [(family, number) for family in models for number in range(len(SMALL.get(family, [])))]


def make(family: str, number: int = 0, **changes: Any) -> nn.Module:
    sizes = dict(vocab_size=VOCAB) | SMALL[family][number] | changes
    return models[family](models[family].config_class(**sizes)).eval()


def example(model: nn.Module, B: int = 3) -> dict[str, Tensor]:
    names = inspect.signature(model.forward).parameters
    missing = [name for name in names if name not in ARGUMENTS]
    assert not missing, f"{type(model).__name__} takes {missing}; say in tests/laws/cases.py:ARGUMENTS what that may be"
    return {name: ARGUMENTS[name](B, model.config.vocab_size) for name in names}


def written(inputs: dict[str, Tensor]) -> str:
    """The sequence that the model writes from left to right."""
    return "target" if "target" in inputs else "ids"


def padded(inputs: dict[str, Tensor]) -> str | None:
    """The sequence that `lengths` speaks of."""
    return None if "lengths" not in inputs else "source" if "source" in inputs else "ids"


def has(family: str, field: str) -> bool:
    return field in {f.name for f in dataclasses.fields(models[family].config_class)}


PRODUCT = [
    (family, kernel, position)
    for family in models
    if family in SMALL and has(family, "kernel") and has(family, "position")
    for kernel in kernels
    for position in positions
]
