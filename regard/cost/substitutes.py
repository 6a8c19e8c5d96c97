"""Replacements for functions that `meta` runs in another way than a CPU: fused attention, recurrent layers, tests of
values.

PyTorch chooses its kernels by device. A pass that is to count what a CPU does must choose for `meta` as for a CPU.
"""

import math
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.overrides import TorchFunctionMode

if TYPE_CHECKING:
    from regard.cost.walk import Walk

FUSED = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
GATES = {"rnn_tanh": 1, "rnn_relu": 1, "gru": 3, "lstm": 4}
UNITS = {"rnn_tanh": 1, "rnn_relu": 1, "gru": 7, "lstm": 7}
"""Values that autograd saves per unit of a recurrent layer: gates, new state and intermediates."""
META = torch.device("meta")


class TorchFunctions(TorchFunctionMode):
    """Replaces PyTorch functions that `meta` lacks or computes in another way than a CPU."""

    def __init__(self, walk: "Walk | None" = None) -> None:
        super().__init__()
        self.walk = walk

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        name = getattr(func, "__name__", "")
        if func is F.scaled_dot_product_attention:
            return attention(*args, **kwargs)
        if name in GATES and isinstance(args[0], Tensor):
            return self.recurrence(name, *args)
        if name in ("__bool__", "__int__", "item") and args[0].is_meta:
            # A kernel asks whether all keys are there, an optimizer for its step.
            return True if name == "__bool__" else int(args[0].is_floating_point())
        if name == "cpu":
            return args[0]
        if "device" in kwargs:
            kwargs = kwargs | {"device": META}
        return func(*args, **kwargs)

    def recurrence(
        self, name: str, x: Tensor, state: Any, weights: list[Tensor], biased: bool, depth: int, dropout: float,
        training: bool, both_ways: bool, batch_first: bool,
    ) -> tuple[Tensor, ...]:  # fmt: skip
        """Compute the output shapes of a recurrent network and add its costs, without running its loop over time steps.

        oneDNN's LSTM, the default on a CPU, holds a workspace of two to ten times what is stated for training.
        """
        (first, second), dim = x.shape[:2], weights[1].shape[1]
        width, states = dim * (2 if both_ways else 1), list(state) if name == "lstm" else [state]
        if torch.is_grad_enabled():  # one of the states that belong to each step was handed over
            between = (depth - 1) * width * (2 if dropout and training else 1)
            numbers = first * second * (depth * UNITS[name] * width + between)
            numbers -= sum(part.numel() for part in states) if GATES[name] > 1 else 0
        else:  # gates of one layer and direction; outputs of each step, joined, and of the layer before
            numbers = first * second * ((GATES[name] + len(states) - 1) * dim + width * min(depth, 2))
        outputs = Recurrence.apply(x, max(numbers, 0), width, states, *weights)
        if self.walk is None:
            return outputs
        for output in outputs:
            self.walk.follow(output, self.walk.sources(x))
        flops = 2 * first * second * sum(weight.numel() for weight in weights if weight.dim() == 2)
        self.walk.multiply(flops, [self.walk.sources(x)], outputs[0])
        return outputs


class Recurrence(torch.autograd.Function):
    """Autograd function of recurrent layers that saves the inputs, first states and `numbers` more values."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, numbers: int, width: int, states: list[Tensor], *weights: Tensor
    ) -> tuple[Tensor, ...]:
        workspace = x.new_empty(numbers)
        ctx.save_for_backward(x, workspace, *states)
        ctx.weights = weights  # parameters, which are there anyway
        return x.new_empty(*x.shape[:2], width), *(torch.empty_like(state) for state in states)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> tuple[Tensor | None, ...]:
        return torch.empty_like(ctx.saved_tensors[0]), None, None, None, *map(torch.empty_like, ctx.weights)


def attention(
    q: Tensor, k: Tensor, v: Tensor, attn_mask: Tensor | None = None, dropout_p: float = 0.0, is_causal: bool = False,
    scale: float | None = None, enable_gqa: bool = False,
) -> Tensor:  # fmt: skip
    """`scaled_dot_product_attention`: fused where PyTorch does so on a CPU, otherwise by single operations."""
    if attn_mask is not None and attn_mask.dtype == torch.bool:
        attn_mask = torch.zeros_like(attn_mask, dtype=q.dtype).masked_fill_(attn_mask.logical_not(), -math.inf)
    trained = attn_mask is not None and attn_mask.requires_grad and torch.is_grad_enabled()
    if dropout_p or trained or q.dim() != 4 or not q.shape[-1] == k.shape[-1] == v.shape[-1]:
        how: dict[str, Any] = dict(dropout_p=dropout_p, is_causal=is_causal, scale=scale, enable_gqa=enable_gqa)
        return F.scaled_dot_product_attention(q, k, v, attn_mask, **how)
    return FUSED(q, k, v, 0.0, is_causal, attn_mask=attn_mask, scale=scale)[0]
