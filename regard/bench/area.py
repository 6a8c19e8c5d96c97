"""Growth of time with an image's area: a ViT attends to every pair of patches, a Swin only within windows."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import torch

from regard.bench.measure import (
    Limits,
    Point,
    climb,
    counted,
    fit_exponent,
    in_child,
    interruptible,
    line_up,
    median,
    panel,
    report,
    show_seconds,
    timed,
)  # fmt: skip
from regard.config import at_least
from regard.cost import cost
from regard.cost.report import quantity
from regard.inside.draw.canvas import Target
from regard.inside.draw.curves import draw_growth
from regard.models import build, preset
from regard.train.progress import Line

if TYPE_CHECKING:
    import matplotlib.figure

HEAD = 32
"""Size of a head."""


@dataclass(frozen=True, kw_only=True, slots=True)
class AreaConfig(Limits):
    """Sizes of two models with equal patches, and of the images that they are measured on."""

    sides: tuple[int, ...]
    """Pixels of an image's side, rising."""
    patch: int = 4
    """Pixels of a patch's side."""
    dim: int = 64
    """Width; twice that in Swin's second stage."""
    depth: int = 4
    """Blocks."""
    window: int = 8
    """Patches of a window's side."""
    batch: int = 1
    """Images at once."""

    def __post_init__(self) -> None:
        at_least(HEAD, dim=self.dim)
        at_least(2, depth=self.depth)
        at_least(1, batch=self.batch)
        Limits.__post_init__(self)
        if not self.sides:
            raise ValueError("nothing to measure: name at least one side")
        for side in self.sides:
            self.models(side)

    def models(self, side: int) -> dict[str, Any]:
        """The configs of both models for images of a side."""
        heads, half = self.dim // HEAD, self.depth // 2
        return {
            "vit": preset(
                "vit", "vit-b/16", image=side, patch=self.patch, dim=self.dim, depth=self.depth, heads=heads,
                ffn_dim=4 * self.dim, pooling="mean",
            ),
            "swin": preset(
                "swin", "swin-t", image=side, patch=self.patch, dim=self.dim, depths=(self.depth - half, half),
                heads=(heads, 2 * heads), window=self.window,
            ),
        }  # fmt: skip


def measure_area(config: AreaConfig, *, quiet: bool = True) -> dict[str, Any]:
    """Measure the time of a forward pass at each image size, with its FLOPs; after Ctrl-C return the results so far."""
    line, threads = Line(quiet), torch.get_num_threads()
    parts: dict[str, Any] = {}
    result: dict[str, Any] = {
        "sides": list(config.sides), "patch": config.patch, "dim": config.dim, "depth": config.depth,
        "window": config.window, "batch": config.batch, "threads": threads, "models": parts,
    }  # fmt: skip
    with interruptible(result):
        for name in config.models(config.sides[0]):
            points: list[Point] = []
            part = parts[name] = {"points": points, "stopped": None}
            measure = partial(measure_side, config, name, threads, line)
            part["stopped"] = climb(points, [side**2 for side in config.sides], measure, config.max_seconds)
            part |= {key: fit_exponent(points, key) for key in ("seconds", "flops", "attention")}
            part["last"] = last_exponent(points)
    return result


def measure_side(config: AreaConfig, name: str, threads: int, line: Line, area: int) -> Point:
    """Measure one image size, in a separate process."""
    side = math.isqrt(area)
    model = config.models(side)[name]
    flops = cost(model, batch=config.batch).flops
    seconds = in_child(time_forward, name, model, config, threads, seconds=config.patience)
    line.say(f"{name}, {side} × {side}: {show_seconds(seconds)}")
    return {"side": side, "seconds": seconds, "flops": flops.forward, "attention": flops.attention}


@torch.inference_mode()
def time_forward(name: str, sizes: Any, config: AreaConfig, threads: int) -> float:
    """The median seconds of a forward pass."""
    torch.set_num_threads(threads)
    torch.manual_seed(0)
    model, pixels = build(name, sizes).eval(), torch.randn(config.batch, sizes.channels, sizes.image, sizes.image)
    model(pixels)
    return median(timed(lambda: model(pixels), repeats=config.repeats, budget=config.max_seconds))


def last_exponent(points: list[Point]) -> float | None:
    """The exponent between the two largest images, where the fastest growing part dominates."""
    if len(points) < 2:
        return None
    before, last = points[-2:]
    return round(math.log(last["seconds"] / before["seconds"]) / math.log(last["length"] / before["length"]), 3)


def grows(part: Mapping[str, Any], key: str) -> str:
    """Return a fitted exponent as `area^1.02`; for times also the one between the last two sizes."""
    if part.get(key) is None:
        return "too few points"
    last = f", at the end {part['last']:.2f}" if key == "seconds" else ""
    return f"area^{part[key]['exponent']:.2f}{last}"


def render_area(result: Mapping[str, Any]) -> str:
    """Tables of times and of the counted FLOPs that explain them."""
    lines = [
        f"a forward pass of {counted(result['batch'], 'image')}, float32, {counted(result['threads'], 'thread')}: "
        f"patches of {result['patch']} × {result['patch']}, width {result['dim']}, {result['depth']} blocks; Swin with "
        f"windows of {result['window']} × {result['window']} patches, half of its blocks on a grid of half the side",
    ]
    titles = {"seconds": "time", "flops": "FLOPs, counted", "attention": "of these, attention"}
    tables = []
    for key, title in titles.items():
        table = [[title, *(f"{side}²" for side in result["sides"]), "grows as"]]
        show: Callable[[Any], str] = show_seconds if key == "seconds" else quantity
        for name, part in result["models"].items():
            texts = {point["side"]: show(point[key]) for point in part["points"]}
            table.append([name, *(texts.get(side, "–") for side in result["sides"]), grows(part, key)])
        tables.append(line_up(table))
    stops = [f"{name}: {part['stopped']}" for name, part in result["models"].items() if part["stopped"]]
    return report(lines, *tables, stops)


def draw_area(result: Mapping[str, Any], path: Target) -> "matplotlib.figure.Figure":
    """Draw time by number of pixels at the left, and counted FLOPs of attention at the right."""
    parts = result["models"]
    time = panel("time of a forward pass", "time", "s", parts, "seconds", "seconds", symbol="area")
    work = panel("attention, counted", "work", "FLOP", parts, "attention", "attention", symbol="area")
    return draw_growth([[time, work]], path, xlabel="pixels")
