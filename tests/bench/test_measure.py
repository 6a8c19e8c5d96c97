"""Processes that answer, fail and die; ladders that end; exponents."""

import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
import torch

from regard.bench import measure
from regard.bench.measure import (
    Died,
    climb,
    expect,
    fit_exponent,
    in_child,
    read_lengths,
    read_names,
    show_seconds,
    timed,
)


def allocate(numbers):
    before = measure.held()
    kept = torch.ones(numbers)
    del kept
    return os.getpid(), measure.peak() - before


def end(how):
    if how == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    if how == "exits":
        os._exit(7)
    if how == "sleeps":
        time.sleep(60)
    if how == "memory":
        torch.empty(1 << 60)
    raise {"user": ValueError("no, because"), "bug": KeyError("x")}[how]


def test_a_child_answers_with_its_own_peak_of_memory():
    found = [in_child(allocate, numbers << 20) for numbers in (8, 32)]
    assert len({os.getpid(), *(pid for pid, _ in found)}) == 3, "a fresh process each"
    for (_, memory), mib in zip(found, (32, 128), strict=True):
        assert 0.95 * mib < memory / 2**20 < 1.25 * mib + 4


@pytest.mark.parametrize(
    ("how", "text"),
    [
        ("killed", "killed, most likely out of memory"),
        ("exits", "died with code 7"),
        ("memory", "out of memory"),
        ("user", "no, because"),
        ("bug", "KeyError: 'x'"),
        ("sleeps", "gave up after 1 s"),
    ],
)
def test_a_child_that_gives_no_answer_says_why(how, text):
    with pytest.raises(Died) as died:
        in_child(end, how, seconds=1.0 if how == "sleeps" else None)
    assert str(died.value) == text


def blocked():
    return signal.SIGINT in signal.pthread_sigmask(signal.SIG_BLOCK, [])


FIRST_CHILD = "from tests.bench.test_measure import *; print(in_child(blocked), in_child(blocked), blocked())"


def test_ctrl_c_reaches_no_child_at_any_moment():
    """In a fresh process: what starts with the first child (its server, the tracker of resources) inherits it too."""
    done = subprocess.run([sys.executable, "-c", FIRST_CHILD], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["True", "True", "False"]


@pytest.mark.parametrize("power", [0.0, 1.0, 1.37, 2.0])
def test_exponents_are_those_of_a_straight_line_in_logarithms(power):
    lengths = [1024 << i for i in range(6)]
    noise = np.random.default_rng(0).uniform(0.8, 1.2, 6)
    points = [{"length": n, "seconds": 3e-5 * n**power * e} for n, e in zip(lengths, noise, strict=True)]
    slope, _ = np.polyfit(np.log(lengths), np.log([point["seconds"] for point in points]), 1)
    assert fit_exponent(points, "seconds") == {"exponent": round(slope, 3), "from": 1024, "to": 32768}
    assert fit_exponent(points[:3], "seconds") is None, "three points say too little"
    points[0]["seconds"] = 0
    assert fit_exponent(points, "seconds")["from"] == 2048, "what was too small to be seen has no logarithm"


def test_a_ladder_ends_before_it_takes_too_long():
    points = []
    stopped = climb(points, (1, 2, 4, 8, 16), lambda n: {"seconds": 0.1 * n**2}, max_seconds=5.0)
    assert [point["length"] for point in points] == [1, 2, 4]
    assert stopped == "stopped before 8: about 6 s a pass expected"
    assert expect(points, 8) == pytest.approx(6.4)
    flat = [{"length": 1, "seconds": 1.0}, {"length": 2, "seconds": 0.9}]
    assert expect(flat, 8) == pytest.approx(3.6), "at least linear"


def test_a_ladder_ends_where_a_process_dies():
    def measure_one(n):
        if n == 4096:
            raise Died("out of memory")
        return {"seconds": 1.0}

    points = []
    assert climb(points, (1024, 2048, 4096, 8192), measure_one, 60.0) == "stopped at 4k: out of memory"
    assert len(points) == 2


def test_passes_are_repeated_as_the_budget_allows(monkeypatch):
    monkeypatch.setattr(measure, "clocked", lambda work: work())
    assert timed(lambda: 1.0, repeats=3, budget=60.0) == [1.0] * 3
    assert timed(lambda: 1.0, repeats=3, budget=2.5) == [1.0] * 2
    assert timed(lambda: 1.0, repeats=3, budget=0.1) == [1.0], "one at least"
    assert len(timed(lambda: 0.01, repeats=3, budget=60.0)) == pytest.approx(20, abs=1), "short ones more often"
    assert timed(lambda: 0.01, repeats=1, budget=60.0) == [0.01]


def test_lengths_and_names():
    assert read_lengths("1k..64k") == tuple(1024 << i for i in range(7))
    assert read_lengths("300..2k") == (300, 600, 1200)
    assert read_lengths("1k,4K,16384") == (1024, 4096, 16384)
    assert read_lengths("512") == (512,)
    for wrong in ("", "k", "0", "a..b", "1k..", "1.5k", "-1"):
        with pytest.raises(ValueError, match="no list of numbers; write 1k..64k"):
            read_lengths(wrong)
    for falling in ("4k..1k", "4k,1k", "1k,1k"):
        with pytest.raises(ValueError, match="must rise"):
            read_lengths(falling)
    names = ("full", "window:radius=64,chunk=32", "linear")
    assert read_names("full, window:radius=64,chunk=32,linear,full,") == names


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(1.234e-3, "1.23 ms"), (0.04567, "45.7 ms"), (0.5, "500 ms"), (2.0, "2.00 s"), (123.4, "123 s")],
)
def test_seconds_have_three_digits(seconds, text):
    assert show_seconds(seconds) == text
