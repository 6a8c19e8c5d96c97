"""Growth of time and memory of attention with length, by kernel."""

import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import product
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import Tensor

from regard.bench.measure import (
    Limits,
    Point,
    climb,
    clocked,
    counted,
    fit_exponent,
    forget_peak,
    give_back,
    held,
    in_child,
    interruptible,
    length_name,
    line_up,
    median,
    panel,
    peak,
    report,
    show_fit,
    show_seconds,
    timed,
)  # fmt: skip
from regard.config import check_positive
from regard.cost.report import decimal_size
from regard.inside.draw.canvas import Target
from regard.inside.draw.curves import draw_growth
from regard.nn.attention import Attention, AttentionConfig
from regard.nn.kernels import build_kernel
from regard.nn.masks import causal
from regard.registry import kernels
from regard.train.progress import Line

if TYPE_CHECKING:
    import matplotlib.figure

Pass = Literal["forward", "training"]
AS_FULL = ("additive", "cosine", "dot", "general", "normalized")
"""Kernels with other scores over all pairs, which cost at least as much as `full`."""
WARM = 256
"""Length of a first pass that is not timed: it loads libraries and starts threads."""


def efficient_kernels() -> tuple[str, ...]:
    """The names of `full` and of every registered kernel that attends to fewer keys or approximates."""
    return ("full", *(name for name in kernels if name not in (*AS_FULL, "full")))


@dataclass(frozen=True, kw_only=True, slots=True)
class GrowthConfig(Limits):
    """Sizes of the measured kernels, and limits of the measurement."""

    kernels: tuple[str, ...]
    """Registered names, with settings where wanted."""
    lengths: tuple[int, ...]
    """Tokens, rising."""
    heads: int = 8
    """Attention heads."""
    head_dim: int = 64
    """Size of a head."""
    batch: int = 1
    """Sequences at once."""
    causal: bool = True
    """Hide the future, where a kernel can."""
    passes: tuple[Pass, ...] = ("forward", "training")
    """Forward without gradients; training is forward and backward."""
    layer: bool = False
    """The whole layer with its four projections, instead of the kernel on given q, k and v."""

    def __post_init__(self) -> None:
        check_positive(self, "heads", "head_dim", "batch")
        Limits.__post_init__(self)
        if not self.kernels or not self.lengths:
            raise ValueError("nothing to measure: name at least one kernel and one length")
        for name in self.kernels:  # a wrong name or setting is known before anything is measured
            build_kernel(name, heads=self.heads, head_dim=self.head_dim, max_len=self.lengths[0])

    def hides_future(self, name: str) -> bool:
        """Whether a kernel is measured with a causal mask."""
        return self.causal and kernels[name].causal


def measure_growth(config: GrowthConfig, *, quiet: bool = True) -> dict[str, Any]:
    """Measure every kernel and pass at each length, and fit exponents; after Ctrl-C return the results so far."""
    line = Line(quiet)
    parts: dict[str, Any] = {}
    result: dict[str, Any] = {
        "batch": config.batch, "heads": config.heads, "head_dim": config.head_dim, "layer": config.layer,
        "threads": torch.get_num_threads(), "lengths": list(config.lengths), "kernels": parts,
    }  # fmt: skip
    with interruptible(result):
        for name, which in product(config.kernels, config.passes):
            ladder: dict[str, Any] = {"points": [], "stopped": None}
            parts.setdefault(name, {"causal": config.hides_future(name)})[which] = ladder
            measure = partial(measure_length, config, name, which)
            report = partial(report_point, name, which, line)
            ladder["stopped"] = climb(ladder["points"], config.lengths, measure, config.max_seconds, report)
            if ladder["stopped"]:
                line.say(f"{name}, {which}: {ladder['stopped']}")
    for ladder in [part[which] for part in parts.values() for which in config.passes if which in part]:
        ladder["time"] = fit_exponent(ladder["points"], "seconds")
        ladder["memory"] = fit_exponent(ladder["points"], "memory")
    return result


def measure_length(config: GrowthConfig, name: str, which: Pass, length: int) -> Point:
    """Measure one length, in a separate process."""
    home, threads = kernels[name].__module__, torch.get_num_threads()
    return in_child(measure_point, config, name, length, which, home, threads, seconds=config.patience)


def report_point(name: str, which: Pass, line: Line, point: Point) -> None:
    """Print a point that has been measured and kept."""
    time, size = show_seconds(point["seconds"]), decimal_size(point["memory"])
    line.say(f"{name}, {which}, {length_name(point['length'])}: {time}, {size} above its inputs")


def measure_point(config: GrowthConfig, name: str, length: int, which: Pass, home: str, threads: int) -> dict[str, Any]:
    """Seconds and peak memory of a pass, above the inputs and with them; meant for a fresh process."""
    importlib.import_module(home)  # registers a kernel of the user's
    torch.set_num_threads(threads)
    torch.manual_seed(0)
    one_pass(config, name, min(length, WARM), which)()
    give_back()
    forget_peak()
    empty = held()
    work = one_pass(config, name, length, which)
    ready = held()
    first = clocked(work)
    most = peak()
    left = config.max_seconds - first
    times = timed(work, repeats=config.repeats, budget=left) if first < left else [first]
    return {
        "seconds": median(times), "passes": len(times),
        "memory": max(0, most - ready), "total": max(0, most - empty), "process": most,
    }  # fmt: skip


def one_pass(config: GrowthConfig, name: str, length: int, which: Pass) -> Callable[[], None]:
    """A function that runs a pass once; layer and inputs are built before."""
    training = which == "training"
    hides_future = config.hides_future(name)
    sizes: dict[str, Any] = dict(heads=config.heads, head_dim=config.head_dim, max_len=length)
    shape: tuple[int, ...] = (config.batch, config.heads, length, config.head_dim)
    layer: Any
    if config.layer:
        shape = (config.batch, length, config.heads * config.head_dim)
        layer = Attention(AttentionConfig(dim=shape[-1], kernel=name, **sizes))
        inputs = [torch.randn(shape)]
    else:
        layer = build_kernel(name, **sizes)
        q, v = torch.randn(shape), torch.randn(shape)
        inputs = [q, q if layer.shares else torch.randn(shape), v]
    layer.train(training)
    leaves = [each.requires_grad_(training) for each in inputs] + list(layer.parameters())
    upstream = torch.randn(shape) if training else None

    def run() -> None:
        for leaf in leaves:
            leaf.grad = None
        with torch.set_grad_enabled(training):
            made = layer(*inputs, mask=causal() if hides_future else None)
        out: Tensor = made if config.layer else made[0]
        if training:
            out.backward(upstream)

    return run


COLUMNS = {"seconds": "time", "memory": "memory above the inputs", "total": "memory with inputs and gradients"}


def ladders_of(result: Mapping[str, Any], which: str) -> dict[str, Any]:
    """The ladders of a pass that have points, by kernel."""
    return {name: part[which] for name, part in result["kernels"].items() if part.get(which, {}).get("points")}


def render_growth(result: Mapping[str, Any]) -> str:
    """Tables for each pass and figure: kernels in rows, lengths in columns, then the fitted exponent."""
    what = "layers with their projections" if result["layer"] else "kernels on given q, k and v"
    lines = [
        f"attention {what}: batch {result['batch']}, {result['heads']} heads of {result['head_dim']}, float32, "
        f"{counted(result['threads'], 'thread')}; ↔ cannot hide the future or was not asked to",
        "memory: the most that a process of its own held, less what it held with the inputs (and parameters) built; "
        "with inputs: less what it held before",
    ]
    tables = []
    for which, (key, title) in product(("forward", "training"), COLUMNS.items()):
        table = [[f"{which}: {title}", *map(length_name, result["lengths"]), "" if key == "total" else "grows as"]]
        for name, ladder in ladders_of(result, which).items():
            mark = "" if result["kernels"][name]["causal"] else " ↔"
            show: Callable[[Any], str] = show_seconds if key == "seconds" else decimal_size
            texts = {point["length"]: show(point[key]) for point in ladder["points"]}
            grows = {"seconds": show_fit(ladder["time"]), "memory": show_fit(ladder["memory"])}.get(key, "")
            table.append([name + mark, *(texts.get(length, "–") for length in result["lengths"]), grows])
        tables.append(line_up(table) if len(table) > 1 else [])
    stops = [
        f"{name}, {which}: {part[which]['stopped']}"
        for name, part in result["kernels"].items()
        for which in ("forward", "training")
        if part.get(which, {}).get("stopped")
    ]
    return report(lines, *tables, stops)


def draw_result(result: Mapping[str, Any], path: Target) -> "matplotlib.figure.Figure":
    """Draw time on the left and memory on the right, a row for each measured pass."""
    rows = []
    for which, title in (("forward", "forward"), ("training", "forward and backward")):
        if ladders := ladders_of(result, which):
            time = panel(f"time, {title}", COLUMNS["seconds"], "s", ladders, "seconds", "time")
            rows.append([time, panel(f"memory, {title}", COLUMNS["memory"], "B", ladders, "memory", "memory")])
    return draw_growth(rows, path, xlabel="tokens")
