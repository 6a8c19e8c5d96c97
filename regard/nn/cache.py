"""Keys and values kept between steps of decoding: preallocated, owned by the caller."""

from collections.abc import Callable
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from regard.nn.masks import Mask


class KeyValues:
    """Keys and values of one attention layer, preallocated for `room` positions.

    `fixed` ones belong to a context that does not grow: filled once, then only read.
    """

    constant = False
    """Whether its size is independent of the number of tokens read."""

    def __init__(self, room: int, *, fixed: bool = False) -> None:
        self.room, self.fixed, self.length = room, fixed, 0
        self.k: Tensor | None = None
        self.v: Tensor | None = None

    def append(
        self, k: Float[Tensor, "B G T K"], v: Float[Tensor, "B G T K"]
    ) -> tuple[Float[Tensor, "B G S K"], Float[Tensor, "B G S K"]]:
        """Store the keys and values of new positions and return all so far."""
        end = self.checked(self.length + k.shape[2])
        if self.k is None or self.v is None:  # the first call determines batch, dtype and device
            B, G, _, K = k.shape
            self.k, self.v = k.new_empty(B, G, self.room, K), v.new_empty(B, G, self.room, K)
        self.k[:, :, self.length : end] = k
        self.v[:, :, self.length : end] = v
        self.length = end
        return self.k[:, :, :end], self.v[:, :, :end]

    def checked(self, end: int) -> int:
        """Return the length after new positions, or raise where there is no room for them."""
        if end > self.room:
            raise ValueError(f"the cache has room for {self.room} positions, got {end}; allocate a longer one")
        return end

    def attend(
        self, kernel: Callable, q: Float[Tensor, "B H T K"], k: Float[Tensor, "B G S K"], v: Float[Tensor, "B G S K"],
        **options: Any,
    ) -> Float[Tensor, "B H T K"]:  # fmt: skip
        """Append the new keys and values and return the kernel's output over all positions so far."""
        return kernel(q, *self.append(k, v), **options)[0]

    @property
    def batch(self) -> int:
        return 0 if self.k is None else len(self.k)

    def all(self) -> tuple[Float[Tensor, "B G S K"], Float[Tensor, "B G S K"]]:
        assert self.k is not None and self.v is not None
        return self.k[:, :, : self.length], self.v[:, :, : self.length]

    def select(self, rows: Int[Tensor, "N"]) -> None:
        """Keep, repeat or reorder rows of the batch."""
        if self.k is None or self.v is None:
            return
        self.k, self.v = self._pick(self.k, rows), self._pick(self.v, rows)

    def _pick(self, old: Float[Tensor, "B G S K"], rows: Int[Tensor, "N"]) -> Float[Tensor, "N G S K"]:
        kept = old if len(rows) == len(old) else old.new_empty((len(rows), *old.shape[1:]))
        kept[:, :, : self.length] = old[:, :, : self.length].index_select(0, rows)
        return kept


class RecentKeyValues(KeyValues):
    """Keys and values of the last `memory` positions alone: segments with memory (Transformer-XL: Dai et al., 2019).

    Positions must count distances, as rotary ones and biases do: a segment sees itself and what is kept, and no more.
    """

    constant = True

    def __init__(self, memory: int) -> None:
        super().__init__(memory)

    def attend(
        self, kernel: Callable, q: Float[Tensor, "B H T K"], k: Float[Tensor, "B G S K"], v: Float[Tensor, "B G S K"],
        **options: Any,
    ) -> Float[Tensor, "B H T K"]:  # fmt: skip
        kept = 0 if self.k is None else self.k.shape[2]
        self.length += k.shape[2]
        if self.k is not None and self.v is not None:
            k, v = torch.cat([self.k, k], dim=2), torch.cat([self.v, v], dim=2)
        for name in ("mask", "bias"):  # both count from the first key that is left
            if options.get(name) is not None:
                options[name] = options[name].at(kept)
        first = max(0, k.shape[2] - self.room)
        self.k, self.v = k[:, :, first:].detach().clone(), v[:, :, first:].detach().clone()
        return kernel(q, k, v, **options)[0]

    def _pick(self, old: Float[Tensor, "B G S K"], rows: Int[Tensor, "N"]) -> Float[Tensor, "N G S K"]:
        return old.index_select(0, rows)


class Cache:
    """Keys and values of all layers: `own` positions, and those of a fixed `source` (cross-attention).

    `mask` hides the source's padding. Rows of `own` may be a multiple of the source's: beams share their source.
    """

    def __init__(self, own: list[KeyValues]) -> None:
        self.own = own
        self.source: list[KeyValues] = []
        self.mask: Mask | None = None

    @property
    def length(self) -> int:
        return self.own[0].length

    @property
    def constant(self) -> bool:
        return all(layer.constant for layer in self.own) and not self.source

    def select(self, rows: Int[Tensor, "N"], sources: Int[Tensor, "M"] | None = None) -> None:
        """Keep rows of the batch; `sources` are the rows of the source to keep, where those change too."""
        for layer in self.own:
            layer.select(rows)
        if sources is not None:
            for layer in self.source:
                layer.select(sources)
            if self.mask is not None:
                self.mask = self.mask.select(sources)
