"""Notices from long work, such as files that were skipped or how much is done: on stderr, or to whoever listens."""

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TypeVar

from regard.data.terminal import echo

Item = TypeVar("Item")
PATIENCE, PAUSE = 2.0, 0.2
"""Seconds before progress is shown, and between two lines of it."""

Listener = Callable[[str, bool], None]
"""(text, passing): a passing text is progress, which the next one replaces; any other stays on the screen."""


def print_notice(text: str, passing: bool) -> None:
    """Print a notice on stderr; progress is dropped."""
    if not passing:
        echo(text, err=True)


_listener: ContextVar[tuple[Listener, set[str] | None]] = ContextVar("listener", default=(print_notice, None))
"""The listener, and what `notify_once` has passed on in the outermost block that listens."""


def notify(text: str, *, passing: bool = False) -> None:
    """Pass a line on to the listener."""
    _listener.get()[0](text, passing)


def notify_once(text: str) -> None:
    """Pass a line on to the listener, once in all of a command or a training: files are read again and again."""
    listener, heard = _listener.get()
    if heard is None or text not in heard:
        listener(text, False)
    if heard is not None:
        heard.add(text)


@contextmanager
def listening(listener: Listener) -> Iterator[None]:
    """Pass the notices of this block on to another listener."""
    heard = _listener.get()[1]
    token = _listener.set((listener, set() if heard is None else heard))
    try:
        yield
    finally:
        _listener.reset(token)


_counted: ContextVar[bool] = ContextVar("counted", default=False)


class Count:
    """Context manager that counts what is done of a total; after two seconds listeners hear it, with the time left.

    Inside another count it is silent: the outer one knows the whole.
    """

    def __init__(self, what: str, total: int) -> None:
        self.what, self.total, self.done = what, total, 0
        self.begin = self.shown = time.monotonic()
        self.silent = False

    def __enter__(self) -> "Count":
        self.silent = _counted.get()
        _counted.set(True)
        return self

    def add(self, number: int = 1) -> None:
        """Count so many more."""
        self.done += number
        now = time.monotonic()
        if not self.silent and now - self.begin >= PATIENCE and now - self.shown >= PAUSE:
            self.shown = now
            left = (now - self.begin) / max(1, self.done) * max(0, self.total - self.done)
            notify(f"{self.what} {self.done:,} of {self.total:,}, {clock(left)} left", passing=True)

    def __exit__(self, *error: object) -> None:
        if self.silent:
            return
        _counted.set(False)
        if self.shown > self.begin:
            notify("", passing=True)


def track(items: Iterable[Item], what: str, total: int, size: Callable[[Item], int] = lambda item: 1) -> Iterator[Item]:
    """Yield items, and count how many of the total are done; an item may stand for several."""
    with Count(what, total) as count:
        for item in items:
            yield item
            count.add(size(item))


def clock(seconds: float) -> str:
    """A duration as m:ss or h:mm:ss."""
    minutes, seconds = divmod(int(max(0, seconds)), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{seconds:02d}" if hours else f"{minutes}:{seconds:02d}"
