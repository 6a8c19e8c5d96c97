"""What is to be explained: one input of a model, and which of its scores are asked about.

A language model is asked for the next token at each place, a translator for each token that it writes, a model with
labels for its label, one that fills in for its hidden words, an encoder for how far its vector points where it points.
Every view asks in these terms, so that none of them knows a family.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from regard.inside.sight import Places
from regard.models import DETR
from regard.nn.stack import Stack


@dataclass(frozen=True, slots=True)
class Picture:
    """A picture as the model sees it: its bytes, and which tokens are its patches."""

    pixels: np.ndarray
    places: Places
    first: int
    """Tokens in front of the patches."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """One input, and the outputs that are to be explained."""

    model: Any
    inputs: dict[str, Tensor]
    """What the model takes: a batch of one."""
    says: Callable[[dict[str, Tensor]], Float[Tensor, "B N C"]]
    """From inputs to a row of scores for each output."""
    tokens: list[str]
    """What is read, and may matter; of a translator the source."""
    before: list[str] | None = None
    """What a decoder with a source reads of its own."""
    outputs: list[int]
    """The rows of scores that are asked about."""
    choices: list[int]
    """Which score of each."""
    reads: Float[Tensor, "R T"]
    """From which places each output is read off, as shares."""
    spell: Callable[[int], str]
    """The name of a score."""
    picture: "Picture | None" = None
    """What is read, if it is no text."""
    left_out: int = 0
    """Outputs before these that are not asked about, for there are too many."""
    off: frozenset[tuple[str, int]] = frozenset()
    """Heads that are switched off while it is asked, by layer and number."""

    def heard(self, layer: str, weights: Float[Tensor, "H T S"]) -> Float[Tensor, "H T S"]:
        """The weights of a layer; through a head that is off nothing comes."""
        silent = [head for name, head in self.off if name == layer]
        return weights.index_fill(0, torch.tensor(silent), 0.0) if silent else weights

    @property
    def names(self) -> list[str]:
        """What the outputs say."""
        return [self.spell(choice) for choice in self.choices]

    def scores(self, inputs: dict[str, Tensor] | None = None) -> Float[Tensor, "B R"]:
        """The chosen score of each output."""
        said = self.says(self.inputs if inputs is None else inputs)
        return said[:, self.outputs, self.choices]

    def chances(self, inputs: dict[str, Tensor] | None = None) -> Float[Tensor, "B R"]:
        """The logarithm of its probability; a single score stands for itself."""
        said = self.says(self.inputs if inputs is None else inputs)[:, self.outputs]
        alone = said.shape[-1] == 1
        return (said if alone else said.log_softmax(-1))[:, range(len(self.outputs)), self.choices]

    def loss(self, inputs: dict[str, Tensor] | None = None) -> Float[Tensor, "B"]:
        """The mean of what is wrong with the outputs asked about."""
        return -self.chances(inputs).mean(-1)

    def times(self, count: int) -> dict[str, Tensor]:
        """The same input so many times."""
        return {name: value.expand(count, *value.shape[1:]) for name, value in self.inputs.items()}

    def check_tokens(self) -> None:
        """An error where tokens are not the same in all layers: windows and pooled grids are not places of one text."""
        if not isinstance(self.model, DETR):
            self.stacks  # noqa: B018  its own check

    @property
    def stacks(self) -> dict[str, Stack]:
        """The blocks of the model by name, those that read the tokens first."""
        found = {name: part for name, part in self.model.named_modules() if isinstance(part, Stack)}
        if not found:
            raise ValueError(f"{type(self.model).__name__} has no stack of blocks for this view; use heads or ablation")
        return found
