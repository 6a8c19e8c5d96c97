"""The memory of a server that stays up: threads share arenas, and what models leave goes back to the system."""

import os
import subprocess
import sys

import pytest

from regard.serve.allocator import of_glibc

pytestmark = pytest.mark.skipif(not of_glibc("malloc_stats"), reason="without glibc nothing is set")
THREADS = """
import ctypes, sys, threading
from regard.serve.allocator import share_arenas
{first}
together = threading.Barrier(8)
def work():
    together.wait()
    kept = [bytes(2000) for _ in range(100)]
    together.wait()
threads = [threading.Thread(target=work) for _ in range(8)]
for thread in threads: thread.start()
for thread in threads: thread.join()
ctypes.CDLL(None).malloc_stats()
"""
FREED = """
from pathlib import Path
from regard.serve.allocator import return_freed
def resident(): return int(Path("/proc/self/statm").read_text().split()[1]) * 4096
kept = [bytes(2000) for _ in range(50_000)]
del kept[:-1]
before = resident()
return_freed()
print(before - resident())
"""


def run(code, **variables):
    env = {name: value for name, value in os.environ.items() if not name.startswith(("MALLOC_", "GLIBC_"))}
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=env | variables, check=True)


def arenas(first, **variables):
    return run(THREADS.format(first=first), **variables).stderr.count("Arena ")


def test_threads_share_two_arenas():
    assert arenas("") > 2
    assert arenas("share_arenas()") == 2


def test_the_environment_goes_first():
    assert arenas("share_arenas()", MALLOC_ARENA_MAX="4") == 4
    assert arenas("share_arenas()", GLIBC_TUNABLES="glibc.malloc.arena_max=3") == 3


def test_what_was_freed_goes_back_to_the_system():
    assert int(run(FREED).stdout) > 50_000_000
