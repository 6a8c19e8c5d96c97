"""Results of `regard cheaper`: in words for a terminal, as a figure of the frontier, and as a report."""

import html
import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from regard.bench.measure import line_up, show_seconds
from regard.cost.report import decimal_size, quantity
from regard.decide.cheaper import COSTS
from regard.files import write_text
from regard.inside.draw.canvas import INK, LINES, SOFT, Figure, Sheet, Target, pen, spread
from regard.inside.draw.report_page import grid, report_page, table
from regard.tasks.scored import in_words

WIDTH, HEIGHT = 5.2, 3.4
FIGURE, RESULT = "frontier.png", "result.json"


def heading(result: Mapping[str, Any]) -> str:
    half = result["examples"] // 2
    return (
        f"{result['run']}: {in_words(result['metric'])} on {half:,} held-out examples; "
        f"the chosen model again on the other {result['examples'] - half:,}"
    )


def rows_of(result: Mapping[str, Any]) -> list[list[str]]:
    """Return a table of every candidate, those of the frontier marked."""
    first = result["rows"][0]
    head = ["", f"CPU/{first['unit']}", "of own", "FLOPs", "memory", in_words(result["metric"]), "loss", ""]
    rows = [head]
    for row in sorted(result["rows"], key=lambda row: -row[f"{result['cost']}_ratio"]):
        rows.append([
            row["name"], show_seconds(row["seconds"]), f"{row['seconds_ratio']:.2f}", quantity(row["flops"]),
            decimal_size(row["bytes"]), f"{row['quality']:.4g}", f"{row['loss']:+.2g}" if row is not first else "",
            "frontier" if row["frontier"] else "",
        ])  # fmt: skip
    return rows


def verdict(result: Mapping[str, Any]) -> str:
    """Return the answer in a sentence or two."""
    what, chosen = COSTS[result["cost"]], result["chosen"]
    if chosen is None:
        cheapest = min(result["rows"], key=lambda row: row[f"{result['cost']}_ratio"])
        share = cheapest[f"{result['cost']}_ratio"]
        return (
            f"nothing here has 1/{result['by']:g} of the {what}; the cheapest has {share:.2f} of it: {cheapest['name']}"
        )
    name = in_words(result["metric"])
    lines = [
        f"1/{result['by']:g} of the {what}: {chosen['name']}",
        f"  {chosen['ratio']:.2f} of the {what}; {show_seconds(chosen['seconds'])} CPU per {chosen['unit']} "
        f"instead of {show_seconds(chosen['seconds_before'])}",
        f"  {name} {chosen['quality']:.4g} instead of {chosen['quality_before']:.4g}, on examples that it was not "
        f"chosen by: it loses {chosen['loss']:+.2g} [{chosen['low']:+.2g}, {chosen['high']:+.2g}], at most "
        f"{chosen['at_most']:.2g}",
    ]
    return "\n".join(lines)


def render(result: Mapping[str, Any]) -> str:
    """Return the text for a terminal."""
    left = [f"left out: {name}: {reason}" for name, reason in result["left_out"].items()]
    saved = [f"saved: {result['saved']}"] if "saved" in result else []
    return "\n".join(
        [heading(result), "", *line_up(rows_of(result)), "", *left, *[""] * bool(left), verdict(result), *saved]
    )


def draw_frontier(result: Mapping[str, Any], path: Target) -> Figure:
    """Draw the loss of every candidate against its cost, the frontier as a line with names, and the chosen model with
    the interval of its loss."""
    key, sheet = f"{result['cost']}_ratio", Sheet()
    axes = sheet.chart(
        0, 0, WIDTH, HEIGHT, title=f"{Path(result['run']).name}: what it loses, by {COSTS[result['cost']]}",
        xlabel=f"{COSTS[result['cost']]}, of the model's own", ylabel=f"loss of {in_words(result['metric'])}",
    )  # fmt: skip
    rows = result["rows"]
    best = sorted((row for row in rows if row["frontier"]), key=lambda row: row[key])
    shown = [row for row in rows if row["frontier"] or row[key] <= 1.05]
    axes.plot([row[key] for row in shown], [row["loss"] for row in shown], "o", color=SOFT, markersize=3, alpha=0.6)
    axes.plot(
        [row[key] for row in best],
        [row["loss"] for row in best],
        color=LINES[0],
        linewidth=1.4,
        marker="o",
        markersize=4,
    )
    axes.axvline(1 / result["by"], color=SOFT, linewidth=0.8, linestyle=(0, (4, 3)))
    axes.axhline(0, color=INK, linewidth=0.6)
    if (chosen := result["chosen"]) is not None:
        axes.plot([chosen["ratio"]] * 2, [chosen["low"], chosen["high"]], color=LINES[1], linewidth=1.8)
        axes.plot(chosen["ratio"], chosen["loss"], "D", color=LINES[1], markersize=5)
    unit = (chosen["high"] - chosen["low"]) / 2 if chosen is not None else 0.01 * abs(rows[0]["quality"])
    step = 10.0 ** math.ceil(math.log10(max(unit, 1e-6)))
    axes.set_yscale("symlog", linthresh=step)  # small losses are what is decided by
    low, high = axes.get_ylim()
    ticks = [sign * factor * step for factor in (0, 0.5, 1, 3, 10, 30, 100, 300) for sign in (1, -1)]
    axes.set_yticks(sorted({tick for tick in ticks if low <= tick <= high}))
    axes.yaxis.set_major_formatter(lambda y, _: f"{y:g}")
    axes.minorticks_off()
    axes.set_xlim(0, max(1.05, *(row[key] for row in shown)) * 1.02)
    label(axes, [(row[key], row["loss"], row["name"]) for row in best], chosen)
    return sheet.save(path)


def label(axes: Any, points: list[tuple[float, float, str]], chosen: Mapping[str, Any] | None) -> None:
    """Write the names of points in a column at the right, each with a thin line to its point."""
    axes.set(xlim=axes.get_xlim(), ylim=axes.get_ylim())
    to_share = axes.transData + axes.transAxes.inverted()
    texts = [(x, y, name, LINES[0]) for x, y, name in points]
    if chosen is not None:
        texts.append((chosen["ratio"], chosen["loss"], "chosen, on the other half", LINES[1]))
    texts.sort(key=lambda text: float(to_share.transform(text[:2])[1]))
    heights = spread([float(to_share.transform(text[:2])[1]) for text in texts], 0.15 / HEIGHT)
    for height, (x, y, name, colour) in zip(heights, texts, strict=True):
        axes.annotate(
            name, (x, y), (1.04, height), "data", "axes fraction", annotation_clip=False, va="center",
            arrowprops=dict(arrowstyle="-", color=colour, linewidth=0.5, alpha=0.6, shrinkA=1, shrinkB=3),
            **pen(8, color=colour),
        )  # fmt: skip


def write_report(result: Mapping[str, Any], out: Path) -> None:
    """Write the figure, the report as Markdown and as HTML, and the result itself into a folder."""
    out.mkdir(parents=True, exist_ok=True)
    title, rows = f"A cheaper {result['run']}", rows_of(result)
    left = [f"Left out: {name}: {reason}." for name, reason in result["left_out"].items()]
    write_text(out / RESULT, json.dumps(result, indent=1, ensure_ascii=False) + "\n")
    draw_frontier(result, out / FIGURE)
    parts = [f"# {title}", heading(result) + ".", f"![The frontier]({FIGURE})", verdict(result), table(rows), *left]
    write_text(out / "report.md", "\n\n".join(parts) + "\n")
    body = f"<p>{html.escape(verdict(result))}</p>{grid(rows)}" + "".join(
        f"<p>{html.escape(text)}</p>" for text in left
    )
    alt = "Loss against cost of every candidate, and the frontier"
    write_text(out / "report.html", report_page(title, heading(result) + ".", (out / FIGURE).read_bytes(), alt, body))
