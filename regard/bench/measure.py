"""Time and peak memory of functions, each measured in a fresh process."""

import contextlib
import ctypes
import math
import multiprocessing
import os
import signal
import statistics
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from multiprocessing import forkserver, resource_tracker
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from regard.config import at_least
from regard.inside.draw.curves import Panel
from regard.train.loop import Interrupted
from regard.train.memory import memory_need

Point = dict[str, Any]
"""A measurement at one length: `length`, `seconds`, …"""
FEWEST = 4
"""The fewest points that an exponent is fitted to."""
ENOUGH = 0.2
"""Total seconds after which a short pass is not repeated any more."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Limits:
    """Limits of a measurement at rising sizes."""

    max_seconds: float = 60.0
    """Longest time of one pass; larger sizes are left out."""
    repeats: int = 3
    """Passes of which the median time is taken, within that time."""

    def __post_init__(self) -> None:
        at_least(1, repeats=self.repeats)
        if self.max_seconds <= 0:
            raise ValueError(f"max_seconds={self.max_seconds} must be positive")

    @property
    def patience(self) -> float:
        """Seconds after which the process of one size is given up."""
        return 60 + 10 * self.max_seconds


class Died(Exception):  # noqa: N818  it is a result, not a mistake
    """Raised where a process ended without a result; the message is the reason."""


def in_child(work: Callable[..., Any], *arguments: Any, seconds: float | None = None) -> Any:
    """The result of `work` in a fresh process, waiting at most `seconds`."""
    method = "forkserver" if "forkserver" in multiprocessing.get_all_start_methods() else "spawn"
    context: Any = multiprocessing.get_context(method)
    if method == "forkserver":
        context.set_forkserver_preload(["regard.recipes"])  # torch is imported once, and no thread has run yet
        resource_tracker.ensure_running()  # first: its start unblocks SIGINT
        with _ctrl_c_deferred():
            forkserver.ensure_running()  # its children inherit that the signal is blocked: only the parent handles it
    receive, send = context.Pipe(duplex=False)
    child = context.Process(target=_answer, args=(send, work, arguments), daemon=True)
    try:
        with _ctrl_c_deferred():  # a child that has no number yet could not be ended
            child.start()
        send.close()
        if not receive.poll(seconds):
            raise Died(f"gave up after {seconds:.0f} s")
        fine, answer = receive.recv()
    except EOFError:
        child.join()
        killed = child.exitcode == -getattr(signal, "SIGKILL", 0)
        raise Died("killed, most likely out of memory" if killed else f"died with code {child.exitcode}") from None
    finally:
        if child.pid is not None:  # its start may have failed
            if sys.exc_info()[0] is not None:
                child.kill()  # while the pipe is open: a child that finds it closed would complain
            child.join()
        receive.close()
    if not fine:
        raise Died(answer)
    return answer


@contextlib.contextmanager
def _ctrl_c_deferred() -> Iterator[None]:
    """Blocks SIGINT in this thread; one that comes meanwhile is handled at the end."""
    if not hasattr(signal, "pthread_sigmask"):  # Windows
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _answer(send: Connection, work: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
    """Runs `work` in the child and sends the result, or the reason of a failure, through the pipe."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000")  # if the system must end something, then this
    try:
        answer = (True, work(*arguments))
    except Exception as error:
        answer = (False, reason(error))
    send.send(answer)


def _end_with_parent() -> None:
    """Ends the child when its parent has ended."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)


def reason(error: Exception) -> str:
    """The reason of a failure in a few words."""
    if memory_need(error) is not None:
        return "out of memory"
    text = (str(error).splitlines() or [""])[0]
    return text if isinstance(error, ValueError) else f"{type(error).__name__}: {text}"


def held() -> int:
    """The resident memory of this process in bytes (outside Linux, its peak so far)."""
    return _status("VmRSS")


def peak() -> int:
    """The peak resident memory of this process in bytes."""
    return _status("VmHWM")


def _status(name: str) -> int:
    """A figure of /proc/self/status in bytes; outside Linux, the peak memory."""
    if sys.platform == "linux":
        with open("/proc/self/status") as lines:
            return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(name))
    try:
        import resource
    except ImportError:  # Windows: memory is not measured
        return 0
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def forget_peak() -> None:
    """Resets the peak memory of this process, on Linux."""
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")


def give_back() -> None:
    """Returns freed memory to the system, where the C library can; reused, it would hide later allocations."""
    with contextlib.suppress(OSError, AttributeError, TypeError):
        ctypes.CDLL(None).malloc_trim(0)


def clocked(work: Callable[[], Any]) -> float:
    """The seconds of one call."""
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def timed(work: Callable[[], Any], *, repeats: int, budget: float) -> list[float]:
    """The seconds of each of `repeats` calls; more calls of short ones (unless repeats=1), fewer beyond the budget."""
    times: list[float] = []
    while len(times) < repeats or 1 < repeats and sum(times) < ENOUGH:
        if times and sum(times) + times[-1] > budget:
            break
        times.append(clocked(work))
    return times


median: Callable[[Sequence[float]], float] = statistics.median


@contextlib.contextmanager
def interruptible(result: dict[str, Any]) -> Iterator[None]:
    """Note in `result` whether Ctrl-C ended the block, a training in it too; what was measured before is kept."""
    result["interrupted"] = False
    try:
        yield
    except (KeyboardInterrupt, Interrupted):
        result["interrupted"] = True


def climb(
    points: list[Point], lengths: Sequence[int], measure: Callable[[int], Point], max_seconds: float,
    report: Callable[[Point], None] = lambda point: None,
) -> str | None:  # fmt: skip
    """Measure increasing lengths, append and report the points, until a process fails or the next pass would take too
    long; return the reason."""
    for length in lengths:
        if points and (expected := expect(points, length)) > max_seconds:
            return f"stopped before {length_name(length)}: about {expected:.0f} s a pass expected"
        try:
            points.append({"length": length} | measure(length))
            report(points[-1])
        except Died as died:
            return f"stopped at {length_name(length)}: {died}"
    return None


def expect(points: Sequence[Point], length: int) -> float:
    """The expected seconds at the next length, extrapolated from the last two points, with at least linear growth."""
    last, slope = points[-1], 1.0
    if len(points) > 1:
        before = points[-2]
        slope = math.log(last["seconds"] / before["seconds"]) / math.log(last["length"] / before["length"])
    return last["seconds"] * (length / last["length"]) ** max(1.0, slope)


def fit_exponent(points: Sequence[Point], what: str) -> dict[str, Any] | None:
    """The exponent p of value ≈ c · nᵖ by least squares in logarithms, and its range; None for too few points."""
    known = [(point["length"], point[what]) for point in points if point[what] > 0]
    if len(known) < FEWEST:
        return None
    fitted = statistics.linear_regression(*zip(*((math.log(n), math.log(value)) for n, value in known), strict=True))
    return {"exponent": round(fitted.slope, 3), "from": known[0][0], "to": known[-1][0]}


def show_fit(fit: Mapping[str, Any] | None) -> str:
    """A fitted exponent with its range, as `n^1.02 1k–64k`."""
    if fit is None:
        return f"fewer than {FEWEST} points"
    return f"n^{fit['exponent']:.2f} {length_name(fit['from'])}–{length_name(fit['to'])}"


def show_seconds(seconds: float) -> str:
    """A duration with three digits: `1.23 ms`, `45.6 s`."""
    value, unit = (seconds, "s") if seconds >= 1 else (1000 * seconds, "ms")
    return f"{value:.{2 if value < 10 else 1 if value < 100 else 0}f} {unit}"


def line_up(table: Sequence[Sequence[str]]) -> list[str]:
    """The lines of a table with aligned columns: the first to the left, the last unpadded, the others to the right."""
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    lines = []
    for first, *middle, last in table:
        cells = [cell.rjust(width) for cell, width in zip(middle, widths[1:-1], strict=True)]
        lines.append("  ".join([first.ljust(widths[0]), *cells, last]).rstrip())
    return lines


def report(*blocks: Sequence[str]) -> str:
    """Blocks of lines with an empty line between them; empty blocks are left out."""
    return "\n\n".join("\n".join(block) for block in blocks if block)


def panel(
    title: str, ylabel: str, unit: str, ladders: Mapping[str, Any], key: str, fit: str = "", **options: Any
) -> Panel:
    """A panel with the figure `key` of each ladder's points, named with the exponent of `fit`."""
    drawn = Panel(title, ylabel, unit, **options)
    for name, ladder in ladders.items():
        points = [(point["length"], point[key]) for point in ladder["points"] if point[key] > 0]
        drawn.add(name, points, (ladder.get(fit) or {}).get("exponent"))
    return drawn


def counted(count: int, noun: str) -> str:
    """Return a number with its noun in singular or plural."""
    return f"{count} {noun}" if count == 1 else f"{count:,} {noun}s"


def length_name(length: int) -> str:
    """A length as 500 or 64k."""
    return f"{length // 1024}k" if length >= 1024 and length % 1024 == 0 else str(length)


def read_lengths(text: str) -> tuple[int, ...]:
    """The lengths of a text: `1k..64k` doubles from 1,024 to 65,536; `500,1k,4k` is a list."""
    first, dots, last = text.partition("..")
    lengths = [read_length(part, text) for part in ((first, last) if dots else text.split(","))]
    if dots:
        lengths = [lengths[0] << i for i in range(max(0, (lengths[1] // lengths[0]).bit_length()))]
    if not lengths or sorted(set(lengths)) != lengths:
        raise ValueError(f"the numbers in {text!r} must rise; write 1k..64k, or 1k,4k,16k")
    return tuple(lengths)


def read_length(part: str, text: str) -> int:
    """The length of a part of `text`: 500 or 64k."""
    number, scale = (part[:-1], 1024) if part[-1:].lower() == "k" else (part, 1)
    if not number.strip().isdigit() or int(number) < 1:
        raise ValueError(f"{text!r} is no list of numbers; write 1k..64k, or 1k,4k,16k")
    return int(number) * scale


def read_names(text: str) -> tuple[str, ...]:
    """The names in a text: `full,window:radius=64,chunk=32,linear` are three, since settings belong to their name."""
    names: list[str] = []
    for part in filter(None, (part.strip() for part in text.split(","))):
        if names and "=" in part and ":" not in part:
            names[-1] += f",{part}"
        else:
            names.append(part)
    return tuple(dict.fromkeys(names))
