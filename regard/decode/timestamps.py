"""The rules by which Whisper writes timestamps: in pairs around each phrase, never backwards."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from jaxtyping import Float, Int
from torch import Tensor


@dataclass(frozen=True, kw_only=True, slots=True)
class TimestampRules:
    """Which tokens may come next in a transcript. Called with the ids so far and the logits of the next, it sets those
    of the others to −∞."""

    first: int
    """The token of the time 0; the tokens after it are later times."""
    end: int
    """EOS: the first of the special tokens, before which all is text."""
    suppressed: Sequence[int] = ()
    """Tokens that never come."""
    suppressed_first: Sequence[int] = ()
    """Tokens with which no transcript begins."""
    latest_start: int | None = None
    """The latest time at which a transcript may begin, counted in timestamps (none: any)."""
    timestamps: bool = True
    """Whether timestamps are written."""
    never: Int[Tensor, "N"] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "never", torch.tensor(list(self.suppressed), dtype=torch.long))

    def __call__(self, ids: Sequence[int], logits: Float[Tensor, "V"]) -> None:
        gone = -torch.inf
        logits[self.never] = gone
        if not ids:
            logits[list(self.suppressed_first)] = gone
        if not self.timestamps:
            logits[self.first :] = gone
            return
        times = [id for id in ids if id >= self.first]
        if not ids:
            logits[: self.first] = gone
            if self.latest_start is not None:
                logits[self.first + self.latest_start + 1 :] = gone
        elif ids[-1] >= self.first:  # a pair is an end and the next start; after a single one comes its partner or EOS
            paired = len(ids) < 2 or ids[-2] >= self.first
            if paired:
                logits[self.first :] = gone
            else:
                logits[: self.end] = gone
                logits[self.first : times[-1]] = gone  # a start may equal the end before it
        elif times:
            logits[self.first : times[-1] + 1] = gone
        # Where all timestamps together are more probable than any other token, it is time for one.
        if logits[self.first :].logsumexp(0) > logits[: self.first].max():
            logits[: self.first] = gone


@dataclass(frozen=True, slots=True)
class OneOf:
    """Rules by which the next token is one of a few."""

    ids: Sequence[int]

    def __call__(self, ids: Sequence[int], logits: Float[Tensor, "V"]) -> None:
        kept = logits[list(self.ids)]
        logits.fill_(-torch.inf)
        logits[list(self.ids)] = kept


@dataclass(slots=True)
class Probe:
    """No rules: it notes the probability of one token, which need not be generated."""

    id: int
    probability: float = 0.0

    def __call__(self, ids: Sequence[int], logits: Float[Tensor, "V"]) -> None:
        self.probability = float(logits.softmax(0)[self.id])
