"""Attention with fewer matrices than one each for queries, keys and values."""

from jaxtyping import Float
from torch import Tensor

from regard.nn.attention import Attention


class TwoMatrices(Attention):
    """One matrix for queries and keys, another for values: without positions, i scores j as j scores i."""

    matrices = 2


class OneMatrix(Attention):
    """One matrix for queries, keys and values: a token is looked up by exactly what it contributes."""

    matrices = 1

    def project(
        self, x: Float[Tensor, "B T D"], context: Float[Tensor, "B S C"] | None = None, *, start: int = 0
    ) -> tuple[Float[Tensor, "B H T K"], Float[Tensor, "B G S K"], Float[Tensor, "B G S K"]]:
        v = self.split(self.query(x if context is None else context))
        k = self.rotate(v, start)
        return k if context is None else self.queries(x, start), k, v


SHARING: dict[str, type[Attention]] = {"two": TwoMatrices, "one": OneMatrix}
