"""`regard bench …` as it is typed."""

import json
import os
import signal
import subprocess
import sys

import pytest

from tests.cli.calling import call, fails, options
from tests.recipes.tiny import SIZES, write_files

TINY = ["--heads", "1", "--head-dim", "8", "--repeats", "1"]


def test_attention(tmp_path, capsys):
    words = ["--lengths", "64,128,256,512", "--kernels", "full,window:radius=8", "--pass", "forward", *TINY]
    call("bench", "attention", *words, "--out", tmp_path / "scaling.png", "--json")
    said = capsys.readouterr()
    found = json.loads(said.out)
    assert found["kernels"].keys() == {"full", "window:radius=8"} and found["lengths"] == [64, 128, 256, 512]
    assert [point["length"] for point in found["kernels"]["full"]["forward"]["points"]] == [64, 128, 256, 512]
    assert "training" not in found["kernels"]["full"]
    assert "full, forward, 64:" in said.err and "drawn:" in said.err
    assert (tmp_path / "scaling.png").stat().st_size > 5000


def test_architectures(tmp_path, capsys):
    call("bench", "architectures", "--lengths", "8..64", "--dim", "8", "--radius", "4", "--repeats", "1", "--quiet")
    said = capsys.readouterr()
    assert "restricted to ±4" in said.out and said.err == ""


def test_quality(tmp_path, capsys):
    fields = options(SIZES | write_files(tmp_path)["lm"] | {"model.max_len": 16})
    call("bench", "quality", "--kernels", "full,linformer", "--steps", "6", *fields)
    said = capsys.readouterr()
    assert "validation loss" not in said.out and "refused" in said.out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["attention", "--kernels", "ful"], "unknown kernel 'ful'; did you mean 'full'?"),
        (["attention", "--lengths", "1k-64k"], "'1k-64k' is no list of numbers; write 1k..64k, or 1k,4k,16k"),
        (["attention", "--out", "scaling.jpg"], "cannot draw to 'scaling.jpg'"),
        (["attention", "--max-seconds", "0"], "max_seconds=0.0 must be positive"),
        (["architectures", "--lengths", "4k..1k"], "the numbers in '4k..1k' must rise"),
        (["quality", "--kernels", "ful"], "unknown kernel 'ful'; did you mean 'full'?"),
        (["quality", "--train.lt", "1"], "unknown key 'train.lt'; did you mean 'train.lr'?"),
    ],
)
def test_mistakes_are_one_line(words, message, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert message in fails(capsys, "bench", *words)
    assert not list(tmp_path.iterdir())


@pytest.mark.skipif(os.name != "posix", reason="signals of a terminal")
def test_ctrl_c_prints_what_there_is():
    """As a terminal sends it: to every process of the group, children included."""
    command = [sys.executable, "-m", "regard.cli", "bench", "attention", "--lengths", "64..64k", "--kernels", "full"]
    running = subprocess.Popen(
        [*command, *TINY, "--json"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # a shell's background jobs are born deaf
    )  # fmt: skip
    with running:
        first = running.stderr.readline()
        os.killpg(running.pid, signal.SIGINT)
        try:
            out, rest = running.communicate(timeout=240)
        finally:
            running.kill()
    assert first.startswith("full, forward, 64:") and "Traceback" not in rest
    assert rest.endswith("regard: stopped; above is what was measured before\n")
    found = json.loads(out)
    assert running.returncode == 130 and found["interrupted"]
    assert found["kernels"]["full"]["forward"]["points"][0]["length"] == 64
