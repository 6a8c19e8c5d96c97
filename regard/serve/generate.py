"""Follow requests through an engine, and write generated tokens as OpenAI's API does."""

import asyncio
import secrets
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from itertools import islice
from typing import Any

from regard.decode.requests import Cancelled, Full, Request, Ticket
from regard.decode.sample import Hypothesis
from regard.serve.errors import Refused, closing, full, timed_out
from regard.serve.model_store import ServedModel
from regard.serve.state import State
from regard.tasks.streaming import Token, TokenStream

AT_ONCE = 32
"""Tokens of a text in one piece, at most."""
LONGEST_TURN = 0.02
"""Seconds that one response may keep the event loop busy while others wait."""
LOWEST = -9999.0
"""Stands for a log-probability of −∞, which JSON cannot express."""


@dataclass(frozen=True, slots=True)
class Piece:
    """New tokens of one of the texts; `finish` is the reason why it ended, if it did."""

    index: int
    tokens: list[Token]
    finish: str | None

    @property
    def text(self) -> str:
        return "".join(token.text for token in self.tokens)


async def follow(
    state: State, served: ServedModel, requests: Sequence[Request], deadline: float | None = None
) -> AsyncGenerator[list[Ticket], None]:
    """The engine's tickets, again whenever one has new tokens, until all are done; errors are refusals."""
    assert served.engine is not None
    limit = state.settings.timeout
    deadline = asyncio.get_running_loop().time() + limit if deadline is None else deadline
    if state.store.pools.closed:
        raise closing()
    async with aclosing(served.engine.follow(requests)) as followed:
        while True:
            try:
                async with asyncio.timeout_at(deadline):
                    tickets = await anext(followed, None)
            except TimeoutError:
                raise timed_out(limit) from None
            except Full:
                raise full() from None
            except ValueError as error:
                raise Refused(400, str(error)) from None
            if tickets is None:
                return
            yield tickets


async def generate(
    state: State, served: ServedModel, requests: Sequence[Request], prompt_tokens: int, stops: Sequence[str] = ()
) -> AsyncGenerator[Piece, None]:
    """The texts for some requests, piece by piece as they are generated."""
    assert served.engine is not None
    watch = state.metrics.watch(served.name, prompt_tokens)
    streams: list[TokenStream] = []
    unfinished = set(range(len(requests)))
    turn = Turn(state.settings.timeout)
    async with aclosing(follow(state, served, requests, turn.deadline)) as followed:
        async for tickets in followed:
            streams = streams or [TokenStream(ticket, served.task, stops) for ticket in tickets]
            for index in sorted(unfinished):
                stream, ticket, more = streams[index], tickets[index], True
                while more:
                    done = ticket.done  # before its tokens are read: later ones come the next time
                    tokens = list(islice(stream.new(), AT_ONCE))
                    more = len(tokens) == AT_ONCE and not stream.stopped
                    watch.generated(len(tokens))
                    if done and not more and ticket.error is not None and not stream.stopped:
                        raise reason(ticket.error)
                    ended = stream.stopped or (done and ticket.ids and ticket.ids[-1] in ticket.request.ends)
                    finish = None if more else "stop" if ended else "length" if done else None
                    if finish:
                        unfinished.discard(index)
                        served.engine.cancel(ticket)
                    if tokens or finish:
                        yield Piece(index, tokens, finish)
                    await turn.check()
            if not unfinished:
                return


class Turn:
    """Yields to other responses while one sends many tokens, and ends it at its deadline."""

    def __init__(self, limit: float) -> None:
        self.limit, self.clock = limit, asyncio.get_running_loop().time
        self.since = self.clock()
        self.deadline = self.since + limit

    async def check(self) -> None:
        now = self.clock()
        if now > self.deadline:
            raise timed_out(self.limit)
        if now > self.since + LONGEST_TURN:
            await asyncio.sleep(0)
            self.since = self.clock()


async def search(state: State, served: ServedModel, requests: Sequence[Request]) -> list[list[Hypothesis]]:
    """The hypotheses of a beam search for each request, the best first."""
    watch = state.metrics.watch(served.name, sum(request.source_length or len(request.prompt) for request in requests))
    tickets: list[Ticket] = []
    deadline = asyncio.get_running_loop().time() + state.settings.timeout
    at_once = max(1, state.settings.queue // 2)  # many texts leave room in the queue for other requests
    for first in range(0, len(requests), at_once):
        latest: list[Ticket] = []
        async with aclosing(follow(state, served, requests[first : first + at_once], deadline)) as followed:
            async for latest in followed:  # noqa: B007
                pass
        tickets += latest
    for ticket in tickets:
        if ticket.error is not None:
            raise reason(ticket.error)
    results = [ticket.result() for ticket in tickets]
    watch.generated(sum(len(hypothesis.ids) for hypotheses in results for hypothesis in hypotheses))
    return results


def reason(error: BaseException) -> BaseException:
    """The error to raise for a ticket's: only a server that is being stopped cancels what is followed."""
    return closing() if isinstance(error, Cancelled) else error


async def all_of(pieces: AsyncIterator[Piece], count: int) -> list[Piece]:
    """The whole texts, `count` of them, joined from their pieces."""
    texts = [Piece(index, [], None) for index in range(count)]
    async for piece in pieces:
        texts[piece.index] = Piece(piece.index, texts[piece.index].tokens + piece.tokens, piece.finish)
    return texts


class LogProbs:
    """Tokens with their log-probabilities, as OpenAI's API writes them; EOS is one of them."""

    def __init__(self, served: ServedModel) -> None:
        self.tokenizer = served.task.tokenizer

    def completion(self, tokens: Sequence[Token], offset: int) -> dict[str, Any]:
        """The form of completions: lists with an entry for each token."""
        offsets = []
        for token in tokens:
            offsets.append(offset)
            offset += len(token.text)
        return {
            "tokens": [self.text(token.id) for token in tokens],
            "token_logprobs": [max(token.log_prob, LOWEST) for token in tokens],
            "top_logprobs": [{self.text(id): max(p, LOWEST) for id, p in token.alternatives} for token in tokens],
            "text_offset": offsets,
        }

    def chat(self, tokens: Sequence[Token], count: int) -> dict[str, Any]:
        """The form of chats: a list of records."""
        return {
            "content": [
                self.record(token.id, token.log_prob)
                | {"top_logprobs": [self.record(id, p) for id, p in token.alternatives[:count]]}
                for token in tokens
            ],
            "refusal": None,
        }

    def record(self, id: int, log_prob: float) -> dict[str, Any]:
        raw = self.tokenizer.bytes_of(id)
        return {"token": self.text(id), "logprob": max(log_prob, LOWEST), "bytes": list(raw)}

    def text(self, id: int) -> str:
        """A token as text; a part of a character as its bytes, in OpenAI's notation."""
        raw = self.tokenizer.bytes_of(id)
        try:
            return raw.decode()
        except UnicodeDecodeError:
            return "bytes:" + "".join(f"\\x{byte:02x}" for byte in raw)


def new_id(prefix: str) -> str:
    return f"{prefix}-{secrets.token_hex(12)}"
