"""The attention core: project → split heads → position → cache → kernel → merge → project."""

from dataclasses import dataclass
from typing import Any, ClassVar

from jaxtyping import Float
from torch import Tensor, nn

from regard.config import check_positive
from regard.nn.cache import KeyValues
from regard.nn.cut import Cut
from regard.nn.kernels import Need, build_kernel
from regard.nn.masks import Mask
from regard.nn.positions import Bias, Position

MOST_HEADS = 1024
"""Most heads that an error suggests."""


@dataclass(frozen=True, kw_only=True, slots=True)
class AttentionConfig:
    """Sizes and kernel of one attention layer."""

    dim: int
    """Width of the queries' input and of the output."""
    heads: int
    """Query heads."""
    kv_heads: int | None = None
    """Key/value heads; fewer than `heads` are shared (None: as many)."""
    head_dim: int | None = None
    """Size of a head (None: dim / heads)."""
    context_dim: int | None = None
    """Width of the keys' input (None: dim)."""
    bias: bool = True
    """Biases in the four projections."""
    dropout: float = 0.0
    """Dropout on the attention weights."""
    kernel: str = "full"
    """Name of the registered kernel that computes the attention weights."""
    max_len: int = 1024
    """Longest sequence expected; a hard limit only for kernels with parameters for each position."""
    needs: frozenset[Need] = frozenset()
    """Features that the kernel must support: causal masks, a bias, …; checked when the layer is built."""

    def __post_init__(self) -> None:
        check_positive(self, "dim", "heads", "kv_heads", "head_dim", "context_dim")
        if self.head_dim is None and self.dim % self.heads:
            fewer = next(h for h in range(min(self.heads - 1, MOST_HEADS), 0, -1) if self.dim % h == 0)
            raise ValueError(f"heads={self.heads} does not divide dim={self.dim}; use {fewer} or set head_dim")
        if self.heads % (self.kv_heads or self.heads):
            raise ValueError(f"kv_heads={self.kv_heads} does not divide heads={self.heads}")


class Attention(nn.Module):
    """Multi-head attention, self or cross, causal or not, with grouped heads: `mask` and `kernel` decide."""

    matrices: ClassVar[int] = 3
    """The number of matrices for queries, keys and values; of two, the first is for queries and keys."""

    def __init__(self, config: AttentionConfig, position: Position | None = None) -> None:
        super().__init__()
        self.heads, self.kv_heads = config.heads, config.kv_heads or config.heads
        self.head_dim = config.head_dim or config.dim // config.heads
        self.dropout = config.dropout
        inner, context_dim = self.heads * self.head_dim, config.context_dim or config.dim
        self.query = nn.Linear(config.dim, inner, bias=config.bias)
        drops: frozenset[Need] = frozenset({"drops"} if config.dropout else ())
        sizes = dict(heads=self.heads, head_dim=self.head_dim, max_len=config.max_len)
        self.kernel = build_kernel(config.kernel, needs=config.needs | drops, **sizes)
        if self.kernel.shares and self.kv_heads != self.heads:
            raise ValueError(f"kernel {config.kernel!r} has a key for each query head; leave kv_heads unset")
        self.fused = self.matrices == 3 and not self.kernel.shares  # `key_value` holds both matrices
        if self.matrices > 1:
            self.key_value = nn.Linear(context_dim, (1 + self.fused) * self.kv_heads * self.head_dim, bias=config.bias)
        self.out = nn.Linear(inner, config.dim, bias=config.bias)
        self.position = position if position is not None and position.rotates else None
        self.scale: float | None = None  # None: the kernel's own

    def cut(self) -> Cut:
        """Return how its heads may be divided among processes."""
        columns = {"query": 1} | ({"key_value": 1 + self.fused} if self.matrices > 1 else {})
        sizes = {"heads": self.heads, "kv_heads": self.kv_heads}
        return Cut(columns, "out", sizes, (self.kernel.drop, 1), inner=("position",))

    def forward(
        self,
        x: Float[Tensor, "B T D"],
        context: Float[Tensor, "B S C"] | None = None,
        *,
        mask: Mask | None = None,
        bias: Bias | None = None,
        cache: KeyValues | None = None,
        **inputs: Any,
    ) -> Float[Tensor, "B N E"]:
        """Self-attention without `context`. With a `cache`, new keys join those of earlier calls; a cache of a
        fixed context is filled by the first call, and later ones need no `context`. `inputs` go to `project`.
        The result is B T D, except in variants whose `project` pools tokens or widens them."""
        if (context is not None and not self.kernel.crosses) or (bias is not None and not self.kernel.biased):
            raise ValueError(
                f"{type(self.kernel).__name__} attention takes no {'bias' if bias else 'context'}; full does"
            )
        dropout = self.dropout if self.training else 0.0
        options: dict[str, Any] = dict(mask=mask, bias=bias, scale=self.scale, dropout=dropout)
        fixed = cache is not None and cache.fixed
        if cache is not None and fixed and cache.length:
            q = self.queries(x)
            mixed, _ = self.kernel(q, *cache.all(), **options)
        else:
            start = cache.length if cache is not None and not fixed else 0
            q, k, v = self.project(x, context, start=start, **inputs)
            mixed = (
                self.kernel(q, k, v, **options)[0] if cache is None else cache.attend(self.kernel, q, k, v, **options)
            )
        return self.merge(mixed, q)

    def project(
        self, x: Float[Tensor, "B T D"], context: Float[Tensor, "B S C"] | None = None, *, start: int = 0
    ) -> tuple[Float[Tensor, "B H T K"], Float[Tensor, "B G S K"], Float[Tensor, "B G S K"]]:
        """Return q, k and v with their positions; `start` is the first token's position. Variants override this."""
        q, source = self.queries(x, start), x if context is None else context
        if not self.fused:
            return q, q if context is None else self.queries(context, start), self.split(self.key_value(source))
        k, v = self.key_value(source).chunk(2, dim=-1)
        return q, self.rotate(self.split(k), start), self.split(v)

    def queries(self, x: Float[Tensor, "B T D"], start: int = 0) -> Float[Tensor, "B H T K"]:
        return self.rotate(self.split(self.query(x)), start)

    def merge(self, mixed: Float[Tensor, "B H T C"], q: Float[Tensor, "B H T K"]) -> Float[Tensor, "B T E"]:
        """Concatenate the heads' mixed values and project them; `q` is for variants that add the queries."""
        return self.out(mixed.transpose(1, 2).flatten(2))

    def split(self, x: Float[Tensor, "B T N"]) -> Float[Tensor, "B H T K"]:
        return x.unflatten(-1, (-1, self.head_dim)).transpose(1, 2)

    def rotate(self, x: Float[Tensor, "B N T K"], start: int) -> Float[Tensor, "B N T K"]:
        return x if self.position is None else self.position.rotate(x, start)
