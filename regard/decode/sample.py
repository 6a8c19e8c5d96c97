"""Sampling of tokens: temperature and filters; and helpers that all decoding shares."""

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TypedDict

import torch
from jaxtyping import Float, Int
from torch import Tensor

from regard.config import nearest
from regard.models.base import Generator


@dataclass(frozen=True, slots=True)
class Hypothesis:
    """One output: its token ids without BOS and EOS, and its score."""

    ids: list[int]
    score: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Sampling:
    """Sampling settings. The filters apply in the order of the fields."""

    temperature: float = 1.0
    """Logits are divided by it: below 1 more cautious, above 1 more varied."""
    top_k: int | None = None
    """Only the k best tokens (none: all)."""
    top_p: float | None = None
    """Only the best tokens that together reach this probability (none: all)."""
    min_p: float | None = None
    """Only tokens at least this fraction as probable as the best one (none: all)."""
    seed: int = 0
    """Seed of the random numbers; equal seeds give equal texts."""

    def __post_init__(self) -> None:
        if not 0 < self.temperature < math.inf:
            raise ValueError(f"temperature={self.temperature} must be above 0; for greedy decoding leave it out")
        if self.top_k is not None and self.top_k < 1:
            raise ValueError(f"top_k={self.top_k} must be at least 1; use none to keep all tokens")
        if self.top_p is not None and not 0 < self.top_p <= 1:
            raise ValueError(f"top_p={self.top_p} is not in (0, 1]; use none to keep all tokens")
        if self.min_p is not None and not 0 <= self.min_p <= 1:
            raise ValueError(f"min_p={self.min_p} is not in [0, 1]; use none to keep all tokens")
        if self.seed < 0:
            raise ValueError(f"seed={self.seed} must be 0 or more")


class SamplingOptions(TypedDict, total=False):
    """The fields of `Sampling` as keywords of a method."""

    temperature: float
    top_k: int | None
    top_p: float | None
    min_p: float | None
    seed: int


def advance(sampling: Sampling | None, steps_done: int) -> Sampling | None:
    """Sampling settings with another seed, for a text that goes on in a new window."""
    return sampling if sampling is None or not steps_done else replace(sampling, seed=sampling.seed + steps_done)


def sampling_of(sampling: Sampling | None, options: SamplingOptions) -> Sampling | None:
    """The sampling settings of a call: `sampling`, or those that the keywords name; with neither, or at temperature 0,
    None: the most probable tokens."""
    known = SamplingOptions.__annotations__
    if unknown := sorted(options.keys() - known.keys()):
        raise TypeError(f"there is no option {unknown[0]!r}; {nearest(unknown[0], known)}")
    if sampling is not None and options:
        raise ValueError(f"both sampling and {next(iter(options))} are given; leave out one of them")
    if options.keys() == {"seed"}:
        raise ValueError("a seed is for sampling; give a temperature above 0 with it")
    return Sampling(**options) if options and options.get("temperature", 1) else sampling


def filter_logits(logits: Float[Tensor, "B V"], sampling: Sampling) -> Float[Tensor, "B V"]:
    """Return the logits to sample from: −∞ where a filter removes a token. The best token always stays."""
    logits = logits / max(sampling.temperature, 1e-30)  # colder, the best would be −∞ too
    if sampling.top_k is not None:
        worst = logits.topk(min(sampling.top_k, logits.shape[-1])).values[:, -1:]
        logits = logits.masked_fill(logits < worst, -math.inf)
    if sampling.top_p is not None and sampling.top_p < 1:
        logits = keep_top_p(logits, sampling.top_p)
    if sampling.min_p is not None:
        odds = (logits - logits.amax(dim=-1, keepdim=True)).exp()  # p / p of the best
        logits = logits.masked_fill(odds < sampling.min_p, -math.inf)
    return logits


FEW = 256
"""Tokens that usually hold most of the probability."""


def keep_top_p(logits: Float[Tensor, "B V"], top_p: float, few: int = FEW) -> Float[Tensor, "B V"]:
    """Set logits to −∞ after the best tokens that together reach `top_p`. Sorting a whole vocabulary takes longer than
    a small model's step, so a few of the best are tried first, and only rows that need more are sorted."""
    best, indices = best_tokens(logits, few)
    probabilities = (best - logits.logsumexp(dim=-1, keepdim=True)).exp()
    reached = probabilities.cumsum(dim=-1)
    gone = reached - probabilities >= top_p  # the tokens before it are enough
    gone[:, 0] = False
    kept = torch.full_like(logits, -math.inf).scatter(1, indices, best.masked_fill(gone, -math.inf))
    more = reached[:, -1] < top_p
    if few < logits.shape[-1] and bool(more.any()):
        kept[more] = keep_top_p(logits[more], top_p, logits.shape[-1])
    return kept


def sample_token(logits: Float[Tensor, "B V"], uniform: Float[Tensor, "B"]) -> Int[Tensor, "B"]:
    """Sample a token a row by inverting the cumulative distribution at a number in [0, 1)."""
    reached = logits.double().softmax(dim=-1).cumsum(dim=-1)
    return torch.searchsorted(reached, uniform[:, None] * reached[:, -1:], right=True)[:, 0]


Ends = int | Sequence[int] | None
"""The token that ends a sequence, or several; None for no end."""


def ends_of(eos: Ends) -> list[int]:
    return [] if eos is None else [eos] if isinstance(eos, int) else list(eos)


def until(eos: Ends, ids: list[int]) -> list[int]:
    ends = ends_of(eos)
    return ids[: next((i for i, id in enumerate(ids) if id in ends), len(ids))]


BLOCK = 64


def best_tokens(logits: Float[Tensor, "B V"], count: int) -> tuple[Float[Tensor, "B C"], Int[Tensor, "B C"]]:
    """Return the `count` highest of each row with their indices, as `topk`, in a third of its time on a CPU.

    They lie in the `count` blocks with the highest maxima, or after the last whole block; only those are searched.
    """
    whole = logits.shape[1] // BLOCK
    if whole <= count:
        return logits.topk(min(count, logits.shape[1]))
    blocks = logits[:, : whole * BLOCK].unflatten(1, (whole, BLOCK))
    chosen = blocks.amax(dim=-1).topk(count).indices[:, :, None]  # B C 1
    among = blocks.gather(1, chosen.expand(-1, -1, BLOCK)).flatten(1)
    indices = (chosen * BLOCK + torch.arange(BLOCK, device=logits.device)).flatten(1)
    if rest := logits.shape[1] - whole * BLOCK:
        among = torch.cat([among, logits[:, -rest:]], dim=1)
        tail = torch.arange(whole * BLOCK, logits.shape[1], device=logits.device)
        indices = torch.cat([indices, tail.expand(len(logits), -1)], dim=1)
    highest, where = among.topk(count)
    return highest, indices.gather(1, where)


@contextmanager
def evaluating(model: Generator) -> Iterator[None]:
    """Evaluation mode without gradients; afterwards the model's mode is restored."""
    was = model.training
    model.eval()
    try:
        with torch.inference_mode():
            yield
    finally:
        model.train(was)
