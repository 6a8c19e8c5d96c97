"""The lectures' figures, computed: `draw("positions", "waves.png", scheme="rotary")`.

A figure is a function `name(path, **settings)`; its settings have defaults and their documentation is its docstring.
"""

import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from jaxtyping import Float
from torch import Tensor

from regard.config import nearest, parse
from regard.inside.draw.canvas import (
    INK,
    LINES,
    SOFT,
    Number,
    Target,
    chart,
    check_suffix,
    colors,
    fit,
    name_lines,
    new_figure,
    pen,
    place,
    save,
    shades,
    tidy,
)
from regard.inside.draw.curves import draw_training
from regard.inside.draw.matrices import draw_masks, label_cells, print_numbers, shade, write_title
from regard.nn import masks
from regard.nn.gates import free_candidates, gate_weights
from regard.nn.positions import Position
from regard.registry import Registry, positions
from regard.train.loop import read_metrics
from regard.train.schedule import SCHEDULES, inverse_sqrt

if TYPE_CHECKING:
    import matplotlib.axes
    import matplotlib.figure

FIGURES = Registry("figure")
ALIASES = {"positional": "positions", "mask": "masks"}


def draw_figure(name: str, path: Target = None, **settings: Any) -> "matplotlib.figure.Figure":
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
    known = inspect.signature(FIGURES[name]).parameters.values()
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
    position: Position | None = None,
) -> "matplotlib.figure.Figure":
    """A position scheme: its vectors or angles, or its bias, and how nearness falls with distance."""
    if position is None:
        position = positions[scheme](dim=dim, heads=heads, head_dim=dim, max_len=2 * length)
        scheme += ", untrained" if any(True for _ in position.parameters()) else ""
    with torch.no_grad():
        bias = position.bias()
        if bias is not None:
            return save(_draw_bias(bias.values, length, scheme, learned=any(True for _ in position.parameters())), path)
        table = position.embed(torch.zeros(1, length, position.dim))[0]
        if table.any():
            return save(_draw_table(table, scheme), path)
        turned = position.rotate(torch.ones(1, 1, length, position.head_dim))[0, 0]
        if (turned == 1).all():
            raise ValueError(
                f"scheme {scheme!r} has neither position vectors nor a bias to draw; choose another registered one"
            )
        return save(_draw_turns(turned, scheme), path)


def _draw_table(table: Float[Tensor, "T D"], scheme: str) -> "matplotlib.figure.Figure":
    figure = new_figure(11, 5)
    axes = _heat(figure, table, 1, 1, 4.2, 3, title=f"{scheme}: the vector of each position")
    axes.set_xlabel("dimension", **pen(8.5, color=SOFT))
    axes.set_ylabel("position", **pen(8.5, color=SOFT))
    unit = table / table.norm(dim=1, keepdim=True).clamp(min=1e-9)
    return _draw_nearness(figure, unit @ unit.T, "dot product of two positions, as a cosine")


def _draw_turns(turned: Float[Tensor, "T K"], scheme: str) -> "matplotlib.figure.Figure":
    figure = new_figure(11, 5)
    axes = _heat(figure, turned, 1, 1, 4.2, 3, title=f"{scheme}: a vector of ones, turned at each position")
    axes.set_xlabel("dimension of a head", **pen(8.5, color=SOFT))
    axes.set_ylabel("position", **pen(8.5, color=SOFT))
    return _draw_nearness(figure, turned @ turned.T / turned.shape[1], "q·k / d for q = k = 1")


def _draw_nearness(
    figure: "matplotlib.figure.Figure", similar: Float[Tensor, "T T"], title: str
) -> "matplotlib.figure.Figure":
    """Draw the mean similarity of all pairs at one distance, and its range where pairs differ."""
    reach = len(similar) * 3 // 4
    bands = [similar.diagonal(distance) for distance in range(reach)]
    axes = chart(figure, 6.2, 1, 3.6, 3, title=title, xlabel="distance")
    lows, highs = [float(band.min()) for band in bands], [float(band.max()) for band in bands]
    axes.fill_between(range(reach), lows, highs, color=LINES[0], alpha=0.15, linewidth=0)
    axes.plot([float(band.mean()) for band in bands], color=LINES[0], linewidth=1.6)
    axes.axhline(0, color=SOFT, linewidth=0.6)
    tidy(axes)
    return fit(figure)


def _heat(
    figure: "matplotlib.figure.Figure", values: Float[Tensor, "T S"], *box: Number, title: str
) -> "matplotlib.axes.Axes":
    """Draw signed values in two colours around white, with a colour bar."""
    axes = place(figure, *box)
    top = float(values.abs().max()) or 1.0
    image = axes.imshow(values.numpy(), cmap="RdBu_r", vmin=-top, vmax=top, aspect="auto", interpolation="nearest")
    axes.set_title(title, loc="left", **pen(9.5, fontweight="bold"))
    tidy(axes)
    scale = place(figure, box[0] + box[2] + 0.1, box[1], 0.1, box[3])
    bar = figure.colorbar(image, cax=scale, ticks=[-top, 0, top], format="%.2g")
    bar.outline.set_visible(False)  # type: ignore[operator]
    tidy(scale)
    return axes


def _draw_bias(values: Callable[..., Tensor], length: int, scheme: str, *, learned: bool) -> "matplotlib.figure.Figure":
    """Draw a position bias by distance for each head, and as the matrix that is added to one head's scores."""
    distance = torch.arange(-length, length + 1)
    by_head = values(torch.zeros(1, 1, dtype=torch.long), distance[None])[:, 0]
    figure, title, right = new_figure(11, 5), f"{scheme}: added to the scores", "distance, key − query"
    if learned:
        axes = _heat(figure, by_head, 1, 1, 4.6, 3, title=title)
        axes.images[0].set_extent((-length - 0.5, length + 0.5, len(by_head) - 0.5, -0.5))
        axes.set_xlabel(right, **pen(8.5, color=SOFT))
        axes.set_ylabel("head", **pen(8.5, color=SOFT))
    else:
        axes = chart(figure, 1, 1, 4.6, 3, title=title, xlabel=right)
        inks = shades(len(by_head))
        for ink, curve in zip(inks, by_head, strict=True):
            axes.plot(distance, curve, color=ink, linewidth=1.3)
        axes.margins(x=0)
        name_lines(axes, [(length, float(by_head[i, -1]), f"head {i}", ink) for i, ink in enumerate(inks)])
        tidy(axes)
    shown = min(length, 40)
    i, j = torch.arange(shown)[:, None], torch.arange(shown)[None]
    table = _heat(figure, values(i, j)[0], 6.8, 1, 3, 3, title="head 0, query by key")
    table.set_xlabel("key", **pen(8.5, color=SOFT))
    table.set_ylabel("query", **pen(8.5, color=SOFT))
    return fit(figure)


@FIGURES.register("masks")
def draw_rules(path: Target = None, *, length: int = 12) -> "matplotlib.figure.Figure":
    """Attention masks: the rules alone, and combined with & and |."""
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
) -> "matplotlib.figure.Figure":
    """Warm-up, then the inverse square root, by width and by warm-up; and the other schedules, or those given."""
    dim, warmup = dims[len(dims) // 2], warmups[len(warmups) // 2]
    figure = new_figure(15, 4)
    if schedules is None:
        by_dim = {f"d = {each}": partial(inverse_sqrt, dim=each, warmup=warmup) for each in dims}
        by_warmup = {f"warm-up {each:,}": partial(inverse_sqrt, dim=dim, warmup=each) for each in warmups}
        _draw_rates(figure, 1.0, by_dim, steps, f"inverse square root, warm-up {warmup:,}")
        _draw_rates(figure, 5.4, by_warmup, steps, f"inverse square root, d = {dim}")
        shapes = {name: partial(_share_of_peak, shape, warmup, steps) for name, shape in SCHEDULES.items()}
        _draw_rates(figure, 9.8, shapes, steps, f"shapes, warm-up {warmup:,}")
    else:
        _draw_rates(figure, 1.0, schedules, steps, "learning rate")
    return save(fit(figure), path)


def _share_of_peak(shape: Callable[[int, int, Number], Number], warmup: int, steps: int, step: int) -> Number:
    return shape(step, warmup, step / steps)


def _draw_rates(
    figure: "matplotlib.figure.Figure", left: Number, schedules: Mapping[str, Callable[[int], Number]], steps: int,
    title: str,
) -> None:  # fmt: skip
    from matplotlib.ticker import MaxNLocator

    shown = sorted({1, steps, *range(1, steps + 1, max(steps // 1000, 1))})
    curves = {name: [rate(step) for step in shown] for name, rate in schedules.items()}
    power = math.floor(math.log10(max(max(curve) for curve in curves.values())))
    ylabel = f"learning rate · 10{superscript(-power)}" if power else "share of the peak"
    axes = chart(figure, left, 1, 3.3, 2.4, title=title, xlabel="step", ylabel=ylabel)
    for color, (name, rates) in zip(colors(len(curves)), curves.items(), strict=True):
        axes.plot(shown, rates, color=color, linewidth=1.5, label=name)
    axes.margins(x=0)
    axes.set_ylim(bottom=0)
    axes.yaxis.set_major_formatter(lambda value, _: f"{value / 10**power:g}")
    axes.xaxis.set_major_locator(MaxNLocator(4))
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
    write_legend(axes)
    tidy(axes)


def superscript(number: int) -> str:
    return str(number).translate(str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"))


def write_legend(axes: "matplotlib.axes.Axes") -> None:
    """Place the legend in the emptiest corner; beside the axes where there are many lines."""
    many = len(axes.lines) > 3
    spot: dict[str, Any] = {"loc": "upper left", "bbox_to_anchor": (1, 1)} if many else {}
    axes.legend(frameon=False, prop={"size": 8, "family": pen()["fontfamily"]}, labelcolor=INK, **spot)


@FIGURES.register("softmax")
def draw_softmax(
    path: Target = None,
    *,
    sizes: tuple[int, ...] = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024),
    keys: int = 32,
    samples: int = 400,
    temperatures: tuple[float, ...] = (0.1, 0.5, 1.0, 2.0, 10.0),
) -> "matplotlib.figure.Figure":
    """Why scores are divided by √d: without it the softmax saturates and its gradient dies; and temperature."""
    figure = new_figure(14, 4)
    largest = chart(figure, 1, 1, 3, 2.4, title="largest weight", xlabel="size of a head, d")
    gradient = chart(figure, 5.4, 1, 3, 2.4, title="norm of the softmax's gradient", xlabel="size of a head, d")
    largest_ends: list[tuple[Number, Number, str, Any]] = []
    gradient_ends: list[tuple[Number, Number, str, Any]] = []
    for color, (name, power) in zip(LINES, {"q·k": 0.0, "q·k / √d": -0.5}.items(), strict=False):
        percentiles = [saturation(size, keys, samples, size**power) for size in sizes]
        for axes, ends, which in ((largest, largest_ends, 0), (gradient, gradient_ends, 1)):
            low, middle, high = torch.stack([each[which] for each in percentiles]).T.tolist()
            axes.fill_between(sizes, low, high, color=color, alpha=0.15, linewidth=0)
            axes.plot(sizes, middle, color=color, linewidth=1.6, marker="o", markersize=3)
            ends.append((float(sizes[-1]), middle[-1], name, color))
    for axes, ends in ((largest, largest_ends), (gradient, gradient_ends)):
        axes.set_xscale("log", base=2)
        axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
        axes.set_ylim(bottom=0)
        name_lines(axes, ends)
        tidy(axes)
    _draw_temperatures(figure, temperatures)
    return save(fit(figure), path)


def saturation(size: int, keys: int, samples: int, scale: Number) -> tuple[Float[Tensor, "Q"], Float[Tensor, "Q"]]:
    """Return the 10th, 50th and 90th percentile of the largest weight, and of the Jacobian's norm |diag(p) − p pᵀ|."""
    draws = torch.Generator().manual_seed(size)
    q = torch.randn(samples, 1, size, generator=draws)
    k = torch.randn(samples, keys, size, generator=draws)
    p = ((q * k).sum(-1) * scale).softmax(dim=-1)
    shares = torch.tensor([0.1, 0.5, 0.9])
    norm = (p.pow(2).sum(-1) - 2 * p.pow(3).sum(-1) + p.pow(2).sum(-1) ** 2).clamp(min=0).sqrt()
    return p.amax(-1).quantile(shares), norm.quantile(shares)


def _draw_temperatures(figure: "matplotlib.figure.Figure", temperatures: Sequence[Number]) -> None:
    """One row of scores at several temperatures: towards 0 a lookup, towards infinity the mean."""
    scores = torch.tensor([2.1, 1.8, 0.9, 0.3, 0.0, -0.5])
    axes = chart(figure, 9.8, 1, 3, 2.4, title="weights at temperature τ", xlabel="score")
    for color, temperature in zip(shades(len(temperatures)), sorted(temperatures), strict=True):
        weights = (scores / temperature).softmax(-1)
        axes.plot(range(len(scores)), weights, color=color, linewidth=1.5, marker="o", markersize=3,
                  label=f"τ = {temperature:g}")  # fmt: skip
    axes.set_xticks(range(len(scores)), [f"{score:g}" for score in scores.tolist()])
    axes.set_ylim(0, 1.05)
    write_legend(axes)
    tidy(axes)


@FIGURES.register("gates")
def draw_gates(
    path: Target = None, *, text: str = "the cat saw the dog and the dog saw the cat", seed: int = 1
) -> "matplotlib.figure.Figure":
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
    figure = new_figure(2 * T * cell + 5, T * cell + 3)
    for index, (title, weights) in enumerate(tables.items()):
        axes = place(figure, 1.2 + index * (T * cell + 1.1), 1, T * cell, T * cell)
        shade(axes, weights.numpy(), 1.0)
        label_cells(axes, words, words, cell)
        print_numbers(axes, weights.numpy(), 1.0)
        write_title(axes, title, 9.5)
    return save(fit(figure), path)


@FIGURES.register("attention-cost")
def draw_attention_cost(
    path: Target = None, *, dim: int = 512, heads: int = 8, window: int = 256, longest: int = 65_536
) -> "matplotlib.figure.Figure":
    """The cost of n tokens in one layer: multiply–adds and the memory of the weights, full against a window."""
    lengths = [2**i for i in range(6, int(math.log2(longest)) + 1)]
    figure = new_figure(11, 4)
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
    _draw_growth(figure, 1.0, lengths, work, f"multiply–adds of a layer, d = {dim}")
    _draw_growth(figure, 6.4, lengths, memory, f"bytes of attention weights, {heads} heads, float32")
    return save(fit(figure), path)


def _draw_growth(
    figure: "matplotlib.figure.Figure", left: Number, lengths: Sequence[int], curves: Mapping[str, list[Number]],
    title: str,
) -> None:  # fmt: skip
    axes = chart(figure, left, 1, 3.2, 2.6, title=title, xlabel="tokens, n")
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    ends = []
    for color, (name, values) in zip(colors(len(curves)), curves.items(), strict=True):
        axes.plot(lengths, values, color=color, linewidth=1.6)
        ends.append((float(lengths[-1]), values[-1], name, color))
    axes.set_xticks([n for n in lengths if n.bit_length() % 2])
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
    name_lines(axes, ends)
    tidy(axes)


@FIGURES.register("training")
def training(path: Target = None, runs: str = "") -> "matplotlib.figure.Figure":
    """Loss and learning rate of runs over their steps; `--runs a,b` names their directories."""
    if not runs:
        raise ValueError("no runs are given; name their directories: --runs runs/a,runs/b")
    records = {}
    for run in map(Path, runs.split(",")):
        if not (run / "metrics.jsonl").is_file():
            raise ValueError(f"{run}: no metrics.jsonl; name directories of runs: --runs runs/a,runs/b")
        records[run.name] = read_metrics(run / "metrics.jsonl")
    return draw_training(records, path)
