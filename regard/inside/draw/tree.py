"""The tree of a beam search as a figure: a column for each step, its candidates from the best down."""

from collections.abc import Mapping, Sequence
from typing import Any

from regard.inside.draw.canvas import INK, LINES, SOFT, Axes, Figure, Number, Sheet, Target, pen, readable

STEPS = 13
"""Steps side by side; further ones stand below."""
WIDE, TALL = 1.12, 0.31
"""Inches of a candidate, with what is between it and the next."""
BOX = (0.78, 0.23)
"""Inches of its box."""
BEST, GREEDY = LINES[0], LINES[1]


def draw_tree(data: Mapping[str, Any], path: Target = None) -> Figure:
    """Draw every candidate: boxes are kept, those with a thick frame ended, grey ones were dropped."""
    steps, texts = data["steps"], [*(one["text"] for one in data["hypotheses"]), data["greedy"]["text"]]
    deepest = max(map(len, steps))
    bands = -(-len(steps) // STEPS)
    lost = data["greedy"]["dropped"]
    rows = deepest + (0 if lost is None else 1)
    band = (rows + 1.4) * TALL
    below = 0.22 * (len(texts) + 2)
    width = max(WIDE * min(len(steps), STEPS) + 0.2, 6.2)
    sheet = Sheet()
    axes = sheet.blank(width, bands * band + below)
    top = bands * band + below

    def place(step: int, rank: Number) -> tuple[float, float]:
        return 0.35 + WIDE * (step % STEPS), top - band * (step // STEPS) - TALL * (rank + 1.2)

    draw_edges(axes, data, place)
    for number, step in enumerate(steps):
        x, y = place(number, -0.85)
        axes.text(x, y, f"step {number + 1}", ha="left", **pen(7, color=SOFT))
        for rank, one in enumerate(step):
            draw_candidate(axes, place(number, rank), one)
    if lost is not None:
        draw_lost(axes, data["greedy"], place, deepest, steps)
    write_results(axes, data, below)
    return sheet.save(path)


def number(value: Number, digits: int) -> str:
    """A number with a proper minus sign, none before zero."""
    return f"{value:z.{digits}f}".replace("-", "−")


def draw_candidate(axes: Axes, at: tuple[float, float], one: Mapping[str, Any]) -> None:
    """Draw one candidate: its token, and the sum of log-probabilities."""
    from matplotlib.patches import FancyBboxPatch

    dropped = one["fate"] == "dropped"
    if not dropped:
        shape = "round,pad=0,rounding_size=0.05"
        thick = 1.7 if one["fate"] == "ended" else 0.7
        axes.add_patch(
            FancyBboxPatch(
                (at[0], at[1] - BOX[1] / 2), *BOX, boxstyle=shape, facecolor="white", edgecolor=INK, linewidth=thick
            )
        )
    color = SOFT if dropped else INK
    token = readable([one["token"]], 8)[0]
    axes.text(at[0] + 0.05, at[1], token, va="center", ha="left", **pen(7.5, color=color))
    axes.text(at[0] + BOX[0] - 0.04, at[1], number(one["total"], 1), va="center", ha="right", **pen(7, color=SOFT))


def draw_edges(axes: Axes, data: Mapping[str, Any], place: Any) -> None:
    """Draw a line from each candidate to the one that it continues; the best hypothesis and greedy choice in colour."""
    steps = data["steps"]
    ranks: list[dict[int, int]] = [
        {one["beam"]: rank for rank, one in enumerate(step) if one["beam"] is not None} for step in steps
    ]
    best = data["hypotheses"][0]["path"] if data["hypotheses"] else []
    greedy = data["greedy"]["path"]
    for number, step in enumerate(steps):
        for rank, one in enumerate(step):
            end = place(number, rank)
            if number == 0:
                start = (end[0] - 0.3, place(0, 0)[1])
            elif number % STEPS:
                left = place(number - 1, ranks[number - 1][one["origin"]])
                start = (left[0] + BOX[0], left[1])
            else:
                start = (end[0] - 0.3, place(number, ranks[number - 1][one["origin"]])[1])
            style: dict[str, Any] = dict(color=SOFT, linewidth=0.5, alpha=0.4 if one["fate"] == "dropped" else 0.9)
            line(axes, start, end, **style)
            if best[number : number + 1] == [rank]:
                line(axes, start, end, color=BEST, linewidth=2.4, alpha=0.8)
            if greedy[number : number + 1] == [rank]:
                line(axes, start, end, color=GREEDY, linewidth=1.5, linestyle=(0, (3, 1.5)))


def line(axes: Axes, start: tuple[float, float], end: tuple[float, float], **style: Any) -> None:
    """Draw one line below the boxes."""
    axes.plot([start[0], end[0]], [start[1], end[1]], zorder=0.5, solid_capstyle="round", **style)


def draw_lost(axes: Axes, greedy: Mapping[str, Any], place: Any, row: int, steps: Sequence[Any]) -> None:
    """Write the rest of the greedy sequence below the search, from the step that dropped it on."""
    for number in range(greedy["dropped"], min(len(greedy["tokens"]), len(steps))):
        token = readable([greedy["tokens"][number]], 9)[0]
        x, y = place(number, row)
        axes.text(x, y, token, va="center", ha="left", **pen(7.5, color=GREEDY))


def write_results(axes: Axes, data: Mapping[str, Any], below: Number) -> None:
    """Write the finished hypotheses with their scores, and the greedy sequence."""
    greedy = data["greedy"]
    head = f"score = Σ log p / length^{data['length_penalty']:g}; boxes are kept, thick ones ended, grey was dropped"
    rows = [(one["score"], one["text"], BEST if i == 0 else INK) for i, one in enumerate(data["hypotheses"])]
    rows.append((greedy["score"], f"{greedy['text']}  (greedy)", GREEDY))
    axes.text(0.05, below - 0.22, head, va="center", **pen(7.5, color=SOFT))
    for i, (score, text, color) in enumerate(rows):
        shown = readable([text], 110)[0]
        axes.text(0.05, below - 0.22 * (i + 2), f"{number(score, 4)}   {shown}", va="center", **pen(8.5, color=color))
