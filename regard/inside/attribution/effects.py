"""What happens without it: heads switched off, and tokens taken away."""

from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor, nn

from regard.inside.ablation import without
from regard.inside.attribution.question import Question
from regard.inside.capture import watch
from regard.nn.weights import find_kernels

BATCH = 32
"""Changed copies of one input that go through the model together."""


def heads_of(model: nn.Module) -> dict[str, int]:
    """How many heads each attention layer has."""
    return {name: kernel.heads for name, kernel in find_kernels(model).items()}


def head_effects(model: nn.Module, loss: Callable[[], float]) -> dict[str, Float[Tensor, "H"]]:
    """How much a loss rises when a head is switched off, for each layer and head that is at work."""
    called: set[str] = set()
    with watch(model, lambda name, *_: called.add(name)):
        base = loss()
    found = {name: torch.zeros(heads) for name, heads in heads_of(model).items() if name in called}
    for name, effects in found.items():
        for head in range(len(effects)):
            with without(model, [(name, head)]):
                effects[head] = loss() - base
    return found


@torch.no_grad()
def ablation(question: Question) -> dict[str, Float[Tensor, "H"]]:
    """The same for the loss of what is asked."""
    return head_effects(question.model, lambda: question.loss().item())


@torch.no_grad()
def erasure(question: Question) -> Float[Tensor, "R S"]:
    """How much less likely each output gets when a token is taken away: becomes the mean of all tokens of its text, or
    where the future is hidden of those before it, so that nothing is told of what is to be said.

    This is no view of the weights: it is what they are to be measured by.
    """
    stack, T = next(iter(question.stacks.values())), len(question.tokens)
    before, changed = question.chances()[0], []
    for places in torch.arange(T).split(BATCH):

        def erase(module: nn.Module, args: tuple[Tensor, ...], places: Tensor = places) -> tuple[Tensor, ...]:
            x = args[0].clone()
            known = (x.cumsum(1) - x) / torch.arange(T).clamp(min=1)[:, None]  # of the first: nothing
            x[range(len(places)), places] = known[range(len(places)), places] if stack.causal else x.mean(1)
            return x, *args[1:]

        handle = stack.register_forward_pre_hook(erase)
        try:
            changed.append(question.chances(question.times(len(places))))
        finally:
            handle.remove()
    return (before - torch.cat(changed)).T
