"""Splits by hash and random numbers by key, the same in every process and on every version of Python."""

import hashlib
from datetime import date
from typing import Any

from regard.config import nearest

SPLITS = ("train", "valid", "test")
# One source a kind, all with values of the test split.
SHOWCASE: tuple[str, ...] = (
    "six thousand, eight hundred and twenty-five",
    "The course starts on October 3, 2021.",
    "We know that the train leaves at 5:25 PM.",
    "I paid $25.90 for the book.",
    "nine hours and twenty-five minutes",
)

Duration = tuple[tuple[int, str], ...]
_FIRST_DAY, _END = date(1900, 1, 1).toordinal(), date(2100, 1, 1).toordinal()
_PERIODS = {"year": 0, "month": 11, "week": 4, "day": 6, "hour": 23, "minute": 59, "second": 59}


def check_stream(split: str, count: int = 0, start: int = 0) -> None:
    """Raise an error for an unknown split, or for items before the first."""
    if split not in SPLITS:
        raise ValueError(f"unknown split {split!r}; {nearest(split, SPLITS)}")
    if count < 0 or start < 0:
        raise ValueError(f"count={count} and start={start} must not be negative; the stream begins at 0")


def hashed(text: str) -> int:
    """A number from a text, the same in every process and on every version of Python."""
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big")


def split_by_hash(key: str, percent: int) -> str:
    """The split of a key: so many percent of all keys train, half of the others valid, half test."""
    place = hashed(key) % 100
    return SPLITS[(place >= percent) + (place >= (100 + percent) // 2)]


class Sampler:
    """Random numbers from a key, the same in every process and on every version of Python."""

    def __init__(self, key: str) -> None:
        self._key, self._block, self._pool = key, 0, 0

    def below(self, n: int) -> int:
        if self._pool >> 64 == 0:  # the last bits would make small remainders likelier
            digest = hashlib.blake2b(f"{self._key} {self._block}".encode()).digest()
            self._pool, self._block = int.from_bytes(digest, "big"), self._block + 1
        self._pool, choice = divmod(self._pool, n)
        return choice

    def of(self, items: tuple) -> Any:
        return items[self.below(len(items))]

    def sized(self, digits: int, least: int = 0) -> int:
        """A number of at most so many digits, every length equally frequent."""
        size = self.below(digits)
        low = 10**size if size else least
        return low + self.below(10 ** (size + 1) - low)

    def day(self) -> date:
        return date.fromordinal(_FIRST_DAY + self.below(_END - _FIRST_DAY))

    def minute(self) -> int:
        return 5 * self.below(12) if self.below(2) else self.below(60)

    def cents(self) -> int:
        return 100 * self.sized(4) + self.below(2) * self.below(100) or 100

    def duration(self) -> Duration:
        first = self.below(len(_PERIODS))
        periods = list(_PERIODS)[first : first + 1 + self.below(3)]
        return (self.sized(2, 1), periods[0]), *((1 + self.below(_PERIODS[p]), p) for p in periods[1:])

    def tenths(self) -> int:
        return 10 * self.sized(4, 1) if self.below(3) else 1 + self.below(999)
