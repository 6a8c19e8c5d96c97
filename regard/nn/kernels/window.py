"""Sliding-window attention: exact for keys at most `radius` away, without an n × n matrix."""

from typing import Any

from jaxtyping import Float
from torch import Tensor

from regard.config import at_least
from regard.nn import masks
from regard.nn.kernels.full import Full
from regard.nn.kernels.parts import Part, attend_parts, band, rule_of
from regard.nn.masks import Mask
from regard.nn.positions import Bias
from regard.registry import register_kernel


class Ruled(Full):
    """Base of kernels with a fixed mask, computed in tiles unless weights are requested."""

    crosses = False
    drops = False

    def parts(self, mask: Mask | None, T: int, S: int) -> list[Part]:
        """Divide the keys that `rule` and mask leave visible into tiles that do not overlap."""
        raise NotImplementedError

    def forward(
        self,
        q: Float[Tensor, "B H T K"],
        k: Float[Tensor, "B G S K"],
        v: Float[Tensor, "B G S C"],
        *,
        mask: Mask | None = None,
        bias: Bias | None = None,
        scale: float | None = None,
        dropout: float = 0.0,
        weights: bool = False,
    ) -> tuple[Float[Tensor, "B H T C"], Float[Tensor, "B H T S"] | None]:
        if weights:
            ruled = self.rule() if mask is None else mask & self.rule()
            return super().forward(q, k, v, mask=ruled, bias=bias, scale=scale, weights=True)
        scale = q.shape[-1] ** -0.5 if scale is None else scale
        parts = self.parts(mask, q.shape[2], k.shape[2])
        return attend_parts(q, k, v, parts, scale=scale, bias=bias)[0], None


@register_kernel("window")
class Window(Ruled):
    """softmax over the keys at most `radius` away: O(n · radius) time, O(n) memory (Beltagy et al., 2020)."""

    def __init__(self, radius: int = 128, chunk: int | None = None, **sizes: int) -> None:
        super().__init__(**sizes)
        at_least(0, radius=radius)
        at_least(1, chunk=chunk)
        self.radius, self.chunk = radius, chunk

    def rule(self) -> Mask:
        return masks.window(self.radius)

    def forward(
        self, q: Float[Tensor, "B H T K"], k: Float[Tensor, "B G S K"], v: Float[Tensor, "B G S C"], **options: Any
    ) -> tuple[Float[Tensor, "B H T C"], Float[Tensor, "B H T S"] | None]:
        mask = options.get("mask")
        output_only = not options.get("weights") and not options.get("bias")
        if output_only and q.shape[2] == 1 and mask is not None and mask.is_causal:
            near = slice(max(0, mask.start - self.radius), mask.start + 1)  # one query on a cache: no tiles needed
            return Full.forward(self, q, k[:, :, near], v[:, :, near], scale=options.get("scale"))
        return super().forward(q, k, v, **options)

    def parts(self, mask: Mask | None, T: int, S: int) -> list[Part]:
        start, after = (mask.start, 0 if mask.hides_future else self.radius) if mask is not None else (0, self.radius)
        groups = band(T, S, start=start, before=self.radius, after=after, chunk=self.chunk)
        return [Part(groups, rule_of(self.rule(), mask, start=start))]
