"""What a model costs, and what it looks at."""

import json
import os
import sys
import threading
import webbrowser
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import click

from regard.cli.base import OVERRIDES, PATH, emit, json_option, overrides, quantize_option, regard


@regard.command(context_settings=OVERRIDES)
@click.argument("what")
@click.option("--batch", type=click.IntRange(1), default=1, show_default=True)
@click.option("--length", type=click.IntRange(1), help="Target tokens.  [default: 1024, or the longest it is made for]")
@click.option("--source-length", type=click.IntRange(1), help="Source tokens.  [default: as many]")
@click.option("--training", is_flag=True, help="Count gradients, optimizer and activations too.")
@json_option
@click.pass_context
def cost(
    ctx: click.Context, what: str, batch: int, length: int | None, source_length: int | None, training: bool,
    as_json: bool,
) -> None:  # fmt: skip
    """Parameters, FLOPs and memory of a preset, a run or a config, before anything is built.

    \b
    regard cost base --batch 32 --length 128
    regard cost seq2seq:base --vocab-size 37000
    regard cost lr-net-50
    regard cost pixel --image 128
    """
    from regard.cost import ConvNetConfig, ConvNetCost, Cost, convnet_cost
    from regard.cost import cost as count
    from regard.recipes.catalogue import find_config

    changes = {name.removeprefix("model."): value for name, value in overrides(ctx.args).items()}
    config = find_config(what, changes)
    counted: Cost | ConvNetCost
    if isinstance(config, ConvNetConfig):
        if length or source_length or training:
            raise ValueError(f"{what} reads images, and only its forward pass is counted; set --batch and --side")
        counted = convnet_cost(config, batch=batch)
    else:
        counted = count(config, batch=batch, length=length, source_length=source_length, training=training)
    click.echo(json.dumps(counted.to_dict(), ensure_ascii=False) if as_json else counted.render())


@regard.command()
@click.argument("run")
@click.argument("text", nargs=-1, required=True)
@click.option("--target", help="Look at this translation instead of the model's own.")
@click.option("--word", help="Compare this word's vectors in each TEXT, before and after the stack.")
@click.option("--kind", type=click.Choice(["cross", "encoder", "decoder"]), help="Of a translator.  [default: cross]")
@click.option(
    "--view", type=click.Choice([
        "heads", "lines", "rollout", "gradient", "ablation", "lens", "patch", "agreement", "windows", "queries",
        "words",
    ]),
    help="heads; lines between tokens; what an output rests on: rollout, gradient, ablation of heads, lens behind "
    "each block, patch from --against, agreement of these; of a picture Swin's windows, DETR's queries, words.",
)  # fmt: skip
@click.option("--against", metavar="TEXT", help="For --view patch: another text of as many tokens.")
@click.option("--token", help="Ask about this token, or label, not the model's own.")
@click.option("--layer", type=int, help="Of a picture: this layer alone, from 0 (-1: the last).")
@click.option("--head", type=click.IntRange(0), help="Of a picture: this head alone.")
@click.option(
    "--at", metavar="PLACE",
    help="Of a picture: what the patch ROW,COLUMN looks at, not the class token or all; of a text: this output alone.",
)  # fmt: skip
@click.option(
    "--out", type=PATH, help="A page of its own (.html) or a picture (.png .svg .pdf).  [default: a page opens]"
)
@quantize_option
@json_option
def look(
    run: str, text: tuple[str, ...], target: str | None, word: str | None, kind: str | None, view: str | None,
    against: str | None, token: str | None, layer: int | None, head: int | None, at: str | None, out: Path | None,
    quantize: Any, as_json: bool,
) -> None:  # fmt: skip
    """Open a page inside the model in RUN at work on TEXT (or on a pair of texts), or on a picture.

    With --out the page, or a picture of every layer and head, becomes a file.

    \b
    regard look RUN "twenty-five"
    regard look RUN "twenty-five" --out page.html
    regard look RUN "twenty-five" --out heads.png
    regard look CHECKPOINT --word bank "by the river bank" "money in the bank"
    regard look RUN image.png --layer 3 --head 0 --at 2,5 --out attention.png
    regard look RUN image.png --view rollout
    regard look RUN "the first text" --view patch --against "another text"
    """
    from regard.tasks import Painter, PictureEncoder, Translator, load

    loaded, drawn = load(run, quantize), (word, kind, view, against, token, layer, head, at)
    if isinstance(loaded, Painter):
        raise ValueError(f"{run} paints pixel by pixel; what it looks at is drawn with regard.look in Python")
    if out is None and not as_json and all(one is None for one in (target, *drawn)):
        open_page(run, loaded, text, quantize)
        return
    if out is not None and out.suffix.lower() == ".html":
        save_page(run, loaded, text, target, drawn, out)
        return
    kind = kind or "cross"
    if isinstance(loaded, PictureEncoder):
        if target is not None or word is not None:
            raise ValueError(f"{run} reads pictures; leave out --target and --word")
        if view not in DEEPER:
            look_at_picture(run, loaded, text, view, layer, head, at, out, as_json)
            return
    else:
        check_text(run, text[0], view, layer, head)
    if view in (*DEEPER, "rollout"):
        look_deeper(run, loaded, text, view, out, as_json, at, target=target, token=token, against=against)
        return
    if at is not None or token is not None or against is not None:
        raise ValueError(f"--at, --token and --against ask what an output rests on; add --view {' or '.join(DEEPER)}")
    view = view or "heads"
    if word is not None:
        from regard.inside.words import compare_word, draw_word, render_word

        found = compare_word(loaded, word, list(text))
        emit(found, as_json, render_word)
        if out is not None:
            draw_word(found, out)
            click.echo(f"drawn: {out}", err=True)
        return
    path = out or Path("attention.png")
    if isinstance(loaded, Translator):
        from regard.inside.alignments import draw_attention

        draw_attention(loaded, text[0], target, path, kind=kind, view=view)
        if kind == "cross":
            name_aligner(loaded, text[0], target, as_json)
    else:
        from regard.inside.text import draw_text

        draw_text(loaded, text[0], path, view=view, second=text[1] if len(text) > 1 else None)
    click.echo(f"drawn: {path}", err=True)


def name_aligner(loaded: Any, text: str, target: str | None, as_json: bool) -> None:
    """Says which head of a Transformer is the best alignment."""
    from dataclasses import asdict

    from regard.inside.attribution import aligners, ask
    from regard.models import Transformer

    if isinstance(loaded.model, Transformer):
        found = aligners(ask(loaded, text, target=target))
        emit({"text": text, "aligners": [asdict(one) for one in found]}, as_json, lambda _: found[0].told)


def save_page(
    run: str, loaded: Any, text: tuple[str, ...], target: str | None, drawn: tuple[Any, ...], out: Path
) -> None:
    """One file with the whole page inside."""
    from regard.inside.page import Page
    from regard.tasks import Translator

    if any(one is not None for one in drawn):
        raise ValueError(
            "a page shows every kind, layer and head; leave out --word, --kind, --view, --against, --token, --layer, "
            "--head and --at"
        )
    if target is not None and not isinstance(loaded, Translator):
        raise ValueError(f"{run} does not translate; leave out --target")
    ids = None if target is None else loaded.tokenizer.encode(target)
    Page(loaded, *text, target=ids, name=Path(run).name).save(out)
    click.echo(f"saved: {out}", err=True)


def open_page(run: str, loaded: Any, text: tuple[str, ...], quantize: Any) -> None:
    """Serves the model to this machine alone, and opens the page on the input; without a browser it tells where."""
    from regard.inside.page import Page
    from regard.tasks import PictureEncoder

    if not isinstance(loaded, PictureEncoder):
        check_text(run, text[0], None, None, None)
    try:
        from regard.serve.run import serve
        from regard.serve.settings import Settings
    except ModuleNotFoundError as error:
        raise ValueError(
            f"{error.name} is missing, which the page needs: pip install 'regard[serve]', or --out page.html"
        ) from None
    Page(loaded, *text)  # what is wrong with the input is said here, in a line
    name = Path(run).resolve().name if Path(run).exists() else run

    def ready(address: str, shelf: Any) -> None:
        url = f"{address}/?look#/look?{urlencode({'model': name})}"
        click.echo(f"page {url}  (Ctrl-C stops)", err=True)
        if has_browser():
            threading.Thread(target=webbrowser.open, args=(url,), daemon=True).start()

    serve({name: run}, Settings(port=0, quantize=quantize or "none"), preload=True, ready=ready, opening=text)


def has_browser() -> bool:
    """Whether there is one with windows: one for terminals would take this one."""
    return sys.platform in ("win32", "darwin") or any(
        os.environ.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER")
    )


def look_at_picture(
    run: str, loaded: Any, pictures: tuple[str, ...], view: str | None, layer: int | None, head: int | None,
    at: str | None, out: Path | None, as_json: bool,
) -> None:  # fmt: skip
    """Prints or draws what a model that sees looks at."""
    from regard.inside.canvas import check_suffix
    from regard.inside.image import render, show

    if len(pictures) > 1:
        raise ValueError(f"{run} looks at one picture at a time, got {len(pictures)}; call it once for each")
    if out is not None:
        check_suffix(out)
    patch = place_of(at) if at is not None else None
    said, draw = show(loaded, pictures[0], view=view, layer=layer, head=head, at=patch)
    if as_json or out is None:
        emit({"picture": pictures[0]} | said, as_json, render)
    if out is not None:
        draw(out)
        click.echo(f"drawn: {out}", err=True)


def place_of(text: str) -> tuple[int, int]:
    """Row and column, as they are written."""
    row, comma, column = text.partition(",")
    if not (comma and row.strip().isdecimal() and column.strip().isdecimal()):
        raise ValueError(f"--at takes the row and column of a patch, such as 2,5; got {text!r}")
    return int(row), int(column)


def check_text(run: str, text: str, view: str | None, layer: int | None, head: int | None) -> None:
    """What is for pictures does not suit a model that reads texts."""
    from regard.data.images import SUFFIXES

    given = {"--view": view if view in ("windows", "queries", "words") else None, "--layer": layer, "--head": head}
    wrong = [name for name, value in given.items() if value is not None]
    if wrong:
        raise ValueError(f"{run} reads texts, and {wrong[0]} {given[wrong[0]]} is for pictures; leave it out")
    if Path(text).suffix.lower() in SUFFIXES and Path(text).is_file():
        raise ValueError(f"{run} reads texts, and {text} is a picture; choose a model that sees, such as a vit")


DEEPER = ("gradient", "ablation", "lens", "patch", "agreement")
"""Views of what an output rests on, of texts and of pictures; the rollout of a picture is drawn on it."""


def look_deeper(
    run: str, loaded: Any, text: tuple[str, ...], view: str, out: Path | None, as_json: bool, at: str | None, **how: Any
) -> None:
    """Prints, and with `out` draws, what an output rests on."""
    from regard.inside.attribution import explain, render
    from regard.inside.canvas import check_suffix

    if out is not None:
        check_suffix(out)
    if len(text) > 2:
        raise ValueError(f"{run} looks at one text, or a pair, at a time; got {len(text)}")
    second = text[1] if len(text) > 1 else None
    said, draw = explain(loaded, text[0], view, second=second, at=output_of(at), **how)
    emit({"text": text[0]} | said, as_json, render)
    if out is not None:
        draw(out)
        click.echo(f"drawn: {out}", err=True)


def output_of(at: str | None) -> int | None:
    """The place of an output, as it is written."""
    if at is not None and not at.strip().removeprefix("-").isdecimal():
        raise ValueError(f"--at takes the place of an output, such as 3 or -1; got {at!r}")
    return None if at is None else int(at)


@regard.command(context_settings=OVERRIDES)
@click.argument("run")
@click.option("--heads", type=int, required=True, help="How many to remove.")
@click.option("--out", type=PATH, help="Directory of the pruned run.  [default: RUN-pruned]")
@click.option("--random", "seed", type=int, metavar="SEED", help="Remove some at random instead, to compare.")
@click.option("--quiet", is_flag=True, help="No progress.")
@json_option
@click.pass_context
def prune(
    ctx: click.Context, run: str, heads: int, out: Path | None, seed: int | None, quiet: bool, as_json: bool
) -> None:
    """Remove the attention heads of RUN that matter least, and say what that costs.

    Every head is switched off on held-out data; those without which the loss rises least go, a quarter at a time. What
    the output projection reads of them becomes zeros: shapes stay, every reader of the model still reads it, none gets
    faster.

    \b
    regard prune RUN --heads 24 --out PRUNED
    regard prune RUN --heads 24 --data.valid-source dev.en --data.valid-target dev.de
    regard eval PRUNED
    """
    from regard.recipes import prune as pruning

    path = out or Path(f"{run.rstrip('/')}-pruned")
    emit(pruning.prune(run, heads, path, overrides(ctx.args), seed=seed, quiet=quiet), as_json, pruning.render)
    click.echo(f"written: {path}", err=True)


@regard.command(context_settings=OVERRIDES)
@click.argument("figure", required=False)
@click.option("--out", type=PATH, help="Where to draw it (.png .svg .pdf).  [default: FIGURE.png]")
@click.pass_context
def draw(ctx: click.Context, figure: str | None, out: Path | None) -> None:
    """Draw a FIGURE of the lectures: positions, masks, schedule, softmax … (without: list them)."""
    from regard.inside import figures

    if figure is None:
        for name in figures.FIGURES:
            click.echo(f"{name:16} {figures.FIGURES[name].__doc__.splitlines()[0]}")
        return
    path = out or Path(f"{figure}.png")
    figures.draw(figure, path, **overrides(ctx.args))
    click.echo(f"drawn: {path}", err=True)
