"""Linear attention: φ(Q) (φ(K)ᵀ V), computed from right to left, so that no query–key matrix exists."""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor

from regard.config import at_least
from regard.nn.cache import KeyValues
from regard.nn.kernels.base import Kernel, causal_and_keys
from regard.nn.kernels.chunks import scan
from regard.nn.kernels.full import repeat_heads
from regard.nn.masks import Mask
from regard.nn.positions import Bias
from regard.registry import register_kernel

Real = Bool[Tensor, "#B 1 S"] | None
"""Which keys are visible; None for all."""


class Summary(KeyValues):
    """Cache of linear attention: Σ φ(k) [v, 1]ᵀ, of constant size.

    With gradients enabled, the state also keeps its graph; decode without them.
    """

    constant = True
    state: Tensor | None = None

    def attend(self, kernel: Callable, q: Tensor, k: Tensor, v: Tensor, **options: Any) -> Tensor:
        self.length = self.checked(self.length + k.shape[2])
        if kernel._forward_hooks:  # type: ignore[attr-defined]
            raise ValueError(
                "a decoding state keeps no keys, so no weights can be shown; look at one forward pass instead"
            )
        out, self.state = kernel.resume(q, k, v, self.state, **options)  # type: ignore[attr-defined]
        return out

    @property
    def batch(self) -> int:
        return 0 if self.state is None else len(self.state)

    def select(self, rows: Tensor) -> None:
        if self.state is not None:
            self.state = self.state.index_select(0, rows)


@register_kernel("linear")
class Linear(Kernel):
    """Σⱼ φ(q)·φ(kⱼ) vⱼ / Σⱼ φ(q)·φ(kⱼ) with φ = elu + 1 (Katharopoulos et al., 2020): O(n) time and memory.

    Causal attention goes chunk by chunk, with a state of constant size between them; decoding is a chunk of one.
    """

    reference = False
    biased = False
    drops = False
    any_mask = False

    def __init__(self, chunk: int = 256, **sizes: int) -> None:
        super().__init__(**sizes)
        at_least(1, chunk=chunk)
        self.chunk = chunk

    def features(self, scale: float | None) -> "Features":
        """Return φ: positive, so that products of two are weights; half of the scale is applied to q, half to k."""
        factor = 1.0 if scale is None else scale**0.5
        return lambda x, *, key: F.elu(x * factor if factor != 1 else x) + 1

    @property
    def width(self) -> int:
        """Features of a query or key."""
        return self.head_dim

    def memory(self, room: int) -> KeyValues:
        return Summary(room)

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
        causal, real = causal_and_keys(mask, k.shape[2], self)
        phi, k, v = self.features(scale), repeat_heads(k, q.shape[1]), repeat_heads(v, q.shape[1])
        if weights:
            products = phi(q, key=False) @ phi(k, key=True).transpose(-1, -2)
            seen = products if mask is None else products * mask.dense(q.shape[2], k.shape[2], q.device)
            shares = divided(seen, seen.sum(-1, keepdim=True))
            return shares @ v, shares
        state = self.empty(q, v)
        if not causal or mask is None:
            _, state = scan(partial(add, phi), self.chunk, state, k, v, real)
            return scan(partial(read, phi), self.chunk, state, q)[0], None
        past, here = slice(0, mask.start), slice(mask.start, mask.start + q.shape[2])
        there, near = (None if real is None else real[:, :, part] for part in (past, here))
        if mask.start:
            _, state = scan(partial(add, phi), self.chunk, state, k[:, :, past], v[:, :, past], there)
        return scan(partial(pass_by, phi), self.chunk, state, q, k[:, :, here], v[:, :, here], near)[0], None

    def resume(
        self, q: Tensor, k: Tensor, v: Tensor, state: Tensor | None, *, mask: Mask | None = None,
        scale: float | None = None, **options: Any,
    ) -> tuple[Tensor, Tensor]:  # fmt: skip
        """Attend from the next positions to those summarised in `state`; return the output and the next state."""
        start = 0 if mask is None else mask.start
        causal, real = causal_and_keys(mask, start + k.shape[2], self)
        if not causal and q.shape[2] > 1:
            raise ValueError("decoding several positions from a state needs a causal mask; pass mask=causal()")
        phi, k, v = self.features(scale), repeat_heads(k, q.shape[1]), repeat_heads(v, q.shape[1])
        state = self.empty(q, v) if state is None else state
        return scan(partial(pass_by, phi), self.chunk, state, q, k, v, None if real is None else real[:, :, start:])

    def empty(self, q: Tensor, v: Tensor) -> Float[Tensor, "B H F C1"]:
        """Return the initial state. Sums of thousands need more precision than bfloat16 has."""
        dtype = torch.promote_types(q.dtype, torch.float32)
        return q.new_zeros(*q.shape[:2], self.width, v.shape[-1] + 1, dtype=dtype)


Features = Callable[..., Float[Tensor, "B H T F"]]
"""φ(x, key=…), for keys or for queries."""


def add(phi: Features, state: Tensor, k: Tensor, v: Tensor, real: Real) -> tuple[Tensor, Tensor]:
    """Add keys to the state, without queries."""
    state = state + phi(k, key=True).to(state.dtype).transpose(-1, -2) @ counted(v, real).to(state.dtype)
    return k[..., :0] + state[..., :1, :0].to(k.dtype), state


def read(phi: Features, state: Tensor, q: Tensor) -> tuple[Tensor, Tensor]:
    """Return the output of queries on a state."""
    return mixed(phi(q, key=False).to(state.dtype) @ state).to(q.dtype), state


def pass_by(phi: Features, state: Tensor, q: Tensor, k: Tensor, v: Tensor, real: Real) -> tuple[Tensor, Tensor]:
    """Return the causal output of a chunk and the next state: a triangle of products, earlier keys via the state."""
    asks, keys, values = (x.to(state.dtype) for x in (phi(q, key=False), phi(k, key=True), counted(v, real)))
    near = (asks @ keys.transpose(-1, -2)).tril()
    return mixed(near @ values + asks @ state).to(v.dtype), state + keys.transpose(-1, -2) @ values


def counted(v: Float[Tensor, "B H S C"], real: Real) -> Float[Tensor, "B H S C1"]:
    """Append a 1 to each value, so that its sum is that of the weights; zeros for hidden keys."""
    values = F.pad(v, (0, 1), value=1.0)
    return values if real is None else values * real[..., None]


def mixed(sums: Float[Tensor, "B H T C1"]) -> Float[Tensor, "B H T C"]:
    """Divide the summed values by the summed weights in the last column."""
    return divided(sums[..., :-1], sums[..., -1:])


def divided(sums: Tensor, weights: Tensor) -> Tensor:
    """Divide, with zeros for a query without keys."""
    return sums / weights.masked_fill(weights == 0, 1.0)
