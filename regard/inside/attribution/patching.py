"""Activation patching: two prompts, and where the difference between their outputs comes from.

The model reads the other prompt, but at one place behind one block (or in one head) it has what it had with the first.
How much of the difference between the two comes back shows what that place carries.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.inside.attribution.asking import ask, find_token
from regard.inside.attribution.effects import BATCH, heads_of
from regard.inside.attribution.gradients import mixing
from regard.inside.attribution.question import Question
from regard.inside.words import watched
from regard.nn.stack import Stack
from regard.nn.weights import find_kernels
from regard.tasks import Translator


@dataclass(frozen=True, slots=True, kw_only=True)
class Patched:
    """Shares of the difference that come back: 0 is the other prompt, 1 the first."""

    choices: tuple[str, str]
    """What the first and the other prompt lead to: the difference is that of these two scores."""
    difference: tuple[float, float]
    """Of the two scores, with the first prompt and with the other."""
    places: dict[str, Float[Tensor, "L T"]]
    """By stack: the input of the first block, then each block's output, at each place."""
    labels: dict[str, list[str]]
    """The tokens of each stack; first and other where they differ."""
    heads: dict[str, Float[Tensor, "H"]]
    """By attention layer: a head's output at all places."""


@torch.no_grad()
def pair(
    loaded: Any, text: Any, against: Any, *, target: str | Sequence[int] | None = None, at: int | None = None,
    token: str | None = None, other_target: Sequence[int] | None = None,
) -> tuple[Question, Question]:  # fmt: skip
    """Two prompts asked for one output: the one at `at`; else the last, or where two translations part.

    Each is asked for what the model itself says there, the first for `token` if one is named. `other_target` are the
    tokens of the other text's translation, or those behind it.
    """
    first, other = ask(loaded, text, target=target), ask(loaded, against, target=other_target)
    if isinstance(loaded, Translator):  # both read the same beginning of a translation
        parts = [a != b for a, b in zip(first.choices, other.choices, strict=False)]
        at = at if at is not None else parts.index(True) if any(parts) else len(parts) - 1
        first = ask(loaded, text, target=target, at=at)
        before, written = first.before, first.inputs["target"][:, : first.outputs[0] + 1]
        cut: dict[str, Any] = dict(before=(before or [])[: first.outputs[0] + 1], outputs=first.outputs)
        first, other = (replace(one, **cut, inputs=one.inputs | {"target": written}) for one in (first, other))
    else:
        where = -1 if at is None else at
        first, other = ask(loaded, text, target=target, at=where), ask(loaded, against, target=other_target, at=where)
    best = [one.says(one.inputs)[0, one.outputs[0]].argmax().item() for one in (first, other)]
    if token is not None:
        best[0] = find_token(loaded, token)
    return tuple(replace(one, choices=[int(i)]) for one, i in zip((first, other), best, strict=True))  # type: ignore


@torch.no_grad()
def patch(question: Question, other: Question) -> Patched:
    """Where in the model the difference between two prompts arises; both are asked for one output."""
    for one in (question, other):
        assert len(one.outputs) == 1, "patching asks about one output"
    mine, theirs = (list(map(len, sides(one))) for one in (question, other))
    if mine != theirs:
        raise ValueError(
            f"patching swaps place by place: the first text has {mine[0]} tokens, the other {theirs[0]}; "
            "change words for others of as many tokens"
        )
    choices = question.choices[0], other.choices[0]
    if choices[0] == choices[1]:
        raise ValueError(
            f"both texts lead to {question.names[0]!r}, so there is no difference to trace; "
            "change what matters for it, or ask about another output"
        )

    def gap(inputs: dict[str, Tensor]) -> Float[Tensor, "B"]:
        said = other.says(inputs)[:, other.outputs[0]]
        return said[:, choices[0]] - said[:, choices[1]]

    stacks = other.stacks
    first, kept = remember(question, stacks)
    whole, base = gap(question.inputs).item(), gap(other.inputs).item()
    if abs(whole - base) < 1e-9:
        raise ValueError("both texts give the same scores; there is no difference to trace")

    def measure(inputs: dict[str, Tensor]) -> Float[Tensor, "B"]:
        return (gap(inputs) - base) / (whole - base)

    places = {name: share_of_places(other, stack, first[name], measure) for name, stack in stacks.items()}
    heads = {name: share_of_heads(other, name, kept[name], measure) for name in heads_of(other.model)}
    labels = [
        [a if a == b else f"{a} | {b}" for a, b in zip(*pair, strict=True)]
        for pair in zip(sides(question), sides(other), strict=True)
    ]
    return Patched(
        choices=(question.names[0], other.names[0]), difference=(whole, base), places=places,
        labels=dict(zip(stacks, labels, strict=True)), heads=heads,
    )  # fmt: skip


def sides(question: Question) -> list[list[str]]:
    """The tokens that each stack reads."""
    return [question.tokens] if question.before is None else [question.tokens, question.before]


def remember(question: Question, stacks: dict[str, Stack]) -> tuple[dict[str, list[Tensor]], dict[str, Tensor]]:
    """What enters each stack and leaves each block, and what each attention layer mixes."""
    states: dict[str, list[Tensor]] = {}
    for name, stack in stacks.items():
        if stack.reversible:
            raise ValueError("reversible blocks have two streams, which are not patched; use a model without them")
        with watched(stack) as states[name]:
            question.says(question.inputs)
    with mixing(question.model) as mixed:
        question.says(question.inputs)
    return states, {name: values for name, (values, _) in mixed.items()}


def share_of_places(
    other: Question, stack: Stack, states: list[Tensor], measure: Callable[[dict[str, Tensor]], Tensor]
) -> Float[Tensor, "L T"]:
    """A row for the input and for each block: all its places, one in each copy of the other prompt."""
    places = torch.arange(states[0].shape[1]).split(BATCH)
    rows = []
    for depth, state in enumerate(states):
        row = [hooked(stack, depth, Swap(state, some), partial(measure, other.times(len(some)))) for some in places]
        rows.append(torch.cat(row))
    return torch.stack(rows)


@dataclass(frozen=True, slots=True)
class Swap:
    """Puts the first prompt's state into the other's: in each copy at another place."""

    state: Float[Tensor, "1 T D"]
    places: Int[Tensor, "B"]

    def __call__(self, x: Float[Tensor, "B T D"]) -> Float[Tensor, "B T D"]:
        x = x.clone()
        x[range(len(x)), self.places] = self.state[0, self.places]
        return x


def hooked(stack: Stack, depth: int, swap: Callable[[Tensor], Tensor], run: Callable[[], Tensor]) -> Tensor:
    """Runs with what enters the stack changed (depth 0), or what leaves its block (from 1); the last is the stack's."""
    if depth == 0:
        handle = stack.register_forward_pre_hook(lambda module, args: (swap(args[0]), *args[1:]))
    elif depth == len(stack.blocks):
        handle = stack.register_forward_hook(lambda module, args, output: swap(output))
    else:
        block = stack.blocks[depth - 1]
        turns = iter([i for i, other in enumerate(stack.blocks, 1) if other is block])  # a shared one comes again
        handle = block.register_forward_hook(
            lambda module, args, output: swap(output) if next(turns) == depth else output
        )
    try:
        return run()
    finally:
        handle.remove()


def share_of_heads(
    other: Question, name: str, mixed: Tensor, measure: Callable[[dict[str, Tensor]], Tensor]
) -> Float[Tensor, "H"]:
    """For each head of a layer, with its output at all places swapped: one in each copy."""
    kernels = find_kernels(other.model)
    heads = range(mixed.shape[1])
    mine = [one for one in kernels if kernels[one] is kernels[name]]
    turns = iter(mine)

    def change(kernel: nn.Module, args: Any, output: Any) -> Any:
        if next(turns) != name:
            return output
        x = output[0].clone()
        x[heads, heads] = mixed[0, heads]
        return x, output[1]

    handle = kernels[name].register_forward_hook(change)
    try:
        return measure(other.times(len(heads)))
    finally:
        handle.remove()
