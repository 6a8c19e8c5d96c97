"""`regard why`: the same small model with and without a component."""

import sys
from pathlib import Path

import click

from regard.cli.base import PATH, fail, json_option, regard
from regard.data.terminal import echo, to_json


@regard.command()
@click.argument("component", required=False)
@click.option("--seeds", type=int, help="Paired seeds: runs of each arm.  [default: what suits the component]")
@click.option("--steps", type=int, help="Training steps of a run.  [default: what suits the component]")
@click.option("--out", type=PATH, help="Folder for runs and report; what is there is not trained again.")
@click.option("--same", is_flag=True, help="Compare the first arm with itself: must find no difference.")
@click.option("--quiet", is_flag=True, help="No progress.")
@json_option
def why(
    component: str | None, seeds: int | None, steps: int | None, out: Path | None, same: bool, quiet: bool,
    as_json: bool,
) -> None:  # fmt: skip
    """Train the same small model with and without a COMPONENT, and test what is claimed about it.

    Claims, and the smallest difference that counts, are fixed before the run. Each gets a verdict (supported, not
    visible at this size, contradicted) from paired differences, by intervals that hold together with 95 %, at equal
    steps and at equal CPU time. Curves, gradients, attention and samples are in a report in --out. Without COMPONENT:
    all of them, with the verdicts that were measured for the documentation.

    \b
    regard why residual
    regard why position --seeds 3 --out runs/why/position
    regard why mask --same
    """
    from regard.train.loop import Interrupted
    from regard.why import COMPONENTS, find_component
    from regard.why.measure import measure
    from regard.why.report import measured, overview, render, write_report

    if component is None:
        if same or out or seeds is not None or steps is not None:
            raise ValueError(f"name the COMPONENT to measure: {', '.join(COMPONENTS)}")
        stored = measured()
        listed = {name: {"question": each.question, "claims": [claim.text for claim in each.claims],
                         "measured": stored.get(name)} for name, each in COMPONENTS.items()}  # fmt: skip
        echo(to_json(listed) if as_json else overview())
        return
    chosen = find_component(component)
    folder = Path("runs") / "why" / component if out is None else out

    def say(text: str) -> None:
        if not quiet:
            echo(text, err=True)

    try:
        result = measure(chosen, seeds=seeds, steps=steps, out=folder, same=same, say=say)
    except Interrupted:
        sys.exit(fail(f"stopped; everything is in {folder}, and the same command goes on", 130))
    write_report(chosen, result, folder)
    echo(to_json(result) if as_json else render(result))
    if not same:
        echo(f"report: {folder / 'report.html'}", err=True)
