"""Recurrent language models, for comparison with GPT under the same data, training and decoding.

Unlike gpt.py: the past is one state of fixed size instead of all earlier tokens.
ids B T → embed B T D → cells, one position after the other → logits B T V
"""

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.config import check_fractions, check_positive
from regard.nn.dropout import Dropout
from regard.nn.embeddings import Embedding, Head
from regard.nn.positions import Position
from regard.nn.recurrent import Recurrent
from regard.registry import register_model


@dataclass(frozen=True, kw_only=True, slots=True)
class RecurrentConfig:
    """Sizes of a recurrent language model."""

    vocab_size: int = 32_000
    """Entries of the vocabulary."""
    dim: int = 256
    """Width of embeddings and states."""
    depth: int = 2
    """Recurrent layers."""
    cell: Literal["rnn", "gru", "lstm"] = "lstm"
    """Kind of recurrent cell."""
    dropout: float = 0.1
    """Dropout on embeddings, between layers and before the output."""
    max_len: int = 1024
    """Longest sequence expected; not a limit."""

    def __post_init__(self) -> None:
        check_positive(self, "vocab_size", "dim", "depth", "max_len")
        check_fractions(self, "dropout")


class RecurrentState:
    """State of a recurrent model."""

    def __init__(self) -> None:
        self.length = 0
        self.state: list[Tensor] | None = None

    constant = True
    """Its size is independent of the number of tokens read."""

    def join(self, states: "list[RecurrentState]") -> "RecurrentState":
        """Concatenate states into one batch; sequences of different lengths have states of one size."""
        other = RecurrentState()
        other.length = max(state.length for state in states)
        other.state = [torch.cat(parts, dim=1) for parts in zip(*(state.state or [] for state in states), strict=True)]
        return other

    def select(self, rows: Int[Tensor, "N"], sources: Int[Tensor, "M"] | None = None) -> None:
        if self.state is not None:
            self.state = [part[:, rows] for part in self.state]


class RecurrentLM(nn.Module):
    """Embedding, recurrent layers, and logits over the next token."""

    reads: ClassVar[tuple[str, ...]] = ()
    config_class: ClassVar[type[RecurrentConfig]] = RecurrentConfig
    task = "generate"
    presets: ClassVar[dict[str, dict[str, Any]]] = {
        "tiny": dict(dim=128),
        "small": dict(dim=384),
        "base": dict(dim=768),
    }

    def __init__(self, config: RecurrentConfig) -> None:
        super().__init__()
        self.config, D = config, config.dim
        no_position = Position(dim=D, heads=1, head_dim=D, max_len=config.max_len)
        self.embedding = Embedding(config.vocab_size, D, no_position, dropout=config.dropout)
        self.layers = Recurrent(config.cell, D, D, depth=config.depth, dropout=config.dropout)
        self.readout = nn.Linear(D, D)
        self.dropout = Dropout(config.dropout)
        self.head = Head(config.vocab_size, D, tied=self.embedding)

    def text_tower(self) -> Recurrent:
        """The recurrent layers."""
        return self.layers

    def features(self, ids: Int[Tensor, "B T"], *, cache: RecurrentState | None = None) -> Float[Tensor, "B T D"]:
        """Return the input of the head. Padding is on the right, where nothing follows it."""
        state = cache.state if cache is not None else None
        x, state = self.layers(self.embedding(ids), state)
        if cache is not None:
            cache.state, cache.length = state, cache.length + ids.shape[1]
        return self.dropout(self.readout(x).tanh())

    def forward(self, ids: Int[Tensor, "B T"]) -> Float[Tensor, "B T V"]:
        return self.head(self.features(ids))

    def new_cache(self, room: int) -> RecurrentState:
        return RecurrentState()

    def prefill(self, prefix: Int[Tensor, "B T"], cache: RecurrentState) -> Float[Tensor, "B V"]:
        return self.head(self.features(prefix, cache=cache)[:, -1])

    def step(self, ids: Int[Tensor, "B"], cache: RecurrentState) -> Float[Tensor, "B V"]:
        return self.prefill(ids[:, None], cache)


@dataclass(frozen=True, kw_only=True, slots=True)
class RNNConfig(RecurrentConfig):
    """Elman's cell."""

    cell: Literal["rnn"] = "rnn"


@dataclass(frozen=True, kw_only=True, slots=True)
class GRUConfig(RecurrentConfig):
    """Gated recurrent units."""

    cell: Literal["gru"] = "gru"


@dataclass(frozen=True, kw_only=True, slots=True)
class LSTMConfig(RecurrentConfig):
    """Long short-term memory."""

    cell: Literal["lstm"] = "lstm"


@register_model("rnn")
class RNN(RecurrentLM):
    """A plain recurrent language model."""

    config_class = RNNConfig


@register_model("gru")
class GRU(RecurrentLM):
    """A language model of gated recurrent units."""

    config_class = GRUConfig


@register_model("lstm")
class LSTM(RecurrentLM):
    """A language model with long short-term memory."""

    config_class = LSTMConfig
