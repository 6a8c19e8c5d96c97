"""The logit lens (nostalgebraist, 2020): what a model would say if it ended behind an earlier block."""

import torch
from jaxtyping import Float
from torch import Tensor, nn

from regard.inside.attribution.question import Question
from regard.inside.words import watched


@torch.no_grad()
def lens(question: Question) -> Float[Tensor, "L R C"]:
    """Probabilities of everything that each output may say, read off what enters the last stack and leaves each block.

    The states go through the stack's last norm and through whatever the model does behind it, as a batch: no part of
    a model is named here.
    """
    *_, stack = question.stacks.values()

    def replace(module: nn.Module, args: tuple[Tensor, ...], output: Tensor) -> Tensor:
        return torch.stack([*(stack.norm(state[i]) for i, state in enumerate(states[:-1])), states[-1][-1]])

    with watched(stack) as states:
        handle = stack.register_forward_hook(replace)  # behind the hook that watches
        try:
            said = question.says(question.times(len(stack.blocks) + 1))
        finally:
            handle.remove()
    return said[:, question.outputs].softmax(-1)
