"""Long sequences in chunks whose intermediates are recomputed in the backward pass: only chunk boundaries are kept."""

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.utils.checkpoint import checkpoint


def again(function: Callable[..., Any], *inputs: Any, random: bool = False) -> Any:
    """`function(*inputs)` with activation checkpointing; `random` if it uses random numbers."""
    if not torch.is_grad_enabled():
        return function(*inputs)
    return checkpoint(function, *inputs, use_reentrant=False, preserve_rng_state=random)


Step = Callable[..., tuple[Tensor, Tensor]]
"""(state, chunk of each sequence …) → (chunk of the output, next state)."""


def scan(step: Step, size: int, state: Tensor, *sequences: Tensor | None) -> tuple[Tensor, Tensor]:
    """Run `step` over chunks of `size` along the third axis; return all outputs and the last state. Sequences may be
    None.

    The sequences and the state before each chunk are kept for the backward pass. Only those get gradients: whatever
    else `step` reads must not need one.
    """
    return _Scan.apply(step, size, state, *sequences)


def length_of(sequences: tuple[Tensor | None, ...]) -> int:
    return next(x.shape[2] for x in sequences if x is not None)


def chunks(size: int, sequences: tuple[Tensor | None, ...]) -> Iterator[tuple[slice, list[Tensor | None]]]:
    for first in range(0, max(1, length_of(sequences)), size):
        here = slice(first, first + size)
        yield here, [None if x is None else x[:, :, here] for x in sequences]


class _Scan(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, step: Step, size: int, state: Tensor, *sequences: Tensor | None) -> tuple[Tensor, Tensor]:
        out, states = state.new_empty(0), []
        for here, parts in chunks(size, sequences):
            if any(ctx.needs_input_grad):
                states.append(state)
            chunk, state = step(state, *parts)
            if here.start == 0:
                out = chunk.new_empty(*chunk.shape[:2], length_of(sequences), chunk.shape[3])
            out[:, :, here] = chunk
        ctx.save_for_backward(*states, *sequences)
        ctx.step, ctx.size, ctx.states = step, size, len(states)
        return out, state

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor, to_state: Tensor) -> tuple[Tensor | None, ...]:
        states, sequences = ctx.saved_tensors[: ctx.states], ctx.saved_tensors[ctx.states :]
        wanted = [x is not None and needed for x, needed in zip(sequences, ctx.needs_input_grad[3:], strict=True)]
        grads = [torch.zeros_like(x) if want else None for x, want in zip(sequences, wanted, strict=True)]
        for state, (here, parts) in zip(states[::-1], reversed(list(chunks(ctx.size, sequences))), strict=True):
            with torch.enable_grad():
                leaf = state.detach().requires_grad_()
                leaves = [x.detach().requires_grad_() if want else x for x, want in zip(parts, wanted, strict=True)]
                outputs = ctx.step(leaf, *leaves)
            inputs = [leaf, *(x for x, want in zip(leaves, wanted, strict=True) if want)]
            to_state, *to_parts = torch.autograd.grad(
                outputs, inputs, (grad[:, :, here], to_state), materialize_grads=True
            )
            for into, each in zip([x for x in grads if x is not None], to_parts, strict=True):
                into[:, :, here] = each
        return None, None, to_state, *grads
