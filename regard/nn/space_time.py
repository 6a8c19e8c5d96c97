"""Attention over space and time: every tubelet to every other, or along one axis at a time.

Tokens are B S D: those in front, such as a class token, then the tubelets step by step. `real` says which steps are
none that fill up a batch.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Literal

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from regard.nn.attention import Attention, AttentionConfig
from regard.nn.block import Block, BlockConfig
from regard.nn.dropout import Dropout
from regard.nn.masks import Mask, everything, valid_keys
from regard.nn.norm import build_norm
from regard.nn.positions import Position
from regard.nn.stack import Stack, build_position

Real = Bool[Tensor, "B T"] | None


def seen(real: Real, each: int, first: int = 0) -> Mask:
    """Return the mask that hides the tokens of steps which fill up a batch; a step has `each` tokens."""
    if real is None:
        return everything()
    return valid_keys(torch.cat([real.new_ones(len(real), first), real.repeat_interleave(each, dim=1)], dim=1))


def mean_of(x: Float[Tensor, "B T *N D"], real: Real) -> Float[Tensor, "B *N D"]:
    """Return the mean over the steps that are real."""
    if real is None:
        return x.mean(1)
    weights = real.to(x) / real.sum(1, keepdim=True)
    return torch.einsum("bt...,bt->b...", x, weights)


Weights = Sequence[Float[Tensor, "_ _ _"] | None]
"""The mean attention weights of the heads of each layer, in the model's order; None: a layer that is left out."""


def readout(first: int, cells: int) -> tuple[Tensor, Tensor]:
    """Return the shares of the tokens in front and of the others in a clip's vector: the first one's, or all alike."""
    if first:
        return torch.eye(first)[0], torch.zeros(cells)
    return torch.zeros(0), torch.full((cells,), 1 / cells)


class DividedBlock(Block):
    """A block in which a tubelet attends first to those of its own patch at all steps, then to those of its own step.

    A token in front takes part in the second: it attends to each step apart, and the results are averaged.
    """

    def __init__(self, config: BlockConfig, position: Position) -> None:
        super().__init__(config, position, causal=False, cross=False)
        sizes: dict[str, Any] = dict(
            dim=config.dim, heads=config.heads, kv_heads=config.kv_heads, head_dim=config.head_dim, bias=config.bias,
            dropout=config.attention_dropout, max_len=config.max_len, kernel=config.kernel,
        )  # fmt: skip
        self.time = Attention(AttentionConfig(**sizes), position)
        self.norms["time"] = build_norm(config.norm, config.dim, config.norm_eps)
        self.drops["time"] = Dropout(config.dropout)

    def forward(self, x: Float[Tensor, "B S D"], *, steps: int, first: int, real: Real) -> Float[Tensor, "B S D"]:
        cells: Any = self.add(x[:, first:], "time", lambda y: self.across_time(y, steps, real))
        y: Any = torch.cat([x[:, :first], cells], dim=1) if first else cells
        y = self.add(y, "attention", lambda z: self.across_space(z, steps, first, real))
        y = self.add(y, "feedforward", self.feedforward)
        return y

    def across_time(self, x: Float[Tensor, "B M D"], steps: int, real: Real) -> Float[Tensor, "B M D"]:
        """Attend from each tubelet to those of its patch at all steps."""
        lines = x.unflatten(1, (steps, -1)).transpose(1, 2).contiguous()  # B N T D; products of views are slow
        patches = lines.shape[1]
        mask = seen(None if real is None else real.repeat_interleave(patches, dim=0), 1)
        out = self.time(lines.flatten(0, 1), mask=mask)
        return out.unflatten(0, (-1, patches)).transpose(1, 2).flatten(1, 2)

    def across_space(self, x: Float[Tensor, "B S D"], steps: int, first: int, real: Real) -> Float[Tensor, "B S D"]:
        """Attend from each tubelet, and from the tokens in front, to those of one step."""
        cells = x[:, first:].unflatten(1, (steps, -1))  # B T N D
        if first:
            cells = torch.cat([x[:, None, :first].expand(-1, steps, -1, -1), cells], dim=2)
        out = self.attention(cells.flatten(0, 1), mask=everything()).unflatten(0, (-1, steps))
        if not first:
            return out.flatten(1, 2)
        return torch.cat([mean_of(out[:, :, :first], real), out[:, :, first:].flatten(1, 2)], dim=1)


Axis = Literal["whole", "time", "space"]
"""The tubelets that an attention layer runs over: all, the steps, or the patches of a step."""


class WholeEncoder(Stack):
    """Blocks in which every token attends to every other, whatever its step."""

    def axis(self, layer: str) -> Axis:
        """Return what the attention layer of that name runs over."""
        return "whole"

    def shares(self, weights: Weights, steps: int, cells: int, first: int, stay: float) -> Float[Tensor, "T N"]:
        """Return the share of each tubelet in a clip's vector, by rollout: a layer passes on `stay` of what a token
        had, and the rest of what it attends to."""
        share = torch.cat(readout(first, steps * cells))
        for own in reversed(weights):
            if own is not None:
                share = stay * share + (1 - stay) * share @ own[0]
        return share[first:].unflatten(0, (steps, cells))

    def __init__(self, config: BlockConfig, depth: int, *, steps: int, final_norm: bool) -> None:
        super().__init__(config, build_position(config), depth=depth, causal=False, final_norm=final_norm)

    def encode(self, x: Float[Tensor, "B S D"], *, steps: int, first: int, real: Real) -> Float[Tensor, "B S D"]:
        """Return a vector for each token."""
        return self(x, mask=seen(real, (x.shape[1] - first) // steps, first))


class DividedEncoder(nn.Module):
    """Blocks in which attention runs along time, then over space."""

    def axis(self, layer: str) -> Axis:
        """Return what the attention layer of that name runs over."""
        return "time" if layer.endswith(".time") else "space"

    def shares(self, weights: Weights, steps: int, cells: int, first: int, stay: float) -> Float[Tensor, "T N"]:
        """Return the share of each tubelet in a clip's vector, by rollout along both axes; a block has
        weights over space, then those along time."""
        front, flat = readout(0 if all(own is None for own in weights[::2]) else first, steps * cells)
        share = flat.unflatten(0, (steps, cells))  # along time alone, tokens in front have no part
        for space, time in zip(weights[-2::-2], weights[::-2], strict=True):  # from the last block to the first
            if space is not None:
                each = torch.cat([front.expand(steps, -1) / steps, share], dim=1)
                moved = torch.einsum("ti,tij->tj", each, space)
                front = stay * front + (1 - stay) * moved[:, :first].sum(0)
                share = stay * share + (1 - stay) * moved[:, first:]
            if time is not None:
                share = stay * share + (1 - stay) * torch.einsum("tn,nts->sn", share, time)
        return share

    def __init__(self, config: BlockConfig, depth: int, *, steps: int, final_norm: bool) -> None:
        super().__init__()
        self.position = build_position(config)
        self.blocks = nn.ModuleList(DividedBlock(config, self.position) for _ in range(depth))
        self.norm = build_norm(config.norm, config.dim, config.norm_eps) if final_norm else nn.Identity()

    def encode(self, x: Float[Tensor, "B S D"], *, steps: int, first: int, real: Real) -> Float[Tensor, "B S D"]:
        """Return a vector for each token."""
        for block in self.blocks:
            x = block(x, steps=steps, first=first, real=real)
        return self.norm(x)


class FactorisedEncoder(nn.Module):
    """Blocks over the tokens of each step, which become one vector, and blocks over these vectors.

    The first token of a step, or else the mean of its tubelets, is its vector. With tokens in front, the result has one
    in front, too.
    """

    def __init__(self, config: Any, depth: int, over: int, *, steps: int, final_norm: bool) -> None:
        super().__init__()
        self.space = Stack(config, build_position(config), depth=depth, causal=False, final_norm=final_norm)
        position = "none" if config.times == "none" else config.position
        later = replace(config, max_len=steps + config.first, position=position)
        self.over = Stack(later, build_position(later), depth=over, causal=False, final_norm=final_norm)
        self.first = nn.Parameter(torch.randn(1, config.dim) * 0.02) if config.first else None

    @property
    def position(self) -> Position:
        return self.space.position

    def axis(self, layer: str) -> Axis:
        """Return what the attention layer of that name runs over."""
        return "time" if ".over." in layer else "space"

    def shares(self, weights: Weights, steps: int, cells: int, first: int, stay: float) -> Float[Tensor, "T N"]:
        """Return the share of each tubelet in a clip's vector: that of its step, divided among those of the step."""
        inside, over = weights[: len(self.space.blocks)], weights[len(self.space.blocks) :]
        share = torch.cat(readout(first, steps))
        if all(own is None for own in over):  # within steps alone, all are alike
            share[first:] = 1 / steps
        for own in reversed(over):
            if own is not None:
                share = stay * share + (1 - stay) * share @ own[0]
        within = torch.cat(readout(first, cells)).expand(steps, -1)
        for own in reversed(inside):
            if own is not None:
                within = stay * within + (1 - stay) * torch.einsum("ti,tij->tj", within, own)
        return share[first:, None] * within[:, first:]

    def encode(self, x: Float[Tensor, "B S D"], *, steps: int, first: int, real: Real) -> Float[Tensor, "B N D"]:
        """Return a vector for each step, behind one for all of them if there are tokens in front."""
        cells = x[:, first:].unflatten(1, (steps, -1))
        if first:
            cells = torch.cat([x[:, None, :first].expand(-1, steps, -1, -1), cells], dim=2)
        out = self.space(cells.flatten(0, 1)).unflatten(0, (-1, steps))
        vectors = out[:, :, 0] if first else out.mean(2)
        if self.first is not None:
            vectors = torch.cat([self.first.expand(len(x), -1, -1), vectors], dim=1)
        return self.over(self.over.position.embed(vectors), mask=seen(real, 1, first))


def real_steps(lengths: Int[Tensor, "B"] | None, steps: int, tubelet: int) -> Real:
    """Return which steps have a frame of their clip, from the numbers of frames; None where all have."""
    if lengths is None:
        return None
    return torch.arange(steps, device=lengths.device) * tubelet < lengths[:, None]


ENCODERS: dict[str, Any] = {"whole": WholeEncoder, "divided": DividedEncoder, "factorised": FactorisedEncoder}
