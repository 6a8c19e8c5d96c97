"""The attention kernels of a model, hooks on their calls, and the attention weights of a recorded call."""

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from regard.nn.kernels import Kernel
from regard.nn.masks import Mask
from regard.nn.positions import Bias
from regard.nn.reversible import recomputes, recomputing

Then = Callable[[str, Kernel, dict[str, Any], Any], Any]


def find_kernels(model: nn.Module) -> dict[str, Kernel]:
    """Return every attention kernel by the path of its layer; a kernel inside another one belongs to that.

    A block that is used at several depths counts as several layers (ALBERT).
    """
    by_path: dict[str, Kernel] = {}
    inner: set[nn.Module] = set()
    patterns: dict[Kernel, str] = {}
    for path, module in model.named_modules(remove_duplicate=False):
        if isinstance(module, Kernel) and module not in inner:
            pattern = re.sub(r"\d+", "#", path)
            if patterns.setdefault(module, pattern) == pattern:
                by_path[path.removesuffix(".kernel") or "kernel"] = module
            inner.update(part for part in module.modules() if part is not module)
    if not by_path:
        raise ValueError(
            f"{type(model).__name__} has no attention to look at; build it from regard.nn.attention.Attention "
            "(a seq2seq needs score additive, dot or general)"
        )
    return by_path


@contextmanager
def behind_kernels(kernels: Mapping[str, Kernel], then: Then) -> Iterator[None]:
    """Call `then` after each call of a kernel, with the layer's name, the kernel, its arguments and its output; a
    result that is not None replaces the output.

    Layers that share a kernel are distinguished by the order of calls; in a reversible stack's backward pass by the
    reverse order.
    """
    handles = [
        kernel.register_forward_hook(
            _Turns([name for name in kernels if kernels[name] is kernel], then), with_kwargs=True
        )
        for kernel in dict.fromkeys(kernels.values())
    ]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


class _Turns:
    """The forward hook of one kernel; identifies which of the layers that share it is being called."""

    def __init__(self, names: list[str], then: Then) -> None:
        self.names, self.then, self.calls = names, then, 0

    def __call__(self, kernel: Any, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> Any:
        if recomputes():
            self.calls -= 1
        name = self.names[self.calls % len(self.names)]
        if not recomputes():
            self.calls += 1
        return self.then(name, kernel, dict(zip(("q", "k", "v"), args, strict=False)) | kwargs, output)


@torch.no_grad()
def weights_of(
    kernel: nn.Module,
    q: Float[Tensor, "B H T K"],
    k: Float[Tensor, "B G S J"],
    v: Float[Tensor, "B G S C"],
    *,
    heads: tuple[int, ...] | None = None,
    mask: Mask | None = None,
    bias: Bias | None = None,
    scale: float | None = None,
    **ignored: Any,
) -> Float[Tensor, "B N T S"]:
    """Recompute attention weights of one call without dropout, for a selection of heads; RNG and kernel are kept."""
    plain = not any(True for _ in (*kernel.parameters(), *kernel.buffers()))  # heads own nothing: any may go alone
    alone = heads if plain else None
    if alone is not None:
        share = q.shape[1] // k.shape[1]
        groups = [head // share for head in alone]
        q, k, v = q[:, alone], k[:, groups], v[:, groups]
    if plain:  # half-precision weights would not sum to one
        q, k, v = (x.to(torch.promote_types(x.dtype, torch.float32)) for x in (q, k, v))
    exact = torch.autocast(q.device.type, enabled=False) if plain else nullcontext()
    with exact, recomputing(), torch.random.fork_rng([q.device] if q.is_cuda else []):
        bias = None if bias is None else _SomeHeads(bias, alone)
        _, attention = kernel.forward(q, k, v, mask=mask, bias=bias, scale=scale, dropout=0.0, weights=True)
    if attention is None:
        raise ValueError(f"kernel {type(kernel).__name__} has no weights to show; look(model, layers=…) without it")
    kept = attention if heads is None or alone is not None else attention[:, heads]
    return kept.float().cpu()


class _SomeHeads(Bias):
    """A bias for a selection of heads, evaluated anew: a cached value without gradient must not remain."""

    def __init__(self, bias: Bias, heads: tuple[int, ...] | None) -> None:
        self.bias, self.heads, self.start = bias, heads, bias.start

    def values(self, i, j):
        every = self.bias.values(i, j)
        return every if self.heads is None else every[list(self.heads)]

    def dense(self, T, S):
        every = self.bias.changed().dense(T, S)
        return every if self.heads is None else every[:, list(self.heads)]
