"""Reformer: queries attend only to keys that a hash puts into their own bucket (Kitaev et al., 2020)."""

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from regard.config import at_least
from regard.nn.kernels.base import Kernel, causal_and_keys
from regard.nn.kernels.full import attend
from regard.nn.kernels.parts import Part, attend_parts, band
from regard.nn.masks import Mask
from regard.nn.positions import Bias
from regard.registry import register_kernel


@register_kernel("reformer")
class Reformer(Kernel):
    """softmax over the keys of the same bucket, at most `reach` of its members away, in any of several rounds.

    q and k are one projection, k of length 1, so that similar vectors share a bucket; a token attends to itself only
    where it sees no other. Chunks of sorted tokens, as in the paper, depend on later tokens; counting members of the
    own bucket does not, so the mask stays causal. O(n log n) time, O(n) memory.
    """

    exact = False
    tolerance = 1.0
    reference = False
    biased = False
    crosses = False
    drops = False
    any_mask = False
    shares = True
    rotations: Tensor

    def __init__(
        self, buckets: int = 64, reach: int = 64, rounds: int = 2, chunk: int | None = None, **sizes: int
    ) -> None:
        super().__init__(**sizes)
        at_least(2, buckets=buckets)
        at_least(1, reach=reach, rounds=rounds, chunk=chunk)
        if buckets % 2:
            raise ValueError(f"buckets={buckets} come in pairs, a direction and its opposite; use an even number")
        self.buckets, self.reach, self.rounds, self.chunk = buckets, reach, rounds, chunk
        self.register_buffer("rotations", torch.randn(rounds, self.head_dim, buckets // 2))

    @torch.no_grad()
    def codes(self, k: Float[Tensor, "B H S K"]) -> tuple[Int[Tensor, "R B H S"], Int[Tensor, "R B H S"]]:
        """Return each token's index in bucket order, and the order: two tokens see each other where indices differ by ≤
        `reach`.

        Between buckets that many indices stay empty, so one comparison tests bucket and distance.
        """
        turned = torch.einsum("bhsk,rkn->rbhsn", k, self.rotations.to(k.dtype))
        bucket = torch.cat([turned, -turned], -1).argmax(-1)
        order = bucket.argsort(dim=-1, stable=True)
        rank = torch.empty_like(order).scatter_(-1, order, torch.arange(k.shape[2], device=k.device).expand_as(order))
        return (rank + bucket * (self.reach + 1)).int(), order  # compared often: half of the bytes

    def forward(
        self,
        q: Float[Tensor, "B H T K"],
        k: Float[Tensor, "B H S K"],
        v: Float[Tensor, "B H S C"],
        *,
        mask: Mask | None = None,
        bias: Bias | None = None,
        scale: float | None = None,
        dropout: float = 0.0,
        weights: bool = False,
    ) -> tuple[Float[Tensor, "B H T C"], Float[Tensor, "B H T S"] | None]:
        scale = q.shape[-1] ** -0.5 if scale is None else scale
        k = k / k.norm(dim=-1, keepdim=True).clamp_min(torch.finfo(k.dtype).tiny)
        causal, real = causal_and_keys(mask, k.shape[2], self)
        codes, order = self.codes(k)
        start = mask.start if mask is not None else 0
        if weights or start or q.shape[2] != k.shape[2]:
            meets = self.meets(codes, causal, real, start, q.shape[2])
            out, attention = attend(q @ k.transpose(-1, -2) * scale, v, mask=meets)
            return out, attention if weights else None
        own = v if real is None else v * real[..., None]
        outs = []
        # One head at a time: sorted copies of all would be the largest tensors.
        for h, (q_, k_, v_, own_) in enumerate(zip(*(x.split(1, 1) for x in (q, k, v, own)), strict=True)):
            parts = [self.sorted(r, codes[:, :, h], order[r, :, h], causal, real) for r in range(self.rounds)]
            out, lse = attend_parts(q_, k_, v_, parts, scale=scale)
            outs.append(torch.where(lse.isinf()[..., None], own_, out))
        return torch.cat(outs, 1), None

    def meets(
        self, codes: Int[Tensor, "R B H S"], causal: bool, real: Bool[Tensor, "#B 1 S"] | None, start: int, T: int
    ) -> Bool[Tensor, "B H T S"]:
        """Return the mask as a matrix: for a few queries on a cache, and for the weights."""
        i, j = (torch.arange(*ends, device=codes.device) for ends in ((start, start + T), (0, codes.shape[-1])))
        i = i[:, None]
        near = (codes[..., start : start + T, None] - codes[..., None, :]).abs() <= self.reach
        seen = near.any(0) & (j < i if causal else j != i)
        own = j == i
        if real is not None:
            seen, own = seen & real[..., None, :], own & real[..., None, :]
        return seen | (own & ~seen.any(-1, keepdim=True))

    def sorted(
        self, r: int, codes: Int[Tensor, "R B S"], order: Int[Tensor, "B S"], causal: bool,
        real: Bool[Tensor, "#B 1 S"] | None,
    ) -> Part:  # fmt: skip
        """Return round r of one head: in bucket order, tokens that see each other are neighbours."""
        index, stood = order[:, None, :, None], order.int()
        places = codes.gather(-1, order.expand_as(codes))
        there = None if real is None else real[:, 0].expand_as(order).gather(-1, order)

        def arrange(x: Tensor) -> Tensor:
            return x.gather(2, index.expand(-1, -1, -1, x.shape[-1]))

        def restore(x: Tensor) -> Tensor:
            return torch.empty_like(x).scatter_(2, index.expand_as(x), x)

        def rule(i: Int[Tensor, "N c 1"], j: Int[Tensor, "N 1 W"]) -> Bool[Tensor, "B N c W"]:
            allowed = stood[:, j] < stood[:, i] if causal else stood[:, j] != stood[:, i]
            for other in range(r + 1):  # pairs of an earlier round are counted there
                near = (places[other][:, i] - places[other][:, j]).abs() <= self.reach
                allowed = allowed & (near if other == r else ~near)
            return allowed if there is None else allowed & there[:, j]

        groups = band(
            order.shape[1], order.shape[1], before=self.reach, after=0 if causal else self.reach, chunk=self.chunk
        )
        return Part(groups, rule, arrange, restore)
