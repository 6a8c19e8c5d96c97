"""One token after the other: the best one (greedy), or one drawn from what the filters leave."""

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from regard.models.base import Generator


@dataclass(frozen=True, slots=True)
class Hypothesis:
    """One output: its token ids without the marks of start and end, and its score."""

    ids: list[int]
    score: float


@dataclass(frozen=True, slots=True)
class Step:
    """One more token for some rows of a batch, with its log-probability."""

    rows: Int[Tensor, "N"]
    ids: Int[Tensor, "N"]
    log_probs: Float[Tensor, "N"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Sampling:
    """How to draw a token. The filters apply in the order of the fields."""

    temperature: float = 1.0
    """Scores are divided by it: below 1 more cautious, above 1 more varied."""
    top_k: int | None = None
    """Only the k best tokens (none: all)."""
    top_p: float | None = None
    """Only the best tokens that together reach this probability (none: all)."""
    min_p: float | None = None
    """Only tokens at least this fraction as probable as the best one (none: all)."""
    seed: int = 0
    """The same seed gives the same text."""

    def __post_init__(self) -> None:
        if not 0 < self.temperature < math.inf:
            raise ValueError(f"temperature={self.temperature} must be above 0; leave out sampling for greedy decoding")
        if self.top_k is not None and self.top_k < 1:
            raise ValueError(f"top_k={self.top_k} must be at least 1; use none to keep all tokens")
        if self.top_p is not None and not 0 < self.top_p <= 1:
            raise ValueError(f"top_p={self.top_p} is not in (0, 1]; use none to keep all tokens")
        if self.min_p is not None and not 0 <= self.min_p <= 1:
            raise ValueError(f"min_p={self.min_p} is not in [0, 1]; use none to keep all tokens")
        if self.seed < 0:
            raise ValueError(f"seed={self.seed} must be 0 or more")


def filter_scores(scores: Float[Tensor, "B V"], sampling: Sampling) -> Float[Tensor, "B V"]:
    """The scores that are drawn from: −∞ where a filter removes a token. The best token always stays."""
    scores = scores / sampling.temperature
    if sampling.top_k is not None:
        worst = scores.topk(min(sampling.top_k, scores.shape[-1])).values[:, -1:]
        scores = scores.masked_fill(scores < worst, -math.inf)
    if sampling.top_p is not None:
        ordered, order = scores.sort(dim=-1)  # ascending: what goes is the tail that together has at most 1 − p
        gone = ordered.softmax(dim=-1).cumsum(dim=-1) <= 1 - sampling.top_p
        gone[:, -1] = False
        scores = scores.masked_fill(torch.zeros_like(gone).scatter(1, order, gone), -math.inf)
    if sampling.min_p is not None:
        odds = (scores - scores.amax(dim=-1, keepdim=True)).exp()  # p / p of the best
        scores = scores.masked_fill(odds < sampling.min_p, -math.inf)
    return scores


def draw(scores: Float[Tensor, "B V"], uniform: Float[Tensor, "B"]) -> Int[Tensor, "B"]:
    """Inverts the cumulative distribution: one number in [0, 1) a row decides its token."""
    reached = scores.double().softmax(dim=-1).cumsum(dim=-1)
    return torch.searchsorted(reached, uniform[:, None] * reached[:, -1:], right=True)[:, 0]


def uniforms(seed: int, rows: Sequence[int], steps: int) -> Float[Tensor, "B N"]:
    """The noise of each row comes from the seed and the row's number alone, not from the rest of its batch."""
    return torch.from_numpy(np.stack([np.random.default_rng([seed, row]).random(steps) for row in rows]))


Ends = int | Sequence[int] | None
"""The token that ends a text, or several; None for texts without end."""


def ends_of(eos: Ends) -> list[int]:
    return [] if eos is None else [eos] if isinstance(eos, int) else list(eos)


def until(eos: Ends, ids: list[int]) -> list[int]:
    ends = ends_of(eos)
    return ids[: next((i for i, id in enumerate(ids) if id in ends), len(ids))]


BLOCK = 64


def best_tokens(scores: Float[Tensor, "B V"], count: int) -> tuple[Float[Tensor, "B C"], Int[Tensor, "B C"]]:
    """The `count` highest of each row with their places, as `topk`, in a third of its time on a CPU.

    They lie in the `count` blocks with the highest maxima, or behind the last whole block; only those are searched.
    """
    whole = scores.shape[1] // BLOCK
    if whole <= count:
        return scores.topk(min(count, scores.shape[1]))
    blocks = scores[:, : whole * BLOCK].unflatten(1, (whole, BLOCK))
    chosen = blocks.amax(dim=-1).topk(count).indices[:, :, None]  # B C 1
    among = blocks.gather(1, chosen.expand(-1, -1, BLOCK)).flatten(1)
    places = (chosen * BLOCK + torch.arange(BLOCK, device=scores.device)).flatten(1)
    if rest := scores.shape[1] - whole * BLOCK:
        among = torch.cat([among, scores[:, -rest:]], dim=1)
        tail = torch.arange(whole * BLOCK, scores.shape[1], device=scores.device)
        places = torch.cat([places, tail.expand(len(scores), -1)], dim=1)
    highest, where = among.topk(count)
    return highest, places.gather(1, where)


@contextmanager
def evaluating(model: Generator) -> Iterator[None]:
    """Without dropout and without gradients; afterwards the model is in the mode it was in."""
    was = model.training
    model.eval()
    try:
        with torch.inference_mode():
            yield
    finally:
        model.train(was)


@torch.inference_mode()
def steps(
    model: Generator,
    prefix: Int[Tensor, "B T"],
    *,
    eos: Ends,
    max_len: int,
    sampling: Sampling | None = None,
    forbidden: Sequence[int] = (),
    force_end: bool = False,
    rows: Sequence[int] | None = None,
    **inputs: Tensor,
) -> Iterator[Step]:
    """The decoding loop: after `prefix`, one token after the other for every row that has not reached `eos`.

    `inputs` are what else the model's `prefill` reads, such as a source. The other arguments are those of `generate`.
    """
    if max_len < 1:
        raise ValueError(f"max_len={max_len} must be at least 1")
    B, device = len(prefix), prefix.device
    banned, ends = (torch.tensor(ids, dtype=torch.long, device=device) for ids in (list(forbidden), ends_of(eos)))
    noise = uniforms(sampling.seed, rows or range(B), max_len).to(device) if sampling and B else None
    going = torch.arange(B, device=device)  # the row of `prefix` that each row of the shrinking batch belongs to
    last = max_len - force_end
    if not B or not last:
        return
    cache = model.new_cache(prefix.shape[1] + max_len)
    scores = model.prefill(prefix, cache, **inputs)
    room = torch.empty_like(scores)  # the same memory at every step: fresh pages cost more than the softmax
    for step in range(last):
        log_probs = torch.log_softmax(scores, dim=-1, out=room[: len(scores)]).index_fill_(1, banned, -math.inf)
        if noise is None or sampling is None:
            chosen, ids = (best[:, 0] for best in best_tokens(log_probs, 1))
        else:
            ids = draw(filter_scores(log_probs, sampling), noise[going, step])
            chosen = log_probs.gather(1, ids[:, None])[:, 0]
        yield Step(going, ids, chosen)
        kept = torch.isin(ids, ends, invert=True).nonzero()[:, 0]
        if len(kept) < len(going):
            going, ids = going[kept], ids[kept]
            if len(kept) == 0:
                return
            cache.select(kept, sources=kept)
        if step + 1 < last:
            scores = model.step(ids, cache)


def generate(
    model: Generator,
    prefix: Int[Tensor, "B T"],
    *,
    eos: Ends,
    max_len: int,
    sampling: Sampling | None = None,
    forbidden: Sequence[int] = (),
    force_end: bool = False,
    rows: Sequence[int] | None = None,
    **inputs: Tensor,
) -> list[Hypothesis]:
    """What the model writes after each row of `prefix` (a prompt, or the mark of the start): greedy, or drawn as
    `sampling` says. Scores are sums of log-probabilities.

    `max_len` counts the tokens written, `eos` included: with `force_end` the last one allowed is `eos`, at no cost.
    `forbidden` tokens are never chosen; the others keep their probabilities.
    `rows` numbers the rows for the noise (default: 0, 1, …), so that a corpus cut into batches of any size gives
    the same samples. `inputs` are what else the model reads: `source` and `lengths` for an encoder–decoder.
    """
    written: list[list[int]] = [[] for _ in prefix]
    totals = torch.zeros(len(prefix), dtype=torch.float64, device=prefix.device)
    how: dict[str, Any] = dict(sampling=sampling, forbidden=forbidden, force_end=force_end, rows=rows, **inputs)
    with evaluating(model):
        for step in steps(model, prefix, eos=eos, max_len=max_len, **how):
            totals[step.rows] += step.log_probs
            for row, id in zip(step.rows.tolist(), step.ids.tolist(), strict=True):
                written[row].append(id)
    return [Hypothesis(ids=until(eos, ids), score=total) for ids, total in zip(written, totals.tolist(), strict=True)]
