"""Attention whose queries and keys, but not values, know their places, told anew in every layer (Carion et al., 2020).

A place is a vector beside each token: of a cell of a feature map waves over its row and column, of an object query
what it has learned.
"""

import math
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from regard.nn.attention import Attention
from regard.nn.block import Block, BlockConfig
from regard.nn.masks import Mask
from regard.nn.norm import build_norm
from regard.nn.positions import Position


def waves_of(real: Bool[Tensor, "B Y X"], dim: int, dtype: torch.dtype) -> Float[Tensor, "B S D"]:
    """Waves for each cell: half of the width says its row, half its column.

    Both are shares of the picture's own height and width, where `real` is True: in a padded batch, and at any
    resolution, the middle stays the middle. One turn of the fastest wave is the whole side.
    """
    exact = torch.promote_types(dtype, torch.float32)
    half = dim // 2
    rates = 10_000.0 ** (-2 * torch.arange(half // 2, device=real.device, dtype=exact) / half)
    sides = []
    for axis in (1, 2):
        count = real.cumsum(axis, dtype=exact)
        share = count / (count.narrow(axis, real.shape[axis] - 1, 1) + 1e-6)
        angles = 2 * math.pi * share[..., None] * rates  # B Y X D/4
        sides.append(torch.stack([angles.sin(), angles.cos()], dim=-1).flatten(3))
    return torch.cat(sides, dim=-1).flatten(1, 2).to(dtype)


def covered(pixels: Float[Tensor, "B C Y X"], sizes: Int[Tensor, "B 2"], grid: torch.Size) -> Bool[Tensor, "B N M"]:
    """Which cells of a feature map each picture covers: those whose first pixel does."""
    found = []
    for axis, (side, cells) in enumerate(zip(pixels.shape[2:], grid, strict=True)):
        real = torch.arange(side, device=sizes.device) < sizes[:, axis, None]
        found.append(F.interpolate(real[None].float(), size=cells)[0].bool())
    return found[0][:, :, None] & found[1][:, None]


class PlacedAttention(Attention):
    """Queries and keys are made of vectors with their places added, values of the vectors alone."""

    def forward(
        self,
        x: Float[Tensor, "B T D"],
        context: Float[Tensor, "B S D"] | None = None,
        *,
        places: Float[Tensor, "#B T D"],
        context_places: Float[Tensor, "#B S D"] | None = None,
        mask: Mask | None = None,
    ) -> Float[Tensor, "B T D"]:
        q = self.split(self.query(x + places))
        source, at = (x, places) if context is None or context_places is None else (context, context_places)
        k, v = self.placed(source, source + at)
        mixed, _ = self.kernel(q, k, v, mask=mask, dropout=self.dropout if self.training else 0.0)
        return self.out(mixed.transpose(1, 2).flatten(2))

    def placed(
        self, source: Float[Tensor, "B S D"], moved: Float[Tensor, "B S D"]
    ) -> tuple[Float[Tensor, "B G S K"], Float[Tensor, "B G S K"]]:
        """Keys and values; one matrix holds both, and each needs only its half of it."""
        layer = self.key_value
        if type(layer) is not nn.Linear:  # quantised, or with a detour: it cannot be cut
            return self.split(layer(moved).chunk(2, dim=-1)[0]), self.split(layer(source).chunk(2, dim=-1)[1])
        weights = layer.weight.chunk(2)
        biases = (None, None) if layer.bias is None else layer.bias.chunk(2)
        k, v = (F.linear(y, w, b) for y, w, b in zip((moved, source), weights, biases, strict=True))
        return self.split(k), self.split(v)


class PlacedBlock(Block):
    """Attention, perhaps cross-attention, feed-forward; both kinds of attention are told the places."""

    layer = PlacedAttention

    def __init__(self, config: BlockConfig, *, cross: bool) -> None:
        nowhere = Position(dim=config.dim, heads=config.heads, head_dim=config.head_size, max_len=config.max_len)
        super().__init__(config, nowhere, causal=False, cross=cross)
        if self.attention.kernel.shares:
            raise ValueError(f"kernel {config.kernel!r} has no keys of its own to add places to; use full")

    def forward(
        self,
        x: Float[Tensor, "B T D"],
        context: Float[Tensor, "B S D"] | None = None,
        *,
        places: Float[Tensor, "#B T D"],
        context_places: Float[Tensor, "#B S D"] | None = None,
        mask: Mask | None = None,
        context_mask: Mask | None = None,
    ) -> Float[Tensor, "B T D"]:
        y = self.add(x, "attention", lambda y: self.attention(y, places=places, mask=mask))
        if (cross := self.cross) is not None:
            where: dict[str, Any] = dict(places=places, context_places=context_places, mask=context_mask)
            y = self.add(y, "cross", lambda y: cross(y, context, **where))
        y = self.add(y, "feedforward", self.feedforward)
        assert isinstance(y, Tensor), "reversible layers are not told places"
        return y


class PlacedStack(nn.Module):
    """`depth` such blocks, and for `final_norm` the norm of what they give."""

    def __init__(self, config: BlockConfig, *, depth: int, cross: bool, final_norm: bool) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(PlacedBlock(config, cross=cross) for _ in range(depth))
        self.norm = build_norm(config.norm, config.dim, config.norm_eps) if final_norm else nn.Identity()

    def forward(
        self, x: Float[Tensor, "B T D"], context: Float[Tensor, "B S D"] | None = None, *, every: bool = False,
        **where: Tensor | Mask | None,
    ) -> Float[Tensor, "*L B T D"]:  # fmt: skip
        """What the last block gives or, for `every`, what each does."""
        found = []
        for block in self.blocks:
            x = block(x, context, **where)
            found.append(x)
        return self.norm(torch.stack(found) if every else x)
