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
    stack = question.stacks[-1]

    def replace(module: nn.Module, args: tuple[Tensor, ...], output: Tensor) -> Tensor:
        return torch.cat([*(stack.norm(state) for state in states[:-1]), states[-1]])

    with watched(stack) as states:
        handle = stack.register_forward_hook(replace)  # behind the hook that watches
        try:
            said = question.says(question.inputs)
        finally:
            handle.remove()
    return said[:, question.outputs].softmax(-1)
