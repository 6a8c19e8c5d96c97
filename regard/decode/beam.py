"""Beam search: the `beams` best beginnings of each sentence are continued together.

Scores, length penalty, stopping rule and n-best mean exactly what they mean in Hugging Face's `generate`.
"""

import math
from collections.abc import Sequence
from typing import Literal

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor

from regard.decode.sample import Hypothesis, best_tokens, evaluating, until
from regard.models.base import Generator


def beam_search(
    model: Generator,
    prefix: Int[Tensor, "B T"],
    *,
    eos: int,
    max_len: int,
    beams: int = 4,
    length_penalty: float = 1.0,
    n_best: int = 1,
    early_stopping: bool | Literal["never"] = False,
    pad: int | None = None,
    forbidden: Sequence[int] = (),
    force_end: bool = False,
    **inputs: Tensor,
) -> list[list[Hypothesis]]:
    """The `n_best` continuations of each row of `prefix`, best first; score = Σ log p / length^length_penalty, `eos`
    counted. `inputs` are what else the model reads: `source` and `lengths` for an encoder–decoder.

    A sentence is done when it has `beams` finished hypotheses and the best running one, at its present length, is
    not above the worst of them. `early_stopping` True does without that comparison; "never" makes it safe, with the
    length that serves the running one best.
    `max_len` counts the tokens written, `eos` included: with `force_end` the last one allowed is `eos`, at no cost.
    `forbidden` tokens, and `pad` if given, are never chosen; the others keep their probabilities.
    """
    if not 1 <= n_best <= beams:
        raise ValueError(f"n_best={n_best} is not between 1 and beams={beams}; raise beams or lower n_best")
    if max_len < 1:
        raise ValueError(f"max_len={max_len} must be at least 1")
    if len(prefix) == 0:
        return []
    device = prefix.device
    found: list[list[Hypothesis]] = [[] for _ in prefix]
    banned = torch.tensor([*forbidden, *([] if pad is None else [pad])], dtype=torch.long, device=device)
    cache = model.new_cache(prefix.shape[1] + max_len)
    with evaluating(model):
        scores = model.prefill(prefix, cache, **inputs)
        batch = Beams(len(prefix), beams, max_len, eos, like=scores)
        room = scores.new_empty(beams * len(scores), scores.shape[1])  # fresh pages at every step would cost time
        steps = max_len - force_end
        for length in range(1, steps + 1):
            log_probs = torch.log_softmax(scores, dim=-1, out=room[: len(scores)]).index_fill_(1, banned, -math.inf)
            rows, ids = batch.extend(log_probs, length, norm=length**length_penalty)
            if length == max_len:
                break
            longest = max_len if early_stopping == "never" and length_penalty > 0 else length
            going = batch.can_improve(longest**length_penalty, early_stopping is True)
            kept = going.nonzero()[:, 0]
            fewer = len(kept) < len(rows)
            if fewer:  # finished sentences leave the batch, with their sources
                batch.collect(~going, n_best, found)
                batch.keep(kept)
                rows, ids = rows[kept], ids[kept]
            if length == steps or len(kept) == 0:
                break
            if fewer:
                cache.select(rows.flatten(), sources=kept)
            elif not torch.equal(rows.flatten(), torch.arange(rows.numel(), device=device)):
                cache.select(rows.flatten())  # the first time, this turns one row a sentence into `beams`
            scores = model.step(ids.flatten(), cache)
        batch.end_all(norm=max_len**length_penalty)
        batch.collect(torch.ones_like(batch.sentence, dtype=torch.bool), n_best, found)
    return found


class Beams:
    """What is known of each of N sentences in the batch: W running beginnings and up to `beams` finished ones.

    W is 1 before the first step, `beams` afterwards. Scores are sorted, best first; −∞ marks an empty place.
    """

    def __init__(self, sentences: int, beams: int, max_len: int, eos: int, *, like: Float[Tensor, "N V"]) -> None:
        self.beams, self.eos = beams, eos
        self.sentence = torch.arange(sentences, device=like.device)
        self.total = like.new_zeros(sentences, 1)
        self.written = torch.full((sentences, 1, max_len), eos, device=like.device)
        self.finished = like.new_full((sentences, beams), -math.inf)
        self.finished_ids = torch.full((sentences, beams, max_len), eos, device=like.device)

    def extend(
        self, log_probs: Float[Tensor, "R V"], length: int, *, norm: float
    ) -> tuple[Int[Tensor, "N W"], Int[Tensor, "N W"]]:
        """One token more. Returns each new beam's row in the old batch and its token.

        Twice as many continuations are looked at as there are beams: where all of the best ones end, enough go on.
        """
        N, W = self.total.shape
        total, origin, ids = continuations(log_probs.view(N, W, -1), self.total, 2 * self.beams)
        written = pick(self.written, origin)
        written[:, :, length - 1] = ids
        ended = ids == self.eos
        if ended[:, : self.beams].any():
            best = total[:, : self.beams].masked_fill(~ended[:, : self.beams], -math.inf)
            self.finish(best / norm, written[:, : self.beams])
        self.total, best = total.masked_fill(ended, -math.inf).topk(self.beams)
        self.written = pick(written, best)
        rows = origin + W * torch.arange(N, device=ids.device)[:, None]
        return rows.gather(1, best), ids.gather(1, best)

    def finish(self, scores: Float[Tensor, "N W"], ids: Int[Tensor, "N W L"]) -> None:
        """New ends compete with earlier ones for the `beams` places."""
        self.finished, best = torch.cat([self.finished, scores], dim=1).topk(self.beams)
        self.finished_ids = pick(torch.cat([self.finished_ids, ids], dim=1), best)

    def end_all(self, *, norm: float) -> None:
        """No more room: what is running ends as it is."""
        self.finish(self.total / norm, self.written)

    def can_improve(self, norm: float, stop_when_full: bool) -> Bool[Tensor, "N"]:
        """Whether the best running beginning could displace the worst finished one, at a length of that norm."""
        worst = self.finished[:, -1]
        if stop_when_full:
            return worst == -math.inf
        return self.total[:, 0] / norm > worst

    def collect(self, which: Bool[Tensor, "N"], n_best: int, found: list[list[Hypothesis]]) -> None:
        """Writes the best finished hypotheses of some sentences into `found`, at their places."""
        ids, scores = self.finished_ids[which, :n_best].tolist(), self.finished[which, :n_best].tolist()
        for sentence, sentence_ids, sentence_scores in zip(self.sentence[which].tolist(), ids, scores, strict=True):
            found[sentence] = [
                Hypothesis(ids=until(self.eos, one), score=score)
                for one, score in zip(sentence_ids, sentence_scores, strict=True)
                if score > -math.inf
            ]

    def keep(self, sentences: Int[Tensor, "M"]) -> None:
        for name in ("sentence", "total", "written", "finished", "finished_ids"):
            setattr(self, name, getattr(self, name)[sentences])


def pick(values: Int[Tensor, "N W L"], which: Int[Tensor, "N C"]) -> Int[Tensor, "N C L"]:
    """For each sentence, some of its sequences."""
    return values.gather(1, which[:, :, None].expand(-1, -1, values.shape[2]))


def continuations(
    log_probs: Float[Tensor, "N W V"], total: Float[Tensor, "N W"], count: int
) -> tuple[Float[Tensor, "N C"], Int[Tensor, "N C"], Int[Tensor, "N C"]]:
    """The `count` best of each sentence's W · V continuations: total score, beam it comes from, token.

    A sentence's best are among the best of each of its beams, so nothing of size W · V is added up or sorted.
    """
    N, W, _ = log_probs.shape
    per_beam, ids = (best.view(N, W, -1) for best in best_tokens(log_probs.flatten(0, 1), count))
    totals = (per_beam + total[:, :, None]).flatten(1)
    if totals.shape[1] < count:  # a vocabulary smaller than two beams' worth
        totals = F.pad(totals, (0, count - totals.shape[1]), value=-math.inf)
    best_totals, best = totals.topk(count)
    best = best.clamp(max=ids[0].numel() - 1)
    return best_totals, best // ids.shape[2], ids.flatten(1).gather(1, best)
