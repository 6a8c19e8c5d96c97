"""Hidden states: the vectors of tokens behind a block, for one input or for many examples."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import cycle
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from regard.data.readers.image_files import is_image
from regard.data.sets.collection import Examples, find_examples
from regard.models import parts
from regard.nn.reversible import Streams
from regard.nn.stack import Stack
from regard.tasks.prepared import Prepared

BATCH = 64
"""Examples that are read before they go through a model, those of one shape together."""


def examples_for(task: Any, source: str | Path | None) -> Examples:
    """The examples of a file or folder that a task can read."""
    if not {"image", "text"} & set(task.inputs):
        raise ValueError("a model of single pixels reads neither texts nor whole images; choose another one")
    return find_examples(source, task.inputs)


def single(task: Any, item: str) -> Examples:
    """One example from a command line: a text, or the name of an image file for an image model."""
    if not item.strip():
        raise ValueError("an example to start from is empty; give a text, or the path of an image")
    image = "image" in task.inputs and (is_image(item) or "text" not in task.inputs)
    return Examples([Path(item) if image else item], [item], [], image)


def read_example(task: Any, item: Any) -> Prepared:
    """Prepare one example as the model reads it, cut to its context, without generating an output."""
    return task.read(item, target=(), cut=True)


def blocks_of(prepared: Prepared) -> list[nn.Module]:
    """Return the blocks that process an input, in the order of the forward pass."""
    return parts.blocks(prepared.tower or prepared.model)


def block_at(blocks: Sequence[nn.Module], layer: int | None) -> int:
    """The index of a block, counted from 0, or from the last with −1."""
    last = len(blocks) - 1
    layer = -1 if layer is None else layer
    if not -len(blocks) <= layer <= last:
        raise ValueError(f"no block {layer}: the model has {len(blocks)}, 0 to {last} (-1: the last)")
    return layer % len(blocks)


def behind(blocks: Sequence[nn.Module], layer: int, then: Callable[[Any], Any]) -> RemovableHandle:
    """Context manager: call `then` with each output of a block; a result that is not None replaces the output."""
    turns = cycle(i for i, block in enumerate(blocks) if block is blocks[layer])

    def hook(module: nn.Module, inputs: Any, output: Any) -> Any:
        return then(output) if next(turns) == layer else None

    return blocks[layer].register_forward_hook(hook)


@contextmanager
def stack_states(stack: Stack) -> Iterator[list[Float[Tensor, "B T D"]]]:
    """The input of a stack, then the output of each block; the last is that of the stack, behind its norm."""
    states: list[Tensor] = []

    def enter(module: nn.Module, args: tuple[Any, ...]) -> None:
        states[:] = [args[0]]

    def leave(module: nn.Module, args: tuple[Any, ...], output: Tensor | Streams) -> None:
        if module is stack:
            states.pop()
        states.append(vectors_in(output))

    with ExitStack() as hooks:
        hooks.enter_context(stack.register_forward_pre_hook(enter))
        for module in {*stack.blocks, stack}:  # a shared block once
            hooks.enter_context(module.register_forward_hook(leave))
        yield states


def vectors_in(output: Any) -> Tensor:
    """The vectors in the output of a block: B T D, or maps B D Y X."""
    return output.join() if isinstance(output, Streams) else output[0] if isinstance(output, tuple) else output


def moved(output: Any, by: Float[Tensor, "D"]) -> Any:
    """The output of a block with a vector added at every position."""
    if isinstance(output, Streams):
        return Streams(output.a + by, output.b + by, output.tape)
    if isinstance(output, tuple):
        return (moved(output[0], by), *output[1:])
    return output + (by[:, None, None] if output.dim() == 4 else by)


@dataclass(frozen=True, slots=True)
class TokenStates:
    """One example behind a block: a vector for each token or cell, their labels, and the grid of cells."""

    vectors: Float[Tensor, "T D"]
    labels: list[str]
    grid: tuple[int, int] | None = None


def in_batches(
    task: Any, items: Sequence[Any], run: Callable[[Prepared, dict[str, Tensor]], Tensor]
) -> Iterator[tuple[Prepared, Tensor]]:
    """Read examples and `run` those of one shape together; each example with its row, in order."""
    for first in range(0, len(items), BATCH):
        read = [read_example(task, item) for item in items[first : first + BATCH]]
        groups: dict[Any, list[int]] = {}
        for i, prepared in enumerate(read):
            shape = tuple((name, value.shape) for name, value in prepared.inputs.items())
            groups.setdefault(shape, []).append(i)
        rows: dict[int, Tensor] = {}
        for members in groups.values():
            batch = {name: torch.cat([read[i].inputs[name] for i in members]) for name in read[members[0]].inputs}
            with torch.no_grad():
                rows |= zip(members, run(read[members[0]], batch), strict=True)
        yield from ((prepared, rows[i]) for i, prepared in enumerate(read))


def token_states(task: Any, examples: Examples, layer: int) -> Iterator[TokenStates]:
    """The vectors of each example's tokens behind a block, in order, without special tokens in front of them."""
    kept: list[Tensor] = []

    def run(prepared: Prepared, batch: dict[str, Tensor]) -> Tensor:
        with behind(blocks_of(prepared), layer, lambda output: kept.append(vectors_in(output))):
            prepared.run(batch)
        return kept.pop()

    for prepared, row in in_batches(task, examples.items, run):
        sequence = prepared.sequences[0]
        if prepared.image is None:
            yield TokenStates(row[sequence.prefix :], sequence.tokens[sequence.prefix :])
            continue
        if row.dim() == 3:
            grid, vectors = (row.shape[1], row.shape[2]), row.flatten(1).T
        else:
            vectors = row[sequence.prefix :]
            grid = shaped(len(vectors), prepared.image.shape[0] / prepared.image.shape[1])
        yield TokenStates(vectors, [f"{i // grid[1]},{i % grid[1]}" for i in range(len(vectors))], grid)


def shaped(count: int, ratio: float) -> tuple[int, int]:
    """Return the rows and columns of `count` cells whose ratio is nearest to a given one."""
    fits = [(rows, count // rows) for rows in range(1, count + 1) if count % rows == 0]
    return min(fits, key=lambda grid: abs(np.log(grid[0] / grid[1] / ratio)))


def example_vectors(task: Any, examples: Examples, layer: int | None) -> Float[Tensor, "N D"]:
    """One vector for each example: the model's own, of length 1, or the mean over tokens behind a block."""
    if layer is not None:
        return torch.stack([one.vectors.float().mean(0) for one in token_states(task, examples, layer)])

    def run(prepared: Prepared, batch: dict[str, Tensor]) -> Tensor:
        assert prepared.embed is not None
        return F.normalize(prepared.embed(batch).cpu(), dim=-1)

    return torch.stack([row for _, row in in_batches(task, examples.items, run)]).float()


def layer_or_own(task: Any, examples: Examples, layer: int | None) -> int | None:
    """Return the index of the block whose outputs are used; None for the model's own embedding, if it has one."""
    first = read_example(task, examples.items[0])
    return None if layer is None and first.embed is not None else block_at(blocks_of(first), layer)
