"""Scores of language models on running text, of whatever tokens, beside the simplest predictors; and texts to begin."""

from collections.abc import Callable
from typing import Any

import numpy as np

from regard.data.generated.genome import BASES, generator_bits
from regard.tasks.base import Scored
from regard.tasks.default_texts import DOCUMENTATION, beginnings
from regard.tasks.metrics import text_scores
from regard.tokens import Tokenizer

MOST_BEFORE = 10
"""Most bases before the next one that a chain reads."""
SAMPLE = 24
"""Bases that a sequence is begun with."""


def score_text(
    model: Any, tokenizer: Tokenizer, context: int, text: str, *, known: Callable[[], str], embedded: bool,
    limit: int | None,
) -> Scored:  # fmt: skip
    """Bits per byte of held-out text beside programs that compress the same bytes; of DNA, where a byte is a base,
    beside a chain that was counted in the training text `known`, and the rules that drew the `embedded` sequences."""
    chosen = text[:limit]
    scores = text_scores(model, tokenizer, context, chosen)
    baselines = {name: {"bits_per_byte": scores[name]} for name in ("xz", "bz2")}
    if tokenizer.kind == "dna" and (chain := chain_bits(known(), chosen)) is not None:
        order, bits = chain
        baselines = {"uniform": {"bits_per_byte": 2.0}, f"chain of {order} bases": {"bits_per_byte": round(bits, 4)}}
        if embedded:
            baselines["the rules of the data"] = {"bits_per_byte": round(generator_bits(chosen), 4)}
    beside = ", ".join(f"{name} {each['bits_per_byte']:.3f}" for name, each in baselines.items())
    summary = f"bits per byte {scores['bits_per_byte']:.3f}   ({beside}; {scores['bytes']:,} held-out bytes)"
    return Scored(
        scores=scores, outputs=[], summary=summary, lower=True, total=len(text), unit="characters", baselines=baselines
    )


def chain_bits(known: str, text: str) -> tuple[int, float] | None:
    """The number of bases that a Markov chain reads, and its bits for each base of a text: of all orders the one that
    is best on the last tenth of the text that it was counted in; None where bases are few."""
    train, test = places(known), places(text)
    if len(train) < 1000 or len(test) < 2 * MOST_BEFORE:
        return None
    cut = len(train) - len(train) // 10
    order = min(range(MOST_BEFORE + 1), key=lambda order: chain(train[:cut], train[cut:], order))
    return order, chain(train, test, order)


def places(text: str) -> np.ndarray:
    """The numbers of the bases of a text; other letters are left out."""
    table = np.full(256, -1, dtype=np.int64)
    for number, base in enumerate(BASES):
        table[[ord(base), ord(base.lower())]] = number
    found = table[np.frombuffer(text.encode("latin-1", "replace"), dtype=np.uint8)]
    return found[found >= 0]


def chain(train: np.ndarray, test: np.ndarray, order: int) -> float:
    """The bits for each base of a test under counts of what followed the last `order` bases in training, plus ½."""

    def contexts(bases: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        before = np.zeros(len(bases) - order, dtype=np.int64)
        for place in range(order):
            before = 4 * before + bases[place : len(bases) - order + place]
        return before, bases[order:]

    counts = np.full((4**order, 4), 0.5)
    np.add.at(counts, contexts(train), 1)
    return float(-np.log2((counts / counts.sum(1, keepdims=True))[contexts(test)]).mean())


def beginning(kind: str, text: str, *, embedded: bool) -> str:
    """Return what a sample continues: the first bases of the held-out text, or words that many texts have."""
    if kind == "dna":
        return text[:SAMPLE].partition("\n")[0] or BASES
    return "def " if kind == "code" else "Return the " if embedded else "The "


def offered(kind: str, text: str, *, embedded: bool) -> tuple[str, ...]:
    """Return texts that the page offers to continue."""
    if kind == "dna":
        return tuple(line[:SAMPLE] for line in text.split("\n", 3)[:3] if line)
    if kind == "code":
        return ("import ", "class ", "    def __init__(self")
    return DOCUMENTATION if embedded else tuple(beginnings(text.encode("utf-8", "replace").decode()))
