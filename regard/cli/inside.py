"""What a model costs, and what it looks at."""

import json
from pathlib import Path
from typing import Any

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
@click.option("--kind", type=click.Choice(["cross", "encoder", "decoder"]), default="cross", show_default=True)
@click.option("--view", type=click.Choice(["heads", "lines"]), default="heads", show_default=True)
@click.option("--out", type=PATH, help=".png .svg .pdf  [default: attention.png]")
@quantize_option
@json_option
def look(
    run: str, text: tuple[str, ...], target: str | None, word: str | None, kind: str, view: str, out: Path | None,
    quantize: Any, as_json: bool,
) -> None:  # fmt: skip
    """Draw every layer and head of the model in RUN at work on TEXT (or on a pair of texts).

    \b
    regard look RUN "twenty-five" --out heads.png
    regard look CHECKPOINT --word bank "by the river bank" "money in the bank"
    """
    from regard.tasks import PictureEncoder, Translator, load

    loaded = load(run, quantize)
    if isinstance(loaded, PictureEncoder):
        raise ValueError(f"{run} reads pictures; what it looks at cannot be drawn yet, use regard.look in Python")
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
