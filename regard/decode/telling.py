"""What is said of a text while it is written."""

import math
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from regard.decode.requests import Likely, Ticket

BLOCK = 32
"""Tokens that are decoded together: a text that is decoded from its beginning each time takes ever longer."""


class Token(NamedTuple):
    """One token of a text; `text` is what it adds, where the engine knows texts: nothing while a character is open, or
    what may be the beginning of a stop."""

    id: int
    log_prob: float
    text: str
    likely: Likely = []


class Told:
    """How much has been said of a ticket's tokens; `speaker` knows their text. With the first of the `stops` in it the
    text is over: it `stopped` before that."""

    def __init__(self, ticket: Ticket, speaker: Any, stops: Sequence[str] = ()) -> None:
        self.ticket, self.speaker, self.stops = ticket, speaker, stops
        self.tokens = 0
        self.before = 0  # tokens whose text is said and done; only what stands behind them is decoded
        self.letters = 0  # said behind those
        self.stopped = False

    def news(self) -> Iterator[Token]:
        """The tokens that came since."""
        ticket, over = self.ticket, self.ticket.done
        ids, log_probs = ticket.ids, ticket.log_probs
        if over and not ids and ticket.found:  # beams: all at the end
            ids = ticket.found[0].ids
            log_probs = [math.nan] * len(ids)
        last = len(ids)
        if not over and last and ticket.is_last(last):  # comes with what was held back, when it is known to be the end
            last -= 1
        while self.tokens < last and not self.stopped:
            place = self.tokens
            written, whole = ids[: place + 1], over and place == last - 1
            text = self.sayable(said(ticket, self.speaker, written, whole=whole, before=self.before), whole)
            self.tokens, self.letters = place + 1, self.letters + len(text)
            if self.tokens - self.before >= BLOCK and not self.stopped:
                self.move_on(written)
            likely = ticket.alternatives[place] if ticket.request.alternatives else []
            yield Token(ids[place], log_probs[place], text, likely)

    def move_on(self, written: list[int]) -> None:
        """What is said and done is not decoded again; only where no character is open."""
        done = said(self.ticket, self.speaker, written, whole=True, before=self.before)
        if len(done) == self.letters:
            self.before, self.letters = self.tokens, 0

    def sayable(self, text: str, whole: bool) -> str:
        """What is new in a text, up to a stop, or to what may become one."""
        ends = [place for stop in self.stops if (place := text.find(stop, self.letters)) >= 0]
        if ends:
            self.stopped = True
            return text[self.letters : min(ends)]
        held = 0 if whole else max((overlap(text, stop) for stop in self.stops), default=0)
        return text[self.letters : len(text) - held]


def overlap(text: str, stop: str) -> int:
    """How many letters at the end of a text are the beginning of a stop."""
    return next((count for count in range(min(len(stop) - 1, len(text)), 0, -1) if text.endswith(stop[:count])), 0)


def said(ticket: Ticket, speaker: Any, ids: list[int], *, whole: bool, before: int = 0) -> str:
    """What tokens say behind the first `before` of them; if they are not the `whole`, only what later ones cannot
    change."""
    return "" if speaker is None else speaker.told(ticket.request, ids, whole=whole, before=before)
