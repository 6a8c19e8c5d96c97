"""Dropout whose random numbers are a function of seed, step, layer and row, or come from PyTorch's generator.

Four numbers share each 64-bit word, because one word for each would cost more than the product that follows. Counted
noise has no state: a row is dropped alike on one process and on many, in a recomputation, and in a compiled graph.
"""

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

_LEVELS = 1 << 16
_STEP, _FIRST, _SECOND = -0x61C8864680B583EB, -0x40A7B892E31B1A47, -0x6B2FB644ECCEEE15  # SplitMix64's, signed


class Noise:
    """The counted random numbers of a model in training: a key for each layer that drops, set anew at each step.

    A layer that is called again within a step, such as a block shared by all depths, drops the same again (Gal &
    Ghahramani, 2016).
    """

    def __init__(self, model: nn.Module, seed: int, device: torch.device | str = "cpu") -> None:
        layers = [module for module in model.modules() if isinstance(module, Dropout)]
        self.seeds = mix(mix(torch.arange(1, len(layers) + 1, device=device) * _STEP) + seed)
        self.keys, self.rows = self.seeds.clone(), torch.zeros(1, dtype=torch.int64, device=device)
        for layer, key in zip(layers, self.keys, strict=True):
            layer.noise, layer.key = self, key

    def at(self, step: int, rows: Int[Tensor, "B"]) -> None:
        """Set the step, and which of all its rows are those of the next batch."""
        self.keys.copy_(mix(self.seeds + self.seeds.new_tensor(step) * _STEP))
        self.rows = rows.to(self.keys.device)

    def bits(self, key: Int[Tensor, ""], shape: tuple[int, ...], call: int) -> Int[Tensor, "B *N"]:
        """Return 16 random bits for each number of a tensor of this shape, row by row."""
        rows = self.rows if shape[0] % len(self.rows) == 0 else self.rows[:1]  # else it has no rows of the batch
        count = torch.Size(shape).numel() // len(rows)
        key = key + call
        row = mix(rows * _STEP + key)
        column = mix(torch.arange((count + 3) // 4, device=key.device) * _STEP - key)
        words = (row[:, None] ^ column).mul_(_FIRST)  # with one product fewer, pairs of rows and columns show a pattern
        words.add_(words >> 32).mul_(_SECOND)
        words.add_(words >> 32)
        return words.view(torch.int16)[:, :count].reshape(shape)


def mix(x: Int[Tensor, "*N"]) -> Int[Tensor, "*N"]:
    """Scramble integers, so that neighbours have nothing in common."""
    x = (x + (x >> 32)) * _FIRST
    x = (x + (x >> 29)) * _SECOND
    return x + (x >> 32)


class Dropout(nn.Module):
    """Zero each number with probability p (in steps of 2⁻¹⁶) and scale the rest by 1/(1 − p)."""

    def __init__(self, p: float = 0.0) -> None:
        super().__init__()
        self.p = p
        self.noise: Noise | None = None  # PyTorch's generator
        self.key: Tensor | None = None
        self.cut: tuple[int, int, int] | None = None
        """A dimension that is cut, the number of the part that this process has of it, and how many there are."""

    def extra_repr(self) -> str:
        return f"p={self.p}"

    def forward(self, x: Float[Tensor, "B *N"], p: float | None = None, *, call: int = 0) -> Float[Tensor, "B *N"]:
        """Drop in training, or with probability `p` where the caller decides. `call` numbers the calls for parts of
        one input."""
        dropped = round((self.p if p is None else p) * _LEVELS)
        if dropped == 0 or (p is None and not self.training):
            return x
        if self.noise is None and p is not None:
            return F.dropout(x, p)  # as a fused kernel does
        kept = self.bits(x, call) >= dropped - _LEVELS // 2
        return torch.where(kept, x, 0).mul_(_LEVELS / (_LEVELS - dropped))

    def bits(self, x: Float[Tensor, "B *N"], call: int) -> Int[Tensor, "B *N"]:
        """Return 16 random bits for each number of x."""
        if self.noise is None or self.key is None:
            words = torch.empty((x.numel() + 3) // 4, dtype=torch.int64, device=x.device).random_(-(1 << 63), None)
            return words.view(torch.int16)[: x.numel()].view(x.shape)
        if self.cut is None:
            return self.noise.bits(self.key, tuple(x.shape), call)
        dim, part, parts = self.cut
        whole = [size * parts if d == dim % x.dim() else size for d, size in enumerate(x.shape)]
        return self.noise.bits(self.key, tuple(whole), call).chunk(parts, dim)[part]


class DropPath(Dropout):
    """Stochastic depth (Huang et al., 2016): zero a whole example with probability p."""

    def forward(self, x: Float[Tensor, "B *N"], p: float | None = None, *, call: int = 0) -> Float[Tensor, "B *N"]:
        if not self.training or self.p == 0.0:
            return x
        each = x.new_empty(len(x), *[1] * (x.dim() - 1))
        if self.noise is None:
            kept = torch.rand(each.shape, device=x.device) >= self.p
        else:
            kept = self.bits(each, call) >= (self.p - 0.5) * _LEVELS
        return x * kept.to(x.dtype).div_(1 - self.p)
