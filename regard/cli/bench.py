"""Benchmarks: growth of attention, other layers, kernels in training, quantised weights, decoding, images."""

import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from regard.cli.base import OVERRIDES, PATH, Commands, emit, fail, json_option, overrides, quantize_option, regard


class Benchmarks(Commands):
    """The benchmarks by name; one that was renamed is still found by its old name."""

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        if name == "pictures":
            click.echo("`regard bench pictures` is called `regard bench images` now", err=True)
            name = "images"
        return super().get_command(ctx, name)


@regard.group(cls=Benchmarks)
def bench() -> None:
    """Measure on this machine: growth with length and area, other architectures, trained quality."""


kernels_option = click.option(
    "--kernels", help="Names, as full,window:radius=64.  [default: full and the efficient ones]"
)
seconds_option = click.option(
    "--max-seconds",
    type=float,
    default=60.0,
    show_default=True,
    help="Longest time of one pass; larger sizes are left out.",
)
repeats_option = click.option(
    "--repeats", type=click.IntRange(1), default=3, show_default=True, help="Passes; their median time is reported."
)
figure_option = click.option("--out", type=PATH, help="Draw a figure (.png .svg .pdf).")
quiet_option = click.option("--quiet", is_flag=True, help="No progress.")


@bench.command()
@click.option("--lengths", default="1k..64k", show_default=True, help="Doubling from..to, or a list: 1k,4k,16k.")
@kernels_option
@click.option("--heads", type=click.IntRange(1), default=8, show_default=True)
@click.option("--head-dim", type=click.IntRange(1), default=64, show_default=True)
@click.option("--batch", type=click.IntRange(1), default=1, show_default=True)
@click.option("--causal/--both-sides", default=True, show_default=True, help="Hide the future, where a kernel can.")
@click.option(
    "--pass", "which", type=click.Choice(["forward", "training", "both"]), default="both", show_default=True,
    help="Without gradients; forward and backward; or each.",
)  # fmt: skip
@click.option("--layer", is_flag=True, help="The whole layer with its projections, not the kernel alone.")
@seconds_option
@repeats_option
@figure_option
@quiet_option
@json_option
def attention(
    lengths: str, kernels: str | None, heads: int, head_dim: int, batch: int, causal: bool, which: str, layer: bool,
    max_seconds: float, repeats: int, out: Path | None, quiet: bool, as_json: bool,
) -> None:  # fmt: skip
    """Growth of attention: time and memory against length.

    Forward and backward, kernel by kernel, each point in a process of its own, with fitted exponents.

    \b
    regard bench attention --lengths 1k..64k --kernels full,window,linear --out scaling.png
    """
    check_figure(out)
    from regard.bench import growth
    from regard.bench.measure import read_lengths, read_names

    config = growth.GrowthConfig(
        kernels=read_names(kernels) if kernels is not None else growth.efficient_kernels(),
        lengths=read_lengths(lengths), heads=heads, head_dim=head_dim, batch=batch, causal=causal, layer=layer,
        passes=("forward", "training") if which == "both" else (which,),  # type: ignore[arg-type]
        max_seconds=max_seconds, repeats=repeats,
    )  # fmt: skip
    finish(growth.measure_growth(config, quiet=quiet), as_json, growth.render_growth, growth.draw_result, out)


@bench.command()
@click.option("--lengths", default="256..4k", show_default=True, help="Doubling from..to, or a list: 1k,4k,16k.")
@click.option("--dim", type=click.IntRange(1), default=256, show_default=True, help="Width of the layers.")
@click.option(
    "--radius",
    type=click.IntRange(1),
    default=64,
    show_default=True,
    help="Positions that restricted attention sees on each side.",
)
@click.option("--width", type=click.IntRange(2), default=3, show_default=True, help="Width of the convolutions.")
@seconds_option
@repeats_option
@figure_option
@quiet_option
@json_option
def architectures(
    lengths: str, dim: int, radius: int, width: int, max_seconds: float, repeats: int, out: Path | None, quiet: bool,
    as_json: bool,
) -> None:  # fmt: skip
    """Attention, recurrence and convolution compared.

    Time of a layer against length, the steps that wait for each other, and the measured path of a gradient.
    """
    check_figure(out)
    from regard.bench import architectures as table
    from regard.bench.measure import read_lengths

    config = table.ArchitecturesConfig(
        lengths=read_lengths(lengths), dim=dim, radius=radius, width=width, max_seconds=max_seconds, repeats=repeats
    )
    result = table.measure_architectures(config, quiet=quiet)
    finish(result, as_json, table.render_architectures, table.draw_architectures, out)


@bench.command(context_settings=OVERRIDES)
@kernels_option
@click.option("--model", type=click.Choice(["gpt", "bert"]), default="gpt", show_default=True)
@click.option("--steps", type=click.IntRange(1), default=300, show_default=True, help="Training steps for each kernel.")
@click.option("--out", type=PATH, help="Keep the runs there; finished runs are not trained again.")
@quiet_option
@json_option
@click.pass_context
def quality(
    ctx: click.Context, kernels: str | None, model: Any, steps: int, out: Path | None, quiet: bool, as_json: bool
) -> None:
    """A small model trained under each kernel.

    Held-out loss, time and memory side by side; every field of the recipe can be overridden.

    \b
    regard bench quality --kernels full,window,linear --steps 300
    regard bench quality --model bert --model.max-len 256 --out runs/kernels
    """
    from regard.bench.growth import efficient_kernels
    from regard.bench.measure import read_names
    from regard.bench.quality import measure_quality, render_quality

    if out is not None and out.suffix in (".png", ".svg", ".pdf"):
        raise ValueError(f"--out is the directory that keeps the runs here, got {out}")
    names = read_names(kernels) if kernels is not None else efficient_kernels()
    changes = overrides(ctx.args)
    with tempfile.TemporaryDirectory() as folder:
        result = measure_quality(names, out or Path(folder), model=model, steps=steps, changes=changes, quiet=quiet)
    finish(result, as_json, render_quality)


@bench.command()
@click.option(
    "--draws", type=click.IntRange(1), default=8, show_default=True, help="Random samples of kernels and inputs."
)
@figure_option
@json_option
def error(draws: int, out: Path | None, as_json: bool) -> None:
    """Errors of approximations of full attention.

    Performer by its features, Linformer by its rank, Reformer by its rounds.
    """
    check_figure(out)
    from regard.bench.error import draw_errors, measure_errors, render_errors

    finish(measure_errors(draws), as_json, render_errors, draw_errors, out)


@bench.command(context_settings=OVERRIDES)
@click.argument("run")
@click.option("--data", type=PATH, multiple=True, help="Score on this text; for translations two files, again --data.")
@click.option("--limit", type=click.IntRange(1), help="At most so many examples, sentences, or characters of a text.")
@quiet_option
@json_option
@click.pass_context
def quantize(
    ctx: click.Context, run: str, data: tuple[Path, ...], limit: int | None, quiet: bool, as_json: bool
) -> None:
    """Effects of int8 and int4 weights on the model in RUN.

    Memory, speed, and scores on held-out data, next to its own floating-point weights.

    \b
    regard bench quantize RUN
    regard bench quantize CHECKPOINT --data test.txt
    regard bench quantize CHECKPOINT --data test.en --data test.de
    """
    from regard.bench.quantize import measure_quantize, render_quantize

    result = measure_quantize(run, data=data, changes=overrides(ctx.args), limit=limit, quiet=quiet)
    finish(result, as_json, render_quantize)


@bench.command()
@click.argument("model", default="gpt:gpt2")
@click.option("--batch", "batches", default="1,8,16", show_default=True, help="Texts at once.")
@click.option("--prompt", type=click.IntRange(1), default=32, show_default=True, help="Tokens of each prompt.")
@click.option("--new", type=click.IntRange(2), default=128, show_default=True, help="Tokens generated after it.")
@click.option("--beam", type=click.IntRange(1), default=1, show_default=True, help="Beams; 1 is greedy.")
@click.option(
    "--rounds", type=click.IntRange(1), default=3, show_default=True, help="Measurements; their median is reported."
)
@quantize_option
@quiet_option
@json_option
def decode(
    model: str, batches: str, prompt: int, new: int, beam: int, rounds: int, quantize: Any, quiet: bool, as_json: bool
) -> None:
    """Speed of generation: tokens per second, time to the first, memory.

    MODEL is a run, a checkpoint, or a family and preset with random weights. For one text at once, also its
    share of the speed that this machine's memory allows.

    \b
    regard bench decode gpt:gpt2 --quantize int8
    regard bench decode runs/demo --batch 64 --beam 4
    """
    from regard.bench.decode import DecodeConfig, measure_decode, render_decode
    from regard.bench.measure import read_lengths

    config = DecodeConfig(
        batches=read_lengths(batches), prompt=prompt, new=new, beams=beam, rounds=rounds, quantize=quantize
    )
    finish(measure_decode(model, config, quiet=quiet), as_json, render_decode)


@bench.command(context_settings=OVERRIDES)
@click.option("--by", type=click.Choice(["examples", "patch"]), default="examples", show_default=True)
@click.option("--models", help="Recipes, or cnn, as vit,swin,cnn.  [default: these three; by patch vit]")
@click.option(
    "--values", help="Numbers of images or patch sizes, as 100,1000.  [default: a ladder that suits the images]"
)
@click.option("--seeds", type=click.IntRange(1), default=3, show_default=True, help="Runs of each.")
@click.option("--steps", type=click.IntRange(1), default=400, show_default=True, help="Training steps of each run.")
@click.option("--minutes", type=float, help="Training minutes of each run, instead of steps.")
@click.option("--runs", type=PATH, help="Keep the runs there; finished runs are not trained again.")
@figure_option
@quiet_option
@json_option
@click.pass_context
def images(
    ctx: click.Context, by: Any, models: str | None, values: str | None, seeds: int, steps: int, minutes: float | None,
    runs: Path | None, out: Path | None, quiet: bool, as_json: bool,
) -> None:  # fmt: skip
    """Accuracy of image models by labelled images, or by patch size.

    Accuracy on held-out images by the number of training images (models with the bias of an image need fewer), or
    accuracy and time by the size of the patches; every field of the recipes can be overridden.

    \b
    regard bench images --data.images mnist.npz --values 100,1000,10000 --out bias.png
    regard bench images --by patch --data.images mnist.npz --out patch.png
    """
    check_figure(out)
    from regard.bench import images as table
    from regard.bench.measure import read_lengths, read_names

    config = table.ImagesBenchConfig(
        by=by, models=read_names(models or ""), values=read_lengths(values) if values else (), seeds=seeds, steps=steps,
        minutes=minutes,
    )  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        result = table.measure_images(config, runs or Path(folder), overrides(ctx.args), quiet=quiet)
    finish(result, as_json, table.render_images, table.draw_images, out)


@bench.command()
@click.option(
    "--sides", default="64..512", show_default=True, help="Sides of the images: doubling from..to, or a list."
)
@click.option("--patch", type=click.IntRange(1), default=4, show_default=True, help="Pixels of a patch's side.")
@click.option("--dim", type=click.IntRange(1), default=64, show_default=True, help="Width.")
@click.option("--depth", type=click.IntRange(1), default=4, show_default=True, help="Blocks.")
@click.option("--window", type=click.IntRange(1), default=8, show_default=True, help="Patches of a window's side.")
@click.option("--batch", type=click.IntRange(1), default=1, show_default=True)
@seconds_option
@repeats_option
@figure_option
@quiet_option
@json_option
def area(
    sides: str, patch: int, dim: int, depth: int, window: int, batch: int, max_seconds: float, repeats: int,
    out: Path | None, quiet: bool, as_json: bool,
) -> None:  # fmt: skip
    """Growth of ViT and Swin with an image's area.

    Time of a forward pass, with fitted exponents, beside the FLOPs that are counted.
    """
    check_figure(out)
    from regard.bench.area import AreaConfig, draw_area, measure_area, render_area
    from regard.bench.measure import read_lengths

    config = AreaConfig(
        sides=read_lengths(sides), patch=patch, dim=dim, depth=depth, window=window, batch=batch,
        max_seconds=max_seconds, repeats=repeats,
    )  # fmt: skip
    finish(measure_area(config, quiet=quiet), as_json, render_area, draw_area, out)


def check_figure(out: Path | None) -> None:
    """Raise an error for a file that cannot be drawn to, before anything is measured."""
    if out is not None:
        from regard.inside.draw.canvas import check_suffix

        check_suffix(out)


def finish(
    result: dict[str, Any],
    as_json: bool,
    render: Callable[[Any], str],
    draw: Callable[[Any, Path], Any] | None = None,
    out: Path | None = None,
) -> None:
    """Prints and draws the results; after Ctrl-C those that were measured before."""
    emit(result, as_json, render)
    if draw is not None and out is not None:
        draw(result, out)
        click.echo(f"drawn: {out}", err=True)
    if result.get("interrupted"):
        sys.exit(fail("stopped; above is what was measured before", 130))
