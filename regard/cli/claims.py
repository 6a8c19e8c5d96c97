"""`regard claims`: the ledger of the lectures' assertions, listed, measured again, or written as pages."""

import io
import shlex
from contextlib import redirect_stdout
from pathlib import Path

import click

from regard.cli.base import PATH, json_option, regard
from regard.data.terminal import echo, to_json


@regard.command()
@click.argument("ids", nargs=-1)
@click.option("--lecture", help="Only claims of this lecture: 000 to 004.")
@click.option("--verdict", help="Only claims with this verdict: holds, fails, depends, …")
@click.option("--run", "again", is_flag=True, help="Measure them again and compare with the stored figures.")
@click.option("--slow", is_flag=True, help="With --run: also those that take more than a few seconds.")
@click.option("--topics", "by_topic", is_flag=True, help="List the headings of the lectures, and what answers each.")
@click.option("--out", type=PATH, help="Write the whole ledger as pages of Markdown to this folder.")
@json_option
def claims(
    ids: tuple[str, ...], lecture: str | None, verdict: str | None, again: bool, slow: bool, by_topic: bool,
    out: Path | None, as_json: bool,
) -> None:  # fmt: skip
    """List every claim of the lectures with the command that tests it, what was measured and the verdict; or measure.

    \b
    regard claims --lecture 002
    regard claims --verdict fails
    regard claims --run                 all that are quick; exit code 1 if a figure has changed
    regard claims --run 002-17
    regard claims --topics --lecture 002
    """
    from regard.claims import ledger, report, topics

    if lecture is not None and lecture not in ledger.LECTURES:
        raise ValueError(f"no lecture {lecture!r}; there are {', '.join(ledger.LECTURES)}")
    if verdict is not None and verdict not in ledger.VERDICTS:
        raise ValueError(f"no verdict {verdict!r}; there are {', '.join(ledger.VERDICTS)}")
    if out is not None:
        written = report.write_pages(out)
        echo(f"written: {', '.join(map(str, written))}", err=True)
        return
    if by_topic:
        listed = [topic for topic in topics.topics() if lecture in (None, topic.lecture)]
        echo(to_json([topics.as_dict(topic) for topic in listed]) if as_json else topics.render(listed))
        return
    chosen = ledger.select(ids, lecture, verdict)
    if not again:
        echo(report.to_json(chosen) if as_json else report.render(chosen))
        return
    if ids and (unmeasured := [claim for claim in chosen if claim.measured is None]):
        claim = unmeasured[0]
        cure = claim.untestable or f"run {claim.typed}"
        raise ValueError(f"claim {claim.id} is {claim.verdict}, so there is no figure to compare with: {cure}")
    measure([c for c in chosen if c.measured is not None and (slow or ids or not c.slow)], as_json)


def measure(chosen: list, as_json: bool) -> None:  # type: ignore[type-arg]
    """Measure claims again and print each outcome; exit with 1 if one has changed."""
    from regard.claims import report
    from regard.claims.run import run

    outcomes = []
    for outcome in run(chosen, call):
        outcomes.append(outcome)
        if not as_json:
            echo(report.render_outcome(outcome))
    if as_json:
        echo(to_json([report.outcome_dict(outcome) for outcome in outcomes]))
    changed = [outcome.claim.id for outcome in outcomes if not outcome.as_stored]
    if not as_json:
        echo(f"{len(outcomes)} measured, {len(changed)} changed" + (f": {', '.join(changed)}" if changed else ""))
    if changed:
        click.get_current_context().exit(1)


def call(arguments: str) -> str:
    """Run a command of `regard` in this process and return what it prints."""
    with redirect_stdout(io.StringIO()) as printed:
        regard.main(args=shlex.split(arguments), prog_name="regard", standalone_mode=False)
    return printed.getvalue()
