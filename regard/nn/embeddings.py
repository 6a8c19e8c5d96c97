"""Tokens to vectors, and vectors back to scores over tokens."""

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.nn.dropout import dropout
from regard.nn.positions import Position


class Embedding(nn.Module):
    """Token vectors · √D, plus positions. Started at variance 1/D, so that √D brings them to the waves' size."""

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
    ) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(vocab_size, dim) * dim**-0.5) if tied is None else tied.weight
        self.scale = dim**0.5 if scaled else 1.0
        self.dropout = dropout
        self.position = position

    def forward(self, ids: Int[Tensor, "B T"], start: int = 0) -> Float[Tensor, "B T D"]:
        x = F.embedding(ids, self.weight) * self.scale
        return dropout(self.position.embed(x, start), self.dropout, self.training)


class Head(nn.Module):
    """Scores over the vocabulary. `tied` uses an embedding's own matrix instead of one more."""

    def __init__(self, vocab_size: int, dim: int, *, tied: Embedding | None = None, bias: bool = False) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(vocab_size, dim) * dim**-0.5) if tied is None else tied.weight
        self.bias = nn.Parameter(torch.zeros(vocab_size)) if bias else None

    def forward(self, x: Float[Tensor, "*N D"]) -> Float[Tensor, "*N V"]:
        return F.linear(x, self.weight, self.bias)
