"""Sample data as files: the commands that are printed with them read them, and nothing is written by halves."""

import json
import shlex
import subprocess
import sys

import pytest

from regard.cli import overrides
from regard.data import samples
from regard.data.samples import SAMPLES, write_sample
from regard.recipes import recipe
from tests.cli.calling import fails, said


@pytest.mark.parametrize("name", SAMPLES)
def test_the_printed_commands_read_the_files(name, tmp_path):
    out = tmp_path / "my data"
    result = write_sample(name, out, 4000 if name == "book" else 60)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["my data"]
    for command in result["commands"]:
        words = shlex.split(command)
        if words[1] != "train":
            continue
        fields = overrides(words[3:])
        assert str(fields.pop("out")).startswith("runs/")
        plan = recipe(words[2], fields)
        train, valid = plan.data.split()
        assert len(train) and len(valid)
        if name not in ("pairs", "book"):
            assert len(train) + len(valid) == result["train"] == 60
            assert len(plan.data.held_out()) == result["test"] == 12
        if name == "pairs":
            assert len(train) + len(valid) == 60


@pytest.mark.parametrize("name", sorted(SAMPLES.keys() - {"digits", "scenes", "captions", "boxes", "book"}))
def test_parts_share_no_example(name, tmp_path):
    write_sample(name, tmp_path / "x", 60)
    parts = [path.read_text(encoding="utf-8") for path in sorted((tmp_path / "x").iterdir())]
    split = "\n\n" if name == "tags" else "\n"
    train, test = (set(part.strip().split(split)) for part in (parts[1], parts[0]))
    assert len(train & test) <= 1, "no more than the header"


def test_again_it_is_the_same(tmp_path):
    for place in "ab":
        write_sample("reviews", tmp_path / place, 60)
    assert (tmp_path / "a" / "train.csv").read_bytes() == (tmp_path / "b" / "train.csv").read_bytes()


def test_a_folder_is_written_whole_or_not_at_all(tmp_path, monkeypatch):
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "mine.txt").write_text("mine")
    with pytest.raises(ValueError, match="is not empty; choose another --out"):
        write_sample("reviews", tmp_path / "full")

    def stop(*rows):
        raise KeyboardInterrupt

    monkeypatch.setattr(samples, "write_rows", stop)
    with pytest.raises(KeyboardInterrupt):
        write_sample("reviews", tmp_path / "new")
    assert [path.name for path in tmp_path.iterdir()] == ["full"]


def test_the_command(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert json.loads("".join(said(capsys, "sample", "--json"))).keys() == SAMPLES.keys()
    first, _, command, _ = said(capsys, "sample", "reviews", "--count", "30")
    assert first == "written: reviews (30 for training, 6 for the test)"
    assert command.startswith("  regard train classify --data.train reviews/train.csv --data.test reviews/test.csv")
    assert "no sample 'revews'; did you mean 'reviews'" in fails(capsys, "sample", "revews")


def test_listing_needs_no_torch():
    code = "import sys; sys.argv = ['regard', 'sample']\nfrom regard.cli import main\nmain()\n"
    probe = "import atexit, sys; atexit.register(lambda: print('torch' in sys.modules))\n"
    done = subprocess.run([sys.executable, "-c", probe + code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "False"
