"""The rows of a batch that other processes compute, for what depends on all of them: contrasts, means, batch norms.

One process has all rows itself, and every function here returns what it was given.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from jaxtyping import Int, Shaped
from torch import Tensor
from torch.autograd.function import once_differentiable

Number = TypeVar("Number", int, float, Tensor)

_group: ContextVar[tuple[Any, bool] | None] = ContextVar("rows", default=None)


@contextmanager
def sharing(group: Any, own: bool) -> Iterator[None]:
    """Context manager: the rows of a batch are spread over a group of processes; `own` says whether this one has any,
    or computes another's row, which does not count."""
    token = _group.set((group, own))
    try:
        yield
    finally:
        _group.reset(token)


def shared() -> bool:
    """Whether other processes have rows of the same batch."""
    return _group.get() is not None


class _Sum(torch.autograd.Function):
    """The sum over processes, each of which uses it: so their gradients are summed, too."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, group: Any) -> Tensor:
        ctx.group, x = group, x.detach().clone()
        dist.all_reduce(x, group=group)
        return x

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        grad = grad.contiguous().clone()
        dist.all_reduce(grad, group=ctx.group)
        return grad, None


def total(x: Number) -> Number:
    """Return the sum of a number, or of a tensor, over the processes that share the rows of a batch."""
    if (sharing := _group.get()) is None:
        return x
    group, own = sharing
    if isinstance(x, Tensor):
        return _Sum.apply(x if own else x * 0, group)
    value = torch.tensor(x if own else type(x)(0))
    dist.all_reduce(value, group=group)
    return type(x)(value.item())


class _Gather(torch.autograd.Function):
    """The rows of all processes, one process above the other."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, group: Any, sizes: list[int]) -> Tensor:
        ctx.group, ctx.sizes = group, sizes
        return gather(x, sizes, group)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        grad = grad.contiguous().clone()
        dist.all_reduce(grad, group=ctx.group)
        return grad.split(ctx.sizes)[dist.get_rank(ctx.group)], None, None


def gather(x: Tensor, sizes: list[int], group: Any) -> Tensor:
    """Return the rows of all processes, whose numbers are known, one process above the other."""
    room = x.new_zeros(max(sizes), *x.shape[1:], dtype=torch.uint8 if x.dtype == torch.bool else x.dtype)
    room[: len(x)] = x
    parts = [torch.empty_like(room) for _ in sizes]
    dist.all_gather(parts, room, group=group)
    return torch.cat([part[:size] for part, size in zip(parts, sizes, strict=True)]).to(x.dtype)


def lengths(x: Tensor, group: Any) -> list[int]:
    """Return the number of rows of each process."""
    sizes = [torch.zeros(1, dtype=torch.int64) for _ in range(dist.get_world_size(group))]
    dist.all_gather(sizes, torch.tensor([len(x)]), group=group)
    return [int(size) for size in sizes]


def everyone(x: Shaped[Tensor, "B *N"], parts: int = 1) -> tuple[Shaped[Tensor, "C *N"], Int[Tensor, "M"]]:
    """Return the rows of all processes, and which of them are those of this one. With several `parts` the rows consist
    of so many, one above the other, as the two views of images do; so do those that are returned."""
    if (sharing := _group.get()) is None:
        return x, torch.arange(len(x), device=x.device)
    group, own = sharing
    apart = x.unflatten(0, (parts, -1)).transpose(0, 1)[: None if own else 0]
    sizes = lengths(apart, group)
    every = _Gather.apply(apart, group, sizes)
    first = sum(sizes[: dist.get_rank(group)])
    mine = torch.arange(first, first + len(apart), device=x.device)
    mine = mine if own else mine.new_zeros(len(x) // parts)  # any row, which does not count
    rows = torch.cat([mine + part * len(every) for part in range(parts)])
    return every.transpose(0, 1).flatten(0, 1), rows


def batch_norm(norm: Any, x: Shaped[Tensor, "B C *N"]) -> Shaped[Tensor, "B C *N"]:
    """Apply a batch norm whose statistics are those of all rows of the batch."""
    return normalized(norm, x) if norm.training and shared() else type(norm).forward(norm, x)


def normalized(
    norm: Any, x: Shaped[Tensor, "B C *N"], valid: Shaped[Tensor, "B 1 *N"] | None = None
) -> Shaped[Tensor, "B C *N"]:
    """Normalise by the statistics of a batch, those of its `valid` positions, and keep them as a batch norm does."""
    axes, wide = [0, *range(2, x.dim())], [-1, *[1] * (x.dim() - 2)]
    full = x.to(torch.promote_types(x.dtype, torch.float32))
    counts = torch.ones_like(full[:, :1]) if valid is None else valid.to(full)
    count = total(counts.sum()).clamp(min=1)
    mean = total((full * counts).sum(axes)) / count
    apart = full - mean.view(wide)
    variance = total((apart.square() * counts).sum(axes)) / count
    if norm.track_running_stats:
        with torch.no_grad():
            unbiased = variance * count / (count - 1).clamp(min=1)
            for past, now in ((norm.running_mean, mean), (norm.running_var, unbiased)):
                past.lerp_(now.to(past), norm.momentum)
            if norm.num_batches_tracked is not None:
                norm.num_batches_tracked.add_(1)
    y = apart * (variance + norm.eps).rsqrt().view(wide)
    return (y * norm.weight.view(wide) + norm.bias.view(wide) if norm.affine else y).to(x.dtype)
