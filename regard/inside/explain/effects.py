"""The effect of ablation: heads switched off, and tokens taken away."""

from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor, nn

from regard.inside.capture.ablation import without
from regard.inside.capture.weights import watch
from regard.nn.weights import find_kernels
from regard.tasks.prepared import Prepared

BATCH = 32
"""Changed copies of one input that go through the model together."""


def heads_of(model: nn.Module) -> dict[str, int]:
    """The number of heads of each attention layer."""
    return {name: kernel.heads for name, kernel in find_kernels(model).items()}


def head_effects(model: nn.Module, loss: Callable[[], float]) -> dict[str, Float[Tensor, "H"]]:
    """The rise of a loss when a head is ablated, for each head of each layer that is called."""
    called: set[str] = set()
    with watch(model, lambda name, *_: called.add(name)):
        base = loss()
    effects_of = {name: torch.zeros(heads) for name, heads in heads_of(model).items() if name in called}
    for name, effects in effects_of.items():
        for head in range(len(effects)):
            with without(model, [(name, head)]):
                effects[head] = loss() - base
    return effects_of


@torch.no_grad()
def ablation(prepared: Prepared) -> dict[str, Float[Tensor, "H"]]:
    """The rise of the explained outputs' loss when a head is ablated, for each head by layer."""
    return head_effects(prepared.model, lambda: prepared.loss().item())


@torch.no_grad()
def erasure(prepared: Prepared) -> Float[Tensor, "R S"]:
    """The fall of each output's log-probability when a token's vector becomes the mean of all tokens, or with
    a causal mask the mean of those before it, so that nothing of the future is revealed.

    It does not read the weights: it is what explanations by weights are measured against.
    """
    stack, T = next(iter(prepared.stacks.values())), len(prepared.tokens)
    before, changed = prepared.log_probabilities()[0], []
    for positions in torch.arange(T).split(BATCH):

        def erase(module: nn.Module, args: tuple[Tensor, ...], positions: Tensor = positions) -> tuple[Tensor, ...]:
            x = args[0].clone()
            known = (x.cumsum(1) - x) / torch.arange(T, device=x.device).clamp(min=1)[:, None]  # of the first: nothing
            at = torch.arange(len(positions), device=x.device), positions.to(x.device)
            x[at] = known[at] if stack.causal else x.mean(1)
            return x, *args[1:]

        with stack.register_forward_pre_hook(erase):
            changed.append(prepared.log_probabilities(prepared.repeat(len(positions))))
    return (before - torch.cat(changed)).T
