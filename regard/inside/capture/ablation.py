"""Heads ablated while a model runs: `with without(model, {("decoder.blocks.0.attention", 3)}): model(...)`.

The output of such a head becomes zeros before the layer's output projection; nothing in the model is changed or copied.
"""

from collections.abc import Iterable
from contextlib import AbstractContextManager
from typing import Any

from torch import Tensor, nn

from regard.inside.capture.weights import check_heads, matching
from regard.nn.weights import behind_kernels, find_kernels


def without(model: nn.Module, heads: Iterable[tuple[int | str, int]]) -> AbstractContextManager[None]:
    """Run `model` with some heads ablated: pairs of a layer (its index or name, as `look` lists them) and a head.

    With none ablated the output is bit for bit the model's own: no hook is there.
    """
    heads = list(heads)
    kernels = find_kernels(model) if heads else {}
    off: dict[str, set[int]] = {}
    for layer, head in heads:
        name = matching(layer, list(kernels))[0]
        check_heads(name, kernels[name], (head,))
        off.setdefault(name, set()).add(head)

    def ablate(name: str, kernel: nn.Module, given: Any, output: tuple[Tensor, Tensor | None]) -> Any:
        mixed, weights = output
        if name in off:
            return mixed.index_fill(1, mixed.new_tensor(sorted(off[name])).long(), 0.0), weights
        return None

    return behind_kernels(kernels, ablate)
