"""Recurrent sequence-to-sequence models, the predecessors of the Transformer.

A bidirectional recurrent encoder; a recurrent decoder that either gets one fixed vector (Sutskever et al. and
Cho et al., 2014) or attends to every source position (Bahdanau et al., 2015; Luong et al., 2015).
The attention is the core's kernels on states that are projected here.
source B S → h B S D;  z_t = RNN([y_{t−1}; c_t], z_{t−1}),  c_t = Σ_j α_tj h_j,  α_t = softmax score(z_{t−1}, h_j)
"""

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.config import check_fractions, check_positive
from regard.nn.dropout import Dropout
from regard.nn.embeddings import Embedding, Head
from regard.nn.kernels import build_kernel
from regard.nn.masks import Mask, padding
from regard.nn.positions import Position
from regard.nn.recurrent import Bridge, Recurrent
from regard.registry import register_model


@dataclass(frozen=True, kw_only=True, slots=True)
class Seq2SeqConfig:
    """Sizes of a recurrent encoder–decoder."""

    vocab_size: int = 32_000
    """Entries of the vocabulary, shared by source and target."""
    dim: int = 256
    """Width of embeddings and states; each direction of the encoder has half of it."""
    depth: int = 1
    """Recurrent layers on each side."""
    cell: Literal["rnn", "gru", "lstm"] = "gru"
    """Kind of recurrent cell."""
    score: Literal["none", "additive", "dot", "general"] = "additive"
    """Attention of the decoder: none (one fixed vector), Bahdanau's additive, Luong's dot product or bilinear form."""
    dropout: float = 0.1
    """Dropout on embeddings, between layers and before the output."""
    max_len: int = 1024
    """Longest sequence expected; not a limit."""

    def __post_init__(self) -> None:
        if self.dim < 2 or self.dim % 2:
            raise ValueError(f"dim={self.dim} must be even: each direction of the encoder has half of it")
        check_fractions(self, "dropout")
        check_positive(self, "vocab_size", "depth")


class RecurrentCache:
    """The decoder's state, and the source's states with their keys, which are computed once."""

    def __init__(self) -> None:
        self.length = 0
        self.state: list[Tensor] = []
        self.keys: Tensor | None = None
        self.values: Tensor | None = None
        self.mask: Mask | None = None

    def select(self, rows: Int[Tensor, "N"], sources: Int[Tensor, "M"] | None = None) -> None:
        self.state = [part[:, rows] for part in self.state]
        if sources is not None:
            assert self.keys is not None and self.values is not None
            self.keys, self.values = self.keys[sources], self.values[sources]
            self.mask = None if self.mask is None else self.mask.select(sources)


class RecurrentDecoder(nn.Module):
    """A recurrent decoder that attends to states in its cache; subclasses define what those encode."""

    def __init__(self, config: Seq2SeqConfig) -> None:
        super().__init__()
        self.config = config
        D, dropout = config.dim, config.dropout
        no_position = Position(dim=D, heads=1, head_dim=D, max_len=config.max_len)
        self.embedding = Embedding(config.vocab_size, D, no_position, dropout=dropout)
        self.build_encoder()
        self.key = nn.Linear(D, D) if config.score == "additive" else nn.Identity()
        self.query = nn.Linear(D, D, bias=False) if config.score == "additive" else nn.Identity()
        self.kernel = None
        if config.score != "none":
            name = "full" if config.score == "dot" else config.score
            self.kernel = build_kernel(name, needs=("cached", "crosses"), heads=1, head_dim=D)
        # Luong attends with the state after the step, so the context is not among the step's inputs.
        self.feeds_context = config.score in ("none", "additive")
        inputs = 2 * D if self.feeds_context else D
        self.decoder = Recurrent(config.cell, inputs, D, depth=config.depth, dropout=dropout)
        self.readout = nn.Linear(2 * D, D)
        self.dropout = Dropout(config.dropout)
        self.head = Head(config.vocab_size, D, tied=self.embedding)

    @property
    def stepwise(self) -> bool:
        """Whether the decoder loops over positions."""
        return self.config.score == "additive"

    def build_encoder(self) -> None:
        """Build the modules that make those states and the decoder's first state."""

    def write(self, ids: Int[Tensor, "B T"], cache: RecurrentCache) -> Float[Tensor, "B T D"]:
        """Run the decoder over `ids` from the cached state; return the input of the head."""
        y = self.embedding(ids)
        if self.config.score == "additive":  # c_t needs z_{t−1}: one position after the other
            steps = []
            for y_t in y.split(1, dim=1):
                c_t = self.attend(cache.state[0][-1][:, None], cache)
                z_t, cache.state = self.decoder(torch.cat([y_t, c_t], dim=-1), cache.state)
                steps.append(torch.cat([z_t, c_t], dim=-1))
            joined = torch.cat(steps, dim=1)
        elif self.kernel is not None:
            z, cache.state = self.decoder(y, cache.state)
            joined = torch.cat([z, self.attend(z, cache)], dim=-1)
        else:
            c = self.fixed(cache, y)
            z, cache.state = self.decoder(torch.cat([y, c], dim=-1), cache.state)
            joined = torch.cat([z, c], dim=-1)
        cache.length += ids.shape[1]
        return self.dropout(self.readout(joined).tanh())

    def attend(self, z: Float[Tensor, "B T D"], cache: RecurrentCache) -> Float[Tensor, "B T D"]:
        """Return the context vector of each decoder state. Beams of a sentence are further queries to its one
        source."""
        assert self.kernel is not None and cache.keys is not None and cache.values is not None
        q = self.query(z).reshape(len(cache.keys), 1, -1, z.shape[-1])
        k, v = cache.keys[:, None], cache.values[:, None]
        out, _ = self.kernel(q, k, v, mask=cache.mask, bias=None, scale=1.0, dropout=0.0, weights=False)
        return out.reshape(z.shape)

    def fixed(self, cache: RecurrentCache, y: Float[Tensor, "B T D"]) -> Float[Tensor, "B T D"]:
        """Return the one vector of the whole source, for every step."""
        assert cache.values is not None
        return cache.values.repeat_interleave(len(y) // len(cache.values), dim=0).expand(-1, y.shape[1], -1)

    def new_cache(self, room: int) -> RecurrentCache:
        return RecurrentCache()

    def step(self, ids: Int[Tensor, "B"], cache: RecurrentCache) -> Float[Tensor, "B V"]:
        return self.head(self.write(ids[:, None], cache)[:, -1])


@register_model("seq2seq")
class Seq2Seq(RecurrentDecoder):
    """A recurrent encoder and decoder, with or without attention between them."""

    reads: ClassVar[tuple[str, ...]] = ("source",)
    config_class = Seq2SeqConfig
    task = "translate"
    presets: ClassVar[dict[str, dict[str, Any]]] = {
        "tiny": dict(dim=128),
        "small": dict(dim=256),
        "base": dict(dim=512, depth=2),
        "big": dict(dim=1024, depth=2),
    }

    def build_encoder(self) -> None:
        D, cell, config = self.config.dim, self.config.cell, self.config
        self.encoder = Recurrent(cell, D, D // 2, depth=config.depth, dropout=config.dropout, bidirectional=True)
        self.bridge = Bridge(D, self.encoder.parts)

    def text_tower(self) -> Recurrent:
        """The encoder."""
        return self.encoder

    def read(self, cache: RecurrentCache, source: Int[Tensor, "B S"], lengths: Int[Tensor, "B"]) -> None:
        """Encode the source into the cache. Without attention only its last state is kept."""
        states, last = self.encoder(self.embedding(source), lengths=lengths)
        cache.state = self.bridge(last)
        if self.kernel is None:
            states, lengths = cache.state[0][-1][:, None], torch.ones_like(lengths)
        cache.keys, cache.values, cache.mask = self.key(states), states, padding(lengths)

    def features(
        self, source: Int[Tensor, "B S"], lengths: Int[Tensor, "B"], target: Int[Tensor, "B T"]
    ) -> Float[Tensor, "B T D"]:
        cache = self.new_cache(target.shape[1])
        self.read(cache, source, lengths)
        return self.write(target, cache)

    def forward(
        self, source: Int[Tensor, "B S"], lengths: Int[Tensor, "B"], target: Int[Tensor, "B T"]
    ) -> Float[Tensor, "B T V"]:
        return self.head(self.features(source, lengths, target))

    def prefill(
        self,
        prefix: Int[Tensor, "B T"],
        cache: RecurrentCache,
        *,
        source: Int[Tensor, "B S"],
        lengths: Int[Tensor, "B"],
    ) -> Float[Tensor, "B V"]:
        self.read(cache, source, lengths)
        return self.head(self.write(prefix, cache)[:, -1])
