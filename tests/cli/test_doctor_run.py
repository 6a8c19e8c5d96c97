"""`regard doctor RUN` as a newcomer types it."""

from tests.cli.calling import call, fails, rows, said
from tests.train.test_history import FINDING, run_of


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
