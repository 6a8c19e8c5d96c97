"""The cost of a model, pruning of its heads, and the lectures' figures."""

from pathlib import Path

import click

from regard.cli.base import OVERRIDES, PATH, emit, json_option, overrides, regard
from regard.cli.completion import complete_run, complete_size
from regard.data.terminal import echo, to_json


@regard.command(context_settings=OVERRIDES)
@click.argument("what", shell_complete=complete_size)
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
    """Count the parameters, FLOPs and memory of a preset, a run, a checkpoint or a config, before any memory is taken.

    Any field of the config is an option too: --image SIDE (or ROWS,COLUMNS) of a model that sees pixels or patches,
    --depth, --dim, --kernel …; a wrong one names the nearest.

    \b
    regard cost base --batch 32 --length 128
    regard cost seq2seq:base --vocab-size 37000
    regard cost lr-net-50
    regard cost vit:vit-b/16 --image 384
    regard cost pixel --image 128
    """
    from regard.cli import outline

    changes = {name.removeprefix("model."): value for name, value in overrides(ctx.args).items()}
    if not ctx.find_root().params.get("plugins"):
        outline.check_size(what, changes)  # before PyTorch is imported
    from regard.cli.catalogue import find_config
    from regard.cost import ConvNetConfig, ConvNetCost, Cost, convnet_cost
    from regard.cost import cost as count

    config = find_config(what, changes)
    counted: Cost | ConvNetCost
    if isinstance(config, ConvNetConfig):
        if length or source_length or training:
            raise ValueError(f"{what} reads images, and only its forward pass is counted; set --batch and --side")
        counted = convnet_cost(config, batch=batch)
    else:
        counted = count(config, batch=batch, length=length, source_length=source_length, training=training)
    echo(to_json(counted.to_dict()) if as_json else counted.render())


@regard.command(context_settings=OVERRIDES)
@click.argument("run", shell_complete=complete_run)
@click.option("--heads", type=int, required=True, help="Number of heads to remove.")
@click.option("--out", type=PATH, help="Directory of the pruned run.  [default: RUN-pruned]")
@click.option("--random", "seed", type=int, metavar="SEED", help="Remove random heads instead, for comparison.")
@click.option("--quiet", is_flag=True, help="No progress.")
@json_option
@click.pass_context
def prune(
    ctx: click.Context, run: str, heads: int, out: Path | None, seed: int | None, quiet: bool, as_json: bool
) -> None:
    """Remove the least important attention heads of RUN, and print the change of the loss.

    Every head is switched off on held-out data; those without which the loss rises least go, a quarter at a time. What
    the output projection reads of them becomes zeros: shapes stay, every reader of the model still reads it, none gets
    faster.

    \b
    regard prune RUN --heads 24 --out PRUNED
    regard prune RUN --heads 24 --data.valid-source dev.en --data.valid-target dev.de
    regard eval PRUNED
    """
    from regard.eval import prune as pruning

    path = out or Path(f"{run.rstrip('/')}-pruned")
    emit(pruning.prune(run, heads, path, overrides(ctx.args), seed=seed, quiet=quiet), as_json, pruning.render)
    echo(f"written: {path}", err=True)


@regard.command(context_settings=OVERRIDES, short_help="Draw a figure of the lectures, such as masks or positions.")
@click.argument("figure", required=False)
@click.option("--out", type=PATH, help="Where to draw it (.png .svg .pdf).  [default: FIGURE.png]")
@click.pass_context
def draw(ctx: click.Context, figure: str | None, out: Path | None) -> None:
    """Draw a FIGURE of the lectures: positions, masks, schedule, softmax, bpe, patches … (without: all of them,
    and the options of each). A mask of your own is rules joined by &, | and ~.

    \b
    regard draw positions --scheme rotary
    regard draw mask "causal & window(4) | global(1)" --length 16
    regard draw mask "edges(0-1, 1-2, 2-0, 2-3) | window(0)"
    """
    from regard.inside import FIGURES, draw_figure
    from regard.inside.draw.figures import options_of

    if figure is None:
        for name in FIGURES:
            echo(f"{name:16} {FIGURES[name].__doc__.splitlines()[0]}")
            echo(" " * 17 + " ".join(options_of(name)))
        return
    path = out or Path(f"{figure}.png")
    words = ctx.args if not ctx.args or ctx.args[0].startswith("--") else ["--rule", *ctx.args]
    draw_figure(figure, path, **overrides(words))
    echo(f"drawn: {path}", err=True)
