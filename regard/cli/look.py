"""The command `look`: a page, a view as lines or JSON, or a figure of a model at work on one input."""

import os
import sys
import threading
import webbrowser
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import click

from regard.cli.base import PATH, device_option, emit, importing, json_option, quantize_option, regard
from regard.cli.completion import complete_run
from regard.data.terminal import echo

MOST_EXAMPLES = 400
"""Examples that are read for a view."""


@regard.command()
@click.argument("run", shell_complete=complete_run)
@click.argument("text", nargs=-1, required=True)
@click.option("--target", help="Look at this translation instead of the model's own.")
@click.option("--word", help="Compare this word's vectors in each TEXT, before and after the stack.")
@click.option(
    "--kind",
    type=click.Choice(["cross", "encoder", "decoder"]),
    help="Kind of attention of a translator.  [default: cross]",
)
@click.option(
    "--view",
    help="heads; lines between tokens; alignment of a translation; what an output depends on: rollout, gradient, "
    "ablation of heads, lens behind each block, patch from --against, agreement of these; of an image windows, "
    "queries and boxes of a detector, words of a caption; beam: the tree of a search; ffn: what feed-forward "
    "layers write and hold. A wrong name lists those of the model.",
)
@click.option("--against", metavar="TEXT", help="For --view patch: another text of as many tokens.")
@click.option("--beams", type=click.IntRange(2, 64), help="For --view beam: hypotheses that are continued together.")
@click.option(
    "--data", type=PATH, help="For --view ffn: examples to find inputs that excite neurons in (.txt, .csv, …)."
)
@click.option("--token", help="Explain this token, or label, not the model's own.")
@click.option("--layer", type=int, help="For an image: this layer only, from 0 (-1: the last).")
@click.option("--head", type=click.IntRange(0), help="For an image: this head only.")
@click.option(
    "--at", metavar="POSITION",
    help="For an image: attention of the patch ROW,COLUMN, not of the class token or all; for a text: this output.",
)  # fmt: skip
@click.option(
    "--out", type=PATH, help="A page of its own (.html) or a figure (.png .svg .pdf).  [default: a page opens]"
)
@quantize_option
@device_option
@json_option
def look(
    run: str, text: tuple[str, ...], target: str | None, word: str | None, view: str | None, out: Path | None,
    quantize: Any, as_json: bool, **options: Any,
) -> None:  # fmt: skip
    """Open a page inside the model in RUN at work on TEXT (or on a pair of texts), or on an image.

    With --out the page, or a figure of every layer and head, becomes a file.

    \b
    regard look RUN "twenty-five"
    regard look RUN "twenty-five" --out page.html
    regard look RUN "twenty-five" --out heads.png
    regard look CHECKPOINT --word bank "by the river bank" "money in the bank"
    regard look RUN image.png --layer 3 --head 0 --at 2,5 --out attention.png
    regard look RUN image.png --view rollout
    regard look RUN "the first text" --view patch --against "another text"
    regard look RUN "twenty-five" --view beam --out tree.png
    regard look RUN "the first text" --view ffn --data texts.txt
    """
    with importing():
        from regard.inside.draw.canvas import check_suffix
        from regard.modalities import modality_of
        from regard.tasks import load

    task = load(run, quantize)
    task.check_inputs(text[:1])
    if not text[0].strip() and not modality_of(text[0], task.inputs).files:
        raise ValueError("the text is empty; give it some words")
    chosen = {f"--{name}": value for name, value in options.items()} | {"--view": view, "--json": as_json or None}
    chosen = {name: value for name, value in chosen.items() if value is not None}
    bare = not chosen and word is None and target is None
    if bare if out is None else out.suffix.lower() == ".html":
        if view is not None:
            from regard.inside.views import find_view

            find_view(task.read(*text), view)  # an unknown name is an error that lists the others
        leave_out("a page shows every kind, layer and head", chosen | ({} if word is None else {"--word": word}))
        open_page(run, task, text, quantize) if out is None else save_page(run, task, text, target, out)
        return
    check_suffix(out)
    if word is not None:
        chosen.pop("--json", None)
        leave_out("--word compares one word's vectors", chosen | ({} if target is None else {"--target": target}))
        show_word(task, word, text, out, as_json)
        return
    show(task, text, target, view, options, out, as_json)


def leave_out(reason: str, chosen: dict[str, Any]) -> None:
    """Raise an error if there are options that would have no effect."""
    if chosen:
        raise ValueError(f"{reason}; leave out {next(iter(chosen))}")


def show(
    task: Any, inputs: tuple[str, ...], target: str | None, name: str | None, options: dict[str, Any],
    out: Path | None, as_json: bool,
) -> None:  # fmt: skip
    """Print a view of a task's model at work on an input, or draw it."""
    from regard.inside.capture.record import opaque
    from regard.inside.views import find_view

    prepared = task.read(*inputs, **({} if target is None else {"target": target}))
    view = find_view(prepared, name)
    options = {option: value for option, value in options.items() if value is not None}
    if "at" in options and "patch" in view.options:
        options["patch"] = patch_of(options.pop("at"))
    elif "at" in view.options:
        options |= {"at": output_of(options["at"])} if "at" in options else {}
    for option in options:
        if option not in view.options:
            takers = [other for other in prepared.views if {option, "patch" if option == "at" else option}
                      & set(find_view(prepared, other).options)]  # fmt: skip
            cure = f"goes with --view {' or '.join(takers)}" if takers else "has no effect on this model and input"
            raise ValueError(f"--{option} {cure}; leave it out")
    if view.needs_weights and (names := opaque(task.model)):
        raise ValueError(f"kernel {names[0]!r} has no weights to show; use --view lens or ablation, or a page")
    if "data" in options:
        options["data"] = read_examples(task, options["data"])
    if "against" in options:
        options["against"] = task.read(options["against"])
    data, draw = view.show(prepared, **options)
    alignment = best_aligners(prepared) if data.get("kind") == "cross" else {}
    data = {task.field_of("look", inputs[0]): inputs[0], "view": view.name} | data | alignment
    if as_json or out is None or not view.complete:
        emit(data, as_json, view.render)
    if alignment and not as_json:
        echo(alignment["alignment"])
    if out is not None:
        draw(out)
        echo(f"drawn: {out}", err=True)


def read_examples(task: Any, path: Path) -> list[Any]:
    """The first examples of a file or folder, prepared, with the model's own greedy output behind each."""
    from regard.inside.capture.states import examples_for

    return [task.read(item, cut=True, greedy=True) for item in examples_for(task, path).items[:MOST_EXAMPLES]]


def show_word(task: Any, word: str, texts: tuple[str, ...], out: Path | None, as_json: bool) -> None:
    """Print, and draw, the comparison of a word's vectors in several texts."""
    from regard.inside.latent.words import compare_word, draw_word, render_word

    data = compare_word(task, word, list(texts))
    emit(data, as_json, render_word)
    if out is not None:
        draw_word(data, out)
        echo(f"drawn: {out}", err=True)


def best_aligners(prepared: Any) -> dict[str, Any]:
    """Return the cross-attention heads of a translator, sorted by how well they align; empty for a recurrent one."""
    from dataclasses import asdict

    from regard.inside.explain import aligners

    if not prepared.uniform:
        return {}
    heads = aligners(prepared.select())
    return {"aligners": [asdict(head) for head in heads], "alignment": heads[0].summary}


def save_page(run: str, task: Any, inputs: tuple[str, ...], target: str | None, out: Path) -> None:
    """Write one file with the whole page inside."""
    from regard.inside.page import Page

    Page(task, *inputs, target=target, name=Path(run).name).save(out)
    echo(f"saved: {out}", err=True)


def open_page(run: str, task: Any, inputs: tuple[str, ...], quantize: Any) -> None:
    """Serve the model to this machine alone, and open the page on the input; without a browser print its address."""
    from regard.inside.page import Page

    try:
        from regard.serve.run import serve
        from regard.serve.settings import Settings
    except ModuleNotFoundError as error:
        raise ValueError(
            f"{error.name} is missing, which the page needs: pip install 'regard[serve]', or --out page.html"
        ) from None
    Page(task, *inputs)  # what is wrong with the input is said here, in a line
    name = Path(run).resolve().name if Path(run).exists() else run

    def ready(address: str, store: Any) -> None:
        url = f"{address}/?look#/look?{urlencode({'model': name})}"
        echo(f"page {url}  (Ctrl-C stops)", err=True)
        if has_browser():
            threading.Thread(target=webbrowser.open, args=(url,), daemon=True).start()

    settings = Settings(port=0, quantize=quantize)
    serve({name: run}, settings, preload=True, ready=ready, opening=inputs, loaded={name: task})


def has_browser() -> bool:
    """Return whether there is a graphical browser; a text browser would occupy the terminal."""
    return sys.platform in ("win32", "darwin") or any(
        os.environ.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER")
    )


def patch_of(text: str) -> tuple[int, int]:
    """The row and column of a patch, from "2,5"."""
    row, comma, column = text.partition(",")
    if not (comma and row.strip().isdecimal() and column.strip().isdecimal()):
        raise ValueError(f"--at takes the row and column of a patch, such as 2,5; got {text!r}")
    return int(row), int(column)


def output_of(text: str) -> int:
    """Return the position of an output token, from text such as "3" or "-1"."""
    if not text.strip().removeprefix("-").isdecimal():
        raise ValueError(f"--at takes the position of an output, such as 3 or -1; got {text!r}")
    return int(text)
