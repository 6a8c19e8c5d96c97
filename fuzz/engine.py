"""One execution and its outcome, the lines that it reached, and the loop that keeps inputs which go new ways."""

import hashlib
import signal
import sys
import time
import traceback
from dataclasses import asdict, dataclass, field
from importlib import import_module
from pathlib import Path
from random import Random
from types import CodeType, FrameType, ModuleType
from typing import Any

import regard
from fuzz.mutate import mutate
from regard.bench.measure import forget_peak, held, peak

ROOT = str(Path(regard.__file__).parent)
CORPUS = Path(__file__).parent / "corpus"
SECONDS = 5
"""Time of the processor that one input may take."""
MEMORY = 512 * 2**20
"""Bytes that one input may add to the process; three times as much address space."""


class TooLongError(BaseException):
    """An input took more than its share of the processor."""


@dataclass(kw_only=True)
class Result:
    """What a round of one harness came to."""

    name: str
    executions: int = 0
    refused: int = 0
    kept: int = 0
    """Inputs that went a new way through our code."""
    lines: int = 0
    """Lines reached in the modules that the harness reads with."""
    of: int = 0
    """Lines of these modules."""
    seconds: float = 0.0
    """Time of the processor."""
    findings: dict[str, str] = field(default_factory=dict)
    """Where and what, with the name of the file that holds the input."""


class Coverage:
    """Collects the steps from line to line that are taken in our package, each once."""

    def __init__(self) -> None:
        self.steps: set[tuple[CodeType, int, int]] = set()
        self.fresh = False
        self.ours: dict[CodeType, bool] = {}

    @property
    def lines(self) -> set[tuple[str, int]]:
        """File and number of every line that was reached."""
        return {(code.co_filename, line) for code, _, line in self.steps}

    def enter(self, frame: FrameType, event: str, _: Any) -> Any:
        """Trace a call of ours by its lines; others not at all."""
        code, last = frame.f_code, 0
        if (own := self.ours.get(code)) is None:
            own = self.ours[code] = code.co_filename.startswith(ROOT)

        def follow(frame: FrameType, event: str, _: Any) -> Any:
            nonlocal last
            if event == "line":
                if (step := (code, last, frame.f_lineno)) not in self.steps:
                    self.steps.add(step)
                    self.fresh = True
                last = frame.f_lineno
            return follow

        return follow if own else None

    def __enter__(self) -> "Coverage":
        self.fresh = False
        sys.settrace(self.enter)
        return self

    def __exit__(self, *_: Any) -> None:
        sys.settrace(None)


def lines_of(module: str) -> set[tuple[str, int]]:
    """Return the lines inside of the functions of a module."""
    path = import_module(module).__file__
    assert path is not None
    lines, waiting = set(), [compile(Path(path).read_text(encoding="utf-8"), path, "exec")]
    while waiting:
        code = waiting.pop()
        waiting += [constant for constant in code.co_consts if isinstance(constant, CodeType)]
        if code.co_flags & 2:  # has local variables: a function
            lines |= {(path, line) for _, _, line in code.co_lines() if line and line != code.co_firstlineno}
    return lines


def stop(*_: Any) -> None:
    """End an execution that takes too long."""
    raise TooLongError


def outcome(harness: ModuleType, data: bytes) -> tuple[str, str]:
    """Run one input; return "ok", "refused" or "finding", and the error with its place."""
    forget_peak()
    before, error = held(), None
    signal.setitimer(signal.ITIMER_PROF, getattr(harness, "SECONDS", SECONDS))
    try:
        harness.run(data)
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as raised:  # also of Rust's panics
        error = raised
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
    if (grown := peak() - before) > MEMORY:
        return "finding", f"memory: {grown >> 20} MiB more, {place_of(error) if error else 'and no error'}"
    if error is None:
        return "ok", ""
    own = type(error).__module__.startswith("regard")
    of_the_system = type(error) in (OSError, FileNotFoundError, NotADirectoryError) and error.errno is not None
    if not (type(error) is ValueError or own or of_the_system):
        return "finding", f"{type(error).__name__} at {place_of(error)}"
    if not str(error).strip():
        return "finding", f"an error without words at {place_of(error)}"
    return "refused", ""


def place_of(error: BaseException) -> str:
    """Return the innermost line of ours that an error came through."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename.startswith(ROOT)]
    return (
        f"{Path(frames[-1].filename).relative_to(Path(ROOT).parent)}:{frames[-1].lineno}" if frames else "the harness"
    )


def minimise(harness: ModuleType, data: bytes, wanted: str, tries: int = 300) -> bytes:
    """Return a shorter input with the same finding, by leaving parts out; what is slow or large stays as it is."""
    size = 0 if wanted.startswith(("memory", TooLongError.__name__)) else len(data) // 2
    while size and tries > 0:
        at = 0
        while at < len(data) and tries > 0:
            shorter, tries = data[:at] + data[at + size :], tries - 1
            if outcome(harness, shorter) == ("finding", wanted):
                data = shorter
            else:
                at += size
        size //= 2
    return data


class Fuzzer:
    """Runs one harness: its seeds, its corpus, then mutations of whatever reached something new."""

    def __init__(self, name: str, seed: int, current: Path, kept: Path, grown: Path | None) -> None:
        """`name` is that of a harness, or of a module elsewhere; the inputs of findings go to the folder `kept`, those
        that go new ways to `grown`."""
        self.harness = import_module(name if "." in name else f"fuzz.harnesses.{name}")
        self.kept = kept
        self.seeds: list[bytes] = self.harness.seeds()
        self.random, self.coverage, self.current, self.grown = Random(f"{name} {seed}"), Coverage(), current, grown
        self.result, self.inputs = Result(name=name), list[bytes]()
        self.words: list[bytes] = getattr(self.harness, "WORDS", [])

    def run(self, executions: int | None, seconds: float | None) -> dict[str, Any]:
        """Fuzz until so many executions or seconds; return the result as a dictionary."""
        began, computed = time.monotonic(), time.process_time()
        for seed in self.seeds:
            kind, text = self.execute(seed)
            if kind != "ok":
                self.result.findings.setdefault(f"a seed is not read: {text}", "")
        folders = [CORPUS / self.result.name] + ([] if self.grown is None else [self.grown / self.result.name])
        for path in [path for folder in folders if folder.is_dir() for path in sorted(folder.iterdir())]:
            self.execute(path.read_bytes())
        while (executions is None or self.result.executions < executions) and (
            seconds is None or time.monotonic() - began < seconds
        ):
            # the newer half of what was kept gets most of the attention
            late = self.inputs[len(self.inputs) // 2 :] if self.random.random() < 0.6 else self.inputs
            self.execute(
                mutate(self.random.choice(late or self.seeds), self.random, self.inputs or self.seeds, self.words)
            )
        every = set().union(*(lines_of(module) for module in self.harness.READS))
        self.result.lines, self.result.of = len(every & self.coverage.lines), len(every)
        self.result.kept, self.result.seconds = len(self.inputs), time.process_time() - computed
        return asdict(self.result)

    def execute(self, data: bytes) -> tuple[str, str]:
        """Run one input; keep it if it went a new way, or if it is a finding."""
        self.current.write_bytes(data)
        with self.coverage:
            kind, text = outcome(self.harness, data)
        self.result.executions += 1
        self.result.refused += kind == "refused"
        if kind == "finding":
            if text not in self.result.findings:
                self.result.findings[text] = keep(self.kept / self.result.name, minimise(self.harness, data, text))
        elif self.coverage.fresh:
            self.inputs.append(data)
            if self.grown is not None:
                keep(self.grown / self.result.name, data)
        return kind, text


def keep(folder: Path, data: bytes) -> str:
    """Write an input under the name of its checksum and return that name."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / hashlib.sha256(data).hexdigest()[:16]
    path.write_bytes(data)
    return path.name
