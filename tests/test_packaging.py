"""The package as it is installed: the core without what only some commands need, and what is shipped with it."""

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import regard
from tests.tasks.test_load import saved

ROOT = Path(regard.__file__).parents[1]
BLOCKED = ("matplotlib", "babel", "num2words", "sacrebleu")


def without(*words, folder):
    """Run a command in a process where the optional packages cannot be imported."""
    block = f"import sys\nfor name in {BLOCKED!r}: sys.modules[name] = None\n"
    code = block + f"sys.argv = ['regard', *{list(map(str, words))!r}]\nfrom regard.cli import main\nmain()\n"
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=folder)


@pytest.mark.parametrize(
    "words",
    [("--help",), ("cost", "base"), ("generate", "run", "some", "--max-new-tokens", "3"), ("recipes",), ("sample",)],
    ids=lambda words: words[0],
)
def test_the_core_needs_no_extra(words, tmp_path):
    saved(tmp_path / "run", "gpt")
    done = without(*words, folder=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout


def test_what_is_missing_is_named_with_its_extra(tmp_path):
    saved(tmp_path / "run", "gpt")
    for words, name, extra in (
        (("look", "run", "some text", "--out", "x.png"), "matplotlib", "draw"),
        (("train", "translate", "--out", "t"), "babel", "demo"),
        (("sample", "pairs"), "babel", "demo"),
    ):
        done = without(*words, folder=tmp_path)
        lines = done.stderr.strip().splitlines()
        assert done.returncode == 2 and name in lines[-1] and f"pip install 'regard[{extra}]'" in lines[-1], lines
        assert "Traceback" not in done.stderr
    assert not (tmp_path / "pairs").exists() and not (tmp_path / "pairs.part").exists()


def test_what_is_declared():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"]
    core = {entry.split(">")[0] for entry in project["dependencies"]}
    assert not core & set(BLOCKED) and "pillow" in core, "image tasks are imported with all others"
    assert {"draw", "demo", "text", "vision", "serve", "hub", "log", "test"} <= extras.keys()
    assert ".[demo," in (ROOT / "Makefile").read_text(encoding="utf-8"), "make demo needs the embedded phrases"
    assert "demo" in extras["test"][0]
    documented = (ROOT / "docs" / "install.md").read_text(encoding="utf-8")
    assert all(f"| `{extra}` |" in documented for extra in extras if extra not in ("test", "bench"))
    assert (ROOT / "regard" / "py.typed").is_file()
    assert isinstance(regard.__version__, str)
