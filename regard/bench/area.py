"""Growth of time with an image's area: a ViT attends to every pair of patches, a Swin only within windows."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import torch

from regard.bench.measure import Point, climb, counted, fit_exponent, in_child, line_up, median, show_seconds, timed
from regard.cost import cost
from regard.cost.report import quantity
from regard.inside.draw.canvas import Target
from regard.inside.draw.curves import Panel, draw_growth
from regard.models import build, preset
from regard.train.progress import Line

if TYPE_CHECKING:
    import matplotlib.figure

HEAD = 32
"""Size of a head."""


@dataclass(frozen=True, kw_only=True, slots=True)
class AreaConfig:
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
    max_seconds: float = 60.0
    """Longest time of one pass; larger images are left out."""
    repeats: int = 3
    """Passes of which the median time is taken, within that time."""

    def __post_init__(self) -> None:
        for name, least in (("dim", HEAD), ("depth", 2), ("batch", 1), ("repeats", 1)):
            if getattr(self, name) < least:
                raise ValueError(f"{name}={getattr(self, name)} must be at least {least}")
        if self.max_seconds <= 0:
            raise ValueError(f"max_seconds={self.max_seconds} must be positive")
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
        "window": config.window, "batch": config.batch, "threads": threads, "models": parts, "interrupted": False,
    }  # fmt: skip
    try:
        for name in config.models(config.sides[0]):
            points: list[Point] = []
            part: dict[str, Any] = {"points": points, "stopped": None}
            parts[name] = part
            part["stopped"] = climb(
                points, [side**2 for side in config.sides], partial(measure_side, config, name, threads, line),
                config.max_seconds,
            )  # fmt: skip
            part |= {key: fit_exponent(points, key) for key in ("seconds", "flops", "attention")}
            part["last"] = last_exponent(points)
    except KeyboardInterrupt:
        result["interrupted"] = True
    return result


def measure_side(config: AreaConfig, name: str, threads: int, line: Line, area: int) -> Point:
    """Measure one image size, in a separate process."""
    side = math.isqrt(area)
    model = config.models(side)[name]
    flops = cost(model, batch=config.batch).flops
    seconds = in_child(time_forward, name, model, config, threads, seconds=60 + 10 * config.max_seconds)
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
    for key, title in titles.items():
        table = [[title, *(f"{side}²" for side in result["sides"]), "grows as"]]
        for name, part in result["models"].items():
            points = {point["side"]: point for point in part["points"]}
            cells = [
                (show_seconds if key == "seconds" else quantity)(points[side][key]) if side in points else "–"
                for side in result["sides"]
            ]
            table.append([name, *cells, grows(part, key)])
        lines += ["", *line_up(table)]
    stops = [f"{name}: {part['stopped']}" for name, part in result["models"].items() if part["stopped"]]
    return "\n".join([*lines, *([""] if stops else []), *stops])


def draw_area(result: Mapping[str, Any], path: Target) -> "matplotlib.figure.Figure":
    """Draws time at the left and counted FLOPs of attention at the right."""
    panels = [
        Panel("time of a forward pass", "time", "s", symbol="area"),
        Panel("attention, counted", "work", "FLOP", symbol="area"),
    ]
    for panel, key in zip(panels, ("seconds", "attention"), strict=True):
        for name, part in result["models"].items():
            exponent = part[key]["exponent"] if part.get(key) else None
            panel.add(name, [(point["length"], point[key]) for point in part["points"]], exponent)
    return draw_growth([panels], path, xlabel="pixels")
