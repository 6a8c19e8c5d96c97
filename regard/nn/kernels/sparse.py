"""Sparse attention: near keys, keys at regular distances, and a few global tokens."""

from typing import Any

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from regard.config import at_least
from regard.nn import masks
from regard.nn.kernels.parts import Part, band, block, rule_of, stretch
from regard.nn.kernels.window import Ruled
from regard.nn.masks import Mask
from regard.registry import register_kernel


@register_kernel("sparse")
class Sparse(Ruled):
    """softmax over keys within `radius`, those up to `far` strides away, and the first `tokens` positions.

    The first `tokens` queries attend to all. O(n · (radius + far + tokens)) time, O(n) memory (Child et al., 2019;
    Zaheer et al., 2020).
    """

    def __init__(
        self, radius: int = 64, stride: int = 64, far: int = 16, tokens: int = 4, chunk: int | None = None, **sizes: int
    ) -> None:
        super().__init__(**sizes)
        at_least(0, radius=radius, far=far, tokens=tokens)
        at_least(1, stride=stride, chunk=chunk)
        self.radius, self.stride, self.far, self.tokens, self.chunk = radius, stride, far, tokens, chunk
        self.near = masks.window(radius)
        self.apart = masks.strided(stride) & masks.window(stride * far) & ~self.near

    def rule(self) -> Mask:
        return self.near | self.apart | masks.global_tokens(self.tokens)

    def parts(self, mask: Mask | None, T: int, S: int) -> list[Part]:
        start, sides = (0, 2) if mask is None else (mask.start, 1 if mask.hides_future else 2)
        common: dict[str, Any] = dict(start=start, chunk=self.chunk)
        if start == 0 and T == S:
            near = band(T, S, before=self.radius, after=self.radius * (sides - 1), **common)
            parts = [Part(near, rule_of(self.near, mask)), self.strides(mask, T, sides)]
        else:  # a few queries on a cache: one wide band
            reach = max(self.radius, self.stride * self.far)
            wide = band(T, S, before=reach, after=reach * (sides - 1), **common)
            parts = [Part(wide, rule_of(self.near | self.apart, mask, start=start))]
        rest = ~self.near & ~self.apart
        tokens, first = min(self.tokens, S), min(max(self.tokens - start, 0), T)
        if tokens:
            parts.append(Part(block(T, tokens), rule_of(rest, mask, start=start)))
        if first and sides == 2:
            everyone = rest & ~masks.prefix(self.tokens)
            parts.append(Part(block(first, S), rule_of(everyone, mask, start=start)))
        return parts

    def strides(self, mask: Mask | None, T: int, sides: int) -> Part:
        """Return the part of strided keys: positions of one remainder form a lane, in which a stride is one step."""
        s, M = self.stride, -(-T // self.stride)

        def arrange(x: Tensor) -> Tensor:
            return stretch(x, 0, M * s).unflatten(2, (M, s)).permute(0, 3, 1, 2, 4).flatten(0, 1)

        def restore(x: Tensor) -> Tensor:
            return x.unflatten(0, (-1, s)).permute(0, 2, 3, 1, 4).flatten(2, 3)[:, :, :T]

        def rule(i: Int[Tensor, "s N c 1"], j: Int[Tensor, "s N 1 W"]) -> Bool[Tensor, "#B s N c W"]:
            allowed = rule_of(self.apart, mask)(i.clamp(max=T - 1), j.clamp(max=T - 1)) & (j < T)
            return allowed if allowed.dim() == 5 else allowed[None]

        def position_of(index: Int[Tensor, "*N"]) -> Int[Tensor, "s *N"]:
            return index * s + torch.arange(s, device=index.device).view(-1, *[1] * index.dim())

        groups = band(M, M, before=self.far, after=self.far * (sides - 1), chunk=self.chunk, lanes=s)
        return Part(groups, rule, arrange, restore, position_of)
