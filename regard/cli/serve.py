"""`regard serve`: models over HTTP."""

import math
import re
from typing import Any

import click

from regard.cli.base import device_option, importing, quantize_option, regard
from regard.cli.completion import complete_run
from regard.data.terminal import echo

UNITS = {"": 1, "B": 1} | {f"{letter}B": 1000**n for n, letter in enumerate("KMGT", 1)}
UNITS |= {f"{letter}IB": 1024**n for n, letter in enumerate("KMGT", 1)}


class Size(click.ParamType):
    """A size of memory, such as 4GB or 500MiB, as bytes."""

    name = "size"

    def convert(self, value: Any, param: Any, ctx: Any) -> int:
        match = re.fullmatch(r"(\d+(?:\.\d+)?) ?([A-Za-z]*)", str(value).strip(), re.ASCII)
        if match is None or match[2].upper() not in UNITS:
            self.fail(f"{value!r} is no size; write 4GB or 500MB", param, ctx)
        return int(float(match[1]) * UNITS[match[2].upper()])


@regard.command()
@click.argument("models", nargs=-1, required=True, metavar="RUN…", shell_complete=complete_run)
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on; this machine alone.")
@click.option("--port", type=click.IntRange(0, 65535), default=8000, show_default=True, help="0 takes a free one.")
@quantize_option
@device_option
@click.option(
    "--api-key", "api_keys", multiple=True, envvar="REGARD_API_KEY",
    help="A key that clients must send (again for more; REGARD_API_KEY stays out of the process list).",
)  # fmt: skip
@click.option(
    "--allow-origin", "origins", multiple=True, help="A site whose pages may use the API, such as https://a.org."
)
@click.option("--allow-host", "hosts", multiple=True, help="A host name that requests may use.")
@click.option("--max-batch", type=click.IntRange(1), default=256, show_default=True, help="Texts generated at once.")
@click.option(
    "--memory-gb", type=float, default=1.0, show_default=True, help="Gigabytes for a model's key/value cache."
)
@click.option(
    "--models-memory", type=Size(), metavar="SIZE",
    help="Memory for all models, such as 4GB; the one used the longest ago leaves for another.  [default: no limit]",
)  # fmt: skip
@click.option("--queue", type=click.IntRange(1), default=256, show_default=True, help="Requests that may wait.")
@click.option("--timeout", type=float, default=600.0, show_default=True, help="Seconds for one response.")
@click.option("--max-body-mb", type=float, default=4.0, show_default=True, help="Largest size of a request.")
@click.option("--threads", type=click.IntRange(1), help="Threads of a model.  [default: all cores]")
@click.option("--grace", type=float, default=30.0, show_default=True, help="Seconds for open responses to end.")
@click.option("--preload", is_flag=True, help="Load all models before the first request.")
def serve(models: tuple[str, ...], memory_gb: float, max_body_mb: float, preload: bool, **limits: Any) -> None:
    """Serve models over HTTP: OpenAI's API, a route for every other verb, and a page to use them from.

    RUN is a run, a checkpoint, or NAME=PATH; several are served side by side, each loaded by its first request.
    """
    try:
        with importing():  # also: no search for garbage looks at all this while requests wait
            from regard.serve.model_store import name_models
            from regard.serve.run import serve as run
            from regard.serve.settings import Settings
    except ModuleNotFoundError as error:
        raise ValueError(f"{error.name} is missing, which serving needs: pip install 'regard[serve]'") from None
    settings = Settings(memory=whole(memory_gb, 2**30), max_body=whole(max_body_mb, 2**20), **limits)

    def ready(address: str, store: Any) -> None:
        echo(f"serving {', '.join(served.name for served in store)}", err=True)
        echo(f"page {address}/  API {address}/v1  description {address}/docs  (Ctrl-C stops)", err=True)

    run(name_models(models), settings, preload=preload, ready=ready)


def whole(size: float, unit: int) -> int:
    """Return a size in megabytes or gigabytes as bytes."""
    if not math.isfinite(size):
        raise ValueError(f"{size} is no size of memory or of a request; give a finite number")
    return int(size * unit)
