"""Benchmarks of whole models: receptive fields, long texts."""

from typing import Any

import click

from regard.cli.base import PATH
from regard.cli.bench import benchmark, figure_option, quiet_option, setting


@benchmark(
    setting(
        "--models", "cnn,vit,swin", "Families, with settings as gpt:kernel=window:radius=8, cnn, or runs of yours."
    ),
    setting("--image", 64, "Pixels of an image's side, for models that are built."),
    setting("--length", 128, "Tokens of a text."),
    setting("--inputs", 8, "Inputs to average over."),
    figure_option,
    quiet_option,
)
def receptive(models: str, quiet: bool, **sizes: Any) -> Any:
    """Receptive fields, measured by gradients.

    How strongly the middle unit behind each block depends on every pixel or token, and the size of the square, or the
    number of tokens, that holds 90 % of it; of a run before and after training.

    \b
    regard bench receptive --models cnn,vit,swin --out fields.png
    regard bench receptive --models gpt,gpt:kernel=window:radius=8,bert,lstm
    regard bench receptive --models runs/cnn,runs/vit
    """
    from regard.bench.measure import read_names
    from regard.bench.receptive import ReceptiveConfig, draw_receptive, measure_receptive, render_receptive

    config = ReceptiveConfig(models=read_names(models), **sizes)
    return measure_receptive(config, quiet=quiet), render_receptive, draw_receptive


@benchmark(
    setting(
        "--models",
        "gpt,gpt:kernel=window:radius=128,gpt:kernel=linear,lstm",
        "Runs of language models, or families with settings as in the default, then with random weights.",
    ),
    setting("--tokens", 100_000, "Tokens to read.", least=2),
    setting("--segment", 512, "Tokens that go through the model together.", least=2),
    setting("--memory", 512, "Positions before a segment whose keys and values are kept."),
    click.option("--text", type=PATH, help="The text that runs read.  [default: Python's documentation]"),
    setting("--max-seconds", 120.0, "A model is stopped after this time of the processor."),
    figure_option,
    quiet_option,
)
def long(models: str, quiet: bool, **sizes: Any) -> Any:
    """Long texts through whole models, segment by segment.

    Time, memory and loss by position: segments alone, with a memory of the last positions, with all keys and values,
    or with the state of constant size that linear attention and recurrent models have.

    \b
    regard bench long
    regard bench long --models runs/docs --text book.txt --memory 256 --out long.png
    """
    from regard.bench.long import LongConfig, draw_long, measure_long, render_long
    from regard.bench.measure import read_names

    config = LongConfig(models=read_names(models), **sizes)
    return measure_long(config, quiet=quiet), render_long, draw_long


@benchmark(
    setting("--steps", 200, "Updates of the model that is trained once in each format."),
    setting("--dim", 64, "Its width.", least=32),
    setting("--depth", 2, "Its blocks."),
    figure_option,
    quiet_option,
)
def precision(quiet: bool, **sizes: Any) -> Any:
    """Numbers of 16 and 8 bits beside float32's.

    Rounding errors of float16, bfloat16 and FP8 (e4m3, e5m2) by magnitude; the gradients and losses of a GPT whose
    linear layers multiply such numbers.

    \b
    regard bench precision --out precision.png
    """
    from regard.bench.precision import PrecisionConfig, draw_precision, measure_precision, render_precision

    return measure_precision(PrecisionConfig(**sizes), quiet=quiet), render_precision, draw_precision
