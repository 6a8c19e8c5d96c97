"""`regard doctor RUN` as a newcomer types it."""

from tests.cli.calling import call, fails, rows, said
from tests.doctor.test_history import FINDING, run_of


def test_a_run_is_told_shown_and_given_as_json(tmp_path, capsys):
    run_of(tmp_path, {"step": 1, "loss": 3.0}, {"step": 1, "finding": FINDING})
    assert "1. a frozen layer (step 2): x stood still" in said(capsys, "doctor", tmp_path)
    assert rows(capsys, "doctor", tmp_path)[0]["findings"] == [FINDING]
    call("doctor", tmp_path, "--out", tmp_path / "page.html")
    assert "x stood still" in (tmp_path / "page.html").read_text()


def test_mistakes_are_one_line(tmp_path, capsys):
    assert "nowhere' is no run" in fails(capsys, "doctor", tmp_path / "nowhere")
    assert "is a page about a run" in fails(capsys, "doctor", "--out", "page.html")
    run_of(tmp_path)
    assert "name it .html" in fails(capsys, "doctor", tmp_path, "--out", tmp_path / "x.png")


def test_what_would_have_no_effect_is_refused(tmp_path, capsys):
    run_of(tmp_path)
    for words, told in (
        ([tmp_path, "--kernel", "nosuch", "--causal"], f"--kernel is about a kernel by itself, and {tmp_path} is a"),
        ([tmp_path, "--no-speed"], "--speed is about a kernel by itself"),
        ([tmp_path, "--causal"], "--causal goes with a module of yours, my_module:make_model; leave it out"),
        (["mymod:make_model", "--kernel", "nosuch"], "--kernel is about a kernel by itself, and mymod:make_model is a"),
        (["--kernel", "full", "--causal"], "--causal goes with a module of yours"),
        (["--causal"], "--causal goes with a module of yours"),
        (["--speed"], "--speed goes with --kernel; leave it out"),
    ):
        assert told in fails(capsys, "doctor", *words)
