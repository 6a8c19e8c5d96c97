"""Activation patching: two texts, and where the difference between their outputs comes from.

The model reads the other text, but at one position behind one block (or in one head) it has the state of the first.
How much of the difference between the two comes back shows what that position carries.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from regard.inside.capture.states import behind, stack_states
from regard.inside.explain.effects import BATCH, heads_of
from regard.inside.explain.gradients import mixing
from regard.nn.stack import Stack
from regard.nn.weights import behind_kernels, find_kernels
from regard.tasks.prepared import Outputs, Prepared

Measure = Callable[[dict[str, Tensor]], Float[Tensor, "B"]]
"""From inputs to the restored share of each row."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Patched:
    """Results of patching, as shares of the logit difference that are restored: 0 is the other text, 1 the first."""

    choices: tuple[str, str]
    """The outputs of the first and of the other text, whose logit difference is measured."""
    difference: tuple[float, float]
    """Difference of the two logits, for the first text and for the other."""
    positions: dict[str, Float[Tensor, "L T"]]
    """Restored shares by stack: for the input and each block's output, at each position."""
    labels: dict[str, list[str]]
    """The tokens of each stack; first and other where they differ."""
    heads: dict[str, Float[Tensor, "H"]]
    """Restored shares by attention layer, for each head's output at all positions."""


@torch.no_grad()
def pair(
    first: Prepared, other: Prepared, *, at: int | None = None, token: str | None = None
) -> tuple[Prepared, Prepared]:
    """Return two inputs with one output to explain: the one `at` a position; else the last, or the first in which two
    translations differ.

    Each is to explain the model's own output there, the first `token` if one is named.
    """
    if len(first.sequences) > 1:  # both read the same beginning of a translation
        parts = [a != b for a, b in zip(first.outputs.columns, other.outputs.columns, strict=False)]
        at = at if at is not None else parts.index(True) if any(parts) else len(parts) - 1
        first = first.select(at)
        row = first.outputs.rows[0]
        written = replace(first.sequences[1], tokens=first.sequences[1].tokens[: row + 1])
        target = {"target": first.inputs["target"][:, : row + 1]}
        first, other = (
            replace(one, chosen=first.outputs, inputs=one.inputs | target, sequences=[one.sequences[0], written])
            for one in (first, other)
        )
    else:
        first, other = (one.select(-1 if at is None else at) for one in (first, other))

    def own(one: Prepared) -> Prepared:
        row = one.outputs.rows
        return replace(one, chosen=Outputs(row, [int(one.logits()[0, row[0]].argmax())], one.outputs.readout))

    first, other = own(first), own(other)
    return (first if token is None else first.select(0, token)), other


@torch.no_grad()
def patch(first: Prepared, other: Prepared) -> Patched:
    """Patch every position and head of one text into another; each has one output to explain."""
    for one in (first, other):
        assert len(one.outputs.rows) == 1, "patching explains one output"
    mine, theirs = (list(map(len, one.sequences)) for one in (first, other))
    if mine != theirs:
        raise ValueError(
            f"patching swaps position by position: the first text has {mine[0]} tokens, the other {theirs[0]}; "
            "change words for others of as many tokens"
        )
    choices = first.outputs.columns[0], other.outputs.columns[0]
    if choices[0] == choices[1]:
        raise ValueError(
            f"both texts lead to {first.output_names[0]!r}, so there is no difference to trace; "
            "change what matters for it, or choose another output with --at"
        )

    def gap(inputs: dict[str, Tensor]) -> Float[Tensor, "B"]:
        logits = other.logits(inputs)[:, other.outputs.rows[0]]
        return logits[:, choices[0]] - logits[:, choices[1]]

    stacks = other.stacks
    states, mixed = remember(first, stacks)
    whole, base = gap(first.inputs).item(), gap(other.inputs).item()
    if abs(whole - base) < 1e-9:
        raise ValueError("both texts give the same logits; there is no difference to trace")

    def measure(inputs: dict[str, Tensor]) -> Float[Tensor, "B"]:
        return (gap(inputs) - base) / (whole - base)

    positions = {name: share_of_positions(other, stack, states[name], measure) for name, stack in stacks.items()}
    heads = {name: share_of_heads(other, name, mixed[name], measure) for name in heads_of(other.model)}
    labels = [
        [a if a == b else f"{a} | {b}" for a, b in zip(one.tokens, two.tokens, strict=True)]
        for one, two in zip(first.sequences, other.sequences, strict=True)
    ]
    return Patched(
        choices=(first.output_names[0], other.output_names[0]), difference=(whole, base), positions=positions,
        labels=dict(zip(stacks, labels, strict=True)), heads=heads,
    )  # fmt: skip


def remember(prepared: Prepared, stacks: dict[str, Stack]) -> tuple[dict[str, list[Tensor]], dict[str, Tensor]]:
    """Record the input of each stack, the output of each block, and the heads' outputs of each attention layer."""
    states: dict[str, list[Tensor]] = {}
    for name, stack in stacks.items():
        if stack.reversible:
            raise ValueError("reversible blocks have two streams, which are not patched; use a model without them")
        with stack_states(stack) as states[name]:
            prepared.run(prepared.inputs)
    with mixing(prepared.model) as mixed:
        prepared.run(prepared.inputs)
    return states, {name: values for name, (values, _) in mixed.items()}


def share_of_positions(other: Prepared, stack: Stack, states: list[Tensor], measure: Measure) -> Float[Tensor, "L T"]:
    """Return the restored shares for the input and each block; positions are patched one per row of a batch."""
    shares = []
    for depth, state in enumerate(states):
        for positions in torch.arange(state.shape[1]).split(BATCH):
            with patched(stack, depth, partial(swap, state, positions)):
                shares.append(measure(other.repeat(len(positions))))
    return torch.cat(shares).unflatten(0, (len(states), -1))


def swap(state: Float[Tensor, "1 T D"], positions: Int[Tensor, "B"], x: Float[Tensor, "B T D"]) -> Tensor:
    """Replace the hidden state at one position of each batch row by that of the first text."""
    x = x.clone()
    x[range(len(x)), positions] = state[0, positions]
    return x


def patched(stack: Stack, depth: int, change: Callable[[Tensor], Tensor]) -> RemovableHandle:
    """Context manager: change a stack's input (depth 0) or a block's output (from 1; the last is the stack's)."""
    if depth == 0:
        return stack.register_forward_pre_hook(lambda module, args: (change(args[0]), *args[1:]))
    if depth == len(stack.blocks):
        return stack.register_forward_hook(lambda module, args, output: change(output))
    return behind(list(stack.blocks), depth - 1, change)


def share_of_heads(other: Prepared, name: str, mixed: Tensor, measure: Measure) -> Float[Tensor, "H"]:
    """Return the restored share for each head of a layer, with its output replaced at all positions."""
    heads = range(mixed.shape[1])

    def change(layer: str, kernel: nn.Module, given: dict[str, Any], output: Any) -> Any:
        if layer != name:
            return None
        x = output[0].clone()
        x[heads, heads] = mixed[0, heads]
        return x, output[1]

    with behind_kernels(find_kernels(other.model), change):
        return measure(other.repeat(len(heads)))
