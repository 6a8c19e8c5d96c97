"""Beam search: the `beams` best hypotheses of each sentence are continued together.

Scores, length penalty, stopping rule and n-best are exactly those of Hugging Face's `generate`.
"""

import math
from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass
from typing import Literal

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor

from regard.decode.sample import Hypothesis, until

EarlyStopping = bool | Literal["never"]


@dataclass(frozen=True, kw_only=True, slots=True)
class BeamRules:
    """Settings that searches in one batch share."""

    beams: int
    ends: tuple[int, ...]
    length_penalty: float = 1.0
    early_stopping: EarlyStopping = False
    force_end: bool = False
    forbidden: tuple[int, ...] = ()


class Beams:
    """State of N searches: W running hypotheses each and up to W finished ones; best first, −∞ for none.

    Sentences may have different lengths; at the start only the first beam of each runs.
    """

    def __init__(self, rules: BeamRules, max_len: Sequence[int], *, like: Tensor) -> None:
        N, W, L = len(max_len), rules.beams, max(max_len)
        self.rules = rules
        self.ends = torch.tensor(rules.ends, dtype=torch.long, device=like.device)
        self.length = torch.zeros(N, dtype=torch.long, device=like.device)
        self.max_len = torch.tensor(max_len, device=like.device)
        dtype = torch.promote_types(like.dtype, torch.float32)  # sums need more precision than bfloat16 has
        self.total = like.new_full((N, W), -math.inf, dtype=dtype)
        self.total[:, 0] = 0
        self.finished = like.new_full((N, W), -math.inf, dtype=dtype)
        self.written = self.length.new_full((N, W, L), rules.ends[0] if rules.ends else 0)
        self.finished_ids = self.written.clone()
        self.finished_length = self.written[:, :, 0] * 0

    def extend(
        self, log_probs: Float[Tensor, "N B C"], ids: Int[Tensor, "N B C"]
    ) -> tuple[Int[Tensor, "N W"], Int[Tensor, "N W"], Bool[Tensor, "N"]]:
        """Append a token to each beam, from the C best of each (one beam at the start, or all). Return each new beam's
        origin, its token, and which searches are done.

        2W continuations are considered: if the best W all end, enough remain.
        """
        W, penalty = self.rules.beams, self.rules.length_penalty
        total, origin, ids = self.candidates(log_probs, ids)
        written = pick(self.written, origin)
        written[torch.arange(len(written), device=ids.device), :, self.length] = ids
        self.length += 1
        ended = torch.isin(ids, self.ends)
        if ended[:, :W].any():
            ends = total[:, :W].masked_fill(~ended[:, :W], -math.inf)
            self.finish(ends / self.norm(self.length), written[:, :W])
        self.total, best = total.masked_fill(ended, -math.inf).topk(W)
        self.written = pick(written, best)

        full = self.length == self.max_len
        last = self.length == self.max_len - int(self.rules.force_end)
        longest = self.max_len if self.rules.early_stopping == "never" and penalty > 0 else self.length
        worst = self.finished[:, -1]
        hopeful = worst == -math.inf
        if self.rules.early_stopping is not True:
            hopeful = self.total[:, 0] / self.norm(longest)[:, 0] > worst
        ending = full | (hopeful & last)  # max_len reached: running hypotheses end as they are
        if ending.any():
            self.finish((self.total / self.norm(self.max_len)).masked_fill(~ending[:, None], -math.inf), self.written)
        return origin.gather(1, best), ids.gather(1, best), full | last | ~hopeful

    def candidates(
        self, log_probs: Float[Tensor, "N B C"], ids: Int[Tensor, "N B C"]
    ) -> tuple[Float[Tensor, "N E"], Int[Tensor, "N E"], Int[Tensor, "N E"]]:
        """Return the 2W best continuations: total log-probability, the beam that each continues, and its token."""
        most = 2 * self.rules.beams
        totals = (log_probs + self.total[:, : log_probs.shape[1], None]).flatten(1)
        if totals.shape[1] < most:  # a vocabulary smaller than two beams' worth
            totals = F.pad(totals, (0, most - totals.shape[1]), value=-math.inf)
        total, best = totals.topk(most)
        best = best.clamp(max=ids[0].numel() - 1)
        return total, best // ids.shape[2], ids.flatten(1).gather(1, best)

    def norm(self, length: Int[Tensor, "N"]) -> Float[Tensor, "N 1"]:
        """Return the divisor of the total log-probability at a length."""
        return (length.to(torch.float64) ** self.rules.length_penalty).to(self.total.dtype)[:, None]

    def finish(self, scores: Float[Tensor, "N W"], ids: Int[Tensor, "N W L"]) -> None:
        """Merge newly finished hypotheses with earlier ones, keeping the best."""
        self.finished, best = torch.cat([self.finished, scores], dim=1).topk(self.rules.beams)
        self.finished_ids = pick(torch.cat([self.finished_ids, ids], dim=1), best)
        lengths = torch.cat([self.finished_length, self.length[:, None].expand_as(scores)], dim=1)
        self.finished_length = lengths.gather(1, best)

    def hypotheses(self, index: int, n_best: int) -> list[Hypothesis]:
        """Return the best finished hypotheses of one search."""
        ids, scores = self.finished_ids[index, :n_best].tolist(), self.finished[index, :n_best].tolist()
        lengths = self.finished_length[index, :n_best].tolist()
        return [
            Hypothesis(ids=until(self.rules.ends, hypothesis[:length]), score=score)
            for hypothesis, score, length in zip(ids, scores, lengths, strict=True)
            if score > -math.inf
        ]

    FIELDS = ("length", "max_len", "total", "finished", "written", "finished_ids", "finished_length")

    def keep(self, sentences: Int[Tensor, "M"]) -> None:
        for name in self.FIELDS:
            setattr(self, name, getattr(self, name)[sentences])

    def only(self, index: int) -> "Beams":
        """Return the state of one search alone."""
        alone = copy(self)
        alone.keep(torch.tensor([index], device=self.total.device))
        return alone

    def join(self, other: "Beams") -> None:
        """Append other searches with the same rules."""
        room = max(self.written.shape[2], other.written.shape[2])
        for name in self.FIELDS:
            parts = [getattr(beams, name) for beams in (self, other)]
            if parts[0].dim() == 3:
                parts = [F.pad(part, (0, room - part.shape[2])) for part in parts]
            setattr(self, name, torch.cat(parts))


def pick(values: Int[Tensor, "N W L"], which: Int[Tensor, "N C"]) -> Int[Tensor, "N C L"]:
    """Select sequences of each search."""
    return values.gather(1, which[:, :, None].expand(-1, -1, values.shape[2]))
