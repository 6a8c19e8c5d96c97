"""A trained encoder with its tokenizer: vectors of texts, and search among them. Every encoder can do this much."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from regard.data.sets.batches import bucket, pad
from regard.tasks.prepared import Prepared
from regard.tasks.prepared_text import read_encoder
from regard.tokens import Framed, Tokenizer

BATCH_TOKENS = 8192


@dataclass(frozen=True, slots=True)
class Match:
    """A text found by a search: its likeness to the query, its place in the corpus, the text."""

    score: float
    place: int
    text: str


class TextEncoder:
    """What `regard.load` returns for a model that reads; its subclasses do what its head was trained for."""

    inputs: ClassVar[tuple[str, ...]] = ("text",)
    answers: ClassVar[str] = "vector"
    """What the model's output is, in the words of `Prepared.answers`."""

    def __init__(self, model: Any, tokenizer: Tokenizer, generation: dict[str, Any] | None = None) -> None:
        self.model, self.tokenizer = model.eval(), tokenizer

    @property
    def context(self) -> int:
        return self.model.config.max_len

    def frame(
        self, texts: Sequence[str], seconds: Sequence[str] | None = None, *, cut: bool = True, **how: Any
    ) -> list[Framed]:
        """Texts (or pairs of them) as the model reads them, cut to its context."""
        if isinstance(texts, str):
            raise ValueError(f"texts is a list; put a single one in brackets: [{texts!r}]")
        return self.tokenizer.frame(texts, seconds, max_len=self.context if cut else None, **how)

    def batches(self, framed: Sequence[Framed]) -> Iterator[tuple[list[int], dict[str, Tensor]]]:
        """Texts of similar length together: their places, and what the model takes."""
        if not framed:
            return
        for group in bucket(np.array([[len(one)] for one in framed]), BATCH_TOKENS, None):
            yield group.tolist(), reading([framed[i] for i in group], self.tokenizer, self.model.config)

    @torch.inference_mode()
    def scores(self, framed: Sequence[Framed]) -> list[Tensor]:
        """What the model's head says of each text, without its padding where there is a row for each token."""
        found: list[Tensor] = [torch.empty(0)] * len(framed)
        for places, inputs in self.batches(framed):
            for place, row in zip(places, self.model(**inputs), strict=True):
                found[place] = row[: len(framed[place])] if row.dim() == 2 else row
        return found

    @torch.inference_mode()
    def embed(self, texts: Sequence[str], *, normalize: bool = True) -> Float[Tensor, "N D"]:
        """A vector for each text, of length 1 unless told otherwise."""
        framed = self.frame(texts)
        vectors = torch.empty(len(framed), self.model.config.dim, dtype=next(self.model.parameters()).dtype)
        for places, inputs in self.batches(framed):
            vectors[places] = self.model.embed(**inputs)
        return F.normalize(vectors, dim=-1) if normalize else vectors

    def read(self, *inputs: Any, **options: Any) -> Prepared:
        """One input, ready to be looked into."""
        return read_encoder(self, *inputs, **options)

    def search(self, query: str, corpus: Sequence[str], *, count: int = 5) -> list[Match]:
        """The texts of a corpus that are most like the query, by the cosine of their vectors."""
        if not corpus:
            return []
        likeness = self.embed(corpus) @ self.embed([query])[0]
        best = likeness.topk(min(count, len(corpus)))
        pairs = zip(best.values.tolist(), best.indices.tolist(), strict=True)
        return [Match(score, place, corpus[place]) for score, place in pairs]


def reading(framed: Sequence[Framed], tokenizer: Tokenizer, config: Any) -> dict[str, Tensor]:
    """Frames as one batch: ids, lengths, and segments where the model has several."""
    inputs = {
        "ids": pad([one.ids for one in framed], tokenizer.pad or 0),
        "lengths": torch.tensor([len(one) for one in framed]),
    }
    if config.types > 1:
        inputs["types"] = pad([one.types for one in framed], 0)
    return inputs
