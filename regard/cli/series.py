"""The command that forecasts series: forecast."""

from pathlib import Path

import click

from regard.cli.base import PATH
from regard.cli.query import Query, verb
from regard.data.terminal import echo

KINDS = (".csv", ".png", ".svg", ".pdf")


@verb(
    click.option("--horizon", type=click.IntRange(1), help="Steps to forecast.  [default: all that the model does]"),
    click.option("--start", metavar="DATE", help="Forecast from this date on, as if nothing later were known."),
    click.option("--out", type=PATH, help="Write the forecasts there (.csv), or draw them (.png .svg .pdf)."),
    items="series", required=True, from_file=False,
)  # fmt: skip
def forecast(query: Query, horizon: int | None, start: str | None, out: Path | None) -> None:
    """Forecast the next steps of each SERIES, a table like those that RUN was trained on.

    \b
    regard forecast RUN demand.csv --out demand.png
    regard forecast RUN demand.csv --horizon 12 --out next.csv
    regard forecast RUN demand.csv --start 2026-03-01
    """
    if out is not None:
        if out.suffix.lower() not in KINDS:
            raise ValueError(f"{out} has no suffix of a table or a figure; use {', '.join(KINDS)}")
        if query.as_json:
            raise ValueError("--json does not go with --out; leave one of them out")
        if out.resolve() in [Path(item).resolve() for item in query.items]:
            raise ValueError(f"{out} would be overwritten; choose another --out")
    options = {name: value for name, value in (("horizon", horizon), ("start", start)) if value is not None}
    if out is None:
        query.answer(**options)
        return
    task = query.load(**options)
    task.check_inputs(query.items)
    forecasts = [each for item in task.forecast(list(query.items), **options) for each in item]
    if out.suffix.lower() == ".csv":
        from regard.files import write_text
        from regard.tasks.forecaster import as_table

        write_text(out, as_table(forecasts))
        echo(f"saved: {out}", err=True)
    else:
        from regard.inside.draw.forecast import draw_forecasts

        draw_forecasts(forecasts, out)
        echo(f"drawn: {out}", err=True)
