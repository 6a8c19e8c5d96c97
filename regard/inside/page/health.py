"""The history of a run as one page: its findings, and its figures as curves. It needs no other file and no network."""

import math
from collections.abc import Sequence
from html import escape
from statistics import median

from regard.doctor.history import History, Number, Points, render
from regard.doctor.vitals import layer_of
from regard.inside.draw.document import style_of

WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 640, 240, 56, 12, 10, 30
MOST = 600
"""The most points of a curve; of more, medians of neighbours are drawn."""
COLUMNS = 48
"""Number of columns in the figure of heads."""
SHARED = ("style.css", "look.css")
"""Styles of the server's page that this one is drawn with."""
STYLE = """
:root { --one: var(--accent); --two: var(--warm); --warn: var(--bad);
  --deep: color-mix(in oklab, var(--accent), var(--ink) 45%); }
header { padding-bottom: 1rem; }
main { display: grid; gap: 1rem; grid-template-columns: minmax(0, 1fr); align-content: start; }
.about h2 { font-size: 1.25rem; }
.grid { display: grid; gap: 1rem; grid-template-columns: repeat(auto-fit, minmax(min(100%, 30rem), 1fr)); }
.panel { display: grid; gap: .5rem; align-content: start; grid-template-columns: minmax(0, 1fr); }
.findings.some { border-left: .3rem solid var(--warn); }
.findings ol { list-style: decimal; padding-left: 1.5rem; } .findings li + li { margin-top: .75rem; }
.findings strong { color: var(--warn); }
.panel svg { width: 100%; height: auto; display: block; } .panel svg text { fill: var(--soft); font-size: 12px; }
.axis { stroke: var(--line); stroke-width: 1; } .curve { fill: none; stroke-width: 1.6; stroke-linejoin: round; }
.faint { opacity: .35; stroke-width: 1; } .spike { fill: none; stroke: var(--warn); stroke-width: 2; }
.legend { display: flex; flex-wrap: wrap; gap: .1rem .9rem; font-size: .8125rem; color: var(--soft); }
.legend i { display: inline-block; width: .8rem; height: .8rem; border-radius: .15rem; margin-right: .35rem;
  vertical-align: -.1rem; }
@media (max-width: 40rem) { .panel svg { overflow: visible; } .panel svg text { font-size: 20px; } }
"""
"""Styles of this page alone; fonts, colours and panels are those of the server's page."""
HEADER = """<header><div class="brand"><h1>Regard</h1></div><div class="tools">
<fieldset class="theme" id="theme"><legend class="unseen">Theme</legend>
<label title="Light"><input type="radio" name="theme" value="light" aria-label="Light">☀</label>
<label title="As the system"><input type="radio" name="theme" value="light dark" aria-label="As the system" checked="">
◐</label>
<label title="Dark"><input type="radio" name="theme" value="dark" aria-label="Dark">☾</label></fieldset></div>
</header>"""
SCRIPT = """document.getElementById("theme").addEventListener("change", (event) => {
  document.documentElement.style.colorScheme = event.target.value;
});"""


def page(history: History) -> str:
    """Return the whole page as HTML."""
    title = f"{history.run.name}: its history"
    heading = render(history.as_dict()).partition("\n")[0]
    curves = {
        "Gradient norm, by layer": (
            "gradient",
            "the norm of a layer's gradient, before it is clipped",
        ),
        "Update by weight, by layer": ("ratio", "how far a step moves a layer, as a share of its size"),
        "Activation scale, by layer": ("scale", "the root mean square of what a layer puts out"),
        "Dead units, by layer": ("dead", "the share of hidden units that no sampled token woke"),
    }
    panels = [loss_panel(history)]
    for name, (kind, meaning) in curves.items():
        if figures := history.figures(kind):
            panels.append(panel(name, meaning, figures, list(history.figures("ratio")), logarithmic=kind != "dead"))
    if heads := history.figures("entropy"):
        panels.append(heads_panel(heads))
    if not history.sampled:
        words = "The doctor did not look at this run: an old one, or --train.watch 0."
        panels.append(f'<section class="panel"><p>{words}</p></section>')
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{escape(title)}</title>'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<style>{style_of(*SHARED)}{STYLE}</style></head>"
        f'<body class="looking">{HEADER}<main>'
        f'<div class="about"><h2>{escape(title)}</h2><p class="note">{escape(heading)}</p></div>{findings(history)}'
        f'<div class="grid">{"".join(panels)}</div></main><script>{SCRIPT}</script></body></html>'
    )


def findings(history: History) -> str:
    """The findings, the most probable cause first."""
    if not history.findings:
        return '<section class="panel findings"><h2>Nothing wrong seen</h2></section>'
    items = [
        f"<li><strong>{escape(one.cause)}</strong>{'' if one.step is None else f' at step {one.step:,}'}: "
        f"{escape(one.sentence)}.<br>Cure: {escape(one.cure)}.</li>"
        for one in history.findings
    ]
    return (
        f'<section class="panel findings some"><h2>Causes, most probable first</h2><ol>{"".join(items)}</ol></section>'
    )


def loss_panel(history: History) -> str:
    """Loss of training and validation, spikes marked."""
    train, valid = history.points("loss"), history.points("valid_loss")
    if not train:
        return '<section class="panel"><h2>Loss</h2><p>No step was finished.</p></section>'
    smooth = [(step, median([y for _, y in train[max(0, i - 12) : i + 13]])) for i, (step, _) in enumerate(train)]
    axes = Axes([*train, *valid], logarithmic=False)
    marks = [
        f'<circle class=spike cx="{axes.x(one["at"]):.1f}" cy="{axes.y(one["loss"]):.1f}" r="6">'
        f"<title>step {one['at']}: {one['loss']:.3g} where {one['usual']:.3g} was usual; {escape(one['batch'])}</title>"
        "</circle>"
        for one in history.spikes
    ]
    drawn = [
        axes.curve(train, "var(--one)", "training, each step", "curve faint"),
        axes.curve(smooth, "var(--one)", "training, median of 25 steps"),
        axes.curve(valid, "var(--two)", "validation"),
    ]
    names = {"training": "var(--one)"} | ({"validation": "var(--two)"} if valid else {})
    names |= {"spike": "var(--warn)"} if marks else {}
    summary = f"Training loss from {train[0][1]:.3g} at step {train[0][0]} to {train[-1][1]:.3g} at step {train[-1][0]}"
    summary += f", {len(marks)} spikes." if marks else "."
    return section("Loss", summary, axes.draw([*drawn, *marks], summary), legend(names))


def panel(name: str, meaning: str, figures: dict[str, Points], layers: list[str], *, logarithmic: bool) -> str:
    """One curve for each layer, coloured from the first to the last; a layer has one colour in all panels."""
    places = {name: layers.index(layer_of(name)) if layer_of(name) in layers else 0 for name in figures}
    hues = {name: f"hsl({210 + 240 * place / max(1, len(layers) - 1):.0f} 60% 52%)" for name, place in places.items()}
    axes = Axes([point for points in figures.values() for point in points], logarithmic=logarithmic)
    last = {layer: points[-1][1] for layer, points in figures.items()}
    low, high = min(last, key=lambda layer: last[layer]), max(last, key=lambda layer: last[layer])
    summary = f"At the end from {last[low]:.3g} ({low}) to {last[high]:.3g} ({high}); {meaning}."
    curves = [axes.curve(points, hues[layer], layer) for layer, points in figures.items()]
    return section(name, summary, axes.draw(curves, summary), legend(hues))


def heads_panel(entropies: dict[str, Points]) -> str:
    """Draw a row for each head and a column for each sampled step, dark where attention is concentrated."""
    steps = sorted({step for points in entropies.values() for step, _ in points})
    steps = steps[:: max(1, -(-len(steps) // COLUMNS))]
    wide, tall = (WIDTH - LEFT - RIGHT) / len(steps), max(5.0, min(16.0, 360 / len(entropies)))
    cells = []
    for row, (head, points) in enumerate(entropies.items()):
        values = dict(points)
        for column, step in enumerate(steps):
            if step in values:
                share = max(0.0, min(1.0, values[step]))
                cells.append(
                    f'<rect x="{LEFT + column * wide:.1f}" y="{TOP + row * tall:.1f}" width="{wide + 0.3:.1f}" '
                    f'height="{tall - 0.6:.1f}" fill="var(--deep)" fill-opacity="{1 - 0.94 * share:.2f}">'
                    f"<title>{escape(head)}, step {step}: {share:.0%}</title></rect>"
                )
    height = TOP + tall * len(entropies) + 22
    labels = [
        f'<text x="{LEFT}" y="{height - 6:.0f}">step {steps[0]:,}</text>',
        f'<text x="{WIDTH - RIGHT}" y="{height - 6:.0f}" text-anchor="end">step {steps[-1]:,}</text>',
        f'<text x="{LEFT - 6}" y="{TOP + 10}" text-anchor="end">first</text>',
        f'<text x="{LEFT - 6}" y="{height - 24:.0f}" text-anchor="end">last</text>',
    ]
    last = sorted(points[-1][1] for points in entropies.values())
    summary = (
        f"{len(entropies)} heads, from the first layer to the last; entropy as a share of the highest possible, strong "
        f"is sharp (0), faint is even (1). At the end from {last[0]:.2f} to {last[-1]:.2f}."
    )
    drawing = svg(height, summary, [*cells, *labels])
    return section("Attention entropy, by head", summary, drawing, "")


class Axes:
    """Maps steps and values to the coordinates of an SVG figure."""

    def __init__(self, points: Points, *, logarithmic: bool) -> None:
        values = [y for _, y in points if math.isfinite(y) and (y > 0 or not logarithmic)] or [1.0]
        self.steps = min(x for x, _ in points), max(x for x, _ in points)
        self.log = logarithmic
        low, high = min(values), max(values)
        if logarithmic:
            low, high = max(low, high * 1e-8), high
            self.low, self.high = math.log10(low) - 0.05, math.log10(high) + 0.05
        else:
            margin = 0.05 * (high - low) or 0.5
            self.low, self.high = max(0.0, low - margin) if low >= 0 else low - margin, high + margin

    def x(self, step: Number) -> float:
        first, last = self.steps
        return LEFT + (WIDTH - LEFT - RIGHT) * (step - first) / max(1, last - first)

    def y(self, value: Number) -> float:
        if self.log:
            value = math.log10(max(value, 10**self.low))
        share = (value - self.low) / (self.high - self.low)
        return HEIGHT - BOTTOM - (HEIGHT - BOTTOM - TOP) * max(0.0, min(1.0, share))

    def curve(self, points: Points, color: str, name: str, kind: str = "curve") -> str:
        """Return a line as SVG, with gaps at values that are not finite."""
        wide = -(-len(points) // MOST) if points else 1
        groups = [points[i : i + wide] for i in range(0, len(points), wide)]
        thin = [(one[len(one) // 2][0], median(y for _, y in one)) for one in groups]
        places, pen = [], "M"
        for step, value in thin:
            if math.isfinite(value):
                places.append(f"{pen}{self.x(step):.1f} {self.y(value):.1f}")
            pen = "L" if math.isfinite(value) else "M"
        if not places:
            return ""
        if len(places) == 1:
            places.append("l0.1 0")  # a point, with round ends
        return (
            f'<path class="{kind}" stroke-linecap="round" stroke="{color}" d="{"".join(places)}">'
            f"<title>{escape(name)}</title></path>"
        )

    def draw(self, parts: Sequence[str], summary: str) -> str:
        """Return SVG parts inside a frame with tick labels."""
        frame = []
        for i in range(5):
            value = self.low + (self.high - self.low) * i / 4
            y = HEIGHT - BOTTOM - (HEIGHT - BOTTOM - TOP) * i / 4
            frame.append(f'<line class=axis x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>')
            shown = f"{10**value if self.log else value:.2g}"
            frame.append(f'<text x="{LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{shown}</text>')
        first, last = self.steps
        for step in sorted({first, (first + last) // 2, last}):
            anchor = "start" if step == first else "end" if step == last else "middle"
            place = f'x="{self.x(step):.1f}" y="{HEIGHT - 10}" text-anchor="{anchor}"'
            frame.append(f"<text {place}>step {step:,}</text>")
        return svg(HEIGHT, summary, [*frame, *parts])


def svg(height: Number, summary: str, parts: Sequence[str]) -> str:
    return f'<svg viewBox="0 0 {WIDTH} {height:.0f}" role="img" aria-label="{escape(summary)}">{"".join(parts)}</svg>'


def section(title: str, summary: str, drawing: str, names: str) -> str:
    about = f'<p class="note">{escape(summary)}</p>'
    return f'<section class="panel"><h2>{escape(title)}</h2>{drawing}{names}{about}</section>'


def legend(colors: dict[str, str]) -> str:
    items = [f'<li><i style="background:{color}"></i>{escape(name)}</li>' for name, color in colors.items()]
    return f'<ul class="legend">{"".join(items)}</ul>'
