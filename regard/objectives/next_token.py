"""Cross-entropy of the next token, without ever holding all logits at once.

In a small model most of the time goes into logits over the vocabulary. Here padding is dropped first, and the rest goes
through the output layer in chunks whose logits fit the cache; their gradient is computed at once.
"""

from contextlib import nullcontext
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor
from torch.autograd.function import once_differentiable

from regard.data.sets.batches import IGNORE, Batch

CHUNK_BYTES = 8 << 20


class _LinearCrossEntropy(torch.autograd.Function):
    """Sum over rows of cross-entropy(x Wᵀ + b, targets); gradients are computed in the forward pass."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, targets: Tensor, smoothing: float) -> Tensor:
        vocab, kind = len(weight), x.device.type
        wanted = ctx.needs_input_grad[0] or ctx.needs_input_grad[1]
        half = not x.is_meta and torch.is_autocast_enabled(kind)  # products in half precision, all else in float32
        total = x.new_zeros((), dtype=sum_dtype(x))
        weight_grad, bias_grad = torch.zeros_like(weight), None if bias is None else torch.zeros_like(bias)
        if half:
            x, weight = (tensor.to(torch.get_autocast_dtype(kind)) for tensor in (x, weight))
        x_grad = torch.empty_like(x)
        rows = max(64, CHUNK_BYTES // (4 * vocab))
        with torch.autocast(kind, enabled=False) if half else nullcontext():
            for start in range(0, len(x), rows):
                part = slice(start, start + rows)
                logits = F.linear(x[part], weight, bias) if not half else (x[part] @ weight.t()).float()
                if half and bias is not None:
                    logits += bias
                total += _entropy_(logits, targets[part], smoothing)  # `logits` now holds its own gradient
                if wanted:
                    if bias_grad is not None:
                        bias_grad += logits.sum(0)
                    logits = logits.to(x.dtype)
                    torch.mm(logits, weight, out=x_grad[part])
                    if half:
                        weight_grad += logits.t() @ x[part]
                    else:
                        weight_grad.addmm_(logits.t(), x[part])
        ctx.grads = x_grad, weight_grad, bias_grad
        return total.to(torch.promote_types(x.dtype, torch.float32))

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, outer: Tensor) -> tuple[Tensor | None, ...]:
        x, weight, bias = (None if grad is None else grad * outer for grad in ctx.grads)
        return x, weight, bias, None, None


def sum_dtype(x: Tensor) -> torch.dtype:
    """The type of sums over many tokens: float64, which Apple's GPUs have not, on the CPU alone."""
    return torch.float64 if x.device.type in ("cpu", "meta") else torch.promote_types(x.dtype, torch.float32)


def _entropy_(logits: Float[Tensor, "N V"], targets: Int[Tensor, "N"], smoothing: float) -> Tensor:
    """Return the summed loss; `logits` is overwritten by its gradient, softmax − (1 − ε)·target − ε/V."""
    column, exact = targets[:, None], sum_dtype(logits)
    logits -= logits.amax(1, keepdim=True)
    right = logits.gather(1, column).sum(dtype=exact)
    mean = logits.mean(1).sum(dtype=exact) if smoothing else 0.0
    total = logits.exp_().sum(1, keepdim=True)
    loss = total.log().sum(dtype=exact) - (1 - smoothing) * right - smoothing * mean
    logits /= total
    logits.scatter_add_(1, column, torch.full_like(column, smoothing - 1, dtype=logits.dtype))
    if smoothing:
        logits -= smoothing / logits.shape[1]
    return loss


def linear_cross_entropy(
    x: Float[Tensor, "N D"],
    weight: Float[Tensor, "V D"],
    bias: Float[Tensor, "V"] | None,
    targets: Int[Tensor, "N"],
    smoothing: float = 0.0,
) -> Float[Tensor, ""]:
    """Σ cross-entropy(x Wᵀ + b, target) with label smoothing as in `torch.nn.functional.cross_entropy`."""
    return _LinearCrossEntropy.apply(x, weight, bias, targets, smoothing)


def head_cross_entropy(
    head: Any, x: Float[Tensor, "N D"], targets: Int[Tensor, "N"], smoothing: float = 0.0
) -> Float[Tensor, ""]:
    """Return the summed cross-entropy of a head's logits; for a quantised head without gradients."""
    if not hasattr(head, "packed"):
        return linear_cross_entropy(x, head.weight, head.bias, targets, smoothing)
    total = x.new_zeros((), dtype=sum_dtype(x))
    rows = max(64, CHUNK_BYTES // (4 * head.rows))
    for part, right in zip(x.split(rows), targets.split(rows), strict=True):
        total += _entropy_(head.product(part), right, smoothing)
    return total.to(x.dtype)


def next_token(model: Any, batch: Batch, *, smoothing: float = 0.0) -> tuple[Float[Tensor, ""], int]:
    """Return the summed loss over target tokens without padding, and their number."""
    x = model.features(**batch.inputs)
    real, head = batch.targets != IGNORE, model.head
    if real.all():  # selecting all of them would be a copy, with a slow backward pass
        x, targets = x.flatten(0, -2), batch.targets.flatten()
    else:
        x, targets = x[real], batch.targets[real]
    return head_cross_entropy(head, x, targets, smoothing), len(targets)
