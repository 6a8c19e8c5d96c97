"""The feed-forward layers of a model: what they write into the residual stream beside attention, the loss without each
part, and what single neurons read and write, as key–value memories (Geva et al., 2021)."""

from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any, cast

import torch
from jaxtyping import Float
from torch import Tensor, nn

from regard.inside.capture.states import behind, vectors_in
from regard.models import parts
from regard.nn.block import Block
from regard.nn.stack import Stack
from regard.tasks.prepared import Prepared

PARTS = ("attention", "cross", "feedforward")
"""The parts of a block that write into the residual stream, in their order."""


@dataclass(slots=True)
class BlockWrites:
    """A block at work on one input: the stream that it reads, and what each of its parts adds to it."""

    name: str
    call: int
    """Number of its earlier calls: one block may stand for several layers."""
    stream: Float[Tensor, "*T D"]
    added: dict[str, Tensor] = field(default_factory=dict)

    def relative(self, part: str) -> float | None:
        """The mean norm of what a part writes, divided by that of the block's input; None if that is zero."""
        before = float(self.stream.norm(dim=-1).mean())
        return float(self.added[part].norm(dim=-1).mean()) / before if before else None


@torch.no_grad()
def block_writes(prepared: Prepared) -> list[BlockWrites]:
    """Return the input and the writes of each block that is called, in the order of the forward pass."""
    blocks, seen = parts.feedforward_blocks(prepared.model), list[BlockWrites]()

    def enter(name: str, args: tuple[Any, ...]) -> None:
        stream = vectors_in(args[0])[0]
        seen.append(BlockWrites(name, sum(one.name == name for one in seen), stream))

    with ExitStack() as hooks:
        for name, block in blocks.items():
            hooks.enter_context(block.register_forward_pre_hook(lambda _, args, name=name: enter(name, args)))
            for part in PARTS:
                if (layer := getattr(block, part, None)) is not None:
                    hook = keep_output(seen, part)
                    hooks.enter_context(layer.register_forward_hook(hook))
        prepared.run(prepared.inputs)
    return seen


def keep_output(seen: list[BlockWrites], part: str) -> Any:
    """Return a hook that stores a part's output with the block that was entered last."""

    def keep(module: nn.Module, args: Any, output: Tensor) -> None:
        writes = seen[-1]
        writes.added[part] = output.flatten(0, -2)[: len(writes.stream)]  # windows are rows, and so are other texts

    return keep


def stream_shares(prepared: Prepared, writes: list[BlockWrites]) -> dict[tuple[str, int, str], float]:
    """The share of each part in the last residual stream of its stack, by projection on it, the mean over tokens.

    With the share of the stack's input, under the part "input" of its first block, those of a stack sum to 1. Only
    where parts are added and nothing else is done: norms before them, residual connections, one stream.
    """
    shares: dict[tuple[str, int, str], float] = {}
    for name, stack in parts.stacks(prepared.model).items():
        own = [one for one in writes if one.name.startswith(f"{name}.blocks.")]
        if not own or not all(additive(block) for block in stack.blocks) or stack.reversible:
            continue
        last = own[-1].stream + sum(own[-1].added.values())
        norm = last.square().sum(-1)

        def share(vectors: Tensor, last: Tensor = last, norm: Tensor = norm) -> float:
            return float(((vectors * last).sum(-1) / norm).mean())

        shares[own[0].name, own[0].call, "input"] = share(own[0].stream)
        shares |= {(one.name, one.call, part): share(vectors) for one in own for part, vectors in one.added.items()}
    return shares


def additive(block: nn.Module) -> bool:
    """Whether the output of a block is its input and the outputs of its parts, added."""
    return isinstance(block, Block) and block.pre and block.residual


@contextmanager
def without_part(model: nn.Module, name: str, call: int, part: str) -> Iterator[None]:
    """Run a model with one part of a block writing zeros, at one of its calls."""
    calls = iter(range(1 << 30))

    def blank(module: nn.Module, args: Any, output: Tensor) -> Tensor | None:
        return torch.zeros_like(output) if next(calls) == call else None

    with model.get_submodule(f"{name}.{part}").register_forward_hook(blank):
        yield


@torch.no_grad()
def part_effects(prepared: Prepared, writes: list[BlockWrites]) -> dict[tuple[str, int, str], float]:
    """The rise of the explained outputs' loss when a part of a block writes nothing."""
    base, effects = prepared.loss().item(), {}
    for one in writes:
        for part in one.added:
            with without_part(prepared.model, one.name, one.call, part):
                effects[one.name, one.call, part] = prepared.loss().item() - base
    return effects


@dataclass(frozen=True, slots=True)
class Neuron:
    """A hidden unit of a feed-forward layer at one token."""

    block: int
    """The index of its block in the stack."""
    index: int
    activation: float
    strength: float
    """The norm of what it writes: its activation times its value vector."""
    logits: Float[Tensor, "V"]
    """The rise of each logit of the output by its writing alone, past all later blocks."""


def value_layers(stack: Stack) -> list[nn.Linear]:
    """The second matrix of each feed-forward layer of a stack: its columns are the value vectors of neurons."""
    return [block.feedforward.down for block in cast(Iterable[Any], stack.blocks)]


@contextmanager
def hidden_units(stack: Stack) -> Iterator[list[Float[Tensor, "B T F"]]]:
    """The activations of the hidden units of each block of a stack, for the last pass."""
    seen: list[Tensor] = []

    def keep(module: nn.Module, args: tuple[Tensor, ...]) -> None:
        seen.append(args[0])

    with ExitStack() as hooks:
        hooks.enter_context(stack.register_forward_pre_hook(lambda *_: seen.clear()))
        for layer in dict.fromkeys(value_layers(stack)):
            hooks.enter_context(layer.register_forward_pre_hook(keep))
        yield seen


@torch.no_grad()
def strongest_neurons(prepared: Prepared, count: int) -> list[Neuron]:
    """The neurons that write most at the token of the first explained output, about `count`, as many of each block of
    the last stack; the strongest of a block come first."""
    *_, stack = prepared.stacks.values()
    position, row = int(prepared.outputs.readout[0].argmax()), prepared.outputs.rows[0]
    with hidden_units(stack) as hidden:
        prepared.run(prepared.inputs)
    found = []
    layers = value_layers(stack)
    for number, (layer, units) in enumerate(zip(layers, hidden, strict=True)):
        sizes = units[0, position].abs() * layer.weight.norm(dim=0)
        best = sizes.topk(min(max(1, count // len(hidden)), len(sizes)))
        found += [
            (size, number, index) for size, index in zip(best.values.tolist(), best.indices.tolist(), strict=True)
        ]
    values = [hidden[number][0, position, index] * layers[number].weight[:, index] for _, number, index in found]
    removed = torch.stack([torch.zeros_like(values[0]), *values])

    def remove(output: Tensor) -> Tensor:
        changed = output.clone()
        changed[:, position] -= removed
        return changed

    with behind(list(stack.blocks), len(stack.blocks) - 1, remove):
        logits = prepared.logits(prepared.repeat(len(removed)))[:, row]
    return [
        Neuron(number, index, float(hidden[number][0, position, index]), size, logits[0] - logits[i])
        for i, (size, number, index) in enumerate(found, 1)
    ]


@torch.no_grad()
def most_excited(
    neurons: list[Neuron], examples: Iterable[Prepared], count: int
) -> list[list[tuple[float, Prepared, int]]]:
    """For each neuron the tokens of examples that excite it most, in the direction of its activation: how much, the
    example, and the token's position in the stack."""
    best: list[list[tuple[float, Prepared, int]]] = [[] for _ in neurons]
    for example in examples:
        *_, stack = example.stacks.values()
        with hidden_units(stack) as hidden:
            example.run(example.inputs)
        for rows, neuron in zip(best, neurons, strict=True):
            units = hidden[neuron.block][0, :, neuron.index]
            top = (units * (1 if neuron.activation > 0 else -1)).topk(min(count, len(units))).indices.tolist()
            rows += [(float(units[at]), example, at) for at in top]
            rows.sort(key=lambda row: -abs(row[0]) if row[0] * neuron.activation > 0 else abs(row[0]))
            del rows[count:]
    return best
