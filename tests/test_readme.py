"""Every command in README.md and docs/*.md exists with its options and fields."""

import contextlib
import re
import shutil

import click
import pytest

from regard.cli import outline, overrides
from regard.cli import regard as group
from tests.documents import DOCUMENTS, ROOT, steps_of, words_of

STEPS = [step for path in DOCUMENTS for step in steps_of(path)]
TEXTS = {"classify", "tag", "answer", "embed", "instruct"}


def parse(words: list[str]) -> click.Context:
    """Parse the words of a command, as it would be before anything is run; return the context of its last command."""
    command: click.Command = group
    context = group.make_context("regard", words)
    while isinstance(command, click.Group):
        name, found, rest = command.resolve_command(context, [*getattr(context, "_protected_args", ()), *context.args])
        assert name is not None and found is not None
        context, command = found.make_context(name, rest, parent=context), found
    return context


def recipe_of(context: click.Context, fields: dict) -> str | None:
    """The recipe whose fields a command sets; None where it sets those of something else."""
    command = context.command_path.removeprefix("regard ")
    if command == "train":
        return context.params["name"]
    if command != "finetune":
        return None
    task = outline.tasks().get(context.params["task"])
    return task or ("detr" if {"data.coco", "data.voc"} & fields.keys() else "vit" if "data.images" in fields else None)


def check(words: list[str]) -> None:
    """Raise an error for a command, an option or a field that does not exist."""
    context = parse(words)
    bare = context.command.name == "draw" and context.args and not context.args[0].startswith("--")  # a mask's rule
    fields = overrides(context.args[1:] if bare else context.args)
    name = recipe_of(context, fields)
    if context.find_root().params["plugins"]:  # which may have others
        return
    if name is not None:
        outline.check_fields(name, fields, any_family=context.command.name == "finetune")
    elif context.command.name == "cost":
        from regard.cli.catalogue import find_config

        if not context.params["what"].startswith("runs/"):
            find_config(context.params["what"], {key.removeprefix("model."): fields[key] for key in fields})
    elif context.command.name == "draw":
        from regard.inside.draw.figures import options_of

        options = options_of(context.params["figure"])
        assert all(any(key.replace("_", "-") in option for option in options) for key in fields)


@pytest.fixture
def here(tmp_path, monkeypatch):
    for path in (ROOT / "tests" / "plugins").glob("*.py"):
        shutil.copy(path, tmp_path)
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("step", [step for step in STEPS if step.language == "console"], ids=str)
def test_commands_parse(step, here):
    for words in words_of(step.text):
        if "--help" in words:  # which is printed while a command is parsed
            with contextlib.suppress(click.exceptions.Exit):
                parse(words)
        else:
            check(words)


@pytest.mark.parametrize("step", [step for step in STEPS if step.language == "python"], ids=str)
def test_python_compiles(step):
    compile(step.text, str(step), "exec")


@pytest.mark.parametrize(
    ("line", "error"),
    [
        ("regard trian lm", "No such command 'trian'"),
        ("cat a | regard translate runs/x --beem 3 > out", "No such option '--beem'"),
        ("regard train lm --train.step 3   # a comment", "unknown key 'train.step'"),
        ("regard finetune X --task tag --data.trian a", "unknown key 'data.trian'"),
        ("regard cost gpt:gpt3", "no preset"),
    ],
)
def test_a_mistake_in_a_document_is_found(line, error, here):
    with pytest.raises((click.ClickException, ValueError), match=error):
        for words in words_of(line):
            check(words)


def test_every_row_of_ten_kinds_of_data_has_a_command(here):
    rows = re.findall(r"^\|.*\| `(regard [^`]+)` \|$", (ROOT / "docs" / "tokens.md").read_text(), re.MULTILINE)
    assert len(rows) == len(set(rows)) == 10
    for row in rows:
        for words in words_of(row):
            check(words)


def test_documents_have_commands():
    assert sum(step.language == "console" for step in STEPS if step.file == "README.md") > 10
