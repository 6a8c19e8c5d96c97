"""Requests to the engine, the tickets that report their progress, and the engine's own record of each."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from itertools import takewhile
from typing import Any

import numpy as np
import torch
from torch import Tensor

from regard.config import at_least
from regard.decode.beam import BeamRules, Beams, EarlyStopping
from regard.decode.sample import Hypothesis, Sampling, until

Candidates = list[tuple[int, float]]
"""Token ids with their log-probabilities, most probable first."""
Constrain = Callable[[Sequence[int], Tensor], None]
"""Sets logits of the next token to −∞, given the ids generated so far: rules that depend on what was written."""
Propose = Callable[[Sequence[int]], Sequence[int]]
"""A function from the ids so far to a guess of the next ones (speculative decoding)."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Request:
    """One sequence to generate, in token ids."""

    prompt: Sequence[int]
    """First tokens of the sequence; for an encoder–decoder its BOS."""
    max_len: int
    """Most tokens to generate, EOS included."""
    inputs: Mapping[str, Tensor] = field(default_factory=dict)
    """Unbatched conditioning inputs by the model's argument names (`reads`): {"source": ids T}, {"pixels": C Y X}."""
    ends: tuple[int, ...] = ()
    """Tokens that end the sequence."""
    forbidden: tuple[int, ...] = ()
    """Tokens that are never chosen; the others keep their probabilities."""
    constrain: Constrain | None = None
    """Rules for the next token; those left share the whole probability (none: every token may come)."""
    force_end: bool = False
    """The last token allowed is an end token, at no cost."""
    sampling: Sampling | None = None
    """Sampling settings (none: greedy)."""
    row: int = 0
    """Number among the requests of one seed, for the random numbers."""
    beams: int = 1
    """Hypotheses that are continued together."""
    length_penalty: float = 1.0
    """A hypothesis's score is divided by its length to this power (beams)."""
    early_stopping: EarlyStopping = False
    """When a beam search ends; see `beam_search`."""
    n_best: int = 1
    """Hypotheses to return."""
    propose: Propose | None = None
    """Guesses the next tokens; those that the model agrees with are generated in one step."""
    alternatives: int = 0
    """Number of most probable tokens reported beside each generated one (not for beams)."""

    def __post_init__(self) -> None:
        if not 1 <= self.n_best <= self.beams:
            raise ValueError(
                f"n_best={self.n_best} is not between 1 and beams={self.beams}; raise beams or lower n_best"
            )
        at_least(1, max_len=self.max_len)
        if not len(self.prompt):
            raise ValueError("the prompt has no tokens; begin with BOS")
        if self.beams > 1 and (self.sampling or self.propose or self.alternatives):
            raise ValueError(
                "beam search is deterministic; leave out sampling, guesses and alternatives, or use one beam"
            )

    @property
    def sequences(self) -> dict[str, Tensor]:
        """The inputs that are token sequences (one dimension): ids of the model's vocabulary, of any length."""
        return {name: values for name, values in self.inputs.items() if values.dim() == 1}

    @property
    def source_length(self) -> int:
        """Tokens in the input sequences; 0 without any."""
        return sum(map(len, self.sequences.values()))

    @property
    def rules(self) -> BeamRules:
        return BeamRules(
            beams=self.beams, ends=self.ends, length_penalty=self.length_penalty,
            early_stopping=self.early_stopping, force_end=self.force_end, forbidden=self.forbidden,
        )  # fmt: skip


def check_inputs(request: Request, model: Any) -> None:
    """Refuse inputs that the model does not read and ids outside its vocabulary: they would fail the whole batch."""
    if set(request.inputs) != set(model.reads):
        reads, got = (", ".join(names) or "nothing" for names in (model.reads, request.inputs))
        raise ValueError(f"beside its prompt this model reads {reads}, got {got}; set inputs to what it reads")
    vocab_size = getattr(model.config, "vocab_size", 2**31)
    ids: dict[str, Any] = {name: values.tolist() for name, values in request.sequences.items()}
    for name, values in ids.items():
        if not values:
            raise ValueError(f"{name} is empty; give at least one token")
    for name, values in dict(ids, prompt=request.prompt, forbidden=request.forbidden).items():
        for id in (min(values), max(values)) if len(values) else ():
            if not 0 <= id < vocab_size:
                raise ValueError(f"{name} has the token {id}, the vocabulary has {vocab_size:,}; use its own tokenizer")
    if len(set(request.forbidden)) == vocab_size:
        raise ValueError("all tokens are forbidden; leave some to choose from")


class Cancelled(Exception):  # noqa: N818
    """The request was cancelled."""


class Full(RuntimeError):  # noqa: N818
    """The queue is full."""


@dataclass(slots=True, eq=False)
class Ticket:
    """Progress of a request: `ids` and their log-probabilities grow step by step; `hypotheses` is set at the end."""

    request: Request
    on_token: Callable[["Ticket"], Any] | None = None
    """Called at new tokens and at the end, in the thread that steps the engine."""
    ids: list[int] = field(default_factory=list)
    log_probs: list[float] = field(default_factory=list)
    alternatives: list[Candidates] = field(default_factory=list)
    """For each token, the most probable ones in its place, if requested."""
    hypotheses: list[Hypothesis] | None = None
    error: BaseException | None = None

    @property
    def done(self) -> bool:
        return self.hypotheses is not None or self.error is not None

    def is_last(self, count: int) -> bool:
        """Whether the sequence ends with its `count`-th generated token."""
        request = self.request
        return self.ids[count - 1] in request.ends or count == request.max_len - request.force_end

    def result(self) -> list[Hypothesis]:
        """Return the hypotheses, best first, or raise the request's error."""
        if self.error is not None:
            raise self.error
        assert self.hypotheses is not None, "the request is not finished"
        return self.hypotheses

    def finish(self, hypotheses: list[Hypothesis] | None = None, error: BaseException | None = None) -> None:
        if hypotheses is None and error is None:
            hypotheses = [Hypothesis(ids=until(self.request.ends, self.ids), score=sum(self.log_probs, 0.0))]
        self.hypotheses, self.error = hypotheses, error
        self.notify()

    def notify(self) -> None:
        """Call the listener; an exception there fails this request only."""
        if self.on_token is not None:
            try:
                self.on_token(self)
            except Exception as error:
                self.on_token, self.error = None, error


@dataclass(slots=True, eq=False)
class Job:
    """The engine's record of a request. Its sequences (one, or one for each beam) have equal lengths."""

    ticket: Ticket
    number: int
    """Order of arrival."""
    slots: list[int] = field(default_factory=list)
    """The row of the page tables of each sequence."""
    source: list[int] = field(default_factory=list)
    """Pages of the encoded source, held once for all beams."""
    encoded: bool = False
    """Whether those pages are filled."""
    computed: int = 0
    """Positions of each sequence whose keys and values are stored."""
    pending: list[list[int]] = field(default_factory=list)
    """Tokens of each sequence that the model has not read yet."""
    guesses: list[int] = field(default_factory=list)
    """The last of the pending tokens, where those are guesses."""
    candidates: list[Candidates] = field(default_factory=list)
    """The most probable tokens in each of this step's rows, if requested."""
    seed: bytes = field(init=False)
    """Hash of the inputs, which all page hashes start from."""
    hashes: list[bytes] = field(default_factory=list)
    """Hashes of the full pages, in order; each covers all tokens up to there."""
    registered: int = 0
    """Pages whose hashes are registered, so that other requests can find them."""
    beams: Beams | None = None
    """State of the beam search, while the job waits."""
    searching: bool = False
    """Whether its beam search is among the running ones."""
    noise: np.random.Generator = field(init=False)
    """Random numbers from the seed and the request's own number, independent of the rest of the batch."""

    def __post_init__(self) -> None:
        self.seed = hash_inputs(self.request.inputs)
        seed = self.request.sampling.seed if self.request.sampling else 0
        self.noise = np.random.default_rng([seed, self.request.row])

    @property
    def request(self) -> Request:
        return self.ticket.request

    def __lt__(self, other: "Job") -> bool:
        return self.number < other.number

    def write(self, id: int, log_prob: float) -> None:
        """Append a generated token; finish the ticket if it is the last, else make it the next one to read."""
        request, ticket = self.request, self.ticket
        ticket.log_probs.append(log_prob)  # first: another thread counts the ids
        if request.alternatives:
            ticket.alternatives.append(self.candidates.pop(0))
        ticket.ids.append(id)
        if ticket.is_last(len(ticket.ids)):
            ticket.finish()
            return
        ticket.notify()
        self.pending = [[id]]

    def guess(self, vocab_size: int) -> None:
        """Append guessed tokens to the pending ones, if the request has a `propose` function."""
        request, written = self.request, len(self.ticket.ids)
        if request.propose is None or self.ticket.done:
            return
        try:
            room = request.max_len - request.force_end - written - 1
            guesses = list(request.propose([*request.prompt, *self.ticket.ids]))[: max(0, room)]
            self.guesses = list(takewhile(lambda id: 0 <= id < vocab_size, guesses))
        except Exception as error:
            self.ticket.finish(error=error)
        self.pending = [[*self.pending[0], *self.guesses]]

    def sequences(self) -> list[list[int]]:
        """Return all tokens of each sequence, the prompt included."""
        prompt = list(self.request.prompt)
        if self.beams is None:
            return [[*prompt, *self.ticket.ids]]
        length = int(self.beams.length[0])
        return [[*prompt, *ids] for ids in self.beams.written[0, :, :length].tolist()]


def hash_inputs(inputs: Mapping[str, Tensor]) -> bytes:
    """Return a hash of names, shapes, types and values of tensors; empty without any."""
    digest = blake2b(digest_size=16)
    for name, values in sorted(inputs.items()):
        digest.update(f"{name} {values.dtype} {tuple(values.shape)} ".encode())
        digest.update(values.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())
    return digest.digest() if inputs else b""
