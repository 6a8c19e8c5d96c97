"""From requests to what is said of them, piece by piece."""

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
from regard.serve.shelf import Served
from regard.serve.state import State
from regard.tasks.streaming import Token, TokenStream

AT_ONCE = 32
"""Tokens of a text that are told together."""
LONGEST_TURN = 0.02
"""Seconds that one answer may be busy while others wait."""
LOWEST = -9999.0
"""What stands for a log-probability of −∞, which JSON cannot say."""


@dataclass(frozen=True, slots=True)
class Piece:
    """What is new in one of the texts; `finish` says why it is over."""

    index: int
    tokens: list[Token]
    finish: str | None

    @property
    def text(self) -> str:
        return "".join(token.text for token in self.tokens)


async def follow(
    state: State, served: Served, requests: Sequence[Request], deadline: float | None = None
) -> AsyncGenerator[list[Ticket], None]:
    """The tickets of requests, again whenever there is something new. What goes wrong is an answer."""
    assert served.engine is not None
    limit = state.settings.timeout
    deadline = asyncio.get_running_loop().time() + limit if deadline is None else deadline
    if state.shelf.closed:
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


async def write(
    state: State, served: Served, requests: Sequence[Request], read: int, stops: Sequence[str] = ()
) -> AsyncGenerator[Piece, None]:
    """All texts of some requests with `read` tokens in their prompts, as they are written."""
    assert served.engine is not None
    watch = state.metrics.watch(served.name, read)
    streams: list[TokenStream] = []
    open_ = set(range(len(requests)))
    turn = Turn(state.settings.timeout)
    async with aclosing(follow(state, served, requests, turn.deadline)) as followed:
        async for tickets in followed:
            streams = streams or [TokenStream(ticket, served.speaker, stops) for ticket in tickets]
            for index in sorted(open_):
                stream, ticket, more = streams[index], tickets[index], True
                while more:
                    done = ticket.done  # before the news: what comes later is said the next time
                    tokens = list(islice(stream.new(), AT_ONCE))
                    more = len(tokens) == AT_ONCE and not stream.stopped
                    watch.wrote(len(tokens))
                    if done and not more and ticket.error is not None and not stream.stopped:
                        raise reason(ticket.error)
                    ended = stream.stopped or (done and ticket.ids and ticket.ids[-1] in ticket.request.ends)
                    finish = None if more else "stop" if ended else "length" if done else None
                    if finish:
                        open_.discard(index)
                        served.engine.cancel(ticket)
                    if tokens or finish:
                        yield Piece(index, tokens, finish)
                    await turn.check()
            if not open_:
                return


class Turn:
    """Who has much to tell lets others have their turn, and ends when its time is over."""

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


async def search(state: State, served: Served, requests: Sequence[Request]) -> list[list[Hypothesis]]:
    """What was found for each request, best first."""
    watch = state.metrics.watch(served.name, sum(one.source_length or len(one.prompt) for one in requests))
    tickets: list[Ticket] = []
    deadline = asyncio.get_running_loop().time() + state.settings.timeout
    at_once = max(1, state.settings.queue // 2)  # a request of many texts leaves room for others
    for first in range(0, len(requests), at_once):
        news: list[Ticket] = []
        async with aclosing(follow(state, served, requests[first : first + at_once], deadline)) as followed:
            async for latest in followed:
                news = latest
        tickets += news
    for ticket in tickets:
        if ticket.error is not None:
            raise reason(ticket.error)
    found = [ticket.result() for ticket in tickets]
    watch.wrote(sum(len(one.ids) for some in found for one in some))
    return found


def reason(error: BaseException) -> BaseException:
    """Nobody takes back what is followed, except a server that is being stopped."""
    return closing() if isinstance(error, Cancelled) else error


async def all_of(pieces: AsyncIterator[Piece], count: int) -> list[Piece]:
    """The whole texts."""
    found = [Piece(index, [], None) for index in range(count)]
    async for piece in pieces:
        before = found[piece.index]
        found[piece.index] = Piece(piece.index, before.tokens + piece.tokens, piece.finish)
    return found


class Wording:
    """How tokens are told in answers; the mark of the end is one too."""

    def __init__(self, served: Served) -> None:
        self.tokenizer = served.speaker.tokenizer

    def completion(self, tokens: Sequence[Token], offset: int) -> dict[str, Any]:
        """The older form: lists side by side."""
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
        """The newer form: a list of records."""
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
        """A token as text; one that is no whole character as its bytes, as OpenAI writes them."""
        raw = self.tokenizer.bytes_of(id)
        try:
            return raw.decode()
        except UnicodeDecodeError:
            return "bytes:" + "".join(f"\\x{byte:02x}" for byte in raw)


def new_id(kind: str) -> str:
    return f"{kind}-{secrets.token_hex(12)}"
