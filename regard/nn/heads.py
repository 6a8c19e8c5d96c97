"""Heads: what is computed from the vectors of an encoder."""

from typing import Literal

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.nn.dropout import Dropout
from regard.nn.embeddings import Embedding
from regard.nn.feedforward import ACTIVATIONS
from regard.nn.norm import build_norm


class MaskHead(nn.Module):
    """Logits over the vocabulary for masked tokens: norm(act(x W)), then the embedding's matrix and a bias."""

    def __init__(self, dim: int, embedding: Embedding, *, activation: str, norm: str, eps: float) -> None:
        super().__init__()
        vocab, width = embedding.weight.shape
        self.dense = nn.Linear(dim, width)
        self.norm = build_norm(norm, width, eps)
        self.activation = ACTIVATIONS[activation]
        self.weight = embedding.weight
        self.bias = nn.Parameter(torch.zeros(vocab))

    def cost_note(self, training: bool) -> str:
        """Return a remark on this head's cost, printed below the figures."""
        return "the head is counted for every token; in training only hidden tokens reach it" if training else ""

    def transform(self, x: Float[Tensor, "*N D"]) -> Float[Tensor, "*N E"]:
        """Apply the dense layer, activation and norm that precede the product with the vocabulary's matrix."""
        return self.norm(self.activation(self.dense(x)))

    def forward(self, x: Float[Tensor, "*N D"]) -> Float[Tensor, "*N V"]:
        return F.linear(self.transform(x), self.weight, self.bias)


class Pooler(nn.Module):
    """One vector for a text, from its first token: act(x₀ W)."""

    def __init__(self, dim: int, *, activation: Literal["tanh", "relu"]) -> None:
        super().__init__()
        self.dense = nn.Linear(dim, dim)
        self.activation = torch.tanh if activation == "tanh" else F.relu

    def forward(self, x: Float[Tensor, "B T D"]) -> Float[Tensor, "B D"]:
        return self.activation(self.dense(x[:, 0]))


class LabelHead(nn.Module):
    """Logits over labels, for a text or for each of its tokens."""

    def __init__(self, dim: int, labels: int, *, dropout: float) -> None:
        super().__init__()
        self.dropout = Dropout(dropout)
        self.out = nn.Linear(dim, labels)

    def forward(self, x: Float[Tensor, "*N D"]) -> Float[Tensor, "*N L"]:
        return self.out(self.dropout(x))


def mean_pool(x: Float[Tensor, "B T D"], lengths: Int[Tensor, "B"]) -> Float[Tensor, "B D"]:
    """Return the mean over each row's tokens, without padding."""
    real = torch.arange(x.shape[1], device=x.device) < lengths[:, None]
    return (x * real[:, :, None]).sum(1) / lengths[:, None]


class BoxHead(nn.Module):
    """Three layers from a query's vector to its box: centre (column, row), width and height, before their sigmoid."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(dim, width) for width in (dim, dim, 4))

    def forward(self, x: Float[Tensor, "*N D"]) -> Float[Tensor, "*N 4"]:
        for layer in self.layers:
            x = layer(x if layer is self.layers[0] else F.relu(x))
        return x


def split_predictions(answers: Float[Tensor, "*N C"]) -> tuple[Float[Tensor, "*N L"], Float[Tensor, "*N 4"]]:
    """Split a detector's outputs into logits and boxes: centre (column, row), width, height in [0, 1]."""
    scores, boxes = answers.split([answers.shape[-1] - 4, 4], dim=-1)
    return scores, boxes.sigmoid()
