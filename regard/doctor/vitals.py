"""Figures of a model in training: gradients, updates, activations and attention, by layer.

For those of activations a few rows of the batch go through the model once more, in evaluation mode: the training pass
itself is never touched.
"""

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from statistics import fmean
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from regard.data.sets.batches import Batch
from regard.nn.feedforward import FeedForward
from regard.nn.kernels import Kernel
from regard.nn.masks import Mask
from regard.nn.positions import Bias
from regard.nn.reversible import recomputes
from regard.nn.weights import behind_kernels, find_kernels, weights_of

Figures = dict[str, Any]
SHARE, ROWS, CELLS = 8, 8, 1 << 20
"""One example in SHARE is measured, at most ROWS, and at most CELLS elements of an attention matrix."""
MATRIX = 1 << 24
"""The most attention weights of a layer that are computed."""
FEW = 4
"""The fewest visible keys of a query whose entropy counts."""
SHARP, EVEN = 0.05, 0.99
"""Entropies of a head as shares of the highest: below SHARP it attends to one position, above EVEN to all alike."""
QUIET = 1e-3
"""A unit is dead if its largest value is below this share of its layer's root mean square."""


def layer_of(name: str) -> str:
    """The name of the block that a parameter belongs to, or of its part of the model outside of blocks."""
    block = re.match(r"(.*\bblocks\.\d+)(\.|$)", name)
    return block[1] if block else name.partition(".")[0]


# ---- gradients and updates ------------------------------------------------------------------------------------


def by_layer(squares: Mapping[str, float]) -> dict[str, float]:
    """The norm of each layer from the squared norms of its parameters."""
    sums: dict[str, float] = {}
    for name, square in squares.items():
        sums[layer_of(name)] = sums.get(layer_of(name), 0.0) + square
    return {layer: math.sqrt(value) for layer, value in sums.items()}


def squares(tensors: Sequence[Tensor]) -> list[float]:
    """The squared norm of each tensor."""
    return torch.stack(torch._foreach_norm(list(tensors))).square().tolist() if tensors else []


class Update:
    """The weights and gradients before a step, to measure its update."""

    @torch.no_grad()
    def __init__(self, parameters: dict[str, nn.Parameter]) -> None:
        self.parameters = parameters
        self.before = [p.detach().clone() for p in parameters.values()]
        grads = {name: p.grad for name, p in parameters.items() if p.grad is not None}
        self.gradient = dict(zip(grads, squares(list(grads.values())), strict=True))

    @torch.no_grad()
    def measure(self) -> tuple[dict[str, float], dict[str, float]]:
        """The squared norm of each tensor's update, and of the tensor before it."""
        weights = dict(zip(self.parameters, squares(self.before), strict=True))
        torch._foreach_sub_(self.before, [p.detach() for p in self.parameters.values()])
        return dict(zip(self.parameters, squares(self.before), strict=True)), weights


# ---- activations and attention --------------------------------------------------------------------------------


def few(batch: Batch) -> Batch:
    """A batch of the first examples: as many as are measured."""
    longest = max((x.shape[1] for x in batch.inputs.values() if x.dim() == 2), default=1)
    count = len(batch.examples) or len(batch.targets)
    return batch.pick(range(max(1, min(ROWS, count // SHARE, CELLS // longest**2))))


@contextmanager
def untouched(model: nn.Module) -> Iterator[None]:
    """Evaluation mode without gradients; restores modes and random state afterwards."""
    modes = [(module, module.training) for module in model.modules()]
    devices = {p.device for p in model.parameters() if p.is_cuda}
    model.eval()
    try:
        with torch.no_grad(), torch.random.fork_rng(devices):
            yield
    finally:
        for module, mode in modes:
            module.training = mode


def activations(model: nn.Module, objective: Callable[..., Any], batch: Batch) -> Figures:
    """Return figures by layer: `scale` (root mean square) of its output, share of `dead` units, `entropy` of each head
    as a share of the highest possible, `spread` of attention scores (standard deviation over keys) and `size` of its
    heads."""
    scale: dict[str, list[float]] = {}
    dead: dict[str, float] = {}
    heads: dict[str, list[tuple[list[float], float]]] = {}
    size: dict[str, int] = {}
    names = {layer_of(name) for name, _ in model.named_parameters()}

    def after_layer(name: str, output: Any) -> None:
        if isinstance(output, Tensor) and output.is_floating_point() and not recomputes():
            scale.setdefault(name, []).append(output.square().mean().sqrt().item())

    def before_down(name: str, hidden: Tensor) -> None:
        largest = hidden.abs().flatten(0, -2).amax(0)
        dead[name] = (largest <= QUIET * hidden.square().mean().sqrt()).float().mean().item()

    def after_kernel(name: str, kernel: Kernel, inputs: dict[str, Any], output: Any) -> None:
        if not kernel.weighs or inputs["q"][..., 0].numel() * inputs["k"].shape[2] > MATRIX:
            return  # no weights, or more than its kernel itself may ever hold
        try:
            weights = weights_of(kernel, **inputs)
        except ValueError:  # a kernel that declares weights and returns none must not end a training
            return
        figures = spread_of(weights, kernel, inputs.get("mask"), inputs.get("bias"))
        if figures is not None:
            heads.setdefault(name, []).append(figures)
            size[name] = inputs["q"].shape[-1]

    handles = []
    for name, module in model.named_modules():
        if name in names:
            handles.append(module.register_forward_hook(lambda m, a, out, name=name: after_layer(name, out)))
        if isinstance(module, FeedForward):
            handles.append(module.down.register_forward_pre_hook(lambda m, a, name=name: before_down(name, a[0])))
    try:
        with untouched(model), behind_kernels(attention_of(model), after_kernel):
            objective(model, few(batch))
    finally:
        for handle in handles:
            handle.remove()
    return {
        "scale": {name: fmean(values) for name, values in scale.items()},
        "dead": dead,
        "entropy": {n: [fmean(x) for x in zip(*(e for e, _ in calls), strict=True)] for n, calls in heads.items()},
        "spread": {name: fmean(spread for _, spread in calls) for name, calls in heads.items()},
        "size": size,
    }


def attention_of(model: nn.Module) -> dict[str, Any]:
    """The model's attention kernels by name; empty if it has none."""
    try:
        return find_kernels(model)
    except ValueError:
        return {}


def spread_of(
    weights: Float[Tensor, "B H T S"], kernel: Any, mask: Mask | None = None, bias: Bias | None = None
) -> tuple[list[float], float] | None:
    """The entropy of each head as a share of the highest possible, and the standard deviation of attention scores over
    visible keys, from log weights without the bias."""
    T, S = weights.shape[2:]
    seen = (kernel.rule() if mask is None else mask & kernel.rule()).dense(T, S).to(weights.device)
    if not kernel.dense:  # it left out keys by their content
        seen = seen & (weights > 0)
    seen = seen.expand(len(weights), -1, -1, -1)  # B #H T S
    count = seen.sum(-1)
    rows = count >= FEW
    if not rows.any():
        return None
    logs = weights.clamp(min=1e-30).log()
    entropy = -(weights * logs).sum(-1) / count.clamp(min=FEW).log()  # B H T
    logs = logs if bias is None else logs - bias.dense(T, S).to(weights.device)
    mean = (logs * seen).sum(-1) / count.clamp(min=1)
    spread = (((logs - mean[..., None]) * seen).square().sum(-1) / count.clamp(min=1)).sqrt()
    every = rows.expand_as(entropy)
    return (entropy * every).sum((0, 2)).div(every.sum((0, 2)).clamp(min=1)).tolist(), spread[every].mean().item()
