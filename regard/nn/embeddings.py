"""Token embeddings, and the output layer from vectors to logits over tokens."""

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.nn.dropout import Dropout
from regard.nn.positions import Position


class Embedding(nn.Module):
    """Token vectors · √D, plus positions. Initialised with variance 1/D, so that √D brings them to the sinusoids' size.

    `types` adds a vector for each token type (BERT's segments), `norm` normalises the sum.
    """

    weight: nn.Parameter

    def __init__(
        self,
        vocab_size: int,
        dim: int,
        position: Position,
        *,
        dropout: float,
        scaled: bool = True,
        tied: "Embedding | None" = None,
        types: int = 0,
        norm: nn.Module | None = None,
    ) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(vocab_size, dim) * dim**-0.5) if tied is None else tied.weight
        self.scale = dim**0.5 if scaled else 1.0
        self.dropout = Dropout(dropout)
        self.position = position
        self.types = nn.Parameter(torch.randn(types, dim) * 0.02) if types else None
        self.norm = norm

    def forward(
        self, ids: Int[Tensor, "B T"], start: int = 0, *, types: Int[Tensor, "B T"] | None = None,
        factor: Float[Tensor, "B T"] | None = None,
    ) -> Float[Tensor, "B T D"]:  # fmt: skip
        """Embed tokens that begin at position `start`; without `types` all are of the first type. Token vectors are
        multiplied by their `factor`, if there is one."""
        x = self.vectors(ids) * self.scale
        x = self.position.embed(x if factor is None else x * factor[..., None].to(x), start)
        if self.types is not None:
            x = x + (self.types[0] if types is None else F.embedding(types, self.types))
        if self.norm is not None:
            x = self.norm(x)
        return self.dropout(x)

    def vectors(self, ids: Int[Tensor, "*N"]) -> Float[Tensor, "*N D"]:
        """Return the token vectors alone, without scale, positions, types or norm."""
        return F.embedding(ids, self.weight)


class Head(nn.Module):
    """Output layer: logits over the vocabulary. `tied` shares an embedding's matrix."""

    def __init__(self, vocab_size: int, dim: int, *, tied: Embedding | None = None, bias: bool = False) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(vocab_size, dim) * dim**-0.5) if tied is None else tied.weight
        self.bias = nn.Parameter(torch.zeros(vocab_size)) if bias else None

    def forward(self, x: Float[Tensor, "*N D"]) -> Float[Tensor, "*N V"]:
        return F.linear(x, self.weight, self.bias)
