"""The command data: what Regard understands of a file or a folder, before anything is trained."""

import click

from regard.cli.base import OVERRIDES, check_typos, json_option, overrides, regard
from regard.data.terminal import echo, to_json


@regard.command(context_settings=OVERRIDES)
@click.argument("source")
@click.option(
    "--task", help="What the data are for: classify, text, images, … or the task of a plugin.  [default: as they look]"
)
@json_option
@click.pass_context
def data(ctx: click.Context, source: str, task: str | None, as_json: bool) -> None:
    """Show what Regard understands of SOURCE, a file, a folder or hf:owner/name: columns, labels, examples.

    \b
    regard data reviews.csv
    regard data reviews.csv --data.columns text=body,label=stars
    regard data FOLDER --task detect --json
    """
    from regard.data.sets.recognise import recognise, table_lines

    check_typos(ctx)
    fields = {name.removeprefix("data."): value for name, value in overrides(ctx.args).items()}
    kind, config = recognise(source, task, fields)
    try:
        parts = config.overview()
    except ValueError:
        if not as_json and (lines := table_lines(source)):  # what is missing is seen beside what is there
            echo("\n".join([f"task: {kind}", *lines]))
        raise
    if as_json:
        echo(to_json({"task": kind, "parts": [part.as_json() for part in parts]}))
        return
    echo(f"task: {kind}")
    for part in parts:
        echo("\n".join(part.lines()))
