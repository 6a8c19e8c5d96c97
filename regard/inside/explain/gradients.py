"""Gradient-weighted attention (after Chefer et al., 2021): weights count as far as an output depends on them.

A head's output is its weights times its values, so the gradient of a logit with respect to a weight is the gradient
with respect to that output times the value. The model runs as it is, with its fast kernels.
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from regard.inside.capture.weights import Seen, look
from regard.inside.explain.rollout import check_uniform, flow
from regard.nn.kernels.full import repeat_heads
from regard.nn.weights import behind_kernels, find_kernels
from regard.tasks.prepared import Prepared


@contextmanager
def mixing(model: nn.Module) -> Iterator[dict[str, tuple[Tensor, Tensor]]]:
    """The outputs of each attention layer's heads in a forward pass, by name, and the values they were mixed from."""
    mixed: dict[str, tuple[Tensor, Tensor]] = {}

    def keep(name: str, kernel: nn.Module, given: dict[str, Any], output: Any) -> None:
        if torch.is_grad_enabled():
            output[0].requires_grad_()  # where no parameter below asks for a gradient
        mixed[name] = (output[0], given["v"])

    with behind_kernels(find_kernels(model), keep):
        yield mixed


@torch.enable_grad()
def gradients(prepared: Prepared) -> tuple[Seen, Iterable[dict[str, Float[Tensor, "H T S"]]]]:
    """The weights, and for each output the gradient of its logit with respect to them, by layer.

    They come one output at a time: all at once would fill the memory.
    """
    if any(hasattr(part, "packed") for part in prepared.model.modules()):
        raise ValueError("quantised weights have no gradient; leave out --quantize")
    check_uniform(prepared)
    if any(getattr(part, "reversible", False) for part in prepared.model.modules()):
        raise ValueError("reversible blocks do not keep the outputs of their heads for gradients; use --view ablation")
    if prepared.answers == "vector":
        prepared.direction  # noqa: B018  it is computed before anything is recorded
    with mixing(prepared.model) as mixed, look(prepared.model) as seen:
        logits = prepared.chosen_logits()[0].unbind()
    outputs = [mixed[name][0] for name in seen.names]

    def each(row: int) -> dict[str, Float[Tensor, "H T S"]]:
        gradients_of = torch.autograd.grad(logits[row], outputs, retain_graph=row + 1 < len(logits), allow_unused=True)
        weights = {}
        for name, own, one in zip(seen.names, outputs, gradients_of, strict=True):
            values = repeat_heads(mixed[name][1].detach(), own.shape[1])  # B H S C
            weights[name] = (torch.zeros_like(own) if one is None else one)[0].detach() @ values[0].mT
        return weights

    return seen, map(each, range(len(logits)))


def gradient(prepared: Prepared) -> Float[Tensor, "R S"]:
    """The importance of each token for each output: paths through positive weight × gradient, the mean of the heads."""
    seen, every = gradients(prepared)
    rows = []
    for readout, own in zip(prepared.outputs.readout, every, strict=True):
        weights = {name: prepared.without_ablated(name, seen.attention[name][0]) for name in seen.names}
        weighted = {name: each * own[name].cpu() for name, each in weights.items()}
        steps = [(seen.kind_of(name), one.clamp(min=0).mean(0)) for name, one in weighted.items()]
        rows.append(readout @ flow(steps, stay=1.0, go=1.0))
    return torch.stack(rows)
