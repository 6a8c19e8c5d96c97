"""What is said of a text while it is written."""

import math
from collections.abc import Iterator
from typing import Any, NamedTuple

from regard.decode.requests import Ticket


class Token(NamedTuple):
    """One token of a text; `text` is what it adds, where the engine knows texts: nothing while a character is open."""

    id: int
    log_prob: float
    text: str


class Told:
    """How much has been said of a ticket's tokens; `speaker` knows their text."""

    def __init__(self, ticket: Ticket, speaker: Any) -> None:
        self.ticket, self.speaker, self.tokens, self.letters = ticket, speaker, 0, 0

    def news(self) -> Iterator[Token]:
        """The tokens that came since."""
        ticket, over = self.ticket, self.ticket.done
        ids, log_probs = ticket.ids, ticket.log_probs
        if not ids and ticket.found:  # beams: all at the end
            ids = ticket.found[0].ids
            log_probs = [math.nan] * len(ids)
        last = len(ids)
        for place in range(self.tokens, last):
            text = said(ticket, self.speaker, ids[: place + 1], whole=over and place == last - 1)[self.letters :]
            self.tokens, self.letters = place + 1, self.letters + len(text)
            yield Token(ids[place], log_probs[place], text)


def said(ticket: Ticket, speaker: Any, ids: list[int], *, whole: bool) -> str:
    """What tokens say; if they are not the `whole`, only what later ones cannot change."""
    return "" if speaker is None else speaker.told(ticket.request, ids, whole=whole)
