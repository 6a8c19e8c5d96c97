"""Skip-gram word vectors (Mikolov et al., 2013): one vector for each word, whatever its sentence.

Unlike every other family of texts: nothing is mixed. A word's vector predicts which words stand around it.
ids B T → embed B T D → logits B T V over neighbours
"""

from dataclasses import dataclass
from typing import Any, ClassVar

from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.config import check_positive
from regard.nn.heads import mean_pool
from regard.registry import register_model


@dataclass(frozen=True, kw_only=True, slots=True)
class SkipGramConfig:
    """Sizes of a table of word vectors."""

    vocab_size: int = 30_000
    """Words of the vocabulary."""
    dim: int = 100
    """Width of a vector."""

    def __post_init__(self) -> None:
        check_positive(self, "vocab_size", "dim")


@register_model("skipgram")
class SkipGram(nn.Module):
    """A vector for each word, and one for the word as a neighbour of others."""

    config_class = SkipGramConfig
    task = "words"
    presets: ClassVar[dict[str, dict[str, Any]]] = {"small": dict(dim=100), "base": dict(dim=300)}

    def __init__(self, config: SkipGramConfig) -> None:
        super().__init__()
        self.config = config
        self.embedding = nn.Embedding(config.vocab_size, config.dim)
        self.contexts = nn.Embedding(config.vocab_size, config.dim)
        for table in (self.embedding, self.contexts):
            nn.init.uniform_(table.weight, -0.5 / config.dim, 0.5 / config.dim)

    def features(self, ids: Int[Tensor, "B T"]) -> Float[Tensor, "B T D"]:
        """Return the vector of each word."""
        return self.embedding(ids)

    def forward(self, ids: Int[Tensor, "B T"]) -> Float[Tensor, "B T V"]:
        """Return logits over the words that may stand near each word."""
        return self.features(ids) @ self.contexts.weight.mT

    def embed(self, ids: Int[Tensor, "B T"], lengths: Int[Tensor, "B"]) -> Float[Tensor, "B D"]:
        """Return the mean vector of each text's words."""
        return mean_pool(self.features(ids), lengths)

    def layer_vectors(self, ids: Int[Tensor, "B T"], lengths: Int[Tensor, "B"]) -> list[Float[Tensor, "B T D"]]:
        """Return the vectors of tokens behind each layer; there is only the table."""
        return [self.features(ids)]
