"""Figures of a model in training: gradients, updates, activations and attention, by layer.

Those of gradients and updates are sums that the optimizer's step has at hand. For those of activations a few rows of
the batch go through the model once more, in evaluation: the training pass itself is never touched.
"""

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
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
"""One example in so many goes through once more, but not more rows, nor more cells of an attention matrix."""
MATRIX = 1 << 24
"""Most attention weights of a layer that are asked for."""
FEW = 4
"""A query that sees fewer keys says nothing about how attention spreads."""
SHARP, EVEN = 0.05, 0.99
"""Entropies of a head, as shares of the highest possible: below it looks at one place, above at all alike."""
QUIET = 1e-3
"""A unit whose largest value is this small beside its layer's is dead."""


def layer_of(name: str) -> str:
    """The block that a parameter belongs to, or the part of the model outside of its blocks."""
    found = re.match(r"(.*\bblocks\.\d+)(\.|$)", name)
    return found[1] if found else name.partition(".")[0]


# ---- gradients and updates ------------------------------------------------------------------------------------


def by_layer(squares: Mapping[str, float]) -> dict[str, float]:
    """The norm of each layer from the squared norms of its parameters."""
    sums: dict[str, float] = {}
    for name, square in squares.items():
        sums[layer_of(name)] = sums.get(layer_of(name), 0.0) + square
    return {layer: math.sqrt(value) for layer, value in sums.items()}


def squares(tensors: Sequence[Tensor]) -> list[float]:
    """The squared norm of each, in one go."""
    return torch.stack(torch._foreach_norm(list(tensors))).square().tolist() if tensors else []


class Update:
    """The weights before a step, and how far it moved them."""

    @torch.no_grad()
    def __init__(self, parameters: dict[str, nn.Parameter]) -> None:
        self.parameters = parameters
        self.before = [p.detach().clone() for p in parameters.values()]
        pushed = {name: p.grad for name, p in parameters.items() if p.grad is not None}
        self.gradient = dict(zip(pushed, squares(list(pushed.values())), strict=True))

    @torch.no_grad()
    def measure(self) -> tuple[dict[str, float], dict[str, float]]:
        """The squared norm of each tensor's update, and of the tensor before it."""
        weights = squares(self.before)
        torch._foreach_sub_(self.before, [p.detach() for p in self.parameters.values()])
        return dict(zip(self.parameters, squares(self.before), strict=True)), dict(
            zip(self.parameters, weights, strict=True)
        )


# ---- activations and attention --------------------------------------------------------------------------------


def pick(batch: Batch, rows: Sequence[int]) -> Batch:
    """Some examples of a batch. Where each has several rows, as two views of a picture have, all of them; where rows
    cannot be told apart by example, the whole batch."""
    count = len(batch.examples) or len(batch.targets)
    every = [*batch.inputs.values(), batch.targets, *([] if batch.labels is None else [batch.labels])]
    if any(not x.dim() or len(x) % count for x in every):
        return batch

    def some(x: Tensor) -> Tensor:
        return x.unflatten(0, (-1, count))[:, list(rows)].flatten(0, 1)

    targets = some(batch.targets)
    if batch.targets.dtype == torch.bool:  # of pictures against texts: both sides are examples
        targets = targets[:, list(rows)]
    return replace(
        batch,
        inputs={name: some(x) for name, x in batch.inputs.items()},
        targets=targets,
        examples=tuple(batch.examples[row] for row in rows) if batch.examples else (),
        labels=None if batch.labels is None else some(batch.labels),
    )


def few(batch: Batch) -> Batch:
    """As many examples as are worth the time."""
    longest = max((x.shape[1] for x in batch.inputs.values() if x.dim() == 2), default=1)
    count = len(batch.examples) or len(batch.targets)
    return pick(batch, range(max(1, min(ROWS, count // SHARE, CELLS // longest**2))))


@contextmanager
def untouched(model: nn.Module) -> Iterator[None]:
    """In evaluation, without gradients; modes and random numbers are afterwards as before."""
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
    """`scale` of what each layer puts out, share of `dead` units, `entropy` of each head as a share of the highest
    possible; for each layer the `spread` of its scores (standard deviation over keys) and the `size` of its heads."""
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

    def after_kernel(name: str, kernel: Kernel, given: dict[str, Any], output: Any) -> None:
        if not kernel.weighs or given["q"][..., 0].numel() * given["k"].shape[2] > MATRIX:
            return  # no weights, or of a sequence so long that its kernel may never hold all of them either
        try:
            weights = weights_of(kernel, **given)
        except ValueError:  # one's own kernel may say that it weighs, and not do so: no reason to end a training
            return
        found = spread_of(weights, kernel, given.get("mask"), given.get("bias"))
        if found is not None:
            heads.setdefault(name, []).append(found)
            size[name] = given["q"].shape[-1]

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
        "entropy": {
            name: [fmean(one) for one in zip(*(row for row, _ in calls), strict=True)] for name, calls in heads.items()
        },
        "spread": {name: fmean(spread for _, spread in calls) for name, calls in heads.items()},
        "size": size,
    }


def attention_of(model: nn.Module) -> dict[str, Any]:
    """The model's kernels, none if it has no attention."""
    try:
        return find_kernels(model)
    except ValueError:
        return {}


def spread_of(
    weights: Float[Tensor, "B H T S"], kernel: Any, mask: Mask | None = None, bias: Bias | None = None
) -> tuple[list[float], float] | None:
    """Entropy of each head as a share of the highest possible, and the deviation over visible keys of the scores
    without their bias: what remains of log weights."""
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
    logs = logs if bias is None else logs - bias.dense(T, S)
    mean = (logs * seen).sum(-1) / count.clamp(min=1)
    spread = (((logs - mean[..., None]) * seen).square().sum(-1) / count.clamp(min=1)).sqrt()
    every = rows.expand_as(entropy)
    return (entropy * every).sum((0, 2)).div(every.sum((0, 2)).clamp(min=1)).tolist(), spread[every].mean().item()
