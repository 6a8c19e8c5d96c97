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
    "--view", type=click.Choice(["heads", "lines", "rollout", "windows", "queries", "words"]),
    help="heads; of a text lines between tokens; of a picture rollout, Swin's windows, DETR's queries, words.",
)  # fmt: skip
@click.option("--layer", type=int, help="Of a picture: this layer alone, from 0 (-1: the last).")
@click.option("--head", type=click.IntRange(0), help="Of a picture: this head alone.")
@click.option("--at", metavar="ROW,COLUMN", help="Of a picture: what this patch looks at, not the class token or all.")
@click.option(
    "--out", type=PATH, help="A page of its own (.html) or a picture (.png .svg .pdf).  [default: a page opens]"
)
@quantize_option
@json_option
def look(
    run: str, text: tuple[str, ...], target: str | None, word: str | None, kind: str | None, view: str | None,
    layer: int | None, head: int | None, at: str | None, out: Path | None, quantize: Any, as_json: bool,
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
    """
    from regard.tasks import Painter, PictureEncoder, Translator, load

    loaded, drawn = load(run, quantize), (word, kind, view, layer, head, at)
    if out is None and not as_json and all(one is None for one in (target, *drawn)):
        open_page(run, loaded, text, quantize)
        return
    if out is not None and out.suffix.lower() == ".html":
        save_page(run, loaded, text, target, drawn, out)
        return
    kind = kind or "cross"
    if isinstance(loaded, Painter):
        raise ValueError(f"{run} paints pixel by pixel; what it looks at is drawn with regard.look in Python")
    if isinstance(loaded, PictureEncoder):
        if target is not None or word is not None:
            raise ValueError(f"{run} reads pictures; leave out --target and --word")
        look_at_picture(run, loaded, text, view, layer, head, at, out, as_json)
        return
    check_text(run, text[0], view, layer, head, at)
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
    else:
        from regard.inside.text import draw_text

        draw_text(loaded, text[0], path, view=view, second=text[1] if len(text) > 1 else None)
    click.echo(f"drawn: {path}", err=True)


def save_page(
    run: str, loaded: Any, text: tuple[str, ...], target: str | None, drawn: tuple[Any, ...], out: Path
) -> None:
    """One file with the whole page inside."""
    from regard.inside.page import Page
    from regard.tasks import Translator

    if any(one is not None for one in drawn):
        raise ValueError(
            "a page shows every kind, layer and head; leave out --word, --kind, --view, --layer, --head, --at"
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
        check_text(run, text[0], None, None, None, None)
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


def check_text(run: str, text: str, view: str | None, layer: int | None, head: int | None, at: str | None) -> None:
    """What is for pictures does not suit a model that reads texts."""
    from regard.data.images import SUFFIXES

    given = {"--view": view, "--layer": layer, "--head": head, "--at": at}
    wrong = [name for name, value in given.items() if value not in (None, "heads", "lines")]
    if wrong:
        raise ValueError(f"{run} reads texts, and {wrong[0]} {given[wrong[0]]} is for pictures; leave it out")
    if Path(text).suffix.lower() in SUFFIXES and Path(text).is_file():
        raise ValueError(f"{run} reads texts, and {text} is a picture; choose a model that sees, such as a vit")


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
