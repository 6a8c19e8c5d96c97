"""Examine this machine, runs, families, modules and kernels, the user's own too."""

import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import click

from regard.cli.base import PATH, emit, import_own, json_option, leave_out, regard
from regard.cli.completion import complete_family, complete_kernel
from regard.data.terminal import echo


@regard.command(short_help="Examine this machine, a run, a family, a kernel or a module of yours.")
@click.argument("target", required=False, shell_complete=complete_family)
@click.option(
    "--kernel", "names", multiple=True, metavar="NAME", shell_complete=complete_kernel,
    help="A registered kernel (window:radius=64), or yours, my_kernels:mine; again for more.",
)  # fmt: skip
@click.option("--speed/--no-speed", default=True, help="Also measure how time grows.  [default: speed]")
@click.option("--causal", is_flag=True, help="Require that the module does not depend on later positions.")
@click.option("--out", type=PATH, help="Write the history of a run as a single-file page: page.html.")
@json_option
def doctor(
    target: str | None, names: tuple[str, ...], speed: bool, causal: bool, out: Path | None, as_json: bool
) -> None:
    """Report what is installed on this machine; or what went wrong in the run TARGET; or run the laws on a registered
    family: does it leak, does padding change it, does its cache agree, does it learn? Or examine a module of yours, any
    nn.Module: does it leak, mix rows, ignore order, have a bad initialisation, learn? Or run the laws on a kernel: does
    it leak, collapse, scale as declared, support what it declares?

    \b
    regard doctor                               is everything installed that makes Regard fast?
    regard doctor runs/lm --out page.html       the findings of the doctor in the training of that run
    regard --plugin my_family doctor mixer      the laws on a family that my_family.py registers, or on
                                                one of Regard's: gpt, vit:tiny
    regard doctor my_module:make_model          a function in my_module.py that returns a module, or
                                                (module, example inputs), or (module, example inputs, loss)
    regard doctor --kernel my_kernels:mine      a class in my_kernels.py, or the name that it registers
    regard doctor --kernel linear --kernel window:radius=64
    """
    kind = None if target is None else kind_of(target)
    if kind is not None:
        leave_out(f"is about a kernel by itself, and {target} is a {kind}", "names", "speed")
    if kind != "module":
        leave_out("goes with a module of yours, my_module:make_model", "causal")
    if not names:
        leave_out("goes with --kernel", "speed")
    if out is not None and kind != "run":
        raise ValueError("--out is a page about a run; name its directory: regard doctor runs/lm --out page.html")
    if target is not None and kind == "run":
        examine_run(Path(target), out, as_json)
        return
    if target is not None:
        sys.exit(see_family(target, as_json) if kind == "family" else see_module(target, causal, as_json))
    if not names:
        from regard.doctor.machine import examine_machine

        emit(examine_machine(), as_json, lambda state: "\n".join(f"{name:12}{value}" for name, value in state.items()))
        return
    from regard.doctor.kernels import examine

    diagnoses = [examine(find_kernel(name), name, speed=speed) for name in names]
    emit({"kernels": [each.as_dict() for each in diagnoses]}, as_json, lambda _: "\n\n".join(map(str, diagnoses)))
    sys.exit(1 if any(each.broken for each in diagnoses) else 0)


def kind_of(target: str) -> str:
    """Whether a target is a run, a registered family or a module of the user's."""
    if Path(target).exists():
        return "run"
    import regard.models  # noqa: F401  registers the families
    from regard.registry import models

    if target in models:
        return "family"
    if ":" in target:
        return "module"
    raise ValueError(
        f"{target!r} is no run and no registered family ({', '.join(models)}); for a module of yours write "
        "my_module:make_model"
    )


def examine_run(run: Path, out: Path | None, as_json: bool) -> None:
    """Print the doctor's findings about a run; with `out` also write them as a page."""
    from regard.doctor.history import History, render

    history = History.read(run)
    if out is not None:
        from regard.inside.page.health import page

        if out.suffix != ".html":
            raise ValueError(f"{out}: the history of a run is a page; name it .html")
        out.write_text(page(history), encoding="utf-8")
        echo(f"saved: {out}", err=True)
    emit(history.as_dict(), as_json, render)


def see_family(target: str, as_json: bool) -> int:
    """Runs the laws on FAMILY or FAMILY:PRESET; returns 1 if one is broken."""
    from regard.doctor.families import examine_family
    from regard.hub.checkpoint import load_model, save_model

    diagnosis = examine_family(target, (save_model, load_model))
    emit(diagnosis.as_dict(), as_json, lambda _: str(diagnosis))
    return 1 if diagnosis.broken else 0


def see_module(target: str, causal: bool, as_json: bool) -> int:
    """Examine the module that MODULE:NAME returns; return 1 if something is wrong."""
    from regard.doctor.exam import examine_module, make

    name, _, attribute = target.partition(":")
    examination = examine_module(make(import_own(name), attribute), target, causal=causal)
    emit(examination.as_dict(), as_json, lambda _: str(examination))
    return 1 if examination.findings else 0


def find_kernel(name: str) -> Callable[..., Any]:
    """A function that builds the kernel NAME, NAME:SETTINGS or MODULE:NAME:SETTINGS."""
    from regard.nn.kernels import Kernel
    from regard.registry import Registry, kernels

    first, _, rest = name.partition(":")
    if first in kernels or not rest:
        kernels.settings(name)  # an unknown name or setting is a mistake of the user's, not of the kernel
        return partial(kernels.build, name)
    module, (attribute, _, settings) = import_own(first), rest.partition(":")
    cls = getattr(module, attribute, kernels[attribute] if attribute in kernels else None)
    if cls is None:
        classes = [value for value in vars(module).values() if isinstance(value, type) and issubclass(value, Kernel)]
        here = [value.__name__ for value in classes if value.__module__ == module.__name__]
        raise ValueError(f"module {first!r} has no {attribute!r}; its kernels: {', '.join(here) or 'none'}")
    if not (isinstance(cls, type) and issubclass(cls, Kernel)):
        raise ValueError(f"{name!r} is {cls!r}, no Kernel; derive a class from regard.nn.kernels.Kernel")
    own = Registry("kernel")  # a separate one: a class that was never registered takes settings, too
    own.register(attribute)(cls)
    own.settings(f"{attribute}:{settings}")
    return partial(own.build, f"{attribute}:{settings}")
