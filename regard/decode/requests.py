"""What is asked of the engine, and what it hands back while it works."""

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from itertools import takewhile
from typing import Any

import numpy as np
from torch import Tensor

from regard.decode.beam import BeamRules, Beams, EarlyStopping, check_beams
from regard.decode.pages import name_after
from regard.decode.sample import Hypothesis, Sampling, until

Likely = list[tuple[int, float]]
"""Tokens and their log-probabilities, best first."""
Propose = Callable[[Sequence[int]], Sequence[int]]
"""A text so far → how it may go on."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Request:
    """One text to write, in token ids."""

    prompt: Sequence[int]
    """What the text begins with; for an encoder–decoder the mark of the start."""
    max_len: int
    """Most tokens to write, the end included."""
    source: Sequence[int] | None = None
    """What an encoder reads."""
    pixels: Tensor | None = None
    """Or what a model that sees reads: C Y X."""
    ends: tuple[int, ...] = ()
    """Tokens that end the text."""
    forbidden: tuple[int, ...] = ()
    """Tokens that are never chosen; the others keep their probabilities."""
    force_end: bool = False
    """The last token allowed is an end, at no cost."""
    sampling: Sampling | None = None
    """How to draw tokens (none: take the best)."""
    row: int = 0
    """Its number among requests of one seed, for the noise."""
    beams: int = 1
    """Beginnings that are continued together."""
    length_penalty: float = 1.0
    """A text's score is divided by its length to this power (beams)."""
    early_stopping: EarlyStopping = False
    """When a search is over; see `beam_search`."""
    n_best: int = 1
    """Texts to return."""
    propose: Propose | None = None
    """Guesses how a text goes on; what the model agrees with is written in one step."""
    alternatives: int = 0
    """How many of the likeliest tokens are told beside each one that is written (not for beams)."""

    def __post_init__(self) -> None:
        check_beams(self.beams, self.n_best, self.max_len)
        if not len(self.prompt):
            raise ValueError("the prompt has no tokens; begin with the mark of the start")
        if self.beams > 1 and (self.sampling or self.propose or self.alternatives):
            raise ValueError("beams take the best; leave out sampling, guesses and alternatives, or use one beam")

    @property
    def rules(self) -> BeamRules:
        return BeamRules(
            beams=self.beams, ends=self.ends, length_penalty=self.length_penalty,
            early_stopping=self.early_stopping, force_end=self.force_end, forbidden=self.forbidden,
        )  # fmt: skip


def check_tokens(request: Request, model: Any) -> None:
    """What the model has no numbers for would end everybody's texts."""
    words = getattr(model.config, "vocab_size", 2**31)
    if hasattr(model, "encoder") and not request.source:
        raise ValueError("this model reads a source; give one of at least one token")
    if not hasattr(model, "encoder") and request.source is not None:
        raise ValueError("this model reads no source; put it into the prompt")
    sees = "pixels" in inspect.signature(model.prefill).parameters
    if sees != (request.pixels is not None):
        raise ValueError(f"this model {'reads pictures; give its' if sees else 'reads no pictures; leave out'} pixels")
    parts = dict(prompt=request.prompt, source=request.source or (), forbidden=request.forbidden)
    for name, ids in parts.items():
        for id in (min(ids), max(ids)) if len(ids) else ():
            if not 0 <= id < words:
                raise ValueError(f"{name} has the token {id}, the vocabulary has {words:,}; use its own tokenizer")
    if len(set(request.forbidden)) == words:
        raise ValueError("all tokens are forbidden; leave some to choose from")


class Cancelled(Exception):  # noqa: N818
    """The request was taken back."""


class Full(RuntimeError):  # noqa: N818
    """The queue takes no more."""


@dataclass(slots=True, eq=False)
class Ticket:
    """A request on its way: `ids` and what is told of them grow as tokens are written; `found` is there when it is
    done."""

    request: Request
    on_token: Callable[["Ticket"], Any] | None = None
    """Called when there are new tokens, and at the end, by whoever drives the engine."""
    ids: list[int] = field(default_factory=list)
    log_probs: list[float] = field(default_factory=list)
    alternatives: list[Likely] = field(default_factory=list)
    """Beside each token, where the request asks for them."""
    found: list[Hypothesis] | None = None
    error: BaseException | None = None

    @property
    def done(self) -> bool:
        return self.found is not None or self.error is not None

    def is_last(self, count: int) -> bool:
        """Whether a text of so many of the tokens written is over."""
        request = self.request
        return self.ids[count - 1] in request.ends or count == request.max_len - request.force_end

    def result(self) -> list[Hypothesis]:
        """What was found, best first."""
        if self.error is not None:
            raise self.error
        assert self.found is not None, "the request is still on its way"
        return self.found

    def finish(self, found: list[Hypothesis] | None = None, error: BaseException | None = None) -> None:
        if found is None and error is None:
            found = [Hypothesis(ids=until(self.request.ends, self.ids), score=sum(self.log_probs, 0.0))]
        self.found, self.error = found, error
        self.tell()

    def tell(self) -> None:
        """Calls the listener; what goes wrong there is this request's own."""
        if self.on_token is not None:
            try:
                self.on_token(self)
            except Exception as error:
                self.on_token, self.error = None, error


@dataclass(slots=True, eq=False)
class Job:
    """A request that has been taken up. Its sequences (one, or a beam each) are of equal length."""

    ticket: Ticket
    number: int
    """Order of arrival."""
    slots: list[int] = field(default_factory=list)
    """The row of the tables that each sequence has."""
    source: list[int] = field(default_factory=list)
    """Pages of its source, held once for all beams."""
    encoded: bool = False
    """Whether those are filled."""
    computed: int = 0
    """Positions of each sequence that are in its pages."""
    pending: list[list[int]] = field(default_factory=list)
    """Tokens of each sequence that the model has not read yet."""
    guesses: list[int] = field(default_factory=list)
    """The last of the pending tokens, where those are guesses."""
    likely: list[Likely] = field(default_factory=list)
    """The best tokens in each of this step's rows, where the request asks for them."""
    seed: bytes = field(init=False)
    """Names its source."""
    names: list[bytes] = field(default_factory=list)
    """Of its full pages, in order: they tell all tokens up to there."""
    named: int = 0
    """How many of its pages have theirs."""
    beams: Beams | None = None
    """What its search has found, while it waits."""
    searching: bool = False
    """Whether its search is among those that run."""
    noise: np.random.Generator = field(init=False)
    """Comes from the seed and the request's own number, not from the rest of its batch."""

    def __post_init__(self) -> None:
        self.seed = b"" if self.request.source is None else name_after(b"source", self.request.source)
        if self.request.pixels is not None:
            self.seed = blake2b(self.request.pixels.cpu().double().numpy().tobytes(), digest_size=16).digest()
        seed = self.request.sampling.seed if self.request.sampling else 0
        self.noise = np.random.default_rng([seed, self.request.row])

    @property
    def request(self) -> Request:
        return self.ticket.request

    def __lt__(self, other: "Job") -> bool:
        return self.number < other.number

    def write(self, id: int, log_prob: float) -> None:
        """One token more, which may be the last; what the model has to read next."""
        request, ticket = self.request, self.ticket
        ticket.log_probs.append(log_prob)  # first: another thread counts the ids
        if request.alternatives:
            ticket.alternatives.append(self.likely.pop(0))
        ticket.ids.append(id)
        if ticket.is_last(len(ticket.ids)):
            ticket.finish()
            return
        ticket.tell()
        self.pending = [[id]]

    def guess(self, words: int) -> None:
        """How its text may go on in a vocabulary of so many, where the request has a way to guess."""
        request, written = self.request, len(self.ticket.ids)
        if request.propose is None or self.ticket.done:
            return
        try:
            room = request.max_len - request.force_end - written - 1
            guesses = list(request.propose([*request.prompt, *self.ticket.ids]))[: max(0, room)]
            self.guesses = list(takewhile(lambda id: 0 <= id < words, guesses))
        except Exception as error:
            self.ticket.finish(error=error)
        self.pending = [[*self.pending[0], *self.guesses]]

    def texts(self) -> list[list[int]]:
        """All tokens of each of its sequences."""
        prompt = list(self.request.prompt)
        if self.beams is None:
            return [[*prompt, *self.ticket.ids]]
        length = int(self.beams.length[0])
        return [[*prompt, *ids] for ids in self.beams.written[0, :, :length].tolist()]
