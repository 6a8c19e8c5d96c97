"""Benchmarks: growth of attention, other layers, kernels in training, quantised weights, decoding, images."""

import sys
import tempfile
from collections.abc import Callable, Sequence
from functools import wraps
from pathlib import Path
from typing import Any

import click

from regard.cli.base import OVERRIDES, PATH, Commands, emit, fail, json_option, overrides, quantize_option, regard
from regard.cli.completion import complete_kernel
from regard.data.terminal import echo


class Benchmarks(Commands):
    """The benchmarks by name; one that was renamed is still found by its old name."""

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        if name == "pictures":
            echo("`regard bench pictures` is called `regard bench images` now", err=True)
            name = "images"
        return super().get_command(ctx, name)


@regard.group(cls=Benchmarks)
def bench() -> None:
    """Measure on this machine: growth with length and area, other architectures, trained quality."""


def benchmark(*options: Callable[..., Any], fields: bool = False) -> Callable[[Callable[..., Any]], click.Command]:
    """Return a decorator that makes a command of a function which returns a result, its `render` function and, where
    there is a figure, its `draw` function. With `fields`, the function gets a recipe's fields as `changes`."""

    def declare(measure: Callable[..., Any]) -> click.Command:
        @wraps(measure)
        def run(as_json: bool, out: Path | None = None, **values: Any) -> None:
            if out is not None:
                from regard.inside.draw.canvas import check_suffix

                check_suffix(out)  # before anything is measured
            if fields:
                values["changes"] = overrides(click.get_current_context().args)
            result, render, *draw = measure(**values)
            emit(result, as_json, render)
            if out is not None:
                draw[0](result, out)
                echo(f"drawn: {out}", err=True)
            if result.get("interrupted"):
                sys.exit(fail("stopped; above is what was measured before", 130))

        for option in reversed([*options, json_option]):
            run = option(run)
        return bench.command(context_settings=OVERRIDES if fields else {})(run)

    return declare


def setting(
    names: str, default: Any, help: str | None = None, *, least: int = 1, choices: Sequence[str] = ()
) -> Callable[..., Any]:
    """An option with a default: a whole number from `least`, one of `choices`, or of the default's type."""
    kind = click.Choice(choices) if choices else click.IntRange(least) if isinstance(default, int) else None
    return click.option(*names.split(), type=kind, default=default, show_default=True, help=help)


TOY_MODELS = "rnn,lstm,gpt:position=none,gpt:position=learned,gpt:position=sinusoidal,gpt:position=rotary"
LENGTHS, PASSES = "Doubling from..to, or a list: 1k,4k,16k.", ("forward", "training", "both")
kernels_option = click.option(
    "--kernels",
    shell_complete=complete_kernel,
    help="Names, as full,window:radius=64.  [default: full and the efficient ones]",
)
figure_option = click.option("--out", type=PATH, help="Draw a figure (.png .svg .pdf).")
quiet_option = click.option("--quiet", is_flag=True, help="No progress.")
LADDER = (
    setting("--max-seconds", 60.0, "Longest time of one pass; larger sizes are left out."),
    setting("--repeats", 3, "Passes; their median time is reported."),
    figure_option,
    quiet_option,
)
"""Options of benchmarks that measure growth."""


def kernel_names(text: str | None) -> tuple[str, ...]:
    """The kernels of an option; without it the default ones."""
    from regard.bench.growth import efficient_kernels
    from regard.bench.measure import read_names

    return efficient_kernels() if text is None else read_names(text)


@benchmark(
    setting("--lengths", "1k..64k", LENGTHS),
    kernels_option,
    setting("--heads", 8),
    setting("--head-dim", 64),
    setting("--batch", 1),
    click.option("--causal/--both-sides", default=True, show_default=True, help="Hide the future, where a kernel can."),
    setting("--pass which", "both", "Without gradients; forward and backward; or each.", choices=PASSES),
    click.option("--layer", is_flag=True, help="The whole layer with its projections, not the kernel alone."),
    *LADDER,
)
def attention(lengths: str, kernels: str | None, which: Any, quiet: bool, **sizes: Any) -> Any:
    """Growth of attention: time and memory against length.

    Forward and backward, kernel by kernel, each point in a process of its own, with fitted exponents.

    \b
    regard bench attention --lengths 1k..64k --kernels full,window,linear --out scaling.png
    """
    from regard.bench.growth import GrowthConfig, draw_result, measure_growth, render_growth
    from regard.bench.measure import read_lengths

    passes: Any = PASSES[:2] if which == "both" else (which,)
    config = GrowthConfig(kernels=kernel_names(kernels), lengths=read_lengths(lengths), passes=passes, **sizes)
    return measure_growth(config, quiet=quiet), render_growth, draw_result


@benchmark(
    setting("--lengths", "256..4k", LENGTHS),
    setting("--dim", 256, "Width of the layers."),
    setting("--radius", 64, "Positions that restricted attention sees on each side."),
    setting("--width", 3, "Width of the convolutions.", least=2),
    *LADDER,
)
def architectures(lengths: str, quiet: bool, **sizes: Any) -> Any:
    """Attention, recurrence and convolution compared.

    Time of a layer against length, the steps that wait for each other, and the measured path of a gradient.
    """
    from regard.bench import architectures as table
    from regard.bench.measure import read_lengths

    config = table.ArchitecturesConfig(lengths=read_lengths(lengths), **sizes)
    return table.measure_architectures(config, quiet=quiet), table.render_architectures, table.draw_architectures


@benchmark(
    setting(
        "--models",
        "rnn,gru,lstm,gpt,gpt:residual=false",
        "Families, with settings as in the default, or runs of yours.",
    ),
    setting("--length", 256, "Tokens of the sequence.", least=8),
    setting("--dim", 64, "Width of the models."),
    setting("--depth", 2, "Layers of the models."),
    setting("--gain", 1.0, "Factor on the matrices: with 2 and more, recurrent networks explode instead of vanishing."),
    setting("--seeds", 5, "Initialisations to average."),
    figure_option,
    quiet_option,
)
def gradient(models: str, quiet: bool, **sizes: Any) -> Any:
    """Gradients against distance.

    The gradient of the last output with respect to an input d tokens back: a product of d Jacobians in a recurrent
    network, one step in a Transformer.

    \b
    regard bench gradient --out gradient.png
    regard bench gradient --models runs/lstm,runs/gpt --length 512
    """
    from regard.bench.gradient import GradientConfig, draw_gradients, measure_gradients, render_gradients
    from regard.bench.measure import read_names

    return (
        measure_gradients(GradientConfig(models=read_names(models), **sizes), quiet=quiet),
        render_gradients,
        draw_gradients,
    )


@benchmark(
    setting("--models", TOY_MODELS, "Families, with settings as in the default."),
    setting("--examples", 200, "Test examples at each length and distance."),
    click.option("--runs", type=PATH, help="Keep the runs there; finished ones are not trained again."),
    figure_option,
    quiet_option,
    fields=True,
)
def toys(models: str, runs: Path | None, examples: int, quiet: bool, changes: dict[str, Any]) -> Any:
    """Families on a toy task.

    Right answers against length and distance, up to twice those of training; every field of `regard train toy` can be
    overridden.

    \b
    regard bench toys --data.task recall --data.distance 60 --out recall.png
    regard bench toys --data.task parity --models lstm,gpt --train.steps 1500
    """
    from regard.bench.measure import read_names
    from regard.bench.toys import draw_toys, measure_toys, render_toys

    with tempfile.TemporaryDirectory() as kept:
        out = runs or Path(kept)
        result = measure_toys(read_names(models), out, examples=examples, changes=changes, quiet=quiet)
    return result, render_toys, draw_toys


@benchmark(
    kernels_option,
    setting("--model", "gpt", choices=["gpt", "bert"]),
    setting("--steps", 300, "Training steps for each kernel."),
    click.option("--out", "runs", type=PATH, help="Keep the runs there; finished runs are not trained again."),
    quiet_option,
    fields=True,
)
def quality(kernels: str | None, runs: Path | None, **settings: Any) -> Any:
    """A small model trained under each kernel.

    Held-out loss, time and memory side by side; every field of the recipe can be overridden.

    \b
    regard bench quality --kernels full,window,linear --steps 300
    regard bench quality --model bert --model.max-len 256 --out runs/kernels
    """
    from regard.bench.quality import measure_quality, render_quality

    if runs is not None and runs.suffix in (".png", ".svg", ".pdf"):
        raise ValueError(f"--out is the directory that keeps the runs here, got {runs}")
    names = kernel_names(kernels)
    with tempfile.TemporaryDirectory() as folder:
        return measure_quality(names, runs or Path(folder), **settings), render_quality


@benchmark(setting("--draws", 8, "Random samples of kernels and inputs."), figure_option)
def error(draws: int) -> Any:
    """Errors of approximations of full attention.

    Performer by its features, Linformer by its rank, Reformer by its rounds.
    """
    from regard.bench.error import draw_errors, measure_errors, render_errors

    return measure_errors(draws), render_errors, draw_errors


@benchmark(
    click.argument("run"),
    click.option(
        "--data", type=PATH, multiple=True, help="Score on this text; for translations two files, again --data."
    ),
    click.option(
        "--limit", type=click.IntRange(1), help="At most so many examples, sentences, or characters of a text."
    ),
    quiet_option,
    fields=True,
)
def quantize(run: str, **settings: Any) -> Any:
    """Effects of bfloat16, int8 and int4 weights on the model in RUN.

    Memory, speed, and scores on held-out data, next to its own floating-point weights.

    \b
    regard bench quantize RUN
    regard bench quantize CHECKPOINT --data test.txt
    regard bench quantize CHECKPOINT --data test.en --data test.de
    """
    from regard.bench.quantize import measure_quantize, render_quantize

    return measure_quantize(run, **settings), render_quantize


@benchmark(
    click.argument("model", default="gpt:gpt2"),
    setting("--batch batches", "1,8,16", "Texts at once."),
    setting("--prompt", 32, "Tokens of each prompt."),
    setting("--new", 128, "Tokens generated after it.", least=2),
    setting("--beam beams", 1, "Beams; 1 is greedy."),
    setting("--rounds", 3, "Measurements; their median is reported."),
    quantize_option,
    quiet_option,
)
def decode(model: str, batches: str, quiet: bool, **settings: Any) -> Any:
    """Speed of generation: tokens per second, time to the first, memory.

    MODEL is a run, a checkpoint, or a family and preset with random weights. For one text at once, also its
    share of the speed that this machine's memory allows.

    \b
    regard bench decode gpt:gpt2 --quantize int8
    regard bench decode runs/demo --batch 64 --beam 4
    """
    from regard.bench.decode import DecodeConfig, measure_decode, render_decode
    from regard.bench.measure import read_lengths

    config = DecodeConfig(batches=read_lengths(batches), **settings)
    return measure_decode(model, config, quiet=quiet), render_decode


@benchmark(
    setting("--by", "examples", choices=["examples", "pretraining", "patch"]),
    click.option(
        "--models", default="", help="Recipes, or cnn, as vit,swin,cnn.  [default: these three; by patch vit]"
    ),
    click.option(
        "--values", help="Numbers of images or patch sizes, as 100,1000.  [default: a ladder that suits the images]"
    ),
    setting("--seeds", 3, "Runs of each."),
    setting("--steps", 400, "Training steps of each run."),
    click.option("--minutes", type=float, help="Training minutes of each run, instead of steps."),
    click.option("--flops", type=float, help="Training FLOPs of each run, instead of steps: equal for all models."),
    click.option("--runs", type=PATH, help="Keep the runs there; finished runs are not trained again."),
    figure_option,
    quiet_option,
    fields=True,
)
def images(models: str, values: str | None, runs: Path | None, changes: Any, quiet: bool, **settings: Any) -> Any:
    """Accuracy of image models by labelled images, by images of a pre-training, or by patch size.

    Accuracy on held-out images by the number of training images (models with the bias of an image need fewer); that of
    a linear classifier by the number of images that its encoder was pre-trained on without labels; or accuracy and
    time by the size of the patches. Every field of the recipes can be overridden.

    \b
    regard bench images --data.images mnist.npz --values 100,1000,10000 --out bias.png
    regard bench images --by pretraining --data.images mnist.npz --flops 2e12 --models vit,cnn
    regard bench images --by patch --data.images mnist.npz --out patch.png
    """
    from regard.bench.images import ImagesBenchConfig, draw_images, measure_images, render_images
    from regard.bench.measure import read_lengths, read_names

    config = ImagesBenchConfig(models=read_names(models), values=read_lengths(values) if values else (), **settings)
    with tempfile.TemporaryDirectory() as folder:
        return measure_images(config, runs or Path(folder), changes, quiet=quiet), render_images, draw_images


@benchmark(
    setting("--sides", "64..512", "Sides of the images: doubling from..to, or a list."),
    setting("--patch", 4, "Pixels of a patch's side."),
    setting("--dim", 64, "Width."),
    setting("--depth", 4, "Blocks."),
    setting("--window", 8, "Patches of a window's side."),
    setting("--batch", 1),
    *LADDER,
)
def area(sides: str, quiet: bool, **sizes: Any) -> Any:
    """Growth of ViT and Swin with an image's area.

    Time of a forward pass, with fitted exponents, beside the FLOPs that are counted.
    """
    from regard.bench.area import AreaConfig, draw_area, measure_area, render_area
    from regard.bench.measure import read_lengths

    config = AreaConfig(sides=read_lengths(sides), **sizes)
    return measure_area(config, quiet=quiet), render_area, draw_area
