"""Results of `regard choose`: in words for a terminal, as a figure of all seeds, and as a report."""

import html
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from regard.bench.measure import line_up
from regard.files import write_text
from regard.inside.draw.canvas import LINES, SOFT, Figure, Sheet, Target, pen
from regard.inside.draw.report_page import grid, report_page, table
from regard.tasks.scored import in_words

WIDTH, ROW = 4.6, 0.36
FIGURE, RESULT = "seeds.png", "result.json"


def heading(result: Mapping[str, Any]) -> str:
    return (
        f"{in_words(result['metric'])} on held-out examples ({'lower' if result['lower'] else 'higher'} is better), "
        f"{result['minutes']:g} CPU minutes of one thread each, {result['seeds']} seeds"
    )


def rows_of(result: Mapping[str, Any]) -> list[list[str]]:
    """Return a table of the contenders, the best first."""
    rows = [["", in_words(result["metric"]), "± of seeds", "behind the best, 95 %", "steps", "parameters", ""]]
    for name in sorted(
        result["models"], key=lambda name: result["models"][name]["mean"] * (1, -1)[not result["lower"]]
    ):
        row, ahead = result["models"][name], result["ahead_of"].get(name)
        behind = "" if ahead is None else f"{ahead['mean']:.3g} [{ahead['low']:+.3g}, {ahead['high']:+.3g}]"
        sizes = ["–" if row[key] is None else f"{row[key]:,}" for key in ("steps", "parameters")]
        rows.append([name, f"{row['mean']:.4g}", f"{row['deviation']:.2g}", behind, *sizes, ""])
    return rows


def verdict(result: Mapping[str, Any]) -> str:
    """Return the answer in a sentence."""
    return f"no answer: {result['reason']}" if result["reason"] else f"answer: {result['answer']}"


def render(result: Mapping[str, Any]) -> str:
    """Return the text for a terminal."""
    return "\n".join([heading(result), "", *line_up(rows_of(result)), "", verdict(result)])


def draw_seeds(result: Mapping[str, Any], path: Target) -> Figure:
    """Draw the score of every seed, and the mean of each contender."""
    models, sheet = result["models"], Sheet()
    order = sorted(models, key=lambda name: models[name]["mean"], reverse=result["lower"])
    axes = sheet.chart(0, 0, WIDTH, ROW * (len(order) + 0.6), title=verdict(result), xlabel=in_words(result["metric"]))
    for height, name in enumerate(order):
        colour = LINES[0] if name == result["answer"] else SOFT
        scores = models[name]["scores"]
        axes.plot(scores, [height] * len(scores), "o", color=colour, markersize=5, alpha=0.6)
        axes.plot([models[name]["mean"]] * 2, [height - 0.25, height + 0.25], color=colour, linewidth=2)
    axes.set_yticks(range(len(order)), order, **pen(9))
    axes.set_ylim(-0.6, len(order) - 0.4)
    axes.grid(axis="x", color="#e5e7eb", linewidth=0.6)
    return sheet.save(path)


def write_report(result: Mapping[str, Any], out: Path) -> None:
    """Write the figure, the report as Markdown and as HTML, and the result itself into a folder."""
    title, rows = "Which model to train", rows_of(result)
    write_text(out / RESULT, json.dumps(result, indent=1, ensure_ascii=False) + "\n")
    draw_seeds(result, out / FIGURE)
    parts = [f"# {title}", heading(result) + ".", f"![Scores of all seeds]({FIGURE})", verdict(result), table(rows)]
    write_text(out / "report.md", "\n\n".join(parts) + "\n")
    body = f"<p>{html.escape(verdict(result))}</p>{grid(rows)}"
    figure = (out / FIGURE).read_bytes()
    write_text(out / "report.html", report_page(title, heading(result) + ".", figure, "Scores of all seeds", body))
