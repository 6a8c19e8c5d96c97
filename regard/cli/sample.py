"""`regard sample`: small data sets as files, to try commands with."""

from pathlib import Path

import click

from regard.cli.base import PATH, emit, json_option, program, regard
from regard.data.terminal import echo, to_json


@regard.command()
@click.argument("name", required=False)
@click.option("--out", type=PATH, help="The folder to write, which must be new or empty.  [default: NAME]")
@click.option("--count", type=click.IntRange(10), help="Training examples; of a book, characters.")
@json_option
def sample(name: str | None, out: Path | None, count: int | None, as_json: bool) -> None:
    """Write a small data set as files, in training and test parts, and print commands to try with it.

    \b
    regard sample                             list them
    regard sample reviews --out data/reviews  a .csv of texts and labels
    regard sample digits --out data/digits    a folder of images for each class
    """
    from regard.config import nearest
    from regard.data.samples import SAMPLES, write_sample

    if name is None:
        rows = {key: each.about for key, each in SAMPLES.items()}
        listed = "\n".join(f"{key:14}{about}" for key, about in rows.items())
        echo(to_json(rows) if as_json else listed)
        return
    if name not in SAMPLES:
        raise ValueError(f"no sample {name!r}; {nearest(name, SAMPLES)}")
    result = write_sample(name, out or Path(name), count)
    start = program()
    result["commands"] = [start + each.removeprefix("regard") for each in result["commands"]]

    def render(result: dict) -> str:
        head = f"written: {result['out']} ({result['train']:,} for training, {result['test']:,} for the test)"
        return "\n".join([head, "try:", *(f"  {command}" for command in result["commands"])])

    emit(result, as_json, render)
