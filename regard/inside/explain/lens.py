"""The logit lens (nostalgebraist, 2020): the output of a model if it ended behind an earlier block."""

import torch
from jaxtyping import Float
from torch import Tensor, nn

from regard.inside.capture.states import stack_states
from regard.tasks.prepared import Prepared


@torch.no_grad()
def lens(prepared: Prepared) -> Float[Tensor, "L R C"]:
    """Probabilities of every column of each output, read off the input of the last stack and off each block.

    The states go through the stack's last norm and through whatever the model does behind it, as a batch, so that no
    part of a model is named here.
    """
    *_, stack = prepared.stacks.values()

    def replace(module: nn.Module, args: tuple[Tensor, ...], output: Tensor) -> Tensor:
        return torch.stack([*(stack.norm(state[i]) for i, state in enumerate(states[:-1])), states[-1][-1]])

    with stack_states(stack) as states, stack.register_forward_hook(replace):  # behind the hook that records
        logits = prepared.logits(prepared.repeat(len(stack.blocks) + 1))
    return logits[:, prepared.outputs.rows].softmax(-1)
