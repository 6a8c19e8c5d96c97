"""The command group, and options and helpers that commands share."""

import difflib
import gc
import importlib
import os
import re
import shlex
import shutil
import sys
import traceback
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import click
from click.core import ParameterSource, augment_usage_errors

from regard.cli.sections import EXAMPLES, Sections
from regard.config import RENAMED
from regard.data.notices import listening, print_notice
from regard.data.terminal import echo, printable, to_json
from regard.train.memory import OutOfMemory, memory_need

LONGEST = 2000
"""Characters of an error; of a longer one the beginning and the end, where the cure is."""
OVERRIDES = {"ignore_unknown_options": True, "allow_extra_args": True}
EXTRAS = {
    "matplotlib": "regard[draw]", "babel": "regard[demo]", "num2words": "regard[demo]", "sacrebleu": "regard[text]",
}  # fmt: skip
"""Packages that only some commands need, and the extra that installs each."""
PATH = click.Path(path_type=Path)


MANY = int(os.environ.get("WORLD_SIZE", "1")) > 1
"""Whether torchrun started several processes."""
if MANY:  # warnings of PyTorch's own code would come from each of them
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")
SILENT = ("serve", "look")
"""Commands without progress: a server answers many at once."""


@contextmanager
def progress() -> Iterator[None]:
    """Show how much of long work is done in a line of stderr that is rewritten; nothing where that is no terminal."""

    def show(text: str, passing: bool) -> None:
        sys.stderr.write(f"\r\033[K{printable(text)}" + ("" if passing else "\n"))
        sys.stderr.flush()

    with listening(show if sys.stderr.isatty() else print_notice):
        yield


@contextmanager
def importing() -> Iterator[None]:
    """Import modules without searching for garbage, which takes a fifth of the time: they stay until the end, and later
    searches pass them over. A process that has imported them already may hold garbage, and is left as it is."""
    if "torch" in sys.modules:
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()


class Command(click.Command):
    """A command that all its usage errors name, and whose long work shows progress."""

    def invoke(self, ctx: click.Context) -> Any:
        if self.name in SILENT:
            return super().invoke(ctx)
        with progress():
            return super().invoke(ctx)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        with augment_usage_errors(ctx):
            return super().parse_args(ctx, args)


class Commands(click.Group):
    """A group that lists commands in a fixed order instead of alphabetically; plugins may add commands."""

    command_class = Command
    find_own: Callable[[str], click.Command | None] = staticmethod(lambda name: None)
    """Return the command of a name, possibly one from a plugin, or None."""
    own_names: Callable[[], list[str]] = staticmethod(list)
    """Return the names of commands that plugins add."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        for module in ctx.params.get("plugins", ()):
            import_own(module)
        return [*self.commands, *(self.own_names() if ctx.params.get("plugins") else ())]

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        command = super().get_command(ctx, name)
        if command is not None or not ctx.params.get("plugins"):
            return command
        for module in ctx.params["plugins"]:
            import_own(module)
        return self.find_own(name)


class Regard(Sections, Commands):
    """The whole command line."""


@click.group(cls=Regard, context_settings={"max_content_width": 100}, epilog=EXAMPLES)
@click.version_option(package_name="regard")
@click.option(
    "--plugin", "plugins", multiple=True, metavar="FILE", envvar="REGARD_PLUGINS", is_eager=True,
    help="Import a file or module of yours first, which registers classes (again for more; or REGARD_PLUGINS=\"a b\").",
)  # fmt: skip
def regard(plugins: tuple[str, ...]) -> None:
    """Every Transformer, from one attention core: train it, run it, look inside it, on your own machine."""
    for name in plugins:
        import_own(name)


def import_own(name: str) -> ModuleType:
    """A user's module: a file `path/mine.py`, or `mine` in the working directory or installed; only ever one that was
    named at the command line."""
    path, folder = Path(name), Path.cwd()
    if path.suffix == ".py":
        if not path.is_file():
            raise ValueError(f"no file {name!r} in {folder}; --plugin takes a file of Python or the name of a module")
        name, folder = path.stem, path.resolve().parent
    elif "/" in name or name.startswith("."):
        raise ValueError(f"{name!r} is no file of Python; --plugin takes path/mine.py or the name of a module")
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))
    try:
        module = importlib.import_module(name)
    except Exception as error:  # whatever is in a user's file
        if isinstance(error, ModuleNotFoundError) and f"{name}.".startswith(f"{error.name}."):
            raise ValueError(
                f"no module {name!r} in {Path.cwd()} or installed; --plugin also takes a file: path/mine.py"
            ) from None
        frames = [frame for frame in traceback.extract_tb(error.__traceback__) if "importlib" not in frame.filename]
        where = f" ({Path(frames[1].filename).name}, line {frames[1].lineno})" if len(frames) > 1 else ""
        raise ValueError(f"module {name!r} cannot be imported: {type(error).__name__}: {error}{where}") from None
    if path.suffix == ".py" and (module.__file__ is None or not path.samefile(module.__file__)):
        raise ValueError(f"{str(path)!r} has the name of another module, {name}; rename the file")
    return module


def main() -> None:
    """The entry point: turns mistakes into one line and an exit code."""
    warnings.filterwarnings("ignore", module=r"PIL\.")  # of damaged metadata of images, and of large ones
    try:
        regard(prog_name="regard", standalone_mode=False)
    except click.exceptions.NoArgsIsHelpError as error:
        error.show()
        sys.exit(error.exit_code)
    except click.ClickException as error:
        sys.exit(fail(f"error: {explain(error)}", error.exit_code))
    except (click.exceptions.Abort, KeyboardInterrupt):
        sys.exit(fail("stopped", 130))
    except BrokenPipeError:
        sys.stderr.close()
        sys.exit(1)
    except (ValueError, OSError, ImportError) as error:
        package = str(getattr(error, "name", "")).partition(".")[0]
        if package in EXTRAS:
            sys.exit(fail(f"error: this needs {package}, which is not installed: pip install {EXTRAS[package]!r}", 2))
        sys.exit(fail(f"error: {error}", 2))
    except (MemoryError, RuntimeError) as error:
        need = memory_need(error)
        if need is None:
            sys.exit(fail(f"error: {lost(error)}", 3))
        cure = "give fewer or shorter inputs at once, lower the batch, or take a smaller model or --quantize int8"
        text = f"out of memory: {need} could not be allocated; {cure}"
        sys.exit(fail(f"error: {error if isinstance(error, OutOfMemory) else text}", 2))


def lost(error: BaseException) -> str:
    """Why another process was lost to which a connection broke; any other error is raised again."""
    if MANY:
        from regard.train.processes import reason

        if (why := reason(error)) is not None:
            return why
    raise error


def explain(error: click.ClickException) -> str:
    """An error of click in one line, with the command whose help has the cure."""
    text = " ".join(error.format_message().split()).removesuffix(".")
    text = text[:1].lower() + re.sub(r"\. \(?Did (.*\?)\)?$", r" (did \1)", text[1:])
    context: click.Context | None = getattr(error, "ctx", None)
    return f"{text}; see {'regard' if context is None else context.command_path} --help"


def program() -> str:
    """The command as the user can type it again: with its folder if that is not on PATH, and with its plugins."""
    script = "regard" if shutil.which("regard") or Path(sys.argv[0]).stem != "regard" else sys.argv[0]
    root = click.get_current_context().find_root()
    plugins = root.params["plugins"] if root.get_parameter_source("plugins") is ParameterSource.COMMANDLINE else ()
    return shlex.join([script, *(word for name in plugins for word in ("--plugin", name))])


def fail(text: str, code: int) -> int:
    """Print an error in one line, whatever values it names, and return the exit code."""
    line = re.sub(r"\s*\n\s*", " ", text)
    if MANY and "torch" in sys.modules:
        from regard.train.processes import printed, rank, report

        message = line.removeprefix("error: ")
        if not message or rank() and report(message):
            return code
        line = f"error: process {rank()}: {message}" if rank() else line
        printed()
    elif MANY and os.environ.get("RANK", "0") != "0":  # the first process prints
        return code
    echo(f"regard: {line if len(line) < LONGEST else f'{line[: LONGEST // 2]} … {line[-LONGEST // 4 :]}'}", err=True)
    return code


def current_name(field: str) -> str:
    """The name of a field today; an old one is said to be so. A plugin may have a field of that name."""
    context = click.get_current_context(silent=True)
    if field not in RENAMED or context is not None and context.find_root().params.get("plugins"):
        return field
    echo(f"--{field} is called --{RENAMED[field]} now", err=True)
    return RENAMED[field]


def overrides(words: Iterable[str]) -> dict[str, Any]:
    """`--train.steps 100 --data.lowercase` as a dictionary; a name without a value is true, with several a list."""
    fields: dict[str, Any] = {}
    name = None
    for word in words:
        if word.startswith("--"):
            name, equals, value = word[2:].partition("=")
            name = current_name(name.replace("-", "_"))
            fields[name] = value if equals else "true"
            values = [value] if equals else []
        elif name is not None:
            values.append(word)
            fields[name] = values if len(values) > 1 else word
        else:
            raise ValueError(f"{word!r} is not an option; fields are set as --train.steps 100")
    return fields


def check_typos(ctx: click.Context) -> None:
    """Raise an error for a word among the fields, `--tsak`, that is nearly the name of an option of the command."""
    known = [name for param in ctx.command.params for name in param.opts if name.startswith("--")]
    for word in ctx.args:
        name = word.partition("=")[0]
        if name.startswith("--") and "." not in name and name not in ("--model", "--family", "--name"):
            if close := difflib.get_close_matches(name, known, n=1, cutoff=0.75):
                raise click.NoSuchOption(name, possibilities=close, ctx=ctx)


def emit(result: dict[str, Any], as_json: bool, render: Callable[[dict[str, Any]], str]) -> None:
    echo(to_json(result) if as_json else render(result))


def leave_out(why: str, *names: str) -> None:
    """Raise an error if one of these options of the command was given, since it would have no effect."""
    context = click.get_current_context()
    for option in context.command.params:
        written = context.get_parameter_source(str(option.name)) is ParameterSource.COMMANDLINE
        if option.name in names and written:
            raise ValueError(f"{option.opts[0]} {why}; leave it out")


json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")
quantize_option = click.option(
    "--quantize", type=click.Choice(["none", "bfloat16", "int8", "int4"]),
    help="Quantise the weights: less memory, faster decoding.  [default: none, unless the run says otherwise]",
)  # fmt: skip
DEVICE = "REGARD_DEVICE"
"""Environment variable with the device that models are loaded to."""


@contextmanager
def computing_on(device: str) -> Iterator[None]:
    """Context manager: models are loaded to this device, by this process and those that it starts."""
    before = os.environ.get(DEVICE)
    os.environ[DEVICE] = device
    try:
        yield
    finally:
        os.environ.pop(DEVICE, None)  # an outer one may have ended before, where the options were read twice
        os.environ |= {} if before is None else {DEVICE: before}


def set_device(ctx: click.Context, _: click.Parameter, device: str) -> None:
    ctx.with_resource(computing_on(device))


device_option = click.option(
    "--device", default="auto", envvar=DEVICE, show_default=True, expose_value=False, callback=set_device,
    help="Device that computes: cpu, cuda, cuda:1, mps …; auto is CUDA if there is any, else the CPU.",
)  # fmt: skip
beam_option = click.option("--beam", "beams", type=click.IntRange(1), help="Beams; 1 is greedy.  [default: 4]")
penalty_option = click.option(
    "--length-penalty", type=float, help="Scores are divided by length to this power.  [default: 1]"
)
