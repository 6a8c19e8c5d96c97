"""One figure of a comparison: curves, gradients by block, intervals, attention maps."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from regard.inside.draw.canvas import (
    INK,
    LINES,
    SOFT,
    Axes,
    Figure,
    Sheet,
    Target,
    name_lines,
    pen,
    quiet,
    ramp,
    readable,
    write_legend,
)
from regard.why.measure import Run

WIDTH, HEIGHT, BESIDE = 3.0, 2.3, 1.5
COLOURS = {"supported": LINES[2], "contradicted": LINES[1], "not visible at this size": SOFT}
CELL = 0.115
"""Inches of a token in an attention map."""


def draw_comparison(
    result: Mapping[str, Any], runs: Mapping[tuple[str, int], Run], metric: str, also: str, path: Target
) -> Figure:
    """Draw curves of a metric by steps and by CPU seconds, gradients, perhaps another metric, intervals, attention."""
    sheet = Sheet()
    names = [arm["name"] for arm in result["arms"]]
    by_arm = {name: [run for (arm, _), run in sorted(runs.items()) if arm == name] for name in names}
    panels = [
        sheet.chart(i * (WIDTH + BESIDE), 0, WIDTH, HEIGHT, title=title, xlabel=xlabel, ylabel=ylabel)
        for i, (title, xlabel, ylabel) in enumerate([
            ("at equal steps", "step", metric.replace("_", " ")),
            ("at equal CPU time", "CPU seconds", metric.replace("_", " ")),
            ("gradient, first step", "block", "norm"),
            *([(also.replace("_", " "), "step", "")] if also else []),
        ])
    ]  # fmt: skip
    for colour, name in zip(LINES, names, strict=False):
        draw_curve(panels[0], by_arm[name], "step", metric, name, colour)
        draw_curve(panels[1], by_arm[name], "cpu", metric, name, colour)
        draw_gradient(panels[2], by_arm[name], name, colour)
        if also:
            draw_curve(panels[3], by_arm[name], "step", also, name, colour)
    low, high = panels[2].get_ylim()
    if low > 0 and high > 10 * low:
        panels[2].set_yscale("log")
        panels[2].minorticks_off()
    for panel in panels:
        if panel is not panels[2]:
            panel.set_xlim(0, None)
        name_lines(panel)
    height = 0.34 * len(result["claims"]) + 0.2
    draw_intervals(sheet, result["claims"], -1.0 - height, height)
    side = min(3.0, max(1.6, CELL * max(len(by_arm[name][0]["map"]) for name in names)))
    for i, name in enumerate(names):
        draw_map(sheet, by_arm[name][0], (i * (side + 0.5), -2.2 - height - side, side, side), name)
    return sheet.save(path)


def draw_curve(axes: Axes, runs: Sequence[Run], along: str, metric: str, name: str, colour: str) -> None:
    """Draw the mean over seeds, with one standard deviation to each side."""
    values = np.array([[point[metric] for point in run["curve"]] for run in runs])
    x = np.array([[point[along] for point in run["curve"]] for run in runs]).mean(0)
    mean, spread = values.mean(0), values.std(0, ddof=1) if len(values) > 1 else 0 * values[0]
    axes.plot(x, mean, color=colour, linewidth=1.5, label=name)
    axes.fill_between(x, mean - spread, mean + spread, color=colour, alpha=0.15, linewidth=0)


def draw_gradient(axes: Axes, runs: Sequence[Run], name: str, colour: str) -> None:
    """Draw the mean gradient norm of each block; from the first to the last."""
    values = np.array([list(run["gradient"].values()) for run in runs if run["gradient"]])
    if values.size:
        blocks = range(1, values.shape[1] + 1)
        axes.plot(blocks, np.maximum(values.mean(0), 1e-12), color=colour, marker="o", markersize=3, label=name)
        axes.set_xticks(blocks)


def draw_intervals(sheet: Sheet, claims: Sequence[Mapping[str, Any]], bottom: float, height: float) -> None:
    """Draw each claim's interval, in units of the smallest difference that counts; right of 1 it is supported."""
    axes = sheet.chart(0, bottom, WIDTH, height, title="difference, in units of the smallest that counts")
    for row, claim in enumerate(reversed(claims)):
        for shift, key, marker in ((0.14, "steps", "o"), (-0.14, "cpu", "s")):
            found = claim[key]
            values = [clipped(found[name] / claim["least"]) for name in ("low", "mean", "high")]
            colour = COLOURS.get(found["verdict"], SOFT)
            axes.plot([values[0], values[2]], [row + shift] * 2, color=colour, linewidth=1.6)
            axes.plot(values[1], row + shift, marker=marker, color=colour, markersize=4)
        style = pen(8.5, va="center", annotation_clip=False)
        axes.annotate(f"{claim['text']}  {claim['steps']['verdict']}", (1, row), (8, 0),
                      ("axes fraction", "data"), "offset points", **style)  # fmt: skip
    for value in (-1, 1):
        axes.axvline(value, color=SOFT, linewidth=0.8, linestyle=(0, (4, 3)))
    axes.axvline(0, color=INK, linewidth=0.8)
    axes.set(ylim=(-0.5, len(claims) - 0.5), yticks=[])
    reach = max(1.3, *(abs(value) for value in axes.get_xlim()))
    axes.set_xscale("symlog", linthresh=2)
    axes.set_xlim(-reach * 1.1, reach * 1.1)
    axes.set_xticks([x for x in (-100, -30, -10, -3, -1, 0, 1, 3, 10, 30, 100) if abs(x) <= reach])
    axes.xaxis.set_major_formatter(lambda x, _: f"{x:g}")
    axes.minorticks_off()
    axes.plot([], [], "o", color=SOFT, markersize=4, label="equal steps")
    axes.plot([], [], "s", color=SOFT, markersize=4, label="equal CPU time")
    write_legend(axes, loc="upper left", bbox_to_anchor=(0, -0.25 / height - 0.02), ncols=2)


def clipped(value: float) -> float:
    return max(-200.0, min(200.0, value))


def draw_map(sheet: Sheet, run: Run, box: tuple[float, float, float, float], name: str) -> None:
    """Draw the attention of the first layer with the first seed: queries in rows."""
    weights = np.array(run["map"])
    axes = sheet.place(*box, title=f"attention, {name}")
    axes.imshow(weights, cmap=ramp(), vmin=0, vmax=max(1e-6, float(weights.max())), aspect="auto")
    labels = readable(run["tokens"])
    if labels and len(labels) <= 24:
        with quiet():
            axes.set_xticks(range(len(labels)), labels, **pen(7))
            axes.set_yticks(range(len(labels)), labels, **pen(7))
    else:
        axes.set(xticks=[], yticks=[])
    axes.tick_params(length=0)
