"""Words by their characters: convolutions of several widths, the maximum over a word, highway layers (Kim et al.,
2016)."""

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

AT_ONCE = 256
"""Words that are spelled together: between a filter and its maximum, each has a value for each character."""


class Highway(nn.Module):
    """g · relu(W x) + (1 − g) · x with a gate g of its own."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.inner, self.gate = nn.Linear(dim, dim), nn.Linear(dim, dim)

    def forward(self, x: Float[Tensor, "*N D"]) -> Float[Tensor, "*N D"]:
        gate = self.gate(x).sigmoid()
        return gate * self.inner(x).relu() + (1 - gate) * x


class SpelledWords(nn.Module):
    """A vector for each word from its characters; character 0 is padding, and zero."""

    def __init__(self, characters: int, dim: int, character_dim: int, filters: tuple[int, ...], highway: int) -> None:
        super().__init__()
        self.characters = nn.Embedding(characters, character_dim, padding_idx=0)
        self.filters = nn.ModuleList(nn.Conv1d(character_dim, count, width) for width, count in enumerate(filters, 1))
        self.highway = nn.Sequential(*(Highway(sum(filters)) for _ in range(highway)))
        self.project = nn.Linear(sum(filters), dim)

    def forward(self, ids: Int[Tensor, "B T C"]) -> Float[Tensor, "B T D"]:
        found = torch.cat([self.filtered(words) for words in ids.flatten(0, 1).split(AT_ONCE)])
        return self.project(self.highway(found)).unflatten(0, ids.shape[:2])

    def filtered(self, ids: Int[Tensor, "N C"]) -> Float[Tensor, "N F"]:
        """The maximum of each filter over the characters of each word."""
        letters = self.characters(ids).mT  # N character_dim C
        return torch.cat([torch.relu(filter(letters).amax(-1)) for filter in self.filters], dim=-1)
