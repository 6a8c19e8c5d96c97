"""What the command line knows without PyTorch: recipes, fields, the sections of its help, completion."""

import dataclasses
import json
import os
import subprocess
import sys
import typing
from pathlib import Path

import pytest
from click.shell_completion import ShellComplete

import regard.recipes  # noqa: F401  registers them
from regard.cli import outline
from regard.cli import regard as group
from regard.cli.sections import SECTIONS
from regard.config import field_docs
from regard.registry import kernels, models, positions, recipes
from tests.cli.calling import call, fails


@pytest.fixture(scope="module")
def cache_folder(tmp_path_factory):
    """A cache folder with the table in it, made by the first command that needs it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("REGARD_CACHE", str(tmp_path_factory.mktemp("cache")))
        assert "torch" in imported("train", "--help")[1].split()
        yield Path(os.environ["REGARD_CACHE"])


@pytest.fixture
def table(cache_folder, monkeypatch):
    """The outline as it reads the table from the cache folder."""
    monkeypatch.setattr(outline, "table", lambda: json.loads(next(cache_folder.iterdir()).read_text())["table"])


def test_the_table_agrees_with_the_package(table):
    for what, registry in (("model", models), ("kernel", kernels), ("position", positions), ("recipe", recipes)):
        assert {name for name in registry if registry[name].__module__.startswith("regard.")} == set(
            outline.registered(what)
        )
    for family in outline.registered("model"):
        assert outline.presets(family) == list(models[family].presets)


@pytest.mark.parametrize("name", list(recipes))
def test_fields_of_a_recipe_agree_with_the_recipe(name, table):
    plan = recipes[name]({})
    for section in outline.SECTIONS:
        config = getattr(plan, section)
        known = outline.fields(name, section)
        assert list(known) == [field.name for field in dataclasses.fields(config)]
        hints, docs = typing.get_type_hints(type(config)), field_docs(type(config))
        for field in known.values():
            assert field.doc == docs[field.name]
            assert field.kind == hints[field.name], f"{name}: {section}.{field.name}"
    assert outline.description(name)[0]


def imported(*words: str) -> tuple[str, str]:
    """The output of a command, and the modules that it imported."""
    code = (
        "import atexit, sys\n"
        "atexit.register(lambda: print(*[m for m in sys.modules if '.' not in m], file=sys.__stdout__))\n"
        f"sys.argv = ['regard', *{list(words)!r}]\n"
        "from regard.cli import main\nmain()\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=os.environ)
    assert "Traceback" not in done.stderr
    return done.stdout.rpartition("\n")[0] + done.stderr, done.stdout.splitlines()[-1]


@pytest.mark.parametrize(
    ("words", "shown"),
    [
        (["trian"], "did you mean 'train'?"),
        (["train", "translat"], "unknown recipe 'translat'; did you mean 'translate'?"),
        (["train", "lm", "--train.step", "3"], "unknown key 'train.step'; did you mean 'train.steps'?"),
        (["train", "lm", "--steps", "3"], "unknown key 'steps'; did you mean 'train.steps'?"),
        (["train", "lm", "--stpes", "3"], "unknown key 'stpes'; did you mean 'train.steps'?"),
        (["train", "classify", "--tsak", "x"], "unknown key 'tsak'; did you mean 'data.task'?"),
        (["train", "lm", "--data.txt", "a"], "did you mean 'data.text'?"),
        (["train", "lm", "--model.kernel", "windw:radius=3"], "unknown kernel 'windw'; did you mean 'window'?"),
        (["train", "lm", "--model", "lsmt"], "unknown model 'lsmt'; did you mean 'lstm'?"),
        (["train", "lm", "--model.preset", "gpt3"], "did you mean 'gpt2'?"),
        (["train", "lm", "--train.schedule", "cosin"], "train.schedule takes inverse-sqrt|cosine"),
        (["train", "lm", "--help", "--train.step", "3"], "did you mean 'train.steps'?"),
        (["finetune", "runs/none", "--task", "classify", "--data.trian", "a"], "did you mean 'data.train'?"),
        (["finetune", "runs/none", "--tsak", "classify", "--data.train", "a"], "'--tsak' (did you mean '--task'?)"),
        (["train", "lm", "--train.steps", "ten"], "train.steps takes a whole number, got 'ten'"),
        (["translate", "RUN", "--beem", "3"], "'--beam'"),
        (["cost", "gtp:gpt2"], "unknown model 'gtp'; did you mean 'gpt'?"),
        (["cost", "gpt:gpt2", "--dept", "3"], "unknown key 'dept'; did you mean 'depth'?"),
        (["train", "--help"], "translate      "),
        (["finetune", "--task", "classify", "--help"], "--data.train "),
        (["completion", "bash"], "_REGARD_COMPLETE=bash_complete"),
        (["--help"], "Look inside:"),
    ],
)
def test_answers_without_pytorch(words, shown, cache_folder):
    output, modules = imported(*words)
    assert shown in output
    assert not {"torch", "numpy", "tokenizers"} & set(modules.split())


def test_the_table_is_made_anew_when_it_is_damaged_or_out_of_date(monkeypatch, tmp_path):
    monkeypatch.setenv("REGARD_CACHE", str(tmp_path))
    monkeypatch.delitem(sys.modules, "torch")
    monkeypatch.setattr(outline, "build", lambda: {"recipe": {"made": {}}})
    states = iter(["a", "a", "a", "a", "b"])
    monkeypatch.setattr(outline, "state_of_package", lambda: next(states))
    assert outline.table.__wrapped__() == outline.build()
    path = next(tmp_path.iterdir())
    for text, same in (('{"state": "a", "table": {"recipe": {}}}', True), ("{", False), ("[1]", False)):
        path.write_text(text)
        assert (outline.table.__wrapped__() == {"recipe": {}}) == same
    assert json.loads(path.read_text()) == {"state": "a", "table": outline.build()}
    assert outline.table.__wrapped__() and json.loads(path.read_text())["state"] == "b"


def test_an_unwritable_cache_folder_is_no_error(monkeypatch, tmp_path):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("REGARD_CACHE", str(tmp_path / "file"))
    output, _ = imported("train", "translat")
    assert "did you mean 'translate'?" in output


def test_help_has_every_command_in_a_section_with_a_whole_sentence(capsys):
    listed = [name for section in SECTIONS.values() for name in section]
    assert set(group.commands) <= set(listed) and len(set(listed)) == len(listed)
    for name, command in group.commands.items():
        text = command.get_short_help_str(500)
        assert text[0].isupper() and text.endswith("."), f"{name}: {text}"
        assert len(text) < 130, f"{name}: {text}"
    call("--help")
    shown = capsys.readouterr().out
    assert [shown.index(f"{title}:") for title in SECTIONS] == sorted(shown.index(f"{title}:") for title in SECTIONS)
    assert "Examples:" in shown


def test_train_help_lists_the_recipes(capsys):
    call("train", "--help")
    shown = capsys.readouterr().out
    for name in recipes:
        assert f"\n  {name} " in shown
    assert "minutes" in shown


def test_values_of_another_family_are_not_refused():
    outline.check_fields("lm", {"model": "lstm", "model.dim": "12"})
    outline.check_fields("classify", {"data.base": "x", "model.norm_place": "pre"})
    outline.check_fields("vit", {"model.window": "3"}, any_family=True)
    with pytest.raises(ValueError, match=r"unknown key 'model\.window'"):
        outline.check_fields("vit", {"model.window": "3"})


def test_a_plugin_may_have_recipes_of_its_own(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "own_recipe.py").write_text("")
    message = fails(capsys, "--plugin", "own_recipe", "train", "own")
    assert "unknown recipe 'own'" in message


def completions(*words: str) -> list[str]:
    *before, last = words
    found = ShellComplete(group, {}, "regard", "_REGARD_COMPLETE").get_completions(before, last)
    return [item.value for item in found]


def test_completion(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "runs" / "mine").mkdir(parents=True)
    (tmp_path / "runs" / "mine" / "config.json").write_text("{}")
    (tmp_path / "runs" / "mine" / "recipe.toml").write_text('name = "classify"\n')
    assert completions("tr") == ["train", "translate", "transcribe"]
    assert completions("train", "tr") == ["translate"]
    assert {"swin", "swinv2", "simclr"} <= set(completions("train", "s"))
    assert completions("train", "lm", "--train.st") == ["--train.steps"]
    assert "--model.kernel" in completions("train", "lm", "--model.")
    assert completions("train", "lm", "--model.kernel", "perf") == ["performer"]
    assert completions("train", "lm", "--model", "ls") == ["lstm"]
    assert completions("train", "speech", "--model.subsampling", "") == ["2", "4", "8"]
    assert completions("train", "lm", "--model", "lstm", "--model.preset", "t") == ["tiny"]
    assert completions("train", "lm", "--train.schedule", "lin") == ["linear"]
    assert completions("finetune", "x", "--task", "classify", "--data.tune", "l") == ["lora"]
    assert "runs/mine" in completions("classify", "")
    assert "runs/mine" in completions("eval", "runs/m")
    assert "--data.test" in completions("eval", "runs/mine", "--data.te")
    assert completions("doctor", "--kernel", "linf") == ["linformer"]
    assert completions("bench", "attention", "--kernels", "full,linf") == ["full,linformer"]
    assert "gpt:gpt2" in completions("cost", "gpt:")


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_scripts(shell, capsys):
    call("completion", shell)
    assert f"_REGARD_COMPLETE={shell}_complete" in capsys.readouterr().out


def test_unknown_shell_is_refused(capsys):
    assert "'tcsh' is not one of" in fails(capsys, "completion", "tcsh")
