"""Reversible residual streams, from which every layer's input is recomputed: training memory does not grow with depth.

A part of a layer computes (a, b) → (b, a + f(b)), which (b, c) → (c − f(b), b) inverts. So only the last two streams
are kept; in the backward pass each part runs once more, for its input and its gradients (Gomez et al., 2017; Kitaev et
al., 2020).
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from copy import copy
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from regard.nn.positions import Bias

Part = Callable[[Tensor], Tensor]

_recomputes = ContextVar("recomputes", default=False)


def recomputes() -> bool:
    """Whether a part is being recomputed: hooks that watch a model have seen it already."""
    return _recomputes.get()


@contextmanager
def recomputing() -> Iterator[None]:
    """Context manager: mark a recomputation, which must leave random and other state unchanged."""
    token = _recomputes.set(True)
    try:
        yield
    finally:
        _recomputes.reset(token)


class Tape:
    """Record of the parts of a stack in the forward pass; in the backward pass, the streams after the current part."""

    def __init__(self, stack: nn.Module, x: Tensor, bias: Bias | None, others: list[Tensor]) -> None:
        self.stack, self.training, self.x, self.bias = stack, stack.training, x, bias
        self.others = others
        """Tensors that any part may read, beside its input and its own parameters."""
        self.parts: list[tuple[Part, list[Tensor]]] = []
        """Each part with the tensors it has gradients for, beside its input."""
        self.buffers: list[tuple[tuple[nn.Module, ...], list[Tensor]]] = []
        """The modules of each part, and the buffers that they had."""
        self.streams: tuple[Tensor, ...] = ()
        self.room: dict[Tensor, Tensor] = {}
        self.seed = int(torch.randint(1 << 62, ()))
        self.generators = [torch.default_generator]
        if x.is_cuda:
            self.generators.append(torch.cuda.default_generators[x.device.index])
        # Autocast's cache would give back weights that were cast without gradients.
        kind = "cpu" if x.is_meta else x.device.type
        self.cast: dict[str, Any] = dict(device_type=kind, dtype=torch.get_autocast_dtype(kind), cache_enabled=False)
        self.cast["enabled"] = torch.is_autocast_enabled(kind)

    @contextmanager
    def random(self, index: int) -> Iterator[None]:
        """Give a part the same random numbers in both passes. Saving generator states would fragment the heap."""
        before = [generator.get_state() for generator in self.generators]
        try:
            for generator in self.generators:
                generator.manual_seed(self.seed + index)
            yield
        finally:
            for generator, state in zip(self.generators, before, strict=True):
                generator.set_state(state)

    def rewind(self, streams: tuple[Tensor, ...]) -> None:
        """Set the streams at the end of the stack, where the backward pass begins."""
        if self.stack.training != self.training:
            raise ValueError(
                "a reversible stack went from train() to eval(), or back, before backward(); call it first"
            )
        self.streams = tuple(stream.clone() for stream in streams)
        # New gradients stay while large tensors come and go: allocated tensor by tensor, they would fragment the heap.
        fresh = (tensor for _, others in self.parts for tensor in others if tensor.is_leaf and tensor.grad is None)
        self.room = {tensor: torch.empty_like(tensor) for tensor in dict.fromkeys(fresh)}

    def undo(self, index: int, grad: Tensor) -> tuple[Tensor | None, ...]:
        """Invert one part: move the streams before it; return the gradients of its input and of its other tensors."""
        part, others = self.parts[index]
        b, c = self.streams
        modules, had = self.buffers[index]
        if any(now is not then and now.shape == then.shape for now, then in zip(buffers(modules), had, strict=True)):
            raise ValueError(
                "a kernel in a reversible stack was redrawn before backward(); call that first, or set redraw=0"
            )
        if self.bias is not None:
            self.bias.forget()
        with recomputing(), torch.enable_grad(), self.random(index), torch.autocast(**self.cast):
            b = b.detach().requires_grad_()
            added = part(b)
        grads = list(torch.autograd.grad(added, [b, *others], grad.to(added.dtype), allow_unused=True))
        self.streams = c.sub_(added.detach()), b.detach()
        for number, tensor in enumerate(others, 1):
            if tensor in self.room and grads[number] is not None:
                grads[number] = self.room.pop(tensor).copy_(grads[number])
        return tuple(grads)


def buffers(modules: Iterable[nn.Module]) -> list[Tensor]:
    return [buffer for module in modules for buffer in module.buffers()]


class _Undo(torch.autograd.Function):
    """The backward pass of a part that has run already; its output here has a shape but no memory."""

    @staticmethod
    def forward(ctx: Any, tape: Tape, index: int, a: Tensor, b: Tensor, *others: Tensor) -> Tensor:
        ctx.tape, ctx.index = tape, index
        ctx.save_for_backward(*others)
        return a.new_empty(()).expand_as(a)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        _ = ctx.saved_tensors  # PyTorch checks that they have not been modified since
        return None, None, grad, *ctx.tape.undo(ctx.index, grad)


class _Join(torch.autograd.Function):
    """The mean of the last two streams, where the backward pass begins."""

    @staticmethod
    def forward(ctx: Any, tape: Tape, a: Tensor, b: Tensor, *streams: Tensor) -> Tensor:
        ctx.tape = tape
        ctx.save_for_backward(*streams)
        return (streams[0] + streams[1]) / 2

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        ctx.tape.rewind(ctx.saved_tensors)
        return None, grad / 2, grad / 2, None, None


@dataclass(frozen=True, slots=True)
class Streams:
    """The two streams of a reversible stack; without a tape, autograd treats them as any computation."""

    a: Float[Tensor, "B T D"]
    b: Float[Tensor, "B T D"]
    tape: Tape | None

    def add(self, part: Part, *modules: nn.Module) -> "Streams":
        """Apply one part of a layer, which consists of these modules."""
        if self.tape is None:
            return Streams(self.b, self.a + part(self.b), None)
        with torch.no_grad(), self.tape.random(len(self.tape.parts)):
            after = Streams(self.b, self.a + part(self.b), self.tape)
        own = [parameter for module in modules for parameter in module.parameters()]
        self.tape.parts.append((part, [tensor for tensor in (*own, *self.tape.others) if tensor.requires_grad]))
        self.tape.buffers.append((modules, buffers(modules)))
        return after

    def join(self) -> Float[Tensor, "B T D"]:
        """Return the mean of both streams."""
        if self.tape is None:
            return (self.a + self.b) / 2
        tape = copy(self.tape)  # each backward pass has its own streams
        a = b = tape.x
        del tape.x  # its values are not needed
        for index, (_, others) in enumerate(tape.parts):
            a, b = b, _Undo.apply(tape, index, a, b, *others)
        return _Join.apply(tape, a, b, self.a, self.b)
