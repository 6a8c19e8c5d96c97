"""Nothing that a checkpoint, a file or a request is called reaches a terminal or a log as an escape sequence."""

import ast
import json
import logging
import re
from pathlib import Path

import pytest

import regard
from regard.cli.base import fail
from regard.data.terminal import echo, printable, to_json
from regard.serve.run import LogFormatter
from tests.cli.calling import call
from tests.serve.made import model_of, save
from tests.serve.running import serving
from tests.serve.talking import refused

EVIL = "\x1b]0;owned\x07\x1b[31mred\x9b2J\x7f\r"
CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f]")


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """A classifier with a label that sets a terminal's title and colours."""
    folder = tmp_path_factory.mktemp("evil") / "model"
    readers = dict(max_len=64, position="learned")
    return save(folder, model_of("bert", 5, task="classify", labels=[EVIL, f"{EVIL} too"], **readers))


def test_control_characters_are_shown():
    assert printable(EVIL) == "⟨1B⟩]0;owned⟨07⟩⟨1B⟩[31mred⟨9B⟩2J⟨7F⟩⟨0D⟩"
    assert printable("größer\t日本 😀\nעברית\r\n") == "größer\t日本 😀\nעברית\n"
    assert printable("half \ud83d") == "half ⟨D83D⟩"


def test_json_stays_exact():
    for value in (EVIL, {EVIL: [EVIL, "größer 😀", 1.5, None]}, "half \ud83d", [chr(code) for code in range(300)]):
        assert json.loads(to_json(value)) == value
        assert not CONTROL.search(to_json(value).replace("\n", ""))
    assert to_json({"a": "ß"}) == '{"a": "ß"}'


def test_labels_of_a_checkpoint(model, capsys):
    capsys.readouterr()
    call("classify", model, "The cat")
    printed = capsys.readouterr()
    assert "⟨1B⟩]0;owned" in printed.out and not CONTROL.search(printed.out + printed.err)
    call("classify", model, "The cat", "--json")
    printed = capsys.readouterr().out
    assert EVIL in {one["label"] for one in json.loads(printed)["labels"]} and not CONTROL.search(printed)


def test_names_of_files_in_errors(tmp_path, capsys):
    with pytest.raises(SystemExit):
        call("classify", tmp_path / EVIL.replace("/", ""), "The cat")
    printed = capsys.readouterr().err
    assert "⟨1B⟩]0;owned" in printed and not CONTROL.search(printed)


def test_an_error_is_one_line_of_bounded_length(capsys):
    for text in ("first\n  second", "long " * 5000 + "the cure"):
        assert fail(text, 2) == 2
        printed = capsys.readouterr().err
        assert printed.count("\n") == 1 and len(printed) < 2000
    assert printed.endswith("the cure\n")


def test_lines_of_the_log(model, tmp_path):
    name = f"{EVIL}\nserving nothing"
    with serving({name: model}) as server:
        (model / "config.json").rename(tmp_path / "away")
        try:
            refused(server.post("/v1/classifications", model=name, input="a"), 503)
        finally:
            (tmp_path / "away").rename(model / "config.json")
        log = server.log
    assert " cannot be loaded: " in log and not CONTROL.search(log)
    assert "\nserving nothing cannot" not in log


def test_a_traceback_in_the_log():
    try:
        raise RuntimeError(EVIL)
    except RuntimeError as error:
        record = logging.LogRecord("a", logging.ERROR, "", 0, "%s\nb", (EVIL,), (type(error), error, None))
    text = LogFormatter("%(message)s").format(record)
    assert text.splitlines()[0].endswith("⟨0A⟩b") and not CONTROL.search(text)


def test_everything_is_printed_in_one_place(capsys):
    """Nothing but `echo` writes to stdout or stderr, besides the two progress lines, which show printable text, and the
    process of a template, whose stdout is a pipe."""
    root = Path(regard.__file__).parent
    allowed = {"data/terminal.py", "train/progress.py", "cli/base.py", "hub/chat_worker.py"}
    for path in root.rglob("*.py"):
        names = {ast.unparse(node.func) for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call)}
        ways = names & {"print", "click.echo", "click.secho", "sys.stdout.write", "sys.stderr.write"}
        assert not ways or path.relative_to(root).as_posix() in allowed, (path, ways)
    echo(EVIL, err=True)
    assert not CONTROL.search(capsys.readouterr().err)
