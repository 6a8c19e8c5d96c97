"""`regard cheaper`: a cheaper model for a trained one; `regard choose`: which model to train at all."""

import sys
from pathlib import Path
from typing import Any

import click

from regard.cli.base import OVERRIDES, PATH, emit, fail, json_option, overrides, regard
from regard.cli.completion import complete_run
from regard.data.terminal import echo


@regard.command(context_settings=OVERRIDES)
@click.argument("run", shell_complete=complete_run)
@click.option("--by", type=float, default=2.0, show_default=True, help="How many times cheaper.")
@click.option(
    "--cost", type=click.Choice(["seconds", "flops", "bytes"]), default="seconds", show_default=True,
    help="The cost that counts: CPU seconds of the model's main verb, FLOPs, or bytes of the weights.",
)  # fmt: skip
@click.option(
    "--minutes", type=float, default=3.0, show_default=True, help="CPU minutes to distil each smaller model; 0: none."
)
@click.option("--limit", type=click.IntRange(1), help="At most so many held-out examples, of both halves.")
@click.option("--out", type=PATH, help="Folder for the report and the smaller models, which are not trained again.")
@click.option("--save", type=PATH, help="Save the chosen model there, as a run.")
@click.option("--quiet", is_flag=True, help="No progress.")
@json_option
@click.pass_context
def cheaper(ctx: click.Context, run: str, out: Path | None, quiet: bool, as_json: bool, **settings: Any) -> None:
    """Find a cheaper model for RUN: what every way costs and loses on held-out data.

    Greedy decoding, int8 and int4 weights, other kernels, a shorter context, heads removed, smaller models distilled
    from RUN, and combinations. They are measured, and one at 1/BY of the cost is chosen, on one half of the held-out
    examples; what it loses is measured on the other half. Times are CPU seconds, taken in turns with RUN itself.

    \b
    regard cheaper RUN --by 2 --out runs/cheaper --save runs/half
    regard cheaper RUN --by 4 --cost bytes --minutes 0
    regard cheaper RUN --data.test test.csv
    """
    from regard.decide.cheaper import measure_cheaper
    from regard.decide.frontier import render, write_report
    from regard.train.loop import Interrupted

    def say(text: str) -> None:
        if not quiet:
            echo(text, err=True)

    try:
        result = measure_cheaper(run, out=out, changes=overrides(ctx.args), say=say, **settings)
    except Interrupted:
        kept = "" if out is None else f"; smaller models are in {out}, and the same command goes on"
        sys.exit(fail(f"stopped{kept}", 130))
    if out is not None:
        write_report(result, out)
        echo(f"report: {out / 'report.html'}", err=True)
    emit(result, as_json, render)


@regard.command(context_settings=OVERRIDES)
@click.argument("kind", metavar="[lm|vit|classify]")
@click.option("--minutes", type=float, default=5.0, show_default=True, help="CPU minutes of each run, with one thread.")
@click.option("--seeds", type=int, default=3, show_default=True, help="Runs of each model.")
@click.option("--base", help="A run or checkpoint to fine-tune as well.")
@click.option("--out", type=PATH, help="Folder for runs and report; what is there is not trained again.")
@click.option("--quiet", is_flag=True, help="No progress.")
@json_option
@click.pass_context
def choose(ctx: click.Context, kind: str, out: Path | None, quiet: bool, as_json: bool, **settings: Any) -> None:
    """Find out which model to train on your data: each for the same CPU minutes, with several seeds.

    lm compares an LSTM and a Transformer on running text, vit a CNN and a Transformer on images, classify a
    Transformer and naive Bayes on labelled texts; --base adds a trained model, fine-tuned. The answer is the best one
    where the seeds allow it, else "the seeds do not tell". Every field of the recipe can be overridden.

    \b
    regard choose lm --data.text book.txt
    regard choose vit --data.images FOLDER --minutes 10
    regard choose classify --data.train reviews.csv --base CHECKPOINT
    """
    from regard.decide.choose import measure_choice
    from regard.decide.contenders import render, write_report

    folder = Path("runs") / "choose" / kind if out is None else out

    def say(text: str) -> None:
        if not quiet:
            echo(text, err=True)

    try:
        result = measure_choice(kind, out=folder, changes=overrides(ctx.args), say=say, **settings)
    except KeyboardInterrupt:
        sys.exit(fail(f"stopped; everything is in {folder}, and the same command goes on", 130))
    write_report(result, folder)
    echo(f"report: {folder / 'report.html'}", err=True)
    emit(result, as_json, render)
