"""Attention masks: small rules over positions that combine with `&`, `|` and `~`.

A rule can be evaluated for any block of query and key positions, so no n × n tensor is needed to state it: `(causal() &
window(128) & padding(lengths)).dense(5, 5)` evaluates it for five queries and keys.
"""

import copy
import math
import operator
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

Value = TypeVar("Value")
Rows = Int[Tensor, "*N T 1"]
Columns = Int[Tensor, "*N 1 S"]
Allowed = Bool[Tensor, "*B T S"]


class Rule:
    """A rule over positions of queries and keys, whose values are cached by shape."""

    start = 0
    """Absolute position of the first query: not 0 where a cache holds what came before."""

    def positions(
        self, T: int, S: int, device: torch.device | None = None
    ) -> tuple[Int[Tensor, "T 1"], Int[Tensor, "1 S"]]:
        """Return the positions of queries start … start+T and of keys 0 … S, on a device or else the rule's own."""
        device = device or self.device
        i = torch.arange(self.start, self.start + T, device=device)
        return i[:, None], torch.arange(S, device=device)[None, :]

    @property
    def known(self) -> dict[Any, Any]:
        """The cached values: the layers of a stack ask for the same ones."""
        return self.__dict__.setdefault("_dense", {})

    def kept(self, key: tuple[Any, ...], make: Callable[[], Value]) -> Value:
        """Return what `make` returns, computed once for each key; symbolic sizes of an exported graph are no key."""
        if any(isinstance(size, torch.SymInt) for size in key):
            return make()
        if key not in self.known:
            self.known[key] = make()
        return self.known[key]

    def forget(self) -> None:
        """Clear the cache: its tensors may lack gradients, or their graph is used up."""
        self.__dict__.pop("_dense", None)

    def at(self, start: int) -> Any:
        """Return this rule for queries that begin at position `start`."""
        return self if self.start == start else self.changed(start=start)

    def changed(self, **fields: Any) -> Any:
        """Return a copy with other fields and an empty cache."""
        other = copy.copy(self)
        other.forget()
        for name, value in fields.items():
            object.__setattr__(other, name, value)
        return other

    @property
    def device(self) -> torch.device:
        """The device of the rule's tensors; the CPU if it has none."""
        cpu = torch.device("cpu")
        devices = (value.device for value in vars(self).values() if isinstance(value, Tensor | Rule))
        return next((device for device in devices if device != cpu), cpu)


class Mask(Rule):
    """A rule: True where the query at position i may attend to the key at position j."""

    is_causal = False
    """Exactly "j ≤ i": a kernel may use its own causal path instead of a tensor."""
    is_everything = False
    """Every query sees every key: a kernel needs no mask at all."""
    hides_future = False
    """No query sees a key to its right, so a cache may be filled step by step."""
    is_keywise = False
    """Depends on the key alone (as padding does): queries may be regrouped."""

    def allowed(self, i: Rows, j: Columns) -> Allowed:
        """Evaluate the rule at absolute positions, for one block of them or for several at once (axes `*N`).

        A batch axis comes first where the rows of a batch differ.
        """
        raise NotImplementedError

    def dense(self, T: int, S: int, device: torch.device | None = None) -> Bool[Tensor, "#B 1 T S"]:
        """Return the rule for queries start … start+T and keys 0 … S, ready to broadcast over B H T S. A rule without
        tensors, as `causal()`, is on no device: give it that of the scores."""

        def evaluate() -> Tensor:
            block = self.allowed(*self.positions(T, S, device))
            return block.unsqueeze(-3) if block.dim() == 3 else block[None, None]

        return self.kept((T, S, device), evaluate)

    def added(self, T: int, S: int, like: Tensor) -> Float[Tensor, "#B 1 T S"]:
        """Return the dense mask as numbers to add to attention scores, of the type and device of `like`: 0 where it
        allows, −∞ elsewhere."""

        def evaluate() -> Tensor:
            dense = self.dense(T, S, like.device)
            return torch.zeros_like(dense, dtype=like.dtype).masked_fill_(~dense, -math.inf)

        return self.kept((T, S, like.dtype, like.device), evaluate)

    def select(self, rows: Int[Tensor, "N"]) -> "Mask":
        """Return this rule for a selection of rows of the batch, which is the first axis of its tensors."""
        own = vars(self).items()
        tensors = {name: value[rows] for name, value in own if isinstance(value, Tensor)}
        rules = {name: value.select(rows) for name, value in own if isinstance(value, Mask)}
        return self.changed(**tensors, **rules) if tensors or rules else self

    def __and__(self, other: "Mask") -> "Mask":
        start = _common_start(self, other)
        if self.is_everything or other.is_everything:
            return (other if self.is_everything else self).at(start)
        return _Combined(self, other, operator.and_, "&").at(start)

    def __or__(self, other: "Mask") -> "Mask":
        start = _common_start(self, other)
        if self.is_everything or other.is_everything:
            return (self if self.is_everything else other).at(start)
        return _Combined(self, other, operator.or_, "|").at(start)

    def __invert__(self) -> "Mask":
        return _Not(self).at(self.start)


def conjuncts(mask: Mask) -> list[Mask]:
    """Return the rules that `&` joins, each at its mask's start; none for no restriction."""
    if isinstance(mask, _Combined) and mask.symbol == "&":
        return [*conjuncts(mask.left.at(mask.start)), *conjuncts(mask.right.at(mask.start))]
    return [] if mask.is_everything else [mask]


def _common_start(left: Mask, right: Mask) -> int:
    """Return the start of two rules to be combined; one that was not moved takes the other's."""
    if left.start and right.start and left.start != right.start:
        raise ValueError(
            f"{left!r} begins at position {left.start}, {right!r} at {right.start}; combine them first, then use .at"
        )
    return left.start or right.start


@dataclass(frozen=True)
class _Combined(Mask):
    left: Mask
    right: Mask
    combine: Callable[[Tensor, Tensor], Tensor]
    symbol: str

    @property
    def hides_future(self) -> bool:  # type: ignore[override]
        both = (self.left.hides_future, self.right.hides_future)
        return any(both) if self.symbol == "&" else all(both)

    @property
    def is_keywise(self) -> bool:  # type: ignore[override]
        return self.left.is_keywise and self.right.is_keywise

    def allowed(self, i: Rows, j: Columns) -> Allowed:
        return self.combine(self.left.allowed(i, j), self.right.allowed(i, j))

    def __repr__(self) -> str:
        return f"({self.left!r} {self.symbol} {self.right!r})"


@dataclass(frozen=True)
class _Not(Mask):
    rule: Mask

    @property
    def is_keywise(self) -> bool:  # type: ignore[override]
        return self.rule.is_keywise

    def allowed(self, i: Rows, j: Columns) -> Allowed:
        return ~self.rule.allowed(i, j)

    def __repr__(self) -> str:
        return f"~{self.rule!r}"


@dataclass(frozen=True)
class everything(Mask):  # noqa: N801  rules read as words: causal() & padding(lengths)
    """No restriction."""

    is_everything = True
    is_keywise = True

    def allowed(self, i: Rows, j: Columns) -> Allowed:
        return (i >= 0) & (j >= 0)


@dataclass(frozen=True)
class causal(Mask):  # noqa: N801
    """Keys up to and including the query's own position."""

    is_causal = True
    hides_future = True

    def allowed(self, i: Rows, j: Columns) -> Allowed:
        return j <= i


@dataclass(frozen=True, eq=False)
class padding(Mask):  # noqa: N801
    """Keys before each row's length: padding is hidden."""

    lengths: Int[Tensor, "B"]
    is_keywise = True

    def allowed(self, i: Rows, j: Columns) -> Allowed:
        lengths = self.lengths.view(-1, *[1] * j.dim())
        return ((j < lengths) & (i >= 0)).contiguous()

    def __repr__(self) -> str:
        return f"padding({self.lengths.tolist()})"


@dataclass(frozen=True, eq=False)
class valid_keys(Mask):  # noqa: N801
    """Keys whose flag is True in each row, wherever they lie: such as cells of a feature map without padding."""

    real: Bool[Tensor, "B S"]
    is_keywise = True

    def allowed(self, i: Rows, j: Columns) -> Allowed:
        return (self.real[:, j] & (i >= 0)).contiguous()


@dataclass(frozen=True)
class window(Mask):  # noqa: N801
    """Keys at most `radius` positions away, on both sides."""

    radius: int

    def allowed(self, i: Rows, j: Columns) -> Allowed:
        return (i - j).abs() <= self.radius


@dataclass(frozen=True)
class strided(Mask):  # noqa: N801
    """Keys whose distance is a multiple of `stride`."""

    stride: int

    def allowed(self, i: Rows, j: Columns) -> Allowed:
        return (i - j) % self.stride == 0


@dataclass(frozen=True)
class global_tokens(Mask):  # noqa: N801
    """The first `count` positions attend to all and are attended to by all."""

    count: int

    def allowed(self, i: Rows, j: Columns) -> Allowed:
        return (i < self.count) | (j < self.count)


@dataclass(frozen=True)
class prefix(Mask):  # noqa: N801
    """Keys among the first `length` positions, for all queries: `causal() | prefix(n)` is a prefix language model."""

    length: int
    is_keywise = True

    def allowed(self, i: Rows, j: Columns) -> Allowed:
        return (j < self.length) & (i >= 0)


@dataclass(frozen=True, eq=False)
class segments(Mask):  # noqa: N801
    """Keys of the query's own segment, as for several documents packed into one row."""

    ids: Int[Tensor, "B N"]

    def allowed(self, i: Rows, j: Columns) -> Allowed:
        return self.ids[:, i] == self.ids[:, j]


@dataclass(frozen=True, eq=False)
class edges(Mask):  # noqa: N801
    """The edges of a graph: node i sees node j where `adjacency[…, i, j]` is True."""

    adjacency: Bool[Tensor, "*B N N"]

    def allowed(self, i: Rows, j: Columns) -> Allowed:
        return self.adjacency[..., i, j]

    def select(self, rows: Int[Tensor, "N"]) -> Mask:
        return self if self.adjacency.dim() == 2 else super().select(rows)


@dataclass(frozen=True, eq=False)
class neighbours(Mask):  # noqa: N801
    """The edges of sparse graphs as a list: in row b, node i sees node j for each pair (i, j); −1 fills the list up.

    The kernel `edges` reads the list itself; others get a matrix.
    """

    pairs: Int[Tensor, "B E 2"]

    def allowed(self, i: Rows, j: Columns) -> Allowed:
        size = 1 + max(int(x.max()) for x in (i, j, self.pairs) if x.numel())
        real = self.pairs[..., 0] >= 0
        rows = torch.arange(len(self.pairs), device=real.device)[:, None].expand_as(real)[real]
        adjacency = torch.zeros(len(self.pairs), size, size, dtype=torch.bool, device=real.device)
        adjacency[rows, self.pairs[real][:, 0], self.pairs[real][:, 1]] = True
        return adjacency[:, i, j]

    def __repr__(self) -> str:
        return f"neighbours({tuple(self.pairs.shape)})"
