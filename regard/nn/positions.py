"""Position schemes: the ways in which a model is given the order of its tokens.

`embed` adds to the token vectors · `rotate` rotates q and k · `bias` is added to the attention scores.
"""

import math
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from regard.nn.masks import Rule
from regard.nn.patches import resample
from regard.registry import positions, register_position


class Bias(Rule):
    """A rule, as a mask is, that gives a number for each head, query and key, added to the attention scores."""

    def values(self, i: Int[Tensor, "*N T 1"], j: Int[Tensor, "*N 1 S"]) -> Float[Tensor, "H *N T S"]:
        """Return the bias at absolute positions i (queries) and j (keys), for one block of them or several at once."""
        raise NotImplementedError

    def dense(self, T: int, S: int) -> Float[Tensor, "1 H T S"]:
        """Return the bias of queries start … start+T and keys 0 … S."""
        # Adding what is contiguous is four times as fast.
        return self.kept((T, S), lambda: self.values(*self.positions(T, S))[None].contiguous())

    def at_pairs(self, rows: Int[Tensor, "E"], i: Int[Tensor, "E"], j: Int[Tensor, "E"]) -> Float[Tensor, "H E"]:
        """Return the bias of single pairs of positions, in these rows of the batch."""
        return self.values(i[:, None, None], j[:, None, None])[..., 0, 0]


class Position(nn.Module):
    """No position at all, and the interface of every scheme: override `embed`, `rotate` or `bias`."""

    rotates = False
    """Whether `rotate` changes q and k: attention then keeps the scheme."""
    additive = False
    """Whether `embed` adds a vector that depends on the position alone."""
    on_grid = False
    """Whether the scheme has a setting `columns`, the width of a grid whose rows and columns it encodes."""

    def __init__(self, *, dim: int, heads: int, head_dim: int, max_len: int) -> None:
        super().__init__()
        self.dim, self.heads, self.head_dim, self.max_len = dim, heads, head_dim, max_len

    @property
    def limit(self) -> int | None:
        """The longest sequence that has positions, or None where there is no end."""
        return None

    def embed(self, x: Float[Tensor, "B T D"], start: int = 0) -> Float[Tensor, "B T D"]:
        return x

    def embed_grid(
        self, x: Float[Tensor, "B T D"], grid: tuple[int, int], *, trained: tuple[int, int], first: int = 0
    ) -> Float[Tensor, "B T D"]:
        """`embed` for patches on a grid (rows, columns), behind `first` tokens that lie outside of it; `trained` is the
        grid that learned positions are for."""
        return torch.cat([x[:, :first], self.embed(x[:, first:])], dim=1) if first else self.embed(x)

    def added(self, T: int) -> Float[Tensor, "T D"] | None:
        """Return the vectors that `embed` adds at positions 0 … T; None where it leaves tokens as they are."""
        if type(self).embed is Position.embed:
            return None
        if not self.additive:
            raise NotImplementedError(f"{type(self).__name__} positions are not added to the token vectors")
        like = next(iter([*self.parameters(), *self.buffers()]), torch.empty(0))
        with torch.no_grad():
            return self.embed(torch.zeros(1, T, self.dim).to(like))[0].contiguous()

    def rotate(self, x: Float[Tensor, "B N T K"], start: int = 0) -> Float[Tensor, "B N T K"]:
        return x

    def rotations(self, T: int) -> Float[Tensor, "2 T K"]:
        """Return cosines and sines of positions 0 … T, by which `rotate` rotates pairs (i, i + K/2)."""
        raise NotImplementedError(f"{type(self).__name__} positions rotate q and k in a way of their own")

    def bias(self, *, causal: bool = False) -> Bias | None:
        """Return the rule for one forward pass; `causal` where only keys to the left are ever visible."""
        return None


register_position("none")(Position)


def with_columns(position: str, columns: int) -> str:
    """Return a scheme's name with the setting `columns`, if it is one for grids and has none yet."""
    missing = positions[position].on_grid and "columns" not in positions.settings(position)
    return f"{position}:columns={columns}" if missing else position


def sinusoids(T: int, dim: int, *, start: int = 0, base: float = 10_000.0) -> Float[Tensor, "T D"]:
    """Return PE(pos, 2i) = sin(pos / base^(2i/d)) and PE(pos, 2i+1) = cos(pos / base^(2i/d)), for i = 0 … d/2 − 1."""
    rates = base ** (-torch.arange(0, dim, 2, dtype=torch.float64) / dim)
    angles = torch.arange(start, start + T, dtype=torch.float64)[:, None] * rates
    return torch.stack([angles.sin(), angles.cos()], dim=-1).flatten(1)[:, :dim].float()


def grown(old: Tensor, rows: Tensor) -> Tensor:
    """Return a longer table with the old one's type and device; usable in training even if made during inference."""
    with torch.inference_mode(False):
        return rows.clone().to(old)


class _Table(Position):
    """Adds row `pos` of a fixed table, which grows when a longer input comes."""

    additive = True
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
    """Sinusoids (Vaswani et al., 2017), for any length: PE(pos+k) is a fixed linear map of PE(pos)."""

    def rows(self, T: int) -> Float[Tensor, "T D"]:
        return sinusoids(T, self.dim)


@register_position("sinusoidal-halves")
class SinusoidalHalves(_Table):
    """Sinusoids with all sines first, then all cosines, as Marian and BART-like checkpoints have them."""

    def rows(self, T: int) -> Float[Tensor, "T D"]:
        waves = sinusoids(T, self.dim)
        return torch.cat([waves[:, 0::2], waves[:, 1::2]], dim=1)


@register_position("grid")
class Grid(Position):
    """2-D sinusoids: half of the width encodes the row, half the column, of a grid `columns` wide."""

    additive = on_grid = True

    def __init__(self, columns: int | None = None, **sizes: int) -> None:
        super().__init__(**sizes)
        if self.dim % 4:
            raise ValueError(f"grid positions need a width divisible by 4, got dim={self.dim}")
        self.columns = columns or max(1, math.isqrt(self.max_len))

    def embed(self, x: Float[Tensor, "B T D"], start: int = 0) -> Float[Tensor, "B T D"]:
        pos = torch.arange(start, start + x.shape[1], device=x.device)
        side = (start + x.shape[1] - 1) // self.columns + 1 + self.columns
        waves = sinusoids(side, self.dim // 2).to(x)
        return x + torch.cat([waves[pos // self.columns], waves[pos % self.columns]], dim=1)

    def embed_grid(
        self, x: Float[Tensor, "B T D"], grid: tuple[int, int], *, trained: tuple[int, int], first: int = 0
    ) -> Float[Tensor, "B T D"]:
        if grid[1] != self.columns:
            raise ValueError(
                f"positions are for {self.columns} patches in a row, the image has {grid[1]}; "
                f"use position=grid:columns={grid[1]} or learned"
            )
        return super().embed_grid(x, grid, trained=trained, first=first)


@register_position("learned")
class Learned(Position):
    """A trained vector for each position (BERT, GPT-2), up to max_len."""

    additive = True

    def __init__(self, **sizes: int) -> None:
        super().__init__(**sizes)
        self.table = nn.Parameter(torch.randn(self.max_len, self.dim) * 0.02)

    @property
    def limit(self) -> int:
        return self.max_len

    def embed(self, x: Float[Tensor, "B T D"], start: int = 0) -> Float[Tensor, "B T D"]:
        end = start + x.shape[1]
        if end > self.max_len:
            raise ValueError(
                f"position {end - 1} has no learned vector, max_len={self.max_len}; "
                "shorten the input or train with a larger max_len (sinusoidal, rotary and alibi have no end)"
            )
        return x + self.table[start:end]

    def embed_grid(
        self, x: Float[Tensor, "B T D"], grid: tuple[int, int], *, trained: tuple[int, int], first: int = 0
    ) -> Float[Tensor, "B T D"]:
        return x + resample(self.table, trained, grid, first=first)


@register_position("index")
class Index(Position):
    """Adds pos · w with a trained vector w: the number of a position, as one more input of the first layer.

    It grows without end, so that longer texts than those trained on have numbers that the model never met.
    """

    additive = True

    def __init__(self, **sizes: int) -> None:
        super().__init__(**sizes)
        self.direction = nn.Parameter(torch.randn(self.dim) * 0.02)

    def numbers(self, start: int, T: int) -> Float[Tensor, "T"]:
        """Return the number that stands for each of the positions start … start + T."""
        return torch.arange(start, start + T, device=self.direction.device).float()

    def embed(self, x: Float[Tensor, "B T D"], start: int = 0) -> Float[Tensor, "B T D"]:
        return x + (self.numbers(start, x.shape[1])[:, None] * self.direction).to(x.dtype)


@register_position("fraction")
class Fraction(Index):
    """Adds pos / max_len · w: numbers from 0 to 1, whose steps are the smaller the longer texts may be."""

    @property
    def limit(self) -> int:
        return self.max_len

    def numbers(self, start: int, T: int) -> Float[Tensor, "T"]:
        if start + T > self.max_len:
            raise ValueError(
                f"position {start + T - 1} is no fraction of max_len={self.max_len}; "
                "shorten the input or train with a larger max_len"
            )
        return super().numbers(start, T) / self.max_len


@register_position("concatenated")
class Concatenated(Position):
    """Sinusoids concatenated to the token vector instead of added, and projected back to the width."""

    def __init__(self, **sizes: int) -> None:
        super().__init__(**sizes)
        self.waves = Sinusoidal(**sizes)
        self.project = nn.Linear(2 * self.dim, self.dim, bias=False)

    def embed(self, x: Float[Tensor, "B T D"], start: int = 0) -> Float[Tensor, "B T D"]:
        waves = self.waves.embed(torch.zeros_like(x), start)
        return self.project(torch.cat([x, waves], dim=-1))


def rotated(x: Tensor, cos: Tensor, sin: Tensor, sign: float = 1.0) -> Tensor:
    """Rotate pairs (i, i + K/2) of the last axis, backwards for sign −1; `sin` is negative for the first of a pair."""
    return torch.addcmul(x * cos, x.roll(x.shape[-1] // 2, -1), sin, value=sign)


class _Rotation(torch.autograd.Function):
    """`rotated`, with a backward pass that rotates the gradient back instead of keeping intermediates."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        ctx.save_for_backward(cos, sin)
        return rotated(x, cos, sin)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        cos, sin = ctx.saved_tensors
        return rotated(grad, cos, sin, -1.0), None, None


@register_position("rotary")
class Rotary(Position):
    """Rotates pairs of q and k by an angle that grows with position: q·k then depends on the distance only.

    Pairs are (i, i + K/2), as in GPT-NeoX and the Hugging Face layout (Su et al., 2021, pairs neighbours).
    `stretch` slows the rotation, so that texts longer than those trained on meet no new angles. With `trained`, the
    length that was trained on, pairs with more than `fast` full turns in it keep their rate, and only those below
    `slow` are slowed in full (Llama 3.1).
    """

    rotates = True
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
            raise ValueError(f"rotary positions rotate pairs: head_dim={self.head_dim} must be even")
        if fast <= slow:
            raise ValueError(f"rotary positions: fast={fast} must be above slow={slow}")
        self.base, self.stretch, self.trained, self.slow, self.fast = base, stretch, trained, slow, fast
        self.register_buffer("angles", self.rows(self.max_len), persistent=False)

    def rates(self) -> Float[Tensor, "N"]:
        """Return the radians by which each pair rotates from one position to the next."""
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
        return _Rotation.apply(x, cos, sin) if x.requires_grad else rotated(x, cos, sin)

    def rotations(self, T: int) -> Float[Tensor, "2 T K"]:
        return self.rows(T).to(self.angles).contiguous()


class DistanceBias(Bias):
    """A bias that depends on the head and the distance j − i only, as its scheme computes it."""

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
    """Return 2^(−8i/H) for a power of two; otherwise those of the next smaller one, then every other of the next."""
    whole = 2 ** int(math.log2(heads))
    slopes = [2.0 ** (-8 * (i + 1) / whole) for i in range(whole)]
    slopes += [2.0 ** (-4 * (2 * i + 1) / whole) for i in range(heads - whole)]
    return torch.tensor(slopes)


@register_position("relative")
class RelativeBias(Position):
    """A learned bias for each head and distance, far distances sharing logarithmic buckets (T5).

    `inside_scale` scales it together with q·k, (q·k + r)/√d; otherwise it is added after scaling.
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
        """Return the bucket of each distance: half exact, half logarithmic up to `far`; by side if not causal."""
        count = self.buckets if causal else self.buckets // 2
        side = torch.zeros_like(distance) if causal else (distance > 0).long() * count
        reach = (-distance).clamp(min=0) if causal else distance.abs()
        exact = count // 2
        ratio = (reach.float().clamp(min=1) / exact).log() / math.log(self.far / exact)
        log = exact + (ratio * (count - exact)).long()
        return side + torch.where(reach < exact, reach, log.clamp(max=count - 1))

    def bias(self, *, causal: bool = False) -> Bias:
        return DistanceBias(self, causal)
