"""Heads switched off while a model runs: `with without(model, {("decoder.blocks.0.attention", 3)}): model(...)`.

What a head mixed becomes zeros before the layer's output projection; nothing in the model is changed or copied.
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import cycle
from typing import Any

from torch import Tensor, nn

from regard.inside.capture import check_heads, matching
from regard.nn.weights import find_kernels


@contextmanager
def without(model: nn.Module, heads: Iterable[tuple[int | str, int]]) -> Iterator[None]:
    """Runs `model` with some heads off: pairs of a layer (its place or name, as `look` lists them) and a head.

    With none off the output is bit for bit the model's own: no hook is there.
    """
    heads = list(heads)
    kernels = find_kernels(model) if heads else {}
    off: dict[str, set[int]] = {}
    for layer, head in heads:
        name = matching(layer, list(kernels))[0]
        check_heads(name, kernels[name], (head,))
        off.setdefault(name, set()).add(head)
    handles = []
    try:
        for kernel in dict.fromkeys(kernels[name] for name in off):
            own = [off.get(name, set()) for name in kernels if kernels[name] is kernel]
            handles.append(kernel.register_forward_hook(_Silence(own)))
        yield
    finally:
        for handle in handles:
            handle.remove()


class _Silence:
    """The hook of one kernel; where it is the kernel of several layers, they take turns in a forward pass."""

    def __init__(self, layers: list[set[int]]) -> None:
        self.turns = cycle(sorted(heads) for heads in layers)

    def __call__(self, kernel: nn.Module, args: tuple[Any, ...], output: tuple[Tensor, Tensor | None]) -> Any:
        mixed, weights = output
        heads = next(self.turns)
        if heads:
            mixed = mixed.index_fill(1, mixed.new_tensor(heads).long(), 0.0)
        return mixed, weights
