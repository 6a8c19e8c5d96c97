"""One input of one model, whatever the family: its sequences, a pass through the model, and what that answers."""

from collections.abc import Sequence
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from regard.inside.page.record import Layer
from regard.tokens.trace import trace

MOST_TOKENS = 1024
"""Of a sequence: a page with more would be no pleasure, and a layer has their square of weights for each head."""
MOST_LETTERS = 160
"""Of a text whose merges are shown one by one: every step has the whole of it."""


class Subject:
    """What a family says of one input. `sequences` are what layers look from and at, as the page takes them."""

    answers: str
    """What the rows of scores are over: next or fill (tokens), labels, tags, span, boxes, match, or a vector."""
    sequence: int | None = 0
    """Which sequence has a row of scores for each token; None where the answer is for the whole input."""
    given = 0
    """Tokens at the start of that sequence in whose place no others can be chosen."""

    def __init__(self, loaded: Any) -> None:
        self.loaded, self.model = loaded, loaded.model
        self.sequences: list[dict[str, Any]] = []
        self.input: dict[str, Any] = {}
        self.ends: list[int] = []

    def run(self) -> Float[Tensor, "P V"]:
        """A pass through the model: scores, or one row that is a vector."""
        raise NotImplementedError

    def names(self, ids: Sequence[int]) -> list[str]:
        """What columns of the scores stand for."""
        return self.loaded.tokenizer.pieces(ids)

    def sides(self, layer: Layer) -> tuple[int, int]:
        """The sequences that a layer looks from, and at."""
        return {"encoder": (0, 0), "decoder": (1, 1)}.get(layer.kind, (1, 0))

    def more(self, layer: Layer) -> dict[str, Any]:
        """What else is to be known of a layer."""
        return {}

    def found(self, scores: Float[Tensor, "P V"]) -> dict[str, Any]:
        """What else the answer has than chances."""
        return {}

    def write(self) -> list[int] | None:
        """How the model goes on by itself, always with its best token; None where it does not write."""
        return None


@torch.inference_mode()
def written(
    model: Any, prefix: Sequence[int], most: int, *, ends: Sequence[int], forbidden: Sequence[int], **inputs: Tensor
) -> list[int]:
    """Greedy tokens behind a prefix, its end among them; hooks on the model's layers are heard."""
    cache = model.new_cache(len(prefix) + most)
    ids: list[int] = []
    scores = model.prefill(torch.tensor([list(prefix)]), cache, **inputs)
    while len(ids) < most:
        scores[:, list(forbidden)] = -torch.inf
        ids.append(int(scores.argmax(-1)))
        if ids[-1] in ends:
            break
        scores = model.step(torch.tensor(ids[-1:]), cache)
    return ids


def told(
    tokenizer: Any, ids: Sequence[int], name: str, title: str, *, texts: Sequence[str] = (),
    segments: Sequence[int] | None = None,
) -> dict[str, Any]:  # fmt: skip
    """Tokens as a sequence of the page; too many are an error."""
    if len(ids) > MOST_TOKENS:
        raise ValueError(f"the {name} has {len(ids):,} tokens, the page shows up to {MOST_TOKENS:,}; give it a part")
    one: dict[str, Any] = {"name": name, "title": title, "tokens": tokenizer.pieces(ids), "ids": list(ids)}
    return one | {"merges": merges(tokenizer, texts), "segments": None if segments is None else list(segments)}


def merges(tokenizer: Any, texts: Sequence[str]) -> list[dict[str, Any]] | None:
    """How pairs became tokens, step by step; None where that is not how it was done, or the text is too long."""
    text = texts[0] if len(texts) == 1 else ""
    if not text or len(text) > MOST_LETTERS:
        return None
    try:
        found = trace(text, tokenizer)
    except ValueError:
        return None
    steps = [{"merge": "", "rank": None, "symbols": list(found.initial)}]
    return steps + [
        {"merge": f"{one.pair[0]} + {one.pair[1]} → {one.symbol}", "rank": one.rank, "symbols": list(one.symbols)}
        for one in found.steps
    ]
