"""What a model looks at: a page, a view of it in lines or as JSON, or a picture."""

import os
import sys
import threading
import webbrowser
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import click

from regard.cli.base import PATH, emit, json_option, quantize_option, regard


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
    from regard.inside.canvas import check_suffix
    from regard.tasks import load

    loaded = load(run, quantize)
    second, third = (*text[1:3], None, None)[:2]
    given = {
        "--word": word, "--view": view, "--target": target, "--kind": kind, "--against": against, "--token": token,
        "--layer": layer, "--head": head, "--at": at, "--json": as_json or None, "a second TEXT": second,
        "a third TEXT": third,
    }  # fmt: skip
    bare = all(value is None for name, value in given.items() if name.startswith("--"))
    page = bare if out is None else out.suffix.lower() == ".html"
    way = "page" if page else "word" if word is not None else view or "heads"
    check_given(run, loaded, text[0], way, given)
    if page:
        open_page(run, loaded, text, quantize) if out is None else save_page(run, loaded, text, target, out)
        return
    if out is not None:
        check_suffix(out)
    check_weights(loaded.model, way)
    said, draw, render = shown(loaded, text, way, given)
    all_drawn = way in HEADS or "picture" in said
    if as_json or out is None or not all_drawn:
        emit(said, as_json, render)
    if "alignment" in said and not as_json:
        click.echo(said["alignment"])
    if out is not None:
        draw(out)
        click.echo(f"drawn: {out}", err=True)


WRITER, READER, TRANSLATOR, EYE = "a language model", "an encoder", "a translator", "a model that sees"
HEADS = ("heads", "lines")
DEEPER = ("gradient", "ablation", "lens", "patch", "agreement")
RESTS = ("rollout", *DEEPER)
"""Views of what an output rests on; the rollout of a picture is drawn on it."""
SEEN = ("heads", "rollout", "windows", "queries", "words")
"""Those of pictures; which of them a model has, it says itself."""
PAIRS = (*HEADS, "rollout", "gradient", "ablation", "lens", "agreement")
TEXTS = {who: (*HEADS, *RESTS) for who in (WRITER, READER, TRANSLATOR)}
LABELLED = ("gradient", "ablation", "lens", "agreement")
"""Those of pictures whose labels are to be explained."""
WAYS: dict[str, tuple[str, ...]] = TEXTS | {EYE: (*SEEN, *LABELLED, "lines")}
TAKEN: dict[str, dict[str, tuple[str, ...]]] = {
    "--word": {WRITER: ("word",), READER: ("word",)},
    "--view": WAYS,
    "--target": {TRANSLATOR: (*HEADS, *RESTS, "page")},
    "--kind": {TRANSLATOR: HEADS},
    "--against": dict.fromkeys(TEXTS, ("patch",)),
    "--token": dict.fromkeys(TEXTS, RESTS) | {EYE: LABELLED},
    "--layer": {EYE: SEEN},
    "--head": {EYE: SEEN},
    "--at": dict.fromkeys(TEXTS, RESTS) | {EYE: (*SEEN, *LABELLED)},
    "--json": {who: (*ways, "word") for who, ways in WAYS.items()},
    "a second TEXT": dict.fromkeys(WAYS, ("page",)) | {WRITER: ("word", "page"), READER: (*PAIRS, "word", "page")},
    "a third TEXT": dict.fromkeys(WAYS, ("page",)) | {WRITER: ("word", "page"), READER: ("word", "page")},
}
"""Which models take what is given, and in which ways: views, the comparison of a word, the page (it counts texts)."""


def kind_of(loaded: Any) -> str:
    """What a loaded model is, in the words of the table."""
    from regard.tasks import ImageEncoder, LanguageModel, PixelModel, Translator

    kinds = ((ImageEncoder | PixelModel, EYE), (Translator, TRANSLATOR), (LanguageModel, WRITER))
    return next((name for kind, name in kinds if isinstance(loaded, kind)), READER)


def views_of(loaded: Any) -> list[str]:
    """Those that a model that sees has; of others, which all of their kind have."""
    from regard.inside import image
    from regard.inside.attribution.pictures import seen_views

    return list(dict.fromkeys((*image.views_of(loaded.model), *seen_views(loaded)))) if kind_of(loaded) == EYE else []


def check_given(run: str, loaded: Any, text: str, way: str, given: dict[str, Any]) -> None:
    """An error if something was given that nothing would come of."""
    from regard.data.readers.image_files import SUFFIXES

    who = kind_of(loaded)
    if who != EYE and Path(text).suffix.lower() in SUFFIXES and Path(text).is_file():
        raise ValueError(f"{run} reads texts, and {text} is a picture; choose a model that sees, such as a vit")
    if who != EYE and not text.strip():
        raise ValueError("the text is empty; give it some words")
    for name in (name for name, value in given.items() if value is not None):
        known = TAKEN[name].get(who, ())
        if way in known:
            continue
        views = [one for one in known if one in WAYS[who]]
        if way in ("page", "word") and known:
            why = "a page shows every kind, layer and head" if way == "page" else "--word compares one word's vectors"
            raise ValueError(f"{why}; leave out {name}")
        if name == "--view":
            raise ValueError(f"{who} has no view {way!r}; use {' or '.join(views_of(loaded) or views)}")
        if views:
            raise ValueError(f"{name} goes with --view {' or '.join(views)} of {who}; add one, or leave it out")
        if "word" in known:
            raise ValueError(f"{name} of {who} goes with --word; leave it out")
        takers = [one for one, ways in TAKEN[name].items() if ways != ("page",)]
        raise ValueError(f"{name} is for {' or '.join(takers)}, and {run} is {who}; leave it out")


def check_weights(model: Any, way: str) -> None:
    """An error where a view needs weights that a kernel has not."""
    from regard.inside.page.record import opaque

    if way not in ("word", "ablation", "lens", "patch") and (names := opaque(model)):
        raise ValueError(f"kernel {names[0]!r} has no weights to show; use --view lens or ablation, or a page")


def shown(loaded: Any, text: tuple[str, ...], way: str, given: dict[str, Any]) -> tuple[dict[str, Any], Any, Any]:
    """What is asked for as plain data, what draws that to a path, and what makes lines of it."""
    who, second, at, target = kind_of(loaded), given["a second TEXT"], given["--at"], given["--target"]
    if way == "word":
        from regard.inside.words import compare_word, draw_word, render_word

        found = compare_word(loaded, given["--word"], list(text))
        return found, partial(draw_word, found), render_word
    if who == EYE and way not in DEEPER:
        from regard.inside import image

        how = dict(layer=given["--layer"], head=given["--head"], at=place_of(at))
        said, draw = image.show(loaded, text[0], view=given["--view"], **how)
        return {"picture": text[0]} | said, draw, image.render
    if way in RESTS:
        from regard.inside import attribution

        how = dict(target=target, token=given["--token"], against=given["--against"], at=output_of(at))
        said, draw = attribution.explain(loaded, text[0], way, second=second, **how)
        return {"text": text[0]} | said, draw, attribution.render
    from regard.inside import heads

    if who == TRANSLATOR:
        from regard.inside.alignments import show_translation

        said, draw = show_translation(loaded, text[0], target, kind=given["--kind"] or "cross", view=way)
        said |= best_aligners(loaded, text[0], target) if said["kind"] == "cross" else {}
    else:
        from regard.inside.text import show_text

        said, draw = show_text(loaded, text[0], view=way, second=second)
    return {"text": text[0]} | said, draw, heads.render


def best_aligners(loaded: Any, text: str, target: str | None) -> dict[str, Any]:
    """The heads of a Transformer by how well they align."""
    from dataclasses import asdict

    from regard.inside.attribution import aligners, ask
    from regard.models import Transformer

    if not isinstance(loaded.model, Transformer):
        return {}
    found = aligners(ask(loaded, text, target=target))
    return {"aligners": [asdict(one) for one in found], "alignment": found[0].told}


def save_page(run: str, loaded: Any, text: tuple[str, ...], target: str | None, out: Path) -> None:
    """One file with the whole page inside."""
    from regard.inside.page import Page

    ids = None if target is None else loaded.tokenizer.encode(target)
    Page(loaded, *text, target=ids, name=Path(run).name).save(out)
    click.echo(f"saved: {out}", err=True)


def open_page(run: str, loaded: Any, text: tuple[str, ...], quantize: Any) -> None:
    """Serves the model to this machine alone, and opens the page on the input; without a browser it tells where."""
    from regard.inside.page import Page

    try:
        from regard.serve.run import serve
        from regard.serve.settings import Settings
    except ModuleNotFoundError as error:
        raise ValueError(
            f"{error.name} is missing, which the page needs: pip install 'regard[serve]', or --out page.html"
        ) from None
    Page(loaded, *text)  # what is wrong with the input is said here, in a line
    name = Path(run).resolve().name if Path(run).exists() else run

    def ready(address: str, store: Any) -> None:
        url = f"{address}/?look#/look?{urlencode({'model': name})}"
        click.echo(f"page {url}  (Ctrl-C stops)", err=True)
        if has_browser():
            threading.Thread(target=webbrowser.open, args=(url,), daemon=True).start()

    settings, given = Settings(port=0, quantize=quantize or "none"), {name: loaded}
    serve({name: run}, settings, preload=True, ready=ready, opening=text, loaded=given)


def has_browser() -> bool:
    """Whether there is one with windows: one for terminals would take this one."""
    return sys.platform in ("win32", "darwin") or any(
        os.environ.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER")
    )


def place_of(text: str | None) -> tuple[int, int] | None:
    """Row and column, as they are written."""
    if text is None:
        return None
    row, comma, column = text.partition(",")
    if not (comma and row.strip().isdecimal() and column.strip().isdecimal()):
        raise ValueError(f"--at takes the row and column of a patch, such as 2,5; got {text!r}")
    return int(row), int(column)


def output_of(at: str | None) -> int | None:
    """The place of an output, as it is written."""
    if at is not None and not at.strip().removeprefix("-").isdecimal():
        raise ValueError(f"--at takes the place of an output, such as 3 or -1; got {at!r}")
    return None if at is None else int(at)
