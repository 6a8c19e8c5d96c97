"""Gradient-weighted attention (after Chefer et al., 2021): weights count as far as an output rests on them.

A head's output is its weights times its values, so the gradient of a score with respect to a weight is the gradient
with respect to that output times the value. The model runs as it is, with its fast kernels.
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from regard.inside.attribution.question import Question
from regard.inside.attribution.rollout import flow, kind_of
from regard.inside.capture import Seen, look
from regard.nn.kernels.full import repeat_heads
from regard.nn.weights import find_kernels


@contextmanager
def mixing(model: nn.Module) -> Iterator[dict[str, tuple[Tensor, Tensor]]]:
    """What each attention layer mixed in a forward pass, by name, and the values that it was mixed from."""
    kernels = find_kernels(model)
    found: dict[str, tuple[Tensor, Tensor]] = {}

    def keep(kernel: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> None:
        name = next(name for name in kernels if kernels[name] is kernel and name not in found)
        if torch.is_grad_enabled():
            output[0].requires_grad_()  # where no parameter below asks for a gradient
        found[name] = (output[0], args[2] if len(args) > 2 else kwargs["v"])

    handles = [kernel.register_forward_hook(keep, with_kwargs=True) for kernel in dict.fromkeys(kernels.values())]
    try:
        yield found
    finally:
        for handle in handles:
            handle.remove()


@torch.enable_grad()
def gradients(question: Question) -> tuple[Seen, Iterable[dict[str, Float[Tensor, "H T S"]]]]:
    """The weights, and for each output the gradient of its score with respect to them, by layer.

    They come one output at a time: all at once would fill the memory.
    """
    if any(hasattr(part, "packed") for part in question.model.modules()):
        raise ValueError("weights as whole numbers have no gradient; leave out --quantize")
    question.check_tokens()
    if any(getattr(part, "reversible", False) for part in question.model.modules()):
        raise ValueError("reversible blocks forget what their heads mixed, so it has no gradient; use --view ablation")
    with mixing(question.model) as mixed, look(question.model) as seen:
        scores = question.scores()[0].unbind()
    outputs = [mixed[name][0] for name in seen.names]

    def each(row: int) -> dict[str, Float[Tensor, "H T S"]]:
        some = torch.autograd.grad(scores[row], outputs, retain_graph=row + 1 < len(scores), allow_unused=True)
        found = {}
        for name, own, one in zip(seen.names, outputs, some, strict=True):
            values = repeat_heads(mixed[name][1].detach(), own.shape[1])  # B H S C
            found[name] = (torch.zeros_like(own) if one is None else one)[0].detach() @ values[0].mT
        return found

    return seen, map(each, range(len(scores)))


def gradient(question: Question) -> Float[Tensor, "R S"]:
    """What of each token reaches each output: paths through positive weight × gradient, the mean of the heads."""
    seen, every = gradients(question)
    rows = []
    for reads, own in zip(question.reads, every, strict=True):
        weighted = {name: question.heard(name, seen.attention[name][0]) * own[name] for name in seen.names}
        steps = [(kind_of(seen, name), one.clamp(min=0).mean(0)) for name, one in weighted.items()]
        rows.append(reads @ flow(steps, stay=1.0, go=1.0))
    return torch.stack(rows)
