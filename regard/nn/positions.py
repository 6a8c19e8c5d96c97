"""What order means. A position scheme enters in one of three ways, and leaves the other two alone:

`embed` adds to the token vectors · `rotate` turns q and k · `bias` shifts the scores.
"""

import math
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from regard.nn.masks import placed
from regard.registry import register_position


class Bias:
    """A rule like a mask, but with a number for each head: added to the scores before the softmax."""

    def values(self, i: Int[Tensor, "*N T 1"], j: Int[Tensor, "*N 1 S"]) -> Float[Tensor, "H *N T S"]:
        """At the given absolute positions, for one block of them or for several at once."""
        raise NotImplementedError

    start = 0

    def dense(self, T: int, S: int) -> Float[Tensor, "1 H T S"]:
        """The bias for queries start … start+T and keys 0 … S; remembered per shape, as masks are."""
        known: dict[tuple[int, int], Tensor] = self.__dict__.setdefault("_dense", {})
        if (T, S) not in known:
            i = torch.arange(self.start, self.start + T, device=self.device)[:, None]
            j = torch.arange(S, device=self.device)[None, :]
            known[T, S] = self.values(i, j)[None].contiguous()  # to add it is then four times as fast
        return known[T, S]

    def forget(self) -> None:
        """Computes anew what was remembered: a tensor made without gradients, or one whose gradients were taken."""
        self.__dict__.pop("_dense", None)

    def at(self, start: int) -> "Bias":
        """The same rule for queries that begin at position `start`."""
        return placed(self, start)

    @property
    def device(self) -> torch.device:
        return torch.device("cpu")


class Position(nn.Module):
    """No position at all, and the interface of every scheme: override one of the three."""

    turns = False
    """Whether `rotate` does something: attention then keeps the scheme."""

    def __init__(self, *, dim: int, heads: int, head_dim: int, max_len: int) -> None:
        super().__init__()
        self.dim, self.heads, self.head_dim, self.max_len = dim, heads, head_dim, max_len

    def embed(self, x: Float[Tensor, "B T D"], start: int = 0) -> Float[Tensor, "B T D"]:
        return x

    def rotate(self, x: Float[Tensor, "B N T K"], start: int = 0) -> Float[Tensor, "B N T K"]:
        return x

    def bias(self, *, causal: bool = False) -> Bias | None:
        """The rule for one forward pass; `causal` where only keys to the left are ever seen."""
        return None


register_position("none")(Position)


def sinusoids(T: int, dim: int, *, start: int = 0, base: float = 10_000.0) -> Float[Tensor, "T D"]:
    """PE(pos, 2i) = sin(pos / base^(2i/d)), PE(pos, 2i+1) = cos(same); pairs i = 0 … d/2 − 1."""
    rates = base ** (-torch.arange(0, dim, 2, dtype=torch.float64) / dim)
    angles = torch.arange(start, start + T, dtype=torch.float64)[:, None] * rates
    return torch.stack([angles.sin(), angles.cos()], dim=-1).flatten(1)[:, :dim].float()


def grown(old: Tensor, rows: Tensor) -> Tensor:
    """A longer table in place of the old; an ordinary tensor even if decoding asked for it, as training may go on."""
    with torch.inference_mode(False):
        return rows.clone().to(old)


class _Table(Position):
    """Adds row `pos` of a fixed table; the table grows when a longer input comes."""

    table: Tensor

    def __init__(self, **sizes: int) -> None:
        super().__init__(**sizes)
        self.register_buffer("table", self.rows(self.max_len), persistent=False)

    def rows(self, T: int) -> Float[Tensor, "T D"]:
        raise NotImplementedError

    def embed(self, x: Float[Tensor, "B T D"], start: int = 0) -> Float[Tensor, "B T D"]:
        end = start + x.shape[1]
        if end > len(self.table):
            self.table = grown(self.table, self.rows(2 * end))
        return x + self.table[start:end].to(x.dtype)


@register_position("sinusoidal")
class Sinusoidal(_Table):
    """Fixed waves (Vaswani et al., 2017), for any length: PE(pos+k) is a fixed linear map of PE(pos)."""

    def rows(self, T: int) -> Float[Tensor, "T D"]:
        return sinusoids(T, self.dim)


@register_position("sinusoidal-halves")
class SinusoidalHalves(_Table):
    """The same waves with all sines first, then all cosines, as Marian and BART-like checkpoints have them."""

    def rows(self, T: int) -> Float[Tensor, "T D"]:
        waves = sinusoids(T, self.dim)
        return torch.cat([waves[:, 0::2], waves[:, 1::2]], dim=1)


@register_position("grid")
class Grid(Position):
    """2-D waves: half of the width says the row, half the column, of a grid `columns` wide."""

    def __init__(self, columns: int | None = None, **sizes: int) -> None:
        super().__init__(**sizes)
        if self.dim % 4:
            raise ValueError(f"grid positions need a width divisible by 4, got dim={self.dim}")
        self.columns = columns or max(1, math.isqrt(self.max_len))

    def embed(self, x: Float[Tensor, "B T D"], start: int = 0) -> Float[Tensor, "B T D"]:
        pos = torch.arange(start, start + x.shape[1])
        side = (start + x.shape[1] - 1) // self.columns + 1 + self.columns
        waves = sinusoids(side, self.dim // 2).to(x)
        return x + torch.cat([waves[pos // self.columns], waves[pos % self.columns]], dim=1)


@register_position("learned")
class Learned(Position):
    """A trained vector for each position (BERT, GPT-2): there is none past the end."""

    def __init__(self, **sizes: int) -> None:
        super().__init__(**sizes)
        self.table = nn.Parameter(torch.randn(self.max_len, self.dim) * 0.02)

    def embed(self, x: Float[Tensor, "B T D"], start: int = 0) -> Float[Tensor, "B T D"]:
        end = start + x.shape[1]
        if end > self.max_len:
            raise ValueError(
                f"position {end - 1} has no learned vector, max_len={self.max_len}; "
                "shorten the input or train with a larger max_len (sinusoidal, rotary and alibi have no end)"
            )
        return x + self.table[start:end]


@register_position("concatenated")
class Concatenated(Position):
    """Waves put beside the token vector instead of onto it, and projected back to the width."""

    def __init__(self, **sizes: int) -> None:
        super().__init__(**sizes)
        self.waves = Sinusoidal(**sizes)
        self.project = nn.Linear(2 * self.dim, self.dim, bias=False)

    def embed(self, x: Float[Tensor, "B T D"], start: int = 0) -> Float[Tensor, "B T D"]:
        waves = self.waves.embed(torch.zeros_like(x), start)
        return self.project(torch.cat([x, waves], dim=-1))


def turned(x: Tensor, cos: Tensor, sin: Tensor, way: float = 1.0) -> Tensor:
    """Pairs (i, i + K/2) of the last axis turned; `sin` is negative for the first of each pair."""
    return torch.addcmul(x * cos, x.roll(x.shape[-1] // 2, -1), sin, value=way)


class _Turn(torch.autograd.Function):
    """`turned`; the gradient is turned back."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        ctx.save_for_backward(cos, sin)
        return turned(x, cos, sin)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        cos, sin = ctx.saved_tensors
        return turned(grad, cos, sin, -1.0), None, None


@register_position("rotary")
class Rotary(Position):
    """Turns pairs of q and k by an angle that grows with position: q·k then depends on the distance only.

    Pairs are (i, i + K/2), as in GPT-NeoX and the Hugging Face layout (Su et al., 2021, pairs neighbours).
    `stretch` slows the turns, so that texts longer than those trained on meet no new angles. With `trained`, the
    length that was trained on, pairs that turn more than `fast` times in it stay as they are, and only those below
    `slow` are slowed in full (Llama 3.1).
    """

    turns = True
    angles: Tensor

    def __init__(
        self,
        base: float = 10_000.0,
        stretch: float = 1.0,
        trained: int | None = None,
        slow: float = 1.0,
        fast: float = 4.0,
        **sizes: int,
    ) -> None:
        super().__init__(**sizes)
        if self.head_dim % 2:
            raise ValueError(f"rotary positions turn pairs: head_dim={self.head_dim} must be even")
        if fast <= slow:
            raise ValueError(f"rotary positions: fast={fast} must be above slow={slow}")
        self.base, self.stretch, self.trained, self.slow, self.fast = base, stretch, trained, slow, fast
        self.register_buffer("angles", self.rows(self.max_len), persistent=False)

    def rates(self) -> Float[Tensor, "N"]:
        """Radians that each pair turns from one position to the next."""
        rates = self.base ** (-torch.arange(0, self.head_dim, 2, dtype=torch.float64) / self.head_dim)
        if self.trained is None:
            return rates / self.stretch
        turns = self.trained * rates / (2 * math.pi)
        kept = ((turns - self.slow) / (self.fast - self.slow)).clamp(0, 1)
        return rates * (kept + (1 - kept) / self.stretch)

    def rows(self, T: int) -> Float[Tensor, "2 T K"]:
        angles = torch.arange(T, dtype=torch.float64)[:, None] * self.rates()
        cos, sin = angles.cos(), angles.sin()
        return torch.stack([torch.cat([cos, cos], dim=1), torch.cat([-sin, sin], dim=1)]).float()

    def rotate(self, x: Float[Tensor, "B N T K"], start: int = 0) -> Float[Tensor, "B N T K"]:
        end = start + x.shape[2]
        if end > self.angles.shape[1]:
            self.angles = grown(self.angles, self.rows(2 * end))
        cos, sin = self.angles[:, start:end].to(x.dtype)
        return _Turn.apply(x, cos, sin) if x.requires_grad else turned(x, cos, sin)


class DistanceBias(Bias):
    """A number for each head and distance j − i, from the scheme that owns it."""

    def __init__(self, scheme: "Alibi | RelativeBias", causal: bool) -> None:
        self.scheme, self.causal = scheme, causal

    def values(self, i: Int[Tensor, "*N T 1"], j: Int[Tensor, "*N 1 S"]) -> Float[Tensor, "H *N T S"]:
        return self.scheme.of_distance(j - i, causal=self.causal)

    @property
    def device(self) -> torch.device:
        return next(iter([*self.scheme.parameters(), *self.scheme.buffers()])).device


@register_position("alibi")
class Alibi(Position):
    """Subtracts slope · distance from the scores, a slope for each head (Press et al., 2022): extrapolates."""

    slopes: Tensor

    def __init__(self, **sizes: int) -> None:
        super().__init__(**sizes)
        self.register_buffer("slopes", alibi_slopes(self.heads), persistent=False)

    def of_distance(self, distance: Int[Tensor, "*N T S"], *, causal: bool) -> Float[Tensor, "H *N T S"]:
        return -self.slopes.view(-1, *[1] * distance.dim()) * distance.abs()

    def bias(self, *, causal: bool = False) -> Bias:
        return DistanceBias(self, causal)


def alibi_slopes(heads: int) -> Float[Tensor, "H"]:
    """2^(−8i/H) for a power of two; otherwise those of the next smaller one, then every other of the next."""
    whole = 2 ** int(math.log2(heads))
    slopes = [2.0 ** (-8 * (i + 1) / whole) for i in range(whole)]
    slopes += [2.0 ** (-4 * (2 * i + 1) / whole) for i in range(heads - whole)]
    return torch.tensor(slopes)


@register_position("relative")
class RelativeBias(Position):
    """A learned number for each head and distance, far distances sharing logarithmic buckets (T5).

    `inside_scale` puts it under the root with q·k, (q·k + r)/√d; otherwise it is added after scaling.
    """

    def __init__(self, buckets: int = 32, far: int = 128, inside_scale: bool = False, **sizes: int) -> None:
        super().__init__(**sizes)
        self.buckets, self.far = buckets, far
        self.factor = self.head_dim**-0.5 if inside_scale else 1.0
        self.table = nn.Parameter(torch.randn(buckets, self.heads) * 0.02)
        self.table.pace = 10.0  # type: ignore[attr-defined]  # scores are whole numbers, weights hundredths

    def of_distance(self, distance: Int[Tensor, "*N T S"], *, causal: bool) -> Float[Tensor, "H *N T S"]:
        return self.table[self.bucket(distance, causal=causal)].movedim(-1, 0) * self.factor

    def bucket(self, distance: Int[Tensor, "*N T S"], *, causal: bool) -> Int[Tensor, "*N T S"]:
        """Half of the buckets for exact small distances, half logarithmic up to `far`; by side if not causal."""
        count = self.buckets if causal else self.buckets // 2
        side = torch.zeros_like(distance) if causal else (distance > 0).long() * count
        reach = (-distance).clamp(min=0) if causal else distance.abs()
        exact = count // 2
        ratio = (reach.float().clamp(min=1) / exact).log() / math.log(self.far / exact)
        log = exact + (ratio * (count - exact)).long()
        return side + torch.where(reach < exact, reach, log.clamp(max=count - 1))

    def bias(self, *, causal: bool = False) -> Bias:
        return DistanceBias(self, causal)
