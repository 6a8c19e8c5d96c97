"""ELMo (Peters et al., 2018): language models of both directions, whose layers are mixed to a vector of each token.

Unlike recurrent.py: a second stack reads from the right; tokens may be spelled by a convolution over their characters.
Unlike bert.py: the two directions never see each other before they are mixed.
ids B T → embed B T D → LSTM layers, left to right and right to left → mix B T 2D; or logits B T V from both sides
"""

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.config import check_fractions, check_positive
from regard.nn.dropout import Dropout
from regard.nn.heads import mean_pool
from regard.nn.recurrent import LSTMLayer, reverse
from regard.nn.spelling import SpelledWords
from regard.registry import register_model

LONGEST_WORD = 1000


@dataclass(frozen=True, kw_only=True, slots=True)
class BiLSTMConfig:
    """Sizes of a language model of both directions."""

    vocab_size: int = 32_000
    """Entries of the vocabulary; of a model that reads characters, these."""
    dim: int = 256
    """Width of tokens and of each direction's states."""
    hidden_dim: int | None = None
    """Width of the cells, if it is projected to `dim` (none: dim)."""
    depth: int = 2
    """Layers of each direction."""
    residual: bool = True
    """Layers after the first add to their input."""
    clip: float | None = None
    """Largest absolute value of cells and states (none: any)."""
    filters: tuple[int, ...] = ()
    """Filters of each width, from 1 character on, that spell a word (none: a table of tokens)."""
    character_dim: int = 16
    """Width of a character, where words are spelled."""
    word_length: int = 50
    """Characters of a word, its ends included, where words are spelled."""
    highway: int = 2
    """Highway layers behind the filters."""
    mix: tuple[float, ...] = ()
    """Weights of the layers in a token's vector, that of the token itself first (none: all alike)."""
    dropout: float = 0.1
    """Dropout on embeddings, between layers and before the output."""
    max_len: int = 1024
    """Longest sequence expected; not a limit."""

    def __post_init__(self) -> None:
        check_positive(self, "vocab_size", "dim", "hidden_dim", "depth", "character_dim", "word_length", "max_len")
        check_fractions(self, "dropout")
        if self.word_length > LONGEST_WORD:  # no weight has this size
            raise ValueError(f"word_length={self.word_length} must be at most {LONGEST_WORD}")
        if self.clip is not None and self.clip <= 0:
            raise ValueError(f"clip={self.clip} must be positive, or none")
        if self.mix and len(self.mix) != self.depth + 1:
            raise ValueError(f"mix has {len(self.mix)} weights; give {self.depth + 1}: of tokens and of each layer")

    @property
    def characters(self) -> int:
        """Entries of `ids` for each token."""
        return self.word_length if self.filters else 1


@register_model("bilstm")
class BiLSTM(nn.Module):
    """Two stacks of LSTM layers over one embedding, and logits of a token from its left and its right."""

    config_class = BiLSTMConfig
    task = "contextual"
    two_sided = True
    presets: ClassVar[dict[str, dict[str, Any]]] = {
        "tiny": dict(dim=128),
        "small": dict(dim=384),
        "elmo": dict(
            vocab_size=262, dim=512, hidden_dim=4096, clip=3.0, filters=(32, 32, 64, 128, 256, 512, 1024), dropout=0.0
        ),
    }

    def __init__(self, config: BiLSTMConfig) -> None:
        super().__init__()
        self.config, D = config, config.dim
        if config.filters:
            self.embedding: nn.Module = SpelledWords(
                config.vocab_size, D, config.character_dim, config.filters, config.highway
            )
        else:
            self.embedding = nn.Embedding(config.vocab_size, D)
            nn.init.normal_(self.embedding.weight, std=0.1)
        self.stacks = nn.ModuleList(
            nn.ModuleList(LSTMLayer(D, config.hidden_dim or D, D, clip=config.clip) for _ in range(config.depth))
            for _ in ("left to right", "right to left")
        )
        self.dropout = Dropout(config.dropout)
        self.drops = nn.ModuleList(  # behind each layer
            nn.ModuleList(Dropout(config.dropout) for _ in range(config.depth)) for _ in self.stacks
        )
        self.head = None if config.filters else nn.Linear(D, config.vocab_size)

    def layers(
        self, ids: Int[Tensor, "B N"], lengths: Int[Tensor, "B"] | None = None, state: list[list[Tensor]] | None = None
    ) -> tuple[list[Float[Tensor, "B T E"]], list[list[Tensor]]]:
        """Return the vectors of tokens, then of each layer, both directions side by side, and the last states.

        Padding is on the right and never read. `state` goes on from another text.
        """
        config, size = self.config, self.config.characters
        words = ids.unflatten(1, (-1, size)) if config.filters else ids
        count = torch.full((len(ids),), words.shape[1]) if lengths is None else lengths // size
        drops: Any = self.drops
        x = self.dropout(self.embedding(words))
        sides: list[list[Tensor]] = []
        states: list[list[Tensor]] = []
        stacks: Any = self.stacks
        for side, stack in enumerate(stacks):
            h, outputs = (reverse(x, count) if side else x), []
            for depth, layer in enumerate(stack):
                before = None if state is None else state[len(states)]
                out, last = layer(drops[side][depth - 1](h) if depth else h, count, before)
                h = h + out if depth and config.residual else out
                outputs.append(reverse(h, count) if side else h)
                states.append(last)
            sides.append(outputs)
        both = [torch.cat(pair, dim=-1) for pair in zip(*sides, strict=True)]
        return [torch.cat([x, x], dim=-1), *both], states

    def mixed(self, layers: list[Float[Tensor, "B T E"]]) -> Float[Tensor, "B T E"]:
        """Return the weighted sum of the layers."""
        weights = self.config.mix or [1 / len(layers)] * len(layers)
        return sum((weight * layer for weight, layer in zip(weights, layers, strict=True)), torch.zeros_like(layers[0]))

    def features(self, ids: Int[Tensor, "B N"]) -> Float[Tensor, "B T E"]:
        """Return the mixed vector of each token."""
        return self.mixed(self.layers(ids)[0])

    def directions(self, ids: Int[Tensor, "B T"]) -> tuple[Float[Tensor, "B T D"], Float[Tensor, "B T D"]]:
        """Return what is known at each token from it and its left, and from it and its right."""
        drops: Any = self.drops
        left, right = self.layers(ids)[0][-1].chunk(2, dim=-1)
        return drops[0][-1](left), drops[1][-1](right)

    def forward(self, ids: Int[Tensor, "B N"]) -> Float[Tensor, "B T V"]:
        """Return the logits of each token from those before and those behind it; without a head, vectors."""
        if self.head is None:
            return self.features(ids)
        left, right = self.directions(ids)
        nothing = torch.zeros_like(left[:, :1])
        around = torch.cat([nothing, left[:, :-1]], dim=1) + torch.cat([right[:, 1:], nothing], dim=1)
        return self.head(around)

    def embed(self, ids: Int[Tensor, "B N"], lengths: Int[Tensor, "B"]) -> Float[Tensor, "B E"]:
        """Return the mean of each text's mixed vectors."""
        return mean_pool(self.mixed(self.layers(ids, lengths)[0]), lengths // self.config.characters)

    def layer_vectors(self, ids: Int[Tensor, "B N"], lengths: Int[Tensor, "B"]) -> list[Float[Tensor, "B T E"]]:
        """Return the vectors of tokens behind each layer, the first ones without context."""
        return self.layers(ids, lengths)[0]
