"""Records the arguments of every kernel call in one pass; weights and their parts are computed on demand."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar

import torch
from jaxtyping import Float
from torch import Tensor, nn

from regard.inside.capture.weights import join_queries, watch
from regard.nn.kernels import Kernel
from regard.nn.weights import find_kernels, weights_of

Result = TypeVar("Result")
NEAR = 1e-4
"""Tolerance between the shown steps and the captured weights; beyond it, a kernel has steps of its own."""


@dataclass(slots=True)
class Layer:
    """The calls of one attention layer: one, or one for each word of a recurrent decoder."""

    name: str
    kind: str
    kernel: Any
    calls: list[dict[str, Any]] = field(default_factory=list)

    @property
    def heads(self) -> int:
        return self.calls[0]["q"].shape[1]

    @property
    def size(self) -> tuple[int, int, int]:
        """Number of rows in the batch, of queries and of keys."""
        return len(self.calls[0]["q"]), sum(call["q"].shape[2] for call in self.calls), self.calls[0]["k"].shape[2]

    def weights(self, heads: tuple[int, ...] | None = None) -> Float[Tensor, "N H T S"]:
        return join_queries([weights_of(self.kernel, **call, heads=heads) for call in self.calls])

    @torch.no_grad()
    def numbers(self, head: int, row: int = 0) -> dict[str, Any]:
        """Return q, k, v of one head and the steps of attention: score = q·k, · scale, + bias, mask, softmax, mix.

        `scores` are there in place of a scale where a score is no product; neither is where the kernel has steps of
        its own.
        """
        call, (_, T, S) = self.calls[0], self.size
        q, k, v = torch.cat([one["q"] for one in self.calls], 2).float(), call["k"].float(), call["v"].float()
        group = head // (q.shape[1] // k.shape[1])
        q, k, scale, scores = self.kernel.terms(q, k, call.get("scale"))
        scores = None if scores is None else scores[row, head]
        bias = call.get("bias") and call["bias"].dense(T, S)[0, head].float()
        mask = self.kernel.rule() if call.get("mask") is None else call["mask"] & self.kernel.rule()
        seen = None if mask.is_everything else mask.dense(T, S)
        seen = None if seen is None else seen[min(row, len(seen) - 1), min(head, seen.shape[1] - 1)]
        seen = None if seen is None or seen.all() else seen
        weights = self.weights((head,))[row, 0]
        numbers: dict[str, Any] = dict(
            q=q[row, head], k=k[row, group], v=v[row, group], bias=bias, mask=seen, scale=scale, scores=scores,
            weights=weights,
        )  # fmt: skip
        if not torch.allclose(softmaxed(numbers), weights.to(q.device), atol=NEAR, rtol=0):
            numbers |= dict(scale=None, scores=None)
        return numbers


def softmaxed(numbers: dict[str, Any]) -> Float[Tensor, "T S"]:
    """Return the attention weights that follow from the recorded steps."""
    scores = numbers["scores"]
    if scores is None:
        scores = numbers["q"] @ numbers["k"].T * (1.0 if numbers["scale"] is None else numbers["scale"])
    if numbers["bias"] is not None:
        scores = scores + numbers["bias"]
    if numbers["mask"] is not None:
        scores = scores.masked_fill(~numbers["mask"], -torch.inf)
    return scores.softmax(-1).nan_to_num(0.0)  # rows that may attend to nothing


def record(model: nn.Module, run: Callable[[], Result]) -> tuple[Result, list[Layer]]:
    """Run a model; return its result, and the attention layers that have weights, in the model's order."""
    if not any(isinstance(module, Kernel) for module in model.modules()):
        return run(), []
    layers: dict[str, Layer] = {}

    def keep(name: str, kind: str, kernel: Any, given: dict[str, Any]) -> None:
        layers.setdefault(name, Layer(name, kind, kernel)).calls.append(given)

    with watch(model, keep):
        result = run()
    return result, [layers[name] for name in find_kernels(model) if name in layers and layers[name].kernel.weighs]


def opaque(model: nn.Module) -> list[str]:
    """The names of a model's kernels that have no weights to show."""
    kernels = (one for one in model.modules() if isinstance(one, Kernel))
    return sorted({type(one).__name__.lower() for one in kernels if not one.weighs})
