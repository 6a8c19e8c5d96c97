"""Notices from reading data, such as files that were skipped: on stderr, or to whoever listens."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

Listener = Callable[[str, bool], None]
"""(text, passing): a passing text is progress, which the next one replaces; any other stays on the screen."""


def print_notice(text: str, passing: bool) -> None:
    """Print what stays on the screen; progress is for those who asked for it."""
    if not passing:
        print(text, file=sys.stderr)


_listener: ContextVar[Listener] = ContextVar("listener", default=print_notice)


def notify(text: str, *, passing: bool = False) -> None:
    """Pass a line on to the listener."""
    _listener.get()(text, passing)


@contextmanager
def listening(listener: Listener) -> Iterator[None]:
    """Pass the notices of this block on to another listener."""
    token = _listener.set(listener)
    try:
        yield
    finally:
        _listener.reset(token)
