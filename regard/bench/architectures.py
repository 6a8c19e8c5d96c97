"""Attention, recurrence and convolution side by side: the lectures' table, measured instead of quoted.

Time of one layer against n; the steps that must wait for each other; and the path that a gradient takes from the last
output to the first input.
"""

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from regard.bench.measure import (
    FEWEST,
    Limits,
    Point,
    climb,
    counted,
    fit_exponent,
    interruptible,
    length_name,
    line_up,
    median,
    panel,
    report,
    show_fit,
    show_seconds,
    timed,
)  # fmt: skip
from regard.config import at_least, check_positive
from regard.inside.draw.canvas import Target
from regard.inside.draw.curves import draw_growth
from regard.nn.kernels import build_kernel
from regard.registry import kernels
from regard.train.progress import Line

if TYPE_CHECKING:
    import matplotlib.figure

Layer = Callable[[Float[Tensor, "B T D"]], Float[Tensor, "B T D"]]


@dataclass(frozen=True, kw_only=True, slots=True)
class ArchitecturesConfig(Limits):
    """Sizes of the layers, and where they are measured."""

    lengths: tuple[int, ...]
    """Positions, rising."""
    dim: int = 256
    """Width of the layers."""
    radius: int = 64
    """Positions to each side that restricted attention sees."""
    width: int = 3
    """Width of the convolutions."""

    def __post_init__(self) -> None:
        check_positive(self, "dim", "radius")
        at_least(2, width=self.width)
        Limits.__post_init__(self)
        if not self.lengths:
            raise ValueError("nothing to measure: name at least one length")


def attention(config: ArchitecturesConfig, length: int, kernel: str) -> Layer:
    """Attention of x over itself, with heads of 64; no projections, which are no part of the lectures' n² · d."""
    heads = max(1, config.dim // 64) if config.dim % 64 == 0 else 1
    mix: Any = build_kernel(kernel, heads=heads, head_dim=config.dim // heads, max_len=length)

    def layer(x: Float[Tensor, "B T D"]) -> Float[Tensor, "B T D"]:
        split = x.unflatten(-1, (heads, -1)).transpose(1, 2)
        return mix(split, split, split)[0].transpose(1, 2).flatten(2)

    return layer


def recurrence(config: ArchitecturesConfig, dtype: torch.dtype) -> Layer:
    """Return a GRU whose update gate is open to the past, so that gradients over a long distance do not underflow."""
    gru: Any = nn.GRU(config.dim, config.dim, batch_first=True).to(dtype)
    with torch.no_grad():
        gru.bias_hh_l0[config.dim : 2 * config.dim] = 10.0
    return lambda x: gru(x)[0]


def convolution(config: ArchitecturesConfig, dilation: int, dtype: torch.dtype) -> Layer:
    """Return a causal convolution; its path from the first to the last position is as long as in a recurrence."""
    conv = nn.Conv1d(config.dim, config.dim, config.width, dilation=dilation).to(dtype)
    past = (config.width - 1) * dilation
    return lambda x: conv(F.pad(x.transpose(1, 2), (past, 0))).transpose(1, 2)


@dataclass(frozen=True, slots=True)
class Architecture:
    """A kind of layer with the lectures' figures of it: operations, sequential steps, longest path."""

    stated: tuple[str, str, str]
    build: Callable[[ArchitecturesConfig, int, int, torch.dtype], Layer]
    """(config, length, number of layers above it, dtype) → the layer."""


def architectures(config: ArchitecturesConfig) -> dict[str, Architecture]:
    """The architectures of the lectures' table, and the dilated convolution that its log n needs."""
    layers = {
        "self-attention": Architecture(("n²·d", "1", "1"), lambda c, n, depth, dtype: attention(c, n, "full")),
        f"restricted to ±{config.radius}": Architecture(
            ("r·n·d", "1", "n/r"), lambda c, n, depth, dtype: attention(c, n, f"window:radius={c.radius}")
        ),
        "recurrent (GRU)": Architecture(("n·d²", "n", "n"), lambda c, n, depth, dtype: recurrence(c, dtype)),
        f"convolution, {config.width} wide": Architecture(
            ("k·n·d²", "1", "n/k"), lambda c, n, depth, dtype: convolution(c, 1, dtype)
        ),
        "dilated convolution": Architecture(
            ("k·n·d²", "1", "log_k n"), lambda c, n, depth, dtype: convolution(c, c.width**depth, dtype)
        ),
    }
    return layers if "window" in kernels else {name: a for name, a in layers.items() if "restricted" not in name}


def measure_architectures(config: ArchitecturesConfig, *, quiet: bool = True) -> dict[str, Any]:
    """Measure time, sequential steps and path length of each architecture; after Ctrl-C return the results so far."""
    line = Line(quiet)
    results: dict[str, Any] = {}
    result: dict[str, Any] = {
        "dim": config.dim, "radius": config.radius, "width": config.width, "threads": torch.get_num_threads(),
        "lengths": list(config.lengths), "architectures": results,
    }  # fmt: skip
    narrow = replace(config, dim=8)  # dependences are equal at every width
    with interruptible(result):
        for name, kind in architectures(config).items():
            points: list[Point] = []
            stopped = climb(points, config.lengths, partial(time_layer, kind, config), config.max_seconds)
            first, two = (chain_length(kind, narrow, n) for n in (1, 2))
            for point in points:
                n = point["length"]
                # Each further position adds the operations of a step, where it must wait for the one before.
                steps = 1 + (chain_length(kind, narrow, n) - first) // max(1, two - first)
                layers = path_length(kind, narrow, n)
                point |= {"steps": steps, "layers": layers, "path": layers * steps}
                line.say(f"{name}, {length_name(n)}: {show_seconds(point['seconds'])}, path {layers} × {steps}")
            results[name] = {
                "stated": dict(zip(("operations", "steps", "path"), kind.stated, strict=True)),
                "points": points, "stopped": stopped, "time": fit_exponent(points, "seconds"),
                "steps": growth(points, "steps", config.width), "path": growth(points, "path", config.width),
            }  # fmt: skip
    return result


@torch.no_grad()
def time_layer(kind: Architecture, config: ArchitecturesConfig, length: int) -> Point:
    """Return the seconds of a forward pass of one layer above the lowest, which is not dilated."""
    layer, x = kind.build(config, length, 1, torch.float32), torch.randn(1, length, config.dim)
    layer(x)
    times = timed(lambda: layer(x), repeats=config.repeats, budget=config.max_seconds)
    return {"seconds": median(times), "passes": len(times)}


def chain_length(kind: Architecture, config: ArchitecturesConfig, length: int) -> int:
    """The length of the longest chain of dependent operations in one layer, counted in autograd's graph."""
    out = kind.build(config, length, 0, torch.float32)(torch.randn(1, length, config.dim, requires_grad=True))
    depth: dict[Any, int] = {}
    stack = [out.grad_fn]
    while stack:
        inputs = [node for node, _ in stack[-1].next_functions if node is not None]  # type: ignore[union-attr]
        if missing := [node for node in inputs if node not in depth]:
            stack += missing
        else:
            depth[stack.pop()] = 1 + max((depth[node] for node in inputs), default=0)
    return depth[out.grad_fn]


def path_length(kind: Architecture, config: ArchitecturesConfig, length: int) -> int:
    """The number of layers after which the last output has a gradient with respect to the first input.

    Only the positions of nonzero gradients are passed from layer to layer: a product of so many small numbers would be
    rounded to zero.
    """
    reached = torch.zeros(length, 1, dtype=torch.float64)
    reached[-1] = 1
    for depth in range(length):
        x = torch.randn(1, length, config.dim, dtype=torch.float64, requires_grad=True)
        out = kind.build(config, length, depth, torch.float64)(x)
        (gradient,) = torch.autograd.grad(out, x, torch.randn_like(out) * reached)
        reached = (gradient[0] != 0).any(-1, keepdim=True).double()
        if reached[0]:
            return depth + 1
    raise AssertionError("every architecture reaches the first input after some number of layers")


def growth(points: Sequence[Point], what: str, base: int) -> str:
    """Return the growth of a measured value with the length n as text: constant, a power of n, or logarithmic."""
    lengths, values = [point["length"] for point in points], [point[what] for point in points]
    if len(set(values)) <= 1:
        return "constant"
    if len(points) < FEWEST:
        return f"fewer than {FEWEST} points"
    fitted = fit_exponent(points, what)
    assert fitted is not None
    logs = [math.log(n, base) for n in lengths]
    as_power = statistics.correlation([math.log(n) for n in lengths], [math.log(value) for value in values])
    if fitted["exponent"] < 0.5 and statistics.correlation(logs, values) > as_power - 0.1:
        return f"{statistics.linear_regression(logs, values).slope:.2f}·log_{base} n"
    return f"n^{fitted['exponent']:.2f}"


def render_architectures(result: Mapping[str, Any]) -> str:
    """Three tables: time, sequential steps and path length."""
    lines = [
        f"one layer of width d = {result['dim']}, forward, float32, {counted(result['threads'], 'thread')}; restricted "
        f"to r = {result['radius']} to each side, convolutions k = {result['width']} wide",
        "a fused operation counts as one step; attention without its projections",
        "convolutions look back only, so that the way from first to last is longest",
    ]
    titles = {
        "seconds": "time of a layer",
        "steps": "steps that wait for each other",
        "path": "path from last output to first input: layers × steps",
    }
    show = {"seconds": "{shown}", "steps": "{steps:,}", "path": "{layers:,} × {steps:,}"}
    parts, tables = result["architectures"], []
    for key, title in titles.items():
        table = [[title, *map(length_name, result["lengths"]), "grows as", "stated"]]
        for name, part in parts.items():
            grows = show_fit(part["time"]) if key == "seconds" else part[key]
            stated = part["stated"]["operations" if key == "seconds" else key]
            texts = {p["length"]: show[key].format(shown=show_seconds(p["seconds"]), **p) for p in part["points"]}
            table.append([name, *(texts.get(length, "–") for length in result["lengths"]), grows, stated])
        tables.append(line_up(table))
    return report(lines, *tables, [f"{name}: {part['stopped']}" for name, part in parts.items() if part["stopped"]])


def draw_architectures(result: Mapping[str, Any], path: Target) -> "matplotlib.figure.Figure":
    """Draws the time of a layer at the left and path length at the right."""
    parts = result["architectures"]
    time = panel("time of a layer", "time", "s", parts, "seconds", "time")
    far = panel("path from last to first", "layers × steps", "", parts, "path")
    return draw_growth([[time, far]], path, xlabel="positions")
