"""Attention with position vectors added to queries and keys, but not values, in every layer (Carion et al., 2020).

The vector of a cell of a feature map is made of sinusoids over its row and column; that of an object query is learned.
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


def grid_sinusoids(valid: Bool[Tensor, "B Y X"], dim: int, dtype: torch.dtype) -> Float[Tensor, "B S D"]:
    """Return sinusoids for each cell of a grid: half of the width encodes its row, half its column.

    Both are fractions of the image's own height and width, where `valid` is True, so that the middle stays the middle
    in a padded batch and at any resolution. The fastest sinusoid has one period a side.
    """
    exact = torch.promote_types(dtype, torch.float32)
    half = dim // 2
    rates = 10_000.0 ** (-2 * torch.arange(half // 2, device=valid.device, dtype=exact) / half)
    sides = []
    for axis in (1, 2):
        count = valid.cumsum(axis, dtype=exact)
        share = count / (count.narrow(axis, valid.shape[axis] - 1, 1) + 1e-6)
        angles = 2 * math.pi * share[..., None] * rates  # B Y X D/4
        sides.append(torch.stack([angles.sin(), angles.cos()], dim=-1).flatten(3))
    return torch.cat(sides, dim=-1).flatten(1, 2).to(dtype)


def valid_cells(pixels: Float[Tensor, "B C Y X"], sizes: Int[Tensor, "B 2"], grid: torch.Size) -> Bool[Tensor, "B N M"]:
    """Return which cells of a feature map belong to the image and not to padding: those whose first pixel does."""
    axes = []
    for axis, (side, cells) in enumerate(zip(pixels.shape[2:], grid, strict=True)):
        valid = torch.arange(side, device=sizes.device) < sizes[:, axis, None]
        axes.append(F.interpolate(valid[None].float(), size=cells)[0].bool())
    return axes[0][:, :, None] & axes[1][:, None]


class PositionedAttention(Attention):
    """Queries and keys are projected from vectors with positions added, values from the vectors alone."""

    def project(
        self,
        x: Float[Tensor, "B T D"],
        context: Float[Tensor, "B S D"] | None = None,
        *,
        start: int = 0,
        positions: Float[Tensor, "#B T D"] | None = None,
        context_positions: Float[Tensor, "#B S D"] | None = None,
    ) -> tuple[Float[Tensor, "B H T K"], Float[Tensor, "B G S K"], Float[Tensor, "B G S K"]]:
        assert positions is not None
        source, at = (x, positions) if context is None or context_positions is None else (context, context_positions)
        return self.queries(x + positions), *self.keys_values(source + at, source)

    def keys_values(
        self, positioned: Float[Tensor, "B S D"], source: Float[Tensor, "B S D"]
    ) -> tuple[Float[Tensor, "B G S K"], Float[Tensor, "B G S K"]]:
        """Return keys of one input and values of another; one matrix holds both, and each needs only its half."""
        layer = self.key_value
        if type(layer) is not nn.Linear:  # quantised, or with a LoRA adapter: it cannot be split
            return self.split(layer(positioned).chunk(2, dim=-1)[0]), self.split(layer(source).chunk(2, dim=-1)[1])
        weights = layer.weight.chunk(2)
        biases = (None, None) if layer.bias is None else layer.bias.chunk(2)
        k, v = (F.linear(y, w, b) for y, w, b in zip((positioned, source), weights, biases, strict=True))
        return self.split(k), self.split(v)


class PositionedBlock(Block):
    """Attention, perhaps cross-attention, and feed-forward; both kinds of attention get the positions."""

    layer = PositionedAttention

    def __init__(self, config: BlockConfig, *, cross: bool) -> None:
        none = Position(dim=config.dim, heads=config.heads, head_dim=config.head_size, max_len=config.max_len)
        super().__init__(config, none, causal=False, cross=cross)
        if self.attention.kernel.shares:
            raise ValueError(f"kernel {config.kernel!r} has no keys of its own to add positions to; use full")

    def forward(
        self,
        x: Float[Tensor, "B T D"],
        context: Float[Tensor, "B S D"] | None = None,
        *,
        positions: Float[Tensor, "#B T D"],
        context_positions: Float[Tensor, "#B S D"] | None = None,
        mask: Mask | None = None,
        context_mask: Mask | None = None,
    ) -> Float[Tensor, "B T D"]:
        y = self.add(x, "attention", lambda y: self.attention(y, positions=positions, mask=mask))
        if (cross := self.cross) is not None:
            both: dict[str, Any] = dict(positions=positions, context_positions=context_positions, mask=context_mask)
            y = self.add(y, "cross", lambda y: cross(y, context, **both))
        y = self.add(y, "feedforward", self.feedforward)
        assert isinstance(y, Tensor), "reversible layers take no positions"
        return y


class PositionedStack(nn.Module):
    """`depth` blocks and, for `final_norm`, a norm behind them."""

    def __init__(self, config: BlockConfig, *, depth: int, cross: bool, final_norm: bool) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(PositionedBlock(config, cross=cross) for _ in range(depth))
        self.norm = build_norm(config.norm, config.dim, config.norm_eps) if final_norm else nn.Identity()

    def forward(
        self, x: Float[Tensor, "B T D"], context: Float[Tensor, "B S D"] | None = None, *, every: bool = False,
        **inputs: Tensor | Mask | None,
    ) -> Float[Tensor, "*L B T D"]:  # fmt: skip
        """Return the output of the last block or, for `every`, of each block, stacked."""
        outputs = []
        for block in self.blocks:
            x = block(x, context, **inputs)
            outputs.append(x)
        return self.norm(torch.stack(outputs) if every else x)
