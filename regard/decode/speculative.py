"""Speculative decoding: guessed tokens that the model agrees with are generated in one step. The output never changes.

Running five tokens costs little more than one, since every weight is read once either way.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from regard.decode.engine import Engine
from regard.decode.requests import Request


class Lookup:
    """Guesses that the last tokens continue as they did earlier in the same sequence: for texts that copy."""

    def __init__(self, count: int = 8, *, longest: int = 4, shortest: int = 2) -> None:
        """`count` guesses, after the latest occurrence of the last `longest` … `shortest` tokens."""
        if not (1 <= shortest <= longest and count >= 1):
            raise ValueError(f"count={count} and shortest={shortest} must be from 1, longest={longest} no less")
        self.count, self.longest, self.shortest = count, longest, shortest

    def __call__(self, ids: Sequence[int]) -> list[int]:
        text = np.asarray(ids)
        for length in range(min(self.longest, len(text) - 1), self.shortest - 1, -1):
            windows = np.lib.stride_tricks.sliding_window_view(text[:-1], length)
            places = np.flatnonzero((windows == text[-length:]).all(axis=1))
            if len(places):
                behind = int(places[-1]) + length
                return text[behind : behind + self.count].tolist()
        return []


class Draft:
    """Guesses of a smaller model with the same vocabulary."""

    def __init__(self, model: Any, count: int = 4, **engine: Any) -> None:
        self.engine, self.count = Engine(model, **dict(page=4, max_batch=1) | engine), count

    def __call__(self, ids: Sequence[int]) -> list[int]:
        room = self.engine.runner.max_positions + 1 - len(ids)
        if room < 1:
            return []
        ticket = self.engine.submit(Request(prompt=ids, max_len=min(self.count, room)))
        self.engine.wait(ticket)
        return ticket.ids
