"""Text of tokens while they are generated: incremental decoding, stop strings, and an engine that takes texts."""

import math
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import aclosing, closing
from typing import Any, NamedTuple, cast

from torch import nn

from regard import decode
from regard.decode.requests import Candidates, Request, Ticket
from regard.decode.sample import SamplingOptions, sampling_of
from regard.tasks.single import one_or_many

BLOCK = 32
"""Tokens that are decoded together: decoding a text from its beginning for every token would take ever longer."""


class Token(NamedTuple):
    """A generated token; `text` is what it adds to the text: empty while a character is incomplete or a stop string may
    have begun, and without a task."""

    id: int
    log_prob: float
    text: str
    alternatives: Candidates = []


class TokenStream:
    """The new tokens of a ticket with their text, as `task` decodes them. The first of the `stops` in the text ends it:
    `stopped` is then True."""

    def __init__(self, ticket: Ticket, task: Any = None, stops: Sequence[str] = ()) -> None:
        self.ticket, self.task, self.stops = ticket, task, stops
        self.tokens = 0
        self.before = 0  # tokens whose text is final; only those after them are decoded again
        self.letters = 0  # characters returned of the text after those
        self.stopped = False

    def new(self) -> Iterator[Token]:
        """Yield the tokens that have been generated since the last call."""
        ticket, over = self.ticket, self.ticket.done
        ids, log_probs = ticket.ids, ticket.log_probs
        if over and not ids and ticket.hypotheses:  # beams: all at the end
            ids = ticket.hypotheses[0].ids
            log_probs = [math.nan] * len(ids)
        last = len(ids)
        if not over and last and ticket.is_last(last):  # comes with the text held back, once the ticket is finished
            last -= 1
        while self.tokens < last and not self.stopped:
            index = self.tokens
            written, whole = ids[: index + 1], over and index == last - 1
            text = self.up_to_stop(self.text(written, whole=whole), whole)
            self.tokens, self.letters = index + 1, self.letters + len(text)
            if self.tokens - self.before >= BLOCK and not self.stopped:
                self.advance(written)
            alternatives = ticket.alternatives[index] if ticket.request.alternatives else []
            yield Token(ids[index], log_probs[index], text, alternatives)

    def text(self, ids: list[int], *, whole: bool) -> str:
        """Return the text of `ids` after the first `before`; unless that is the `whole`, only what later tokens cannot
        change."""
        return "" if self.task is None else self.task.text_of(self.ticket.request, ids, whole=whole, before=self.before)

    def advance(self, written: list[int]) -> None:
        """Stop decoding the tokens so far again, if their text is final: no character is incomplete."""
        if len(self.text(written, whole=True)) == self.letters:
            self.before, self.letters = self.tokens, 0

    def up_to_stop(self, text: str, whole: bool) -> str:
        """Return the new part of a text, up to a stop string or to what may become one."""
        ends = [end for stop in self.stops if (end := text.find(stop, self.letters)) >= 0]
        if ends:
            self.stopped = True
            return text[self.letters : min(ends)]
        held = 0 if whole else max((overlap(text, stop) for stop in self.stops), default=0)
        return text[self.letters : len(text) - held]


def overlap(text: str, stop: str) -> int:
    """Return how many characters at the end of a text are the beginning of a stop string."""
    return next((count for count in range(min(len(stop) - 1, len(text)), 0, -1) if text.endswith(stop[:count])), 0)


class Engine(decode.Engine):
    """An engine for the result of `regard.load`: prompts may be texts, and generated tokens have their text."""

    def __init__(self, task: Any, **options: Any) -> None:
        """`options` are those of `regard.decode.Engine`: max_batch, memory, page, chunk, queue, threads, fast."""
        self.task = None if isinstance(task, nn.Module) else task
        super().__init__(task if self.task is None else self.task.model, **options)

    @one_or_many
    def generate(self, prompts: Sequence[str], **options: Any) -> list[str]:
        """Return the generated text for each prompt; `options` are those of the task's `request`."""
        tickets = self.serve(self.request(prompt, row=row, **options) for row, prompt in enumerate(prompts))
        return [TokenStream(ticket, self.task).text(ticket.result()[0].ids, whole=True) for ticket in tickets]

    def write(self, request: Request) -> Iterator[Token]:
        """Yield the tokens of one request as they are generated."""
        stream: TokenStream | None = None
        with closing(self.watch(request)) as watched:
            for ticket in watched:
                stream = stream or TokenStream(ticket, self.task)
                yield from stream.new()

    async def stream(self, prompt: str | Request, **options: Any) -> AsyncIterator[Token]:
        """Yield the tokens of one prompt as they are generated, beside other coroutines."""
        stream: TokenStream | None = None
        async with aclosing(self.follow([self.request(prompt, **options)])) as followed:
            async for (ticket,) in followed:
                stream = stream or TokenStream(ticket, self.task)
                for token in stream.new():
                    yield token
                if ticket.done:
                    ticket.result()

    def request(self, prompt: str | Request, **options: Any) -> Request:
        if isinstance(prompt, Request):
            return prompt
        if self.task is None:
            raise ValueError("this engine takes token ids, not texts; build it with what regard.load returns")
        sampled = {name: options.pop(name) for name in SamplingOptions.__annotations__ if name in options}
        if sampled:
            options["sampling"] = sampling_of(options.get("sampling"), cast(SamplingOptions, sampled))
        return self.task.request(prompt, **options)
