"""Layers that several processes compute together: each has some rows of the matrices, then their outputs are summed.

A layer says by `cut` which of its matrices may be divided. Everything else of a model stays whole on every process.
"""

from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

import torch
import torch.distributed as dist
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from regard.nn.dropout import Dropout
from regard.nn.positions import Bias


@dataclass(frozen=True, slots=True)
class Cut:
    """The way in which a layer may be divided among processes."""

    columns: dict[str, int]
    """Linear layers whose outputs are divided, and how many matrices each holds, one above the other."""
    rows: str
    """The linear layer whose inputs are divided, and whose outputs are then summed."""
    sizes: dict[str, int]
    """Sizes that must be divisible by the number of processes, by the name of its field."""
    drops: tuple[Dropout, int]
    """The dropout of what is divided, and the dimension in which it is."""
    inner: tuple[str, ...] = field(default=())
    """Names of modules without parameters of their own to divide, such as positions that all layers share."""


@runtime_checkable
class Divisible(Protocol):
    """A layer that may be divided among processes."""

    def cut(self) -> Cut: ...


class _Enter(torch.autograd.Function):
    """An input that all processes read: the gradients that each of them has of it are summed."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, group: Any) -> Tensor:
        ctx.group = group
        return x.view_as(x)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        grad = grad.contiguous().clone()
        dist.all_reduce(grad, group=ctx.group)
        return grad, None


class _Leave(torch.autograd.Function):
    """The sum of what each process computed, which each of them goes on with alike."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, group: Any) -> Tensor:
        x = x.detach().clone()
        dist.all_reduce(x, group=group)
        return x

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        return grad, None


class SummedLinear(nn.Linear):
    """A linear layer of some inputs; the products of all processes are summed before the bias is added."""

    group: Any

    def forward(self, x: Float[Tensor, "*N D"]) -> Float[Tensor, "*N E"]:
        y = _Leave.apply(F.linear(x, self.weight), self.group)
        return y if self.bias is None else y + self.bias


class SomeHeads(Bias):
    """The part of a bias that is for this process's heads."""

    def __init__(self, bias: Bias, part: int, parts: int, group: Any) -> None:
        self.bias, self.part, self.parts, self.group, self.start = bias, part, parts, group, bias.start

    def values(self, i: Tensor, j: Tensor) -> Float[Tensor, "H *N T S"]:
        return _Enter.apply(self.bias.values(i, j), self.group).chunk(self.parts)[self.part]

    def dense(self, T: int, S: int) -> Float[Tensor, "1 H T S"]:
        dense = self.bias.dense(T, S)
        return self.kept((T, S), lambda: _Enter.apply(dense, self.group).chunk(self.parts, 1)[self.part])


@dataclass(frozen=True, slots=True)
class Piece:
    """The part of a parameter that a process has: of each of its matrices, some rows of a dimension."""

    dim: int
    matrices: int

    def of(self, whole: Tensor, part: int, parts: int) -> Tensor:
        """Return a part of the whole parameter."""
        every = [matrix.chunk(parts, self.dim)[part] for matrix in whole.chunk(self.matrices, self.dim)]
        return torch.cat(every, self.dim)

    def join(self, parts: list[Tensor]) -> Tensor:
        """Return the whole parameter."""
        apart = [part.chunk(self.matrices, self.dim) for part in parts]
        return torch.cat([torch.cat(matrices, self.dim) for matrices in zip(*apart, strict=True)], self.dim)


def cut(model: nn.Module, part: int, parts: int, group: Any) -> tuple[dict[str, Piece], list[str]]:
    """Keep this process's part of every layer that may be divided; return the pieces by the parameter's name, and the
    names of the layers that have further parameters and stay whole."""
    plans = {name: module.cut() for name, module in model.named_modules() if isinstance(module, Divisible)}
    whole = [name for name, plan in plans.items() if not fits(model.get_submodule(name), plan)]
    plans = {name: plan for name, plan in plans.items() if name not in whole}
    for name, plan in plans.items():
        for size, value in plan.sizes.items():
            if value % parts:
                fewer = next(n for n in range(parts, 0, -1) if value % n == 0)
                raise ValueError(f"tensor={parts} does not divide {size}={value} of {name}; use tensor={fewer}")
    pieces: dict[str, Piece] = {}
    for name, plan in plans.items():
        module = model.get_submodule(name)
        linears = {each: (0, matrices) for each, matrices in plan.columns.items()} | {plan.rows: (1, 1)}
        for each, (dim, matrices) in linears.items():
            linear: Any = module.get_submodule(each)
            for kind, parameter in linear.named_parameters():
                if parameter.dim() > dim:
                    piece = pieces[f"{name}.{each}.{kind}"] = Piece(dim, matrices)
                    parameter.data = piece.of(parameter.data, part, parts).clone()
            linear.out_features, linear.in_features = linear.weight.shape
        last: Any = module.get_submodule(plan.rows)
        last.__class__, last.group = SummedLinear, group
        drop, dim = plan.drops
        drop.cut = (dim, part, parts)
        for size, value in plan.sizes.items():
            setattr(module, size, value // parts)
        share(module, part, parts, group)
    return pieces, whole


def fits(module: nn.Module, plan: Cut) -> bool:
    """Whether a layer has nothing to train, and no state, but the linear layers that its plan names."""
    names = {*plan.columns, plan.rows}
    plain = all(type(module.get_submodule(name)) is nn.Linear for name in names)
    known = {f"{name}.{kind}" for name in names for kind in ("weight", "bias")}
    inner = tuple(f"{name}." for name in plan.inner)
    others = [*module.named_parameters(), *module.named_buffers()]
    return plain and all(name in known or name.startswith(inner) for name, _ in others)


def share(module: nn.Module, part: int, parts: int, group: Any) -> None:
    """Sum the gradients of a layer's inputs, and give its kernel the part of a bias that is for its heads."""

    def enter(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, Any]:
        def entered(x: Any) -> Any:
            return _Enter.apply(x, group) if isinstance(x, Tensor) and x.requires_grad else x

        return tuple(map(entered, args)), {name: entered(x) for name, x in kwargs.items()}

    def divide(kernel: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, Any]:
        bias = kwargs.get("bias")
        if bias is None:
            return args, kwargs
        if "some heads" not in bias.known:
            bias.known["some heads"] = SomeHeads(bias, part, parts, group)
        return args, kwargs | {"bias": bias.known["some heads"]}

    module.register_forward_pre_hook(enter, with_kwargs=True)
    if (kernel := getattr(module, "kernel", None)) is not None:
        kernel.register_forward_pre_hook(divide, with_kwargs=True)
        kernel.heads //= parts
