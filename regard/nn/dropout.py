"""Dropout with cheap random bits: PyTorch's one random word for each number costs more than the product on a CPU."""

import torch
from jaxtyping import Float
from torch import Tensor

_LEVELS = 1 << 16


def dropout(x: Float[Tensor, "*N"], p: float, training: bool) -> Float[Tensor, "*N"]:
    """Zero each number with probability p (in steps of 2⁻¹⁶) and scale the rest by 1/(1 − p).

    Four numbers share each 64-bit word of PyTorch's generator, so runs stay reproducible from its state.
    """
    if not training or p == 0.0:
        return x
    dropped = round(p * _LEVELS)
    words = torch.empty((x.numel() + 3) // 4, dtype=torch.int64, device=x.device).random_(-(1 << 63), None)
    bits = words.view(torch.int16)[: x.numel()].view(x.shape)
    return x * (bits >= dropped - _LEVELS // 2).to(x.dtype).mul_(_LEVELS / (_LEVELS - dropped))


def drop_rows(x: Float[Tensor, "B *N"], p: float, training: bool) -> Float[Tensor, "B *N"]:
    """Stochastic depth (Huang et al., 2016): zero a whole example with probability p."""
    if not training or p == 0.0:
        return x
    kept = torch.rand(len(x), *[1] * (x.dim() - 1), device=x.device) >= p
    return x * kept.to(x.dtype).div_(1 - p)
