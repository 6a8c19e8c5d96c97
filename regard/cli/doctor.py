"""Examine this machine, runs, modules and kernels, one's own too."""

import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import click

from regard.cli.base import PATH, emit, import_own, json_option, leave_out, regard


@regard.command()
@click.argument("target", required=False)
@click.option(
    "--kernel", "names", multiple=True, metavar="NAME",
    help="A registered kernel (window:radius=64), or yours, my_kernels:mine; again for more.",
)  # fmt: skip
@click.option("--speed/--no-speed", default=True, help="Also measure how time grows.  [default: speed]")
@click.option("--causal", is_flag=True, help="The module must not see later positions, even if it sees all of them.")
@click.option("--out", type=PATH, help="The history of a run as one page that needs nothing else: page.html.")
@json_option
def doctor(
    target: str | None, names: tuple[str, ...], speed: bool, causal: bool, out: Path | None, as_json: bool
) -> None:
    """Say what this machine has and misses; or what went wrong in the run TARGET; or examine a module of yours, any
    nn.Module: does it leak, mix rows, ignore order, start badly, learn? Or run the laws on a kernel: does it leak,
    collapse, slow down, keep what it declares?

    \b
    regard doctor                               is everything there that makes Regard fast?
    regard doctor runs/lm --out page.html       what the doctor saw while that run was trained
    regard doctor my_module:make_model          a function in my_module.py that returns a module, or
                                                (module, example inputs), or (module, example inputs, loss)
    regard doctor --kernel my_kernels:mine      a class in my_kernels.py, or the name that it registers
    regard doctor --kernel linear --kernel window:radius=64
    """
    if target is not None and ":" not in target and not Path(target).exists():
        raise ValueError(f"{target!r} is no run, and names no function; write my_module:make_model for one of yours")
    run = target is not None and (":" not in target or Path(target).exists())
    if target is not None:
        leave_out(f"is about a kernel by itself, and {target} is a {'run' if run else 'module'}", "names", "speed")
    if target is None or run:
        leave_out("goes with a module of yours, my_module:make_model", "causal")
    if not names:
        leave_out("goes with --kernel", "speed")
    if target is not None and run:
        examine_run(Path(target), out, as_json)
        return
    if out is not None:
        raise ValueError("--out is a page about a run; name its directory: regard doctor runs/lm --out page.html")
    from regard.doctor.kernels import examine, examine_machine

    if target is not None:
        sys.exit(see_module(target, causal, as_json))
    if not names:
        emit(examine_machine(), as_json, lambda found: "\n".join(f"{name:12}{what}" for name, what in found.items()))
        return
    found = [examine(find_kernel(name), name, speed=speed) for name in names]
    emit({"kernels": [each.as_dict() for each in found]}, as_json, lambda _: "\n\n".join(map(str, found)))
    sys.exit(1 if any(each.broken for each in found) else 0)


def see_module(target: str, causal: bool, as_json: bool) -> int:
    """Examines what MODULE:NAME makes; 1 if something is wrong."""
    from regard.doctor.exam import examine_module, make

    name, _, attribute = target.partition(":")
    found = examine_module(make(import_own(name), attribute), target, causal=causal)
    emit(found.as_dict(), as_json, lambda _: str(found))
    return 1 if found.findings else 0


def examine_run(run: Path, out: Path | None, as_json: bool) -> None:
    """What the doctor saw in a run, printed and, if asked for, as a page."""
    from regard.doctor.history import History, render

    history = History.read(run)
    if out is not None:
        from regard.inside.page.health import page

        if out.suffix != ".html":
            raise ValueError(f"{out}: the history of a run is a page; name it .html")
        out.write_text(page(history), encoding="utf-8")
        click.echo(f"saved: {out}", err=True)
    emit(history.as_dict(), as_json, render)


def find_kernel(name: str) -> Callable[..., Any]:
    """What builds the kernel that a name means: NAME, NAME:SETTINGS or MODULE:NAME:SETTINGS."""
    from regard.nn.kernels import Kernel
    from regard.registry import Registry, kernels

    first, _, rest = name.partition(":")
    if first in kernels or not rest:
        kernels.settings(name)  # an unknown name or setting is a mistake of the user's, not of the kernel
        return partial(kernels.build, name)
    module, (attribute, _, settings) = import_own(first), rest.partition(":")
    found = getattr(module, attribute, kernels[attribute] if attribute in kernels else None)
    if found is None:
        classes = [value for value in vars(module).values() if isinstance(value, type) and issubclass(value, Kernel)]
        here = [value.__name__ for value in classes if value.__module__ == module.__name__]
        raise ValueError(f"module {first!r} has no {attribute!r}; its kernels: {', '.join(here) or 'none'}")
    if not (isinstance(found, type) and issubclass(found, Kernel)):
        raise ValueError(f"{name!r} is {found!r}, no Kernel; derive a class from regard.nn.kernels.Kernel")
    own = Registry("kernel")  # of its own: one that was never registered takes settings, too
    own.register(attribute)(found)
    own.settings(f"{attribute}:{settings}")
    return partial(own.build, f"{attribute}:{settings}")
