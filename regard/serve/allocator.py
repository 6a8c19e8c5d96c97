"""The C library's allocator in a process that loads models and lets them go, from many threads, for as long as it runs.

glibc gives each thread an arena of its own and keeps what is freed there: memory that one thread's arena holds is no
use to another's, so a server would grow although it holds nothing.
"""

import ctypes
import os
import sys
from typing import Any

ARENA_MAX = -8
"""glibc's number of the setting."""
ARENAS = 2


def share_arenas() -> None:
    """Let all threads share two arenas, unless the environment chooses; without glibc, do nothing."""
    chosen = "MALLOC_ARENA_MAX" in os.environ or "glibc.malloc" in os.environ.get("GLIBC_TUNABLES", "")
    if not chosen and (set_option := of_glibc("mallopt")):
        set_option(ARENA_MAX, ARENAS)


def return_freed() -> None:
    """Give the pages of freed memory back to the system; without glibc, do nothing."""
    if trim := of_glibc("malloc_trim"):
        trim(0)


def of_glibc(name: str) -> Any:
    """A function of the C library that only glibc has, or None."""
    return getattr(ctypes.CDLL(None), name, None) if sys.platform == "linux" else None
