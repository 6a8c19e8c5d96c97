"""Exact attention over a few ranges of keys for each query: no T × S matrix, memory proportional to T.

The visible keys are divided into *parts* that do not overlap, each a regular pattern of small tiles. Every tile runs on
PyTorch's fused kernel; parts are combined by their log-sum-exp, Σ exp(lseₚ − lse) · outₚ. The backward pass needs only
q, k, v, the combined output and its lse, from which each tile's gradients follow.
"""

import functools
import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.autograd.function import once_differentiable

from regard.nn.kernels.full import repeat_heads
from regard.nn.masks import Mask
from regard.nn.positions import Bias

FUSED = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
FUSED_BACKWARD = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward
TOGETHER = 2048
"""Queries whose tiles are computed by one call."""


@dataclass(frozen=True, slots=True)
class Group:
    """Neighbouring tiles of one shape: tile n is queries query + n·size … and keys key + n·size …"""

    query: int
    count: int
    size: int
    key: int
    width: int

    def queries(self, x: Tensor) -> Tensor:
        """B H T K → (B·count) H size K, with zeros past the end."""
        x = stretch(x, self.query, self.query + self.count * self.size)
        return x.unflatten(2, (self.count, self.size)).transpose(1, 2).flatten(0, 1)

    def keys(self, x: Tensor) -> Tensor:
        """B G S K → (B·count) G width K, with zeros where there are no keys; tiles overlap."""
        x = stretch(x, self.key, self.key + (self.count - 1) * self.size + self.width)
        return x.unfold(2, self.width, self.size).permute(0, 2, 1, 4, 3).flatten(0, 1)

    def put_queries(self, into: Tensor, tiles: Tensor) -> None:
        """Write the tiles of `queries` back: its inverse."""
        end = min(into.shape[2], self.query + self.count * self.size)
        rows = tiles.unflatten(0, (-1, self.count)).transpose(1, 2).flatten(2, 3)
        into[:, :, self.query : end] = rows[:, :, : end - self.query]

    def add_keys(self, into: Tensor, tiles: Tensor, origin: int) -> None:
        """Add the tiles of `keys` where they overlap; `into` begins `origin` positions before the first key."""
        tiles = tiles.unflatten(0, (-1, self.count)).transpose(1, 2)  # B G count width K
        step = self.size if self.count > 1 else self.width
        for offset in range(0, self.width, step):
            piece, first = tiles[:, :, :, offset : offset + step], self.key + offset + origin
            places = into[:, :, first : first + self.count * step].unflatten(2, (self.count, step))
            places[:, :, :, : piece.shape[3]] += piece

    def places(
        self, T: int, S: int, device: torch.device
    ) -> tuple[Int[Tensor, "N c 1"], Int[Tensor, "N 1 W"], Bool[Tensor, "N 1 W"]]:
        """Return the positions of its queries and keys, clamped to T and S, and which of those keys exist."""
        tile, row, column = (torch.arange(n, device=device) for n in (self.count, self.size, self.width))
        i = self.query + tile[:, None] * self.size + row
        j = self.key + tile[:, None] * self.size + column
        exists = (j >= 0) & (j < S)
        return i.clamp(max=T - 1)[:, :, None], j.clamp(0, S - 1)[:, None], exists[:, None]

    @property
    def end(self) -> int:
        """Return the position after the last key that `add_keys` touches."""
        step = self.size if self.count > 1 else self.width
        return self.key + -(-self.width // step) * step + (self.count - 1) * step


def stretch(x: Tensor, first: int, end: int) -> Tensor:
    """Return positions first … end of the third axis, zeros outside; no copy where all exist."""
    inside = x[:, :, max(first, 0) : max(end, 0)]
    before = min(max(-first, 0), end - first)
    behind = end - first - before - inside.shape[2]
    return F.pad(inside, (0, 0, before, behind)) if before or behind else inside


def band(
    T: int, S: int, *, start: int = 0, before: int, after: int, chunk: int | None = None, lanes: int = 1
) -> list[Group]:
    """Groups for a band: query i, at position start + i, sees keys from `before` before it to `after` after it."""
    size = max(1, min(T, chunk or max(32, min(before, 256))))
    together = max(1, TOGETHER // (size * lanes))
    tiles = -(-T // size)
    if tiles == 1:  # nothing repeats: no room is needed for keys that do not exist
        first = max(0, start - before)
        return [Group(0, 1, T, first, min(S, start + T + after) - first)]
    return [
        Group(n * size, min(together, tiles - n), size, start + n * size - before, size + before + after)
        for n in range(0, tiles, together)
    ]


def block(queries: int, keys: int) -> list[Group]:
    """Groups for a block: the first `queries` queries see the first `keys` keys."""
    size = max(1, min(queries, TOGETHER))
    return [Group(first, 1, min(size, queries - first), 0, keys) for first in range(0, queries, size)]


Rule = Callable[[Int[Tensor, "*A N c 1"], Int[Tensor, "*A N 1 W"]], Bool[Tensor, "*B N c W"]]


@dataclass(frozen=True, slots=True)
class Part:
    """Groups of tiles, the mask within them (by positions of queries and keys), and the order of their tokens.

    `arrange` brings q, k, v into that order and `restore` inverts it; `position_of` maps an index to its position.
    Where the order has several lanes, they are further rows of the batch.
    """

    groups: list[Group]
    rule: Rule
    arrange: Callable[[Tensor], Tensor] = lambda x: x
    restore: Callable[[Tensor], Tensor] = lambda x: x
    position_of: Callable[[Tensor], Tensor] = lambda index: index

    def tiles(self, q: Tensor, k: Tensor) -> Iterator[tuple[Group, Bool[Tensor, "B 1 c W"]]]:
        """Yield each group with the mask of its tiles."""
        for group in self.groups:
            i, j, exists = group.places(q.shape[2], k.shape[2], q.device)
            allowed = self.rule(self.position_of(i), self.position_of(j)) & exists  # (batch) (lanes) N c W
            if allowed.dim() == 5:
                allowed = allowed.expand(q.shape[0] // allowed.shape[1], -1, -1, -1, -1).flatten(0, 1)
            yield group, allowed.expand(q.shape[0], -1, -1, -1).flatten(0, 1)[:, None]


def attend_parts(
    q: Float[Tensor, "B H T K"],
    k: Float[Tensor, "B G S K"],
    v: Float[Tensor, "B G S C"],
    parts: list[Part],
    *,
    scale: float,
    bias: Bias | None = None,
) -> tuple[Float[Tensor, "B H T C"], Float[Tensor, "B H T"]]:
    """Return the mixed values of all parts together, and each query's log-sum-exp; −∞ where it sees no key."""
    if bias is None and q.device.type in ("cpu", "meta") and q.shape[-1] == v.shape[-1]:
        return _Fused.apply(q, k, v, parts, scale)
    return joined(plain(part, q, k, v, scale, bias) for part in parts)


def joined(results: Iterable[tuple[Tensor, Tensor]]) -> tuple[Tensor, Tensor]:
    """Combine outputs of separate softmax sums into one; each is freed before the next is computed."""
    return functools.reduce(join, results)


def join(one: tuple[Tensor, Tensor], other: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
    total = torch.logaddexp(one[1], other[1])
    finite = total.masked_fill(total.isinf(), 0.0)
    parts = (out * (lse - finite).exp()[..., None].to(out.dtype) for out, lse in (one, other))
    return functools.reduce(torch.add, parts), total


def plain(part: Part, q: Tensor, k: Tensor, v: Tensor, scale: float, bias: Bias | None) -> tuple[Tensor, Tensor]:
    """Compute one part with ordinary operations: for biases, which need a gradient, and without a fused kernel."""
    outs: list[Tensor] = []
    sums: list[Tensor] = []
    q, k, v = part.arrange(q), part.arrange(k), part.arrange(v)
    for group, allowed in part.tiles(q, k):
        kt, vt = (repeat_heads(group.keys(x), q.shape[1]) for x in (k, v))
        scores = group.queries(q) @ kt.transpose(-1, -2) * scale
        if bias is not None:
            i, j, _ = group.places(q.shape[2], k.shape[2], q.device)
            shift = bias.values(part.position_of(i) + bias.start, part.position_of(j)).movedim(0, -3)  # (lanes) N H c W
            shift = shift.flatten(0, -4)
            scores = scores + shift.repeat(len(scores) // len(shift), 1, 1, 1).to(scores.dtype)
        lse = scores.masked_fill(~allowed, -math.inf).logsumexp(-1, keepdim=True)
        weights = (scores - lse.masked_fill(lse.isinf(), 0.0)).exp().masked_fill(~allowed, 0.0)
        end = min(group.count * group.size, q.shape[2] - group.query)
        for kept, tiles in ((outs, weights @ vt), (sums, lse)):
            kept.append(tiles.unflatten(0, (-1, group.count)).transpose(1, 2).flatten(2, 3)[:, :, :end])
    out, total = torch.cat(outs, 2), torch.cat(sums, 2)
    rest = (0, 0, 0, q.shape[2] - out.shape[2])  # queries without keys in this part
    return part.restore(F.pad(out, rest)), part.restore(F.pad(total, rest, value=-math.inf))[..., 0]


class _Fused(torch.autograd.Function):
    """Every tile by PyTorch's fused CPU kernel, forward and backward."""

    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, parts: list[Part], scale: float) -> tuple[Tensor, Tensor]:
        out, lse = joined(fused(part, q, k, v, scale) for part in parts)
        ctx.save_for_backward(q, k, v, out, lse)
        ctx.parts, ctx.scale = parts, scale
        ctx.mark_non_differentiable(lse)
        return out, lse

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
        q, k, v, out, lse = ctx.saved_tensors
        sums = lse.masked_fill(lse.isinf(), 0.0)[..., None]  # where nothing is visible, every exp(−∞ − 0) is 0
        total: tuple[Tensor, ...] = ()
        for part in ctx.parts:
            grads = fused_backward(part, grad, q, k, v, out, sums, ctx.scale)
            total = tuple(map(torch.Tensor.add_, total, grads)) if total else grads
        return *total, None, None


def fused(part: Part, q: Tensor, k: Tensor, v: Tensor, scale: float) -> tuple[Tensor, Tensor]:
    q, k, v = part.arrange(q), part.arrange(k), part.arrange(v)
    out = torch.zeros_like(q)
    lse = q.new_full((*q.shape[:3], 1), -math.inf, dtype=torch.promote_types(q.dtype, torch.float32))
    for group, allowed in part.tiles(q, k):
        kt, vt = (repeat_heads(group.keys(x), q.shape[1]) for x in (k, v))
        tiles, sums = FUSED(group.queries(q), kt, vt, attn_mask=as_numbers(allowed, q.dtype), scale=scale)
        sums = sums.masked_fill(~allowed.any(-1), -math.inf)  # the fused kernel returns 0 where nothing is visible
        group.put_queries(out, tiles)
        group.put_queries(lse, sums[..., None])
    return part.restore(out), part.restore(lse)[..., 0]


def fused_backward(
    part: Part, grad: Tensor, q: Tensor, k: Tensor, v: Tensor, out: Tensor, lse: Tensor, scale: float
) -> tuple[Tensor, Tensor, Tensor]:
    grad, q, k, v, out, lse = (part.arrange(x) for x in (grad, q, k, v, out, lse))
    B, G, S, K = k.shape
    origin = max(0, -min((group.key for group in part.groups), default=0))
    room = origin + max([S, *(group.end for group in part.groups)])
    dq = torch.zeros_like(q)
    dk, dv = (k.new_zeros(B, room, G, K).transpose(1, 2) for _ in "kv")
    for group, allowed in part.tiles(q, k):
        kt, vt = (repeat_heads(group.keys(x), q.shape[1]) for x in (k, v))
        tiles = FUSED_BACKWARD(
            group.queries(grad), group.queries(q), kt, vt, group.queries(out), group.queries(lse)[..., 0], 0.0, False,
            attn_mask=as_numbers(allowed, q.dtype), scale=scale,
        )  # fmt: skip
        group.put_queries(dq, tiles[0])
        for into, each in zip((dk, dv), tiles[1:], strict=True):
            group.add_keys(into, each.unflatten(1, (G, -1)).sum(2), origin)
    dk, dv = (part.restore(x[:, :, origin : origin + S]) for x in (dk, dv))
    return part.restore(dq), dk, dv


def as_numbers(allowed: Bool[Tensor, "B 1 c W"], dtype: torch.dtype) -> Float[Tensor, "B 1 c W"]:
    return torch.zeros_like(allowed, dtype=dtype).masked_fill_(~allowed, -math.inf)


def rule_of(*masks: Mask | None, start: int = 0) -> Rule:
    """Return the conjunction of masks as a rule, for queries whose first is at `start`."""
    rules = [mask for mask in masks if mask is not None]

    def rule(i: Int[Tensor, "*A N c 1"], j: Int[Tensor, "*A N 1 W"]) -> Bool[Tensor, "*B N c W"]:
        allowed = (i >= 0) & (j >= 0)
        for mask in rules:
            allowed = allowed & mask.allowed(i + start, j)
        return allowed

    return rule
