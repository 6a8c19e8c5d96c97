"""Smaller models cut out of a trained one: heads, hidden units and blocks really leave its matrices.

Every layer keeps equally many heads and hidden units, so that the result is an ordinary model of its family: its
config says the new sizes, and everything that reads the old one reads it.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from math import ceil
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor, nn

from regard.data.sets.batches import Batch
from regard.eval.prune import Head, head_losses, least, removable
from regard.inside.capture.ablation import without
from regard.nn.attention import Attention
from regard.nn.feedforward import FeedForward

ROUNDS = 2
"""Rounds in which heads are removed; the remaining ones are scored again in each."""
EQUAL = 1e-5
"""Largest relative difference between the loss without heads and with heads that are switched off."""
DEPTHS = ("depth", "decoder_depth")
"""Fields of configs that are numbers of blocks."""


def cut_heads(model: Any, count: int, loss: Callable[[Any], float]) -> Any:
    """Return a model with the `count` heads of every layer that `loss` needs most.

    `loss` is that of a model on a few examples; it must be as low as with the other heads switched off.
    """
    config = model.config
    if not isinstance(heads := getattr(config, "heads", None), int) or heads < 2:
        raise ValueError(f"{type(model).__name__} has no equal number of heads in every layer, so none are removed")
    if config.kv_heads not in (None, heads):
        raise ValueError("heads that share keys and values are not removed one by one")
    gone = heads_to_remove(model, heads - count, loss)
    kept = {name: [h for h in range(heads) if (name, h) not in gone] for name, _ in removable(model)}
    fields = {"heads": count, "head_dim": config.head_size, "kv_heads": config.kv_heads and count}
    smaller = cut(model, fields, {name: spans(indices, config.head_size) for name, indices in kept.items()})
    with without(model, gone):
        before = loss(model)
    if abs(loss(smaller) - before) > EQUAL * (1 + abs(before)):
        raise ValueError("what a head computes depends on how many there are, so none are removed")
    return smaller


def heads_to_remove(model: Any, count: int, loss: Callable[[Any], float]) -> list[Head]:
    """Choose `count` heads of every layer, in rounds: those whose ablation raises the loss least."""
    gone: list[Head] = []
    done = 0
    while done < count:
        more = min(ceil(count / ROUNDS), count - done)
        losses = head_losses(model, lambda: loss(model), gone)
        for layer in dict.fromkeys(name for name, _ in losses):
            gone += least({head: value for head, value in losses.items() if head[0] == layer}, more)
        done += more
    return gone


def cut_units(model: Any, count: int, batches: Sequence[Batch]) -> Any:
    """Return a model with the `count` hidden units of every feed-forward layer that add most to its output."""
    layers = {name: layer for name, layer in model.named_modules() if isinstance(layer, FeedForward)}
    if not layers:
        raise ValueError(f"{type(model).__name__} has no feed-forward layers to make narrower")
    sums: dict[str, Tensor] = {}

    def note(name: str) -> Callable[[nn.Module, tuple[Tensor, ...]], None]:
        def add(layer: nn.Module, inputs: tuple[Tensor, ...]) -> None:
            sums[name] = sums.get(name, 0) + inputs[0].detach().abs().flatten(0, -2).sum(0)

        return add

    with ExitStack() as hooks, torch.no_grad():
        for name, layer in layers.items():
            hooks.enter_context(layer.down.register_forward_pre_hook(note(name)))
        for batch in batches:
            model.eval()(**batch.inputs)
    sizes = {name: sums[name] * layers[name].down.weight.detach().norm(dim=0) for name in sums}
    kept = {name: size.topk(count).indices.sort().values for name, size in sizes.items()}
    return cut(model, {"ffn_dim": count}, kept)


def cut_blocks(model: Any, share: float) -> Any:
    """Return a model with this share of the blocks of every stack, evenly spaced."""
    depths = {name: getattr(model.config, name, None) for name in DEPTHS}
    fields = {name: max(1, round(share * depth)) for name, depth in depths.items() if isinstance(depth, int)}
    if all(fields[name] == depths[name] for name in fields):
        raise ValueError(f"{type(model).__name__} has no stack of blocks that could be shorter")
    return cut(model, fields)


def spans(indices: Sequence[int], size: int) -> Tensor:
    """Return the rows of parts with these indices, each `size` rows long."""
    return torch.cat([torch.arange(index * size, (index + 1) * size) for index in indices])


@torch.no_grad()
def cut(model: Any, fields: Mapping[str, Any], kept: Mapping[str, Tensor] = MappingProxyType({})) -> Any:
    """Return a model of the same family with other sizes, whose weights are those of `model` that stay.

    `kept` are the rows that stay of the matrices into a layer, by its name; columns of the matrix out of it.
    """
    smaller = type(model)(replace(model.config, **fields))
    layers = dict(model.named_modules())
    lists = {name: module for name, module in smaller.named_modules() if isinstance(module, nn.ModuleList)}
    old, new = model.state_dict(), smaller.state_dict()
    for name, tensor in new.items():
        source = name
        for path, blocks in lists.items():
            source = re.sub(rf"^({re.escape(path)}\.)(\d+)", _renumber(len(layers[path]), len(blocks)), source)
        owner, _, part = source.rpartition(".")[0].rpartition(".")
        if source not in old:
            raise ValueError(f"it would have weights of its own, {name}, that were never trained")
        value = old[source]
        if owner in kept:
            value = _narrowed(layers[owner], part, value, kept[owner])
        if value.shape != tensor.shape and value.shape[1:] == tensor.shape[1:] and len(value) > len(tensor):
            if "position" in name:  # learned vectors of the first positions
                value = value[: len(tensor)]
        if value.shape != tensor.shape:
            raise ValueError(f"{name} cannot be cut from {tuple(value.shape)} to {tuple(tensor.shape)}")
        tensor.copy_(value)
    return smaller.eval()


def _renumber(before: int, after: int) -> Callable[[re.Match[str]], str]:
    """Return a replacement of a block's number by that of its source: evenly spaced, the first and the last stay."""
    return lambda match: match[1] + str(round(int(match[2]) * (before - 1) / max(1, after - 1)))


def _narrowed(layer: nn.Module, part: str, value: Tensor, kept: Tensor) -> Tensor:
    """Return the rows (of the matrices and biases into a layer) or the columns (of the matrix out of it) that stay."""
    if part in ("query", "key_value", "up"):
        joined = isinstance(layer, Attention) and part == "key_value" and layer.fused
        joined = joined or (isinstance(layer, FeedForward) and layer.gated)
        return torch.cat([piece[kept] for piece in value.chunk(2 if joined else 1)])
    return value[:, kept] if part in ("out", "down") and value.dim() == 2 else value
