"""Errors of exhausted memory in one line: how much was requested, and which setting to lower."""

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager

SIGNS = ("can't allocate memory", "out of memory", "Unable to allocate")


class OutOfMemory(MemoryError):  # noqa: N818  the name that torch has for it, in words
    """Raised with a message that says what needed how much memory, and the cure."""


def memory_need(error: BaseException) -> str | None:
    """The memory that could not be had, such as "4.0 GiB"; "more" if it is not known, None for any other error."""
    text = str(error)
    if not isinstance(error, MemoryError) and not any(sign in text for sign in SIGNS):
        return None
    if match := re.search(r"allocate (\d+) bytes", text):
        return f"{int(match[1]) / 2**30:,.1f} GiB"
    match = re.search(r"llocate (\d[\d.]* [KMGT]iB)", text)
    return match[1] if match else "more"


@contextmanager
def memory_errors(fact: Callable[[], str], cure: Callable[[], str]) -> Iterator[None]:
    """Turn an allocation that fails, on a CPU or a GPU, into an error that says who needed it and what to lower."""
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        need = None if isinstance(error, OutOfMemory) else memory_need(error)
        if need is None:
            raise
        amount = "more memory than there is" if need == "more" else f"{need} of memory that there is not"
        raise OutOfMemory(f"{fact()} needs {amount}; {cure()}") from None
