"""Dates of the rows of a series: how they are written, and the regular grid that they lie on."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Literal

import numpy as np

SLASHED = ("%d/%m/%Y", "%m/%d/%Y", "%d.%m.%Y", "%Y/%m/%d", "%Y.%m.%d", "%Y-%m", "%b %d %Y", "%b %Y")
"""Ways to write a date, besides those of ISO 8601; each also with a time behind it."""
TIMES = ("", " %H:%M", " %H:%M:%S")
MOST_DIGITS = 12
"""Digits of a date that is a number."""
NAMES = {1: "second", 60: "minute", 3600: "hour", 86_400: "day", 7 * 86_400: "week"}

Unit = Literal["number", "second", "business day", "month"]


@dataclass(frozen=True, slots=True)
class Grid:
    """Regular dates: the first, and the step between two of them as a count of units."""

    first: int
    """Seconds since 1970, or the first number where steps have no dates."""
    unit: Unit = "number"
    count: int = 1

    def steps(self, stamps: np.ndarray) -> np.ndarray:
        """The number of steps from the first date to each, which is no whole number for a date beside the grid."""
        if self.unit in ("number", "second"):
            return (stamps - self.first) / self.count
        start = np.datetime64(self.first, "s")
        dates = stamps.astype("datetime64[s]")
        if self.unit == "business day":
            days, beside = dates.astype("datetime64[D]"), (stamps - self.first) % 86_400 / 86_400
            count = np.busday_count(start.astype("datetime64[D]"), days)
            return count / self.count + beside + 0.5 * ~np.is_busday(days)
        months = (dates.astype("datetime64[M]") - start.astype("datetime64[M]")).astype(np.int64)
        beside = within_month(stamps) - within_month(np.array([self.first]))
        both_last = is_last_day(stamps) & is_last_day(np.array([self.first]))
        return months / self.count + np.where(both_last, 0.0, beside / (62 * 86_400))

    def stamp(self, step: int) -> int:
        """The date of a step as seconds since 1970, or its number; the first step is 0."""
        if self.unit in ("number", "second"):
            return self.first + self.count * step
        start = np.datetime64(self.first, "s")
        if self.unit == "business day":
            day = np.busday_offset(start.astype("datetime64[D]"), self.count * step, roll="forward")
            return int(day.astype("datetime64[s]").astype(np.int64)) + self.first % 86_400
        month = start.astype("datetime64[M]") + self.count * step
        begin, end = (int(each.astype("datetime64[s]").astype(np.int64)) for each in (month, month + 1))
        inside = int(within_month(np.array([self.first]))[0])
        if is_last_day(np.array([self.first]))[0]:
            inside = end - begin - 86_400 + inside % 86_400
        return begin + min(inside, end - begin - 86_400 + inside % 86_400)

    def label(self, step: int) -> str:
        """The date of a step in words; without dates, its number."""
        return label_of(self.stamp(step), self.unit)

    def calendar(self, steps: np.ndarray) -> np.ndarray:
        """Sine and cosine of the time of day, of the week and of the year of each step, as far as these have steps."""
        since = steps + self.first // (self.count if self.unit == "second" else 86_400)
        if self.unit == "month":
            since = steps + int(np.datetime64(self.first, "s").astype("datetime64[M]").astype(int)) // self.count
        elif self.unit == "business day":
            first = np.datetime64(self.first, "s").astype("datetime64[D]")
            since = steps + np.busday_count(np.datetime64("1970-01-05"), first)
        turns = [2 * np.pi * since / season for season in self.seasons]
        return np.stack([wave(turn) for turn in turns for wave in (np.sin, np.cos)], -1)

    @property
    def words(self) -> str:
        """The step in words: "hour", "3 months"."""
        if self.unit == "number":
            return "row" if self.count == 1 else f"{self.count}"
        if self.unit == "second":
            size = next(size for size in sorted(NAMES, reverse=True) if self.count % size == 0)
            number, name = self.count // size, NAMES[size]
        else:
            years = self.unit == "month" and self.count % 12 == 0
            number, name = (self.count // 12, "year") if years else (self.count, self.unit)
        return name if number == 1 else f"{number} {name}s"

    @property
    def seasons(self) -> tuple[int, ...]:
        """Steps after which such series may repeat themselves: a day, a week, a year."""
        if self.unit == "business day":
            return (5, 260)
        if self.unit == "month":
            return (12 // self.count,) if 12 % self.count == 0 and self.count < 12 else ()
        if self.unit == "number":
            return ()
        lengths = (3600, 86_400, 7 * 86_400, 364 * 86_400)
        return tuple(length // self.count for length in lengths if length % self.count == 0 and length > self.count)


def within_month(stamps: np.ndarray) -> np.ndarray:
    """Seconds since the beginning of each date's month."""
    begin = stamps.astype("datetime64[s]").astype("datetime64[M]").astype("datetime64[s]").astype(np.int64)
    return stamps - begin


def is_last_day(stamps: np.ndarray) -> np.ndarray:
    """Whether each date is in the last day of its month."""
    months = stamps.astype("datetime64[s]").astype("datetime64[M]")
    return (stamps + 86_400).astype("datetime64[s]").astype("datetime64[M]") != months


def label_of(stamp: int, unit: str) -> str:
    """A date in words, without a time that is midnight."""
    if unit == "number":
        return str(stamp)
    text = str(np.datetime64(int(stamp), "s")).replace("T", " ")
    return text.removesuffix(" 00:00:00") if text.endswith(" 00:00:00") else text.removesuffix(":00")


def reader_of(cells: Sequence[str]) -> tuple[Callable[[str], int], bool] | None:
    """A function that reads dates written like these cells, and whether they are plain numbers; None for no dates."""
    filled = [cell for cell in cells if cell]
    if not filled:
        return None
    if all(len(cell) <= MOST_DIGITS and cell.lstrip("-").isdigit() and cell.isascii() for cell in filled):
        if not all(len(cell) == 8 and reads(iso, cell) for cell in filled):  # as in 20120131
            return int, True
    fitting = formats_of(filled)
    if len(fitting) > 1:  # day or month first: dates ascend mostly, in steps of about one length
        return min(fitting, key=lambda way: unevenness([way(cell) for cell in filled])), False
    return (fitting[0], False) if fitting else None


def formats_of(cells: Sequence[str]) -> list[Callable[[str], int]]:
    """The functions that can read all of these dates: more than one where day or month may come first."""
    formats = [f"{date}{time}" for date in SLASHED for time in TIMES]
    ways: list[Callable[[str], int]] = [iso, *(written_as(form) for form in formats)]
    return [way for way in ways if all(reads(way, cell) for cell in cells)]


def unevenness(stamps: Sequence[int]) -> tuple[int, float]:
    """The number of dates that are before the one above, and the ratio of the longest step to the shortest."""
    steps = np.diff(np.unique(stamps))
    return int((np.diff(stamps) < 0).sum()), float(steps.max() / steps.min()) if len(steps) else 1.0


def reads(way: Callable[[str], int], cell: str) -> bool:
    """Whether a cell is a date that is written in this way."""
    try:
        way(cell)
    except (ValueError, OverflowError):
        return False
    return True


def iso(cell: str) -> int:
    """Seconds since 1970 of a date in a form of ISO 8601; a time zone is converted to UTC."""
    return seconds(datetime.fromisoformat(cell))


def written_as(form: str) -> Callable[[str], int]:
    """A function that reads a date of this format."""
    return lambda cell: seconds(datetime.strptime(cell, form))


def seconds(date: datetime) -> int:
    """Seconds since 1970, of a time without a zone as if it were UTC."""
    whole = date.replace(tzinfo=UTC) if date.tzinfo is None else date.astimezone(UTC)
    return int((whole - datetime(1970, 1, 1, tzinfo=UTC)).total_seconds())


def grid_of(stamps: np.ndarray, *, numbers: bool) -> Grid:
    """The grid that ascending dates lie on, or most of them do."""
    first, gaps = int(stamps[0]), np.diff(stamps)
    if not len(gaps):
        return Grid(first, "number" if numbers else "second", 1 if numbers else 86_400)
    usual = Counter(gaps.tolist()).most_common(1)[0][0]
    if numbers:
        return Grid(first, "number", usual)
    days = within_month(stamps) // 86_400
    if gaps.min() >= 28 * 86_400 and (len(set(days.tolist())) == 1 or is_last_day(stamps).all()):
        months = np.diff(stamps.astype("datetime64[s]").astype("datetime64[M]").astype(np.int64))
        return Grid(first, "month", Counter(months.tolist()).most_common(1)[0][0])
    weekdays = (stamps // 86_400 + 3) % 7  # 1970 began on a Thursday; Monday is 0
    if usual == 86_400 and weekdays.max() == 4 and stamps[-1] - stamps[0] >= 14 * 86_400:
        return Grid(first, "business day", 1)
    return Grid(first, "second", usual)
