"""Completion in the shell: `regard completion bash`, and what a word may be completed with, without PyTorch."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import click
from click.shell_completion import CompletionItem, get_completion_class

from regard.cli import outline
from regard.cli.base import Command, check_typos, regard
from regard.data.terminal import echo

SETUP = {
    "bash": 'eval "$(regard completion bash)"   # a line for ~/.bashrc',
    "zsh": 'eval "$(regard completion zsh)"   # a line for ~/.zshrc, after compinit',
    "fish": "regard completion fish | source   # a line for ~/.config/fish/config.fish",
}


@regard.command()
@click.argument("shell", type=click.Choice(list(SETUP)))
def completion(shell: str) -> None:
    """Print the script that completes commands, recipes, fields and runs with the Tab key.

    \b
    eval "$(regard completion bash)"      for bash, in ~/.bashrc
    eval "$(regard completion zsh)"       for zsh, in ~/.zshrc after compinit
    regard completion fish | source       for fish, in ~/.config/fish/config.fish
    """
    script = get_completion_class(shell)
    assert script is not None
    echo(f"# {SETUP[shell]}\n" + script(regard, {}, "regard", "_REGARD_COMPLETE").source())


def items(names: Iterable[str], incomplete: str) -> list[CompletionItem]:
    """The names that begin with what is typed."""
    return [CompletionItem(name) for name in names if name.startswith(incomplete)]


def complete_run(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """The runs of the folder `runs` and of the folder that is being typed; where there is none, any folder."""
    typed = Path(incomplete or ".")
    folder = typed if incomplete.endswith("/") or not incomplete else typed.parent
    paths = [path for place in {folder, Path("runs")} for path in place.glob("*/config.json")]
    return [CompletionItem(incomplete, type="dir"), *items(sorted(str(path.parent) for path in paths), incomplete)]


def complete_recipe(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Recipes that complete the word, each with its subject."""
    names = [name for name in outline.registered("recipe") if name.startswith(incomplete)]
    return [CompletionItem(name, help=outline.description(name)[0]) for name in names]


def complete_size(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Families with their presets, such as gpt:gpt2, and runs."""
    known = outline.registered("model")
    return [
        *complete_run(ctx, param, incomplete),
        *items((f"{family}:{size}" for family in known for size in outline.presets(family)), incomplete),
    ]


def complete_family(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Families and runs that complete the word."""
    return [*complete_run(ctx, param, incomplete), *items(outline.registered("model"), incomplete)]


def complete_kernel(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Kernels that complete the word, or the last name of a list with commas."""
    before, comma, last = incomplete.rpartition(",")
    return [CompletionItem(before + comma + name) for name in outline.registered("kernel") if name.startswith(last)]


class FieldCommand(Command):
    """A command that takes the fields of a recipe as options: its help lists them, and the shell completes them."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        ctx.meta["regard.words"] = list(args)
        left = super().parse_args(ctx, args)
        if not ctx.resilient_parsing:
            check_typos(ctx)
        return left

    def get_help(self, ctx: click.Context) -> str:
        words = ctx.meta.get("regard.words", [])
        name = outline.tasks().get(task_of(words), "")
        shown = super().get_help(ctx)
        if name not in outline.registered("recipe"):
            return shown
        fields = outline.render_fields(name, ("data", "train"))
        return (
            f"{shown}\n\nFields of {name} (what is not set follows from BASE and the data; --model.FIELD sets those "
            f"of the model):\n{fields}"
        )

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        before = ctx.args[-1] if ctx.args else ""
        name = recipe_of(ctx)
        if name is None:
            return super().shell_complete(ctx, incomplete)
        if before.startswith("--") and "=" not in before and not incomplete.startswith("-"):
            return complete_value(name, ctx, before[2:].replace("-", "_"), incomplete)
        options = super().shell_complete(ctx, incomplete)
        for section in outline.SECTIONS:
            for field in outline.fields(name, section, families_of(ctx)).values():
                if (option := outline.option_of(section, field.name)).startswith(incomplete):
                    options.append(CompletionItem(option, help=field.doc))
        return options + items(["--model", "--model.preset"], incomplete)


def task_of(words: list[str]) -> str:
    """The value of --task among the words of a command; '' without it."""
    for index, word in enumerate(words):
        if word.startswith("--task="):
            return word.partition("=")[2]
        if word == "--task" and index + 1 < len(words):
            return words[index + 1]
    return ""


def recipe_of(ctx: click.Context) -> str | None:
    """The recipe of the words typed so far: named, of a task, or of the run; None while it is not known."""
    params: dict[str, Any] = ctx.params
    name = params.get("name") or outline.tasks().get(str(params.get("task")))
    run = Path(str(params.get("run") or "")) / "recipe.toml"
    if name is None and run.is_file():
        from regard.config import read_toml

        name = read_toml(run).get("name")
    return name if name in outline.registered("recipe") else None


def families_of(ctx: click.Context) -> tuple[str, ...] | None:
    """The family that --model names, if one does."""
    for word, value in zip(ctx.args, ctx.args[1:], strict=False):
        if word == "--model" and value.partition(":")[0] in outline.registered("model"):
            return (value.partition(":")[0],)
    return None


def complete_value(name: str, ctx: click.Context, key: str, incomplete: str) -> list[CompletionItem]:
    """Values of a field: names that are registered, choices, or files."""
    section, _, field = key.partition(".")
    families = families_of(ctx)
    if key == "model":
        return items(outline.registered("model"), incomplete)
    if key == "model.preset":
        able = families or outline.registered("model")
        return items((size for family in able for size in outline.presets(family)), incomplete)
    if section == "model" and field in ("kernel", "position"):
        return items(outline.registered(field), incomplete)
    known = outline.fields(name, section, families) if section in outline.SECTIONS else {}
    if field in known and (choices := known[field].choices):
        return items(choices, incomplete)
    return [CompletionItem(incomplete, type="file")]
