"""`regard attend`: attention worked out by hand, in the terminal, as a figure and as a page."""

import math
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from regard.cli.base import PATH, json_option, regard
from regard.data.terminal import echo, to_json
from regard.files import write_text

if TYPE_CHECKING:
    from regard.inside.explain.worked_attention import Example, Worked

BAR = 20


@regard.command()
@click.argument("example", required=False)
@click.option("--query", help="A query by name or number, or a vector such as 0.9,0.1,0.2,0.3.  [default: the first]")
@click.option("--mask", default="", help='Rule for what a query may see, such as "causal" or "window(1) & causal".')
@click.option(
    "--temperature", type=float, default=1.0, show_default=True, help="Divides the scores: below 1 is sharper."
)
@click.option("--digits", type=click.IntRange(0, 9), help="Round every step to so many digits before the next one.")
@click.option("--out", type=PATH, help="Write a figure (.png .svg .pdf) or a page with sliders (.html) as well.")
@json_option
def attend(
    example: str | None, query: str | None, mask: str, temperature: float, digits: int | None, out: Path | None,
    as_json: bool,
) -> None:  # fmt: skip
    """Work out attention by hand on a few words, in seven steps with every number.

    EXAMPLE is one of the lectures' (without: a list of them) or a .toml or .json file with `words`, `queries`, `keys`
    and `values`; with `vectors` alone, the words attend to each other. The lecture's own numbers stand beside ours.

    \b
    regard attend cat
    regard attend cat --query action --temperature 0.2
    regard attend cat --digits 2                     as on a blackboard: gives the lecture's numbers
    regard attend table --mask causal --query LOVELY
    regard attend cat --out cat.html                 a page with sliders
    """
    from regard.inside.explain.worked_attention import EXAMPLES, load_example, work_out

    if example is None:
        titles = {name: content["title"] for name, content in EXAMPLES.items()}
        listed = "\n".join(f"{name:10}{title}" for name, title in titles.items())
        echo(to_json(titles) if as_json else listed)
        return
    loaded = load_example(example)
    worked = work_out(loaded, query, mask=mask, temperature=temperature, digits=digits)
    printed = loaded.lecture if query in (None, loaded.names[0], "0") and not mask and temperature == 1 else {}
    if out is not None:
        write_out(out, loaded, worked, query, mask, temperature)
    if as_json:
        scaled = [None if math.isinf(value) else value for value in worked.scaled]  # JSON has no infinity
        more = {"words": loaded.words, "scaled": scaled, "lecture": dict(printed)}
        echo(to_json(asdict(worked) | more))
    else:
        echo(render(loaded, worked, printed, digits))
    if out is not None:
        echo(f"written: {out}", err=True)


def write_out(
    out: Path, example: "Example", worked: "Worked", query: str | None, mask: str, temperature: float
) -> None:
    """Write a page with sliders, or a figure, by the suffix of the path."""
    if out.suffix == ".html":
        from regard.inside.page.worked_attention import attention_page

        write_text(out, attention_page(example, query, mask=mask, temperature=temperature))
        return
    from regard.inside.explain.worked_figure import draw_worked

    draw_worked(example, worked, out)


def render(example: "Example", worked: "Worked", lecture: Any, digits: int | None) -> str:
    """Return the seven steps as a table, a line for each word, with the lecture's numbers in columns of their own."""
    places = 4 if digits is None else digits

    def number(value: float) -> str:
        small = value != 0 and abs(value) < 10.0**-places / 2
        return "hidden" if math.isinf(value) else f"{value:.2e}" if small else f"{value:.{places}f}"

    def vector(values: list[float]) -> str:
        return " ".join(f"{value:g}" for value in values)

    columns: list[tuple[str, list[str]]] = [("word", example.words)]
    if example.keys is not None:
        columns.append(("2 key", [vector(row) for row in example.keys]))
    scores = "3 q·k" if example.keys is not None else "3 score"
    columns.append((scores, [number(value) for value in worked.scores]))
    columns.append((f"4 ÷ {worked.divisor:.4g}", [number(value) for value in worked.scaled]))
    columns.append(("5 exp", [number(value) for value in worked.exponentials]))
    columns.append(("weight", [number(value) for value in worked.weights]))
    if "weights" in lecture:
        columns.append(("lecture", [f"{value:g}" for value in lecture["weights"]]))
    columns.append(("", [("█" * round(BAR * weight)).ljust(BAR) for weight in worked.weights]))
    if example.values is not None:
        columns.append(("6 value", [vector(row) for row in example.values]))
    widths = [max(map(len, [title, *cells])) for title, cells in columns]
    rows = [[title for title, _ in columns], *([cells[i] for _, cells in columns] for i in range(len(example.words)))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    asked = f"1 query: {worked.query}" + ("" if worked.q is None else f"  [{vector(worked.q)}]")
    head = [example.title, asked] if example.title else [asked]
    tail = [f"sum of exponentials {number(worked.total)}, of weights {number(sum(worked.weights))}"]
    if lecture and abs(sum(lecture["weights"]) - 1) > 0.02:
        tail.append(
            f"the lecture's weights sum to {sum(lecture['weights']):g}: scores, which no softmax has made weights"
        )
    if worked.output is not None:
        named = example.features or [str(i) for i in range(len(worked.output))]
        more = places + (0 if digits is None else 1)
        cells = [f"{name} {value:.{more}f}" for name, value in zip(named, worked.output, strict=False)]
        tail.append(f"7 output: {'  '.join(cells)}")
        if "output" in lecture:
            tail.append(f"  lecture: {'  '.join(f'{value:g}' for value in lecture['output'])}")
    return "\n".join([*head, "", *lines, "", *tail])
