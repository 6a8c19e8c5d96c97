"""The command launch."""

from pathlib import Path

import click

from regard.cli.base import OVERRIDES, PATH, overrides, regard
from regard.data.terminal import echo


@regard.command(context_settings=OVERRIDES)
@click.argument("name")
@click.option("--on", type=click.Choice(["slurm", "kubernetes", "ray"]), required=True, help="The kind of cluster.")
@click.option("--nodes", type=click.IntRange(1), default=1, show_default=True, help="Machines.")
@click.option("--processes", type=click.IntRange(1), default=1, show_default=True, help="Processes of each machine.")
@click.option("--gpus", is_flag=True, help="A GPU for each process.")
@click.option("--hours", type=float, default=24.0, show_default=True, help="The job ends after so many hours.")
@click.option("--image", default="", help="The container with regard (kubernetes).")
@click.option("--claim", default="", help="The persistent volume claim that holds the data and the run (kubernetes).")
@click.option("--job", default="", help="The name of the job.  [default: NAME]")
@click.option("--out", default="", help="Directory of the run, which all machines see.  [default: runs/NAME]")
@click.option("--file", "file", type=PATH, help="Write the job there.  [default: print it]")
@click.pass_context
def launch(
    ctx: click.Context, name: str, on: str, nodes: int, processes: int, gpus: bool, hours: float, image: str,
    claim: str, job: str, out: str, file: Path | None,
) -> None:  # fmt: skip
    """Write the file that trains recipe NAME on a cluster: every field goes on to regard train.

    \b
    regard launch lm --on slurm --nodes 4 --processes 8 --gpus --file lm.sbatch --train.parallel shard=32
    regard launch lm --on kubernetes --nodes 2 --image registry/regard --claim work --file lm.json
    regard launch lm --on ray --nodes 2 --processes 2 --file lm.py
    """
    from regard.cli.training import check_fields
    from regard.recipes import recipe
    from regard.runs.launch import SUBMIT, WRITERS, Job
    from regard.train.layout import parse

    fields = overrides(ctx.args)
    check_fields(name, fields, any_family=False)
    plan = recipe(name, fields)  # what is wrong is said here, not after hours in a queue
    parse(plan.train.parallel, nodes * processes)
    words = (name, *ctx.args)
    if gpus and "train.device" not in fields:
        words += ("--train.device", "cuda")
    text = WRITERS[on](
        Job(name=job or name, words=words, out=out or f"runs/{job or name}", nodes=nodes, processes=processes,
            gpus=gpus, hours=hours, image=image, claim=claim, plugins=ctx.find_root().params.get("plugins", ()))
    )  # fmt: skip
    if file is None:
        echo(text.rstrip("\n"))
        return
    if file.exists():
        raise ValueError(f"{file} exists; choose another --file")
    file.write_text(text, encoding="utf-8")
    echo(f"written: {file}; start it with {SUBMIT[on].format(file=file)}", err=True)
