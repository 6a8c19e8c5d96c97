"""The lectures' figures, computed: `draw("positions", "waves.png", scheme="rotary")`.

A figure is a function `name(path, **settings)`; its settings have defaults and their documentation is its docstring.
"""

import inspect
import math
import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from regard.config import nearest, parse
from regard.inside.draw.canvas import (
    LINES,
    SOFT,
    Axes,
    Figure,
    Number,
    Sheet,
    Target,
    check_suffix,
    name_lines,
    shades,
    write_legend,
)
from regard.inside.draw.curves import draw_training
from regard.inside.draw.matrices import as_texts, draw_masks, label_cells, print_texts, shade, write_title
from regard.nn import masks
from regard.nn.gates import free_candidates, gate_weights
from regard.nn.mask_expressions import read_mask
from regard.nn.positions import Position
from regard.registry import Registry, positions
from regard.train.loop import read_metrics
from regard.train.schedule import SCHEDULES, inverse_sqrt

FIGURES = Registry("figure")
ALIASES = {"positional": "positions", "mask": "masks"}


def draw_figure(name: str, path: Target = None, **settings: Any) -> Figure:
    """Draw a registered figure; settings may be strings, as they come from a command line."""
    figure = FIGURES[ALIASES.get(name, name)]
    check_suffix(path)
    known = {key: each.annotation for key, each in inspect.signature(figure).parameters.items() if key != "path"}
    options = {key.replace("-", "_"): value for key, value in settings.items()}
    for key in options:
        if key not in known:
            raise ValueError(f"figure {name!r} has no setting {key!r}; {nearest(key, known)}")
    read = {key: parse(value, known[key], key) if isinstance(value, str) else value for key, value in options.items()}
    return figure(path, **read)


def options_of(name: str) -> list[str]:
    """Return a figure's settings as command-line options with their defaults."""
    known = inspect.signature(FIGURES[ALIASES.get(name, name)]).parameters.values()
    simple = (one for one in known if one.name not in ("path", "position"))
    return [f"--{one.name.replace('_', '-')} {'' if one.default is None else one.default}".rstrip() for one in simple]


@FIGURES.register("positions")
def draw_positions(
    path: Target = None,
    *,
    scheme: str = "sinusoidal",
    dim: int = 128,
    heads: int = 8,
    length: int = 100,
    dimensions: tuple[int, ...] = (),
    position: Position | None = None,
) -> Figure:
    """A position scheme: its vectors or angles, a few dimensions as curves, or its bias; nearness by distance."""
    if position is None:
        position = positions[scheme](dim=dim, heads=heads, head_dim=dim, max_len=2 * length)
        scheme += ", untrained" if any(True for _ in position.parameters()) else ""
    sheet = Sheet()
    with torch.no_grad():
        bias = position.bias()
        table = position.embed(torch.zeros(1, length, position.dim))[0]
        turned = position.rotate(torch.ones(1, 1, length, position.head_dim))[0, 0]
        if bias is not None:
            _draw_bias(sheet, bias.values, length, scheme, learned=any(True for _ in position.parameters()))
        elif table.any():
            _heat(sheet, table, 0, 4.2, f"{scheme}: the vector of each position", "dimension", "position")
            _draw_dimensions(sheet, table, dimensions)
            unit = table / table.norm(dim=1, keepdim=True).clamp(min=1e-9)
            _draw_nearness(sheet, unit @ unit.T, "dot product of two positions, as a cosine")
        elif (turned != 1).any():
            title = f"{scheme}: a vector of ones, turned at each position"
            _heat(sheet, turned, 0, 4.2, title, "dimension of a head", "position")
            _draw_dimensions(sheet, turned, dimensions)
            _draw_nearness(sheet, turned @ turned.T / turned.shape[1], "q·k / d for q = k = 1")
        else:
            raise ValueError(
                f"scheme {scheme!r} has neither position vectors nor a bias to draw; choose another registered one"
            )
    return sheet.save(path)


def _draw_dimensions(sheet: Sheet, table: Float[Tensor, "T D"], dimensions: Sequence[int]) -> None:
    """Draw single dimensions over the positions, as lecture 001 has them; by default four whose waves can be seen."""
    dim = table.shape[1]
    for number in dimensions:
        if not 0 <= number < dim:
            raise ValueError(f"dimensions={number} is not one of 0 to {dim - 1}; choose others, or a larger --dim")
    axes = sheet.chart(5.2, 0, 3.6, 3, title="some dimensions", xlabel="position")
    for number in dimensions or sorted({dim * i // 16 for i in range(2, 6)}):
        axes.plot(table[:, number].tolist(), linewidth=1.4, label=f"{number}")
    axes.margins(x=0)
    name_lines(axes)


def _draw_nearness(sheet: Sheet, similar: Float[Tensor, "T T"], title: str) -> None:
    """Draw the mean similarity of all pairs at one distance, and its range where pairs differ."""
    bands = [similar.diagonal(distance) for distance in range(len(similar) * 3 // 4)]
    axes = sheet.chart(10, 0, 3.6, 3, title=title, xlabel="distance")
    lows, highs = [float(band.min()) for band in bands], [float(band.max()) for band in bands]
    axes.fill_between(range(len(bands)), lows, highs, color=LINES[0], alpha=0.15, linewidth=0)
    axes.plot([float(band.mean()) for band in bands], linewidth=1.6)
    axes.axhline(0, color=SOFT, linewidth=0.6)


def _heat(
    sheet: Sheet, values: Float[Tensor, "T S"], left: Number, width: Number, title: str, xlabel: str, ylabel: str
) -> Axes:
    """Draw signed values in two colours around white, with a colour bar."""
    axes = sheet.place(left, 0, width, 3, title=title, xlabel=xlabel, ylabel=ylabel)
    top = float(values.abs().max()) or 1.0
    image = axes.imshow(values.numpy(), cmap="RdBu_r", vmin=-top, vmax=top, aspect="auto", interpolation="nearest")
    scale = sheet.place(left + width + 0.1, 0, 0.1, 3)
    bar = sheet.figure.colorbar(image, cax=scale, ticks=[-top, 0, top], format="%.2g")
    bar.outline.set_visible(False)  # type: ignore[operator]
    return axes


def _draw_bias(sheet: Sheet, values: Callable[..., Tensor], length: int, scheme: str, *, learned: bool) -> None:
    """Draw a position bias by distance for each head, and as the matrix that is added to one head's scores."""
    distance = torch.arange(-length, length + 1)
    by_head = values(torch.zeros(1, 1, dtype=torch.long), distance[None])[:, 0]
    title, right = f"{scheme}: added to the scores", "distance, key − query"
    if learned:
        axes = _heat(sheet, by_head, 0, 4.6, title, right, "head")
        axes.images[0].set_extent((-length - 0.5, length + 0.5, len(by_head) - 0.5, -0.5))
    else:
        axes = sheet.chart(0, 0, 4.6, 3, title=title, xlabel=right)
        for head, (ink, curve) in enumerate(zip(shades(len(by_head)), by_head, strict=True)):
            axes.plot(distance, curve, color=ink, linewidth=1.3, label=f"head {head}")
        axes.margins(x=0)
        name_lines(axes)
    shown = torch.arange(min(length, 40))
    _heat(sheet, values(shown[:, None], shown[None])[0], 5.8, 3, "head 0, query by key", "key", "query")


MOST_NODES = 64
"""Positions that a drawn graph may have without --length."""


@FIGURES.register("masks")
def draw_rules(path: Target = None, *, length: int | None = None, rule: str = "") -> Figure:
    """Attention masks: the rules alone, and combined with & and |; or one `rule`, such as "causal & window(4)".

    The length is 12, or the number of nodes of a rule that names edges.
    """
    if length is None:
        nodes = [int(node) for edge in re.findall(r"(\d+) *- *(\d+)", rule) for node in edge]
        length = min(max(nodes, default=11), MOST_NODES - 1) + 1
    if rule:
        return draw_masks({rule: read_mask(rule, length)}, path, length=length)
    third, quarter = max(length // 3, 1), max(length // 4, 1)
    ids = torch.arange(length)[None] * 3 // length
    short = torch.tensor([max(length * 2 // 3, 1)])
    rules = {
        "everything": masks.everything(),
        "causal": masks.causal(),
        "padding": masks.padding(short),
        "causal & padding": masks.causal() & masks.padding(short),
        "window": masks.window(2),
        "causal & window": masks.causal() & masks.window(quarter),
        "strided": masks.strided(quarter),
        "causal & (window | strided)": masks.causal() & (masks.window(quarter) | masks.strided(quarter)),
        "global": masks.global_tokens(2),
        "window | global": masks.window(1) | masks.global_tokens(2),
        "causal | prefix": masks.causal() | masks.prefix(third),
        "causal & segments": masks.causal() & masks.segments(ids),
    }
    return draw_masks(rules, path, length=length)


@FIGURES.register("schedule")
def draw_schedule(
    path: Target = None,
    *,
    dims: tuple[int, ...] = (256, 512, 1024),
    warmups: tuple[int, ...] = (2000, 4000, 8000),
    steps: int = 20_000,
    schedules: Mapping[str, Callable[[int], Number]] | None = None,
) -> Figure:
    """Draw learning rates: warm-up and inverse square root by width and by warm-up, and other schedules."""
    dim, warmup = dims[len(dims) // 2], warmups[len(warmups) // 2]

    def share_of_peak(shape: Callable[[int, int, Number], Number], step: int) -> Number:
        return shape(step, warmup, step / steps)

    panels: dict[str, Mapping[str, Callable[[int], Number]]] = {
        f"inverse square root, warm-up {warmup:,}": {
            f"d = {each}": partial(inverse_sqrt, dim=each, warmup=warmup) for each in dims
        },
        f"inverse square root, d = {dim}": {
            f"warm-up {each:,}": partial(inverse_sqrt, dim=dim, warmup=each) for each in warmups
        },
        f"shapes, warm-up {warmup:,}": {name: partial(share_of_peak, shape) for name, shape in SCHEDULES.items()},
    }
    sheet = Sheet()
    for i, (title, rates) in enumerate((panels if schedules is None else {"learning rate": schedules}).items()):
        _draw_rates(sheet, 4.4 * i, rates, steps, title)
    return sheet.save(path)


def _draw_rates(
    sheet: Sheet, left: Number, schedules: Mapping[str, Callable[[int], Number]], steps: int, title: str
) -> None:
    from matplotlib.ticker import MaxNLocator

    shown = sorted({1, steps, *range(1, steps + 1, max(steps // 1000, 1))})
    curves = {name: [rate(step) for step in shown] for name, rate in schedules.items()}
    power = math.floor(math.log10(max(max(curve) for curve in curves.values())))
    superscript = str(-power).translate(str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"))
    ylabel = f"learning rate · 10{superscript}" if power else "share of the peak"
    axes = sheet.chart(left, 0, 3.3, 2.4, title=title, xlabel="step", ylabel=ylabel)
    for name, rates in curves.items():
        axes.plot(shown, rates, linewidth=1.5, label=name)
    axes.margins(x=0)
    axes.set_ylim(bottom=0)
    axes.yaxis.set_major_formatter(lambda value, _: f"{value / 10**power:g}")
    axes.xaxis.set_major_locator(MaxNLocator(4))
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
    place_legend(axes)


def place_legend(axes: Axes) -> None:
    """Place the legend in the emptiest corner; beside the axes where there are many lines."""
    beside: dict[str, Any] = dict(loc="upper left", bbox_to_anchor=(1, 1))
    write_legend(axes, **(beside if len(axes.lines) > 3 else {}))


@FIGURES.register("softmax")
def draw_softmax(
    path: Target = None,
    *,
    sizes: tuple[int, ...] = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024),
    keys: int = 32,
    samples: int = 400,
    temperatures: tuple[float, ...] = (0.1, 0.5, 1.0, 2.0, 10.0),
) -> Figure:
    """Why scores are divided by √d: without it the softmax saturates and its gradient dies; and temperature."""
    sheet = Sheet()
    panels = [
        sheet.chart(left, 0, 3, 2.4, title=title, xlabel="size of a head, d", log="x")
        for left, title in ((0, "largest weight"), (4.4, "norm of the softmax's gradient"))
    ]
    for color, (name, power) in zip(LINES, {"q·k": 0.0, "q·k / √d": -0.5}.items(), strict=False):
        percentiles = [saturation(size, keys, samples, size**power) for size in sizes]
        for axes, measured in zip(panels, zip(*percentiles, strict=True), strict=True):
            low, middle, high = torch.stack(measured).T.tolist()
            axes.fill_between(sizes, low, high, color=color, alpha=0.15, linewidth=0)
            axes.plot(sizes, middle, color=color, linewidth=1.6, marker="o", markersize=3, label=name)
    for axes in panels:
        axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
        axes.set_ylim(bottom=0)
        name_lines(axes)
    _draw_temperatures(sheet, temperatures)
    return sheet.save(path)


def saturation(size: int, keys: int, samples: int, scale: Number) -> tuple[Float[Tensor, "Q"], Float[Tensor, "Q"]]:
    """Return the 10th, 50th and 90th percentile of the largest weight, and of the Jacobian's norm |diag(p) − p pᵀ|."""
    draws = torch.Generator().manual_seed(size)
    q = torch.randn(samples, 1, size, generator=draws)
    k = torch.randn(samples, keys, size, generator=draws)
    p = ((q * k).sum(-1) * scale).softmax(dim=-1)
    shares = torch.tensor([0.1, 0.5, 0.9])
    norm = (p.pow(2).sum(-1) - 2 * p.pow(3).sum(-1) + p.pow(2).sum(-1) ** 2).clamp(min=0).sqrt()
    return p.amax(-1).quantile(shares), norm.quantile(shares)


def _draw_temperatures(sheet: Sheet, temperatures: Sequence[Number]) -> None:
    """One row of scores at several temperatures: towards 0 a lookup, towards infinity the mean."""
    scores = torch.tensor([2.1, 1.8, 0.9, 0.3, 0.0, -0.5])
    axes = sheet.chart(8.8, 0, 3, 2.4, title="weights at temperature τ", xlabel="score")
    for color, temperature in zip(shades(len(temperatures)), sorted(temperatures), strict=True):
        weights = (scores / temperature).softmax(-1)
        axes.plot(range(len(scores)), weights, color=color, linewidth=1.5, marker="o", markersize=3,
                  label=f"τ = {temperature:g}")  # fmt: skip
    axes.set_xticks(range(len(scores)), [f"{score:g}" for score in scores.tolist()])
    axes.set_ylim(0, 1.05)
    place_legend(axes)


@FIGURES.register("gates")
def draw_gates(
    path: Target = None, *, text: str = "the cat saw the dog and the dog saw the cat", seed: int = 1
) -> Figure:
    """A gated update as a table of weights, where all of the past fades together, and the weights set free."""
    words = text.split()
    if not words:
        raise ValueError("text is empty; give some words, and some of them twice")
    draws = torch.Generator().manual_seed(seed)
    vectors = {word: torch.randn(64, generator=draws) for word in words}
    x = torch.stack([vectors[word] for word in words])[None]
    gates = (x[..., :1] + 1).sigmoid()  # one unit's, from one number of each word
    _, freed = free_candidates(x, lambda x: x, lambda q, k: q @ k.transpose(1, 2) / 16)
    tables = {
        "gated: each row is the row above, faded": gate_weights(gates)[0, ..., 0],
        "set free: each row chooses": freed[0],
    }
    cell, T = 0.34, len(words)
    sheet = Sheet()
    for index, (title, weights) in enumerate(tables.items()):
        axes = shade(sheet, (index * (T * cell + 1.1), 0, T * cell, T * cell), weights.numpy(), 1.0)
        label_cells(axes, words, words, (cell, cell))
        print_texts(axes, as_texts(weights.numpy()), weights.numpy())
        write_title(axes, title, 9.5)
    return sheet.save(path)


@FIGURES.register("attention-cost")
def draw_attention_cost(
    path: Target = None, *, dim: int = 512, heads: int = 8, window: int = 256, longest: int = 65_536
) -> Figure:
    """The cost of n tokens in one layer: multiply–adds and the memory of the weights, full against a window."""
    lengths = [2**i for i in range(6, int(math.log2(longest)) + 1)]
    near = [min(n, window) for n in lengths]
    work = {
        "full attention, 2n²d": [2.0 * n * n * dim for n in lengths],
        f"window of {window}": [2.0 * n * w * dim for n, w in zip(lengths, near, strict=True)],
        "projections, 4nd²": [4.0 * n * dim * dim for n in lengths],
        "feed-forward, 8nd²": [8.0 * n * dim * dim for n in lengths],
    }
    memory = {
        "full attention, 4hn²": [4.0 * heads * n * n for n in lengths],
        f"window of {window}": [4.0 * heads * n * w for n, w in zip(lengths, near, strict=True)],
        "keys and values, 8nd": [8.0 * n * dim for n in lengths],
    }
    panels = {f"multiply–adds of a layer, d = {dim}": work,
              f"bytes of attention weights, {heads} heads, float32": memory}  # fmt: skip
    sheet = Sheet()
    for i, (title, curves) in enumerate(panels.items()):
        axes = sheet.chart(5.4 * i, 0, 3.2, 2.6, title=title, xlabel="tokens, n", log="xy")
        for name, values in curves.items():
            axes.plot(lengths, values, linewidth=1.6, label=name)
        axes.set_xticks([n for n in lengths if n.bit_length() % 2])
        axes.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
        name_lines(axes)
    return sheet.save(path)


@FIGURES.register("training")
def training(path: Target = None, runs: str = "") -> Figure:
    """Loss and learning rate of runs over their steps; `--runs a,b` names their directories."""
    if not runs:
        raise ValueError("no runs are given; name their directories: --runs runs/a,runs/b")
    records = {}
    for run in map(Path, runs.split(",")):
        if not (run / "metrics.jsonl").is_file():
            raise ValueError(f"{run}: no metrics.jsonl; name directories of runs: --runs runs/a,runs/b")
        records[run.name] = read_metrics(run / "metrics.jsonl")
    return draw_training(records, path)
