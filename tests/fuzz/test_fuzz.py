"""Every parser of foreign files and requests: its corpus and a few hundred mutations, the same ones every time."""

import json

import pytest

from fuzz.engine import CORPUS
from fuzz.run import HARNESSES, Child, table, total

FEWER = {"config": 150, "requests": 150, "sentencepiece": 100, "vocabulary": 150}
"""Executions of harnesses that take longer for each."""


@pytest.fixture(scope="module")
def child():
    child = Child()
    yield child
    child.close()


@pytest.mark.parametrize("name", HARNESSES)
def test_every_input_is_read_or_refused(name, child, tmp_path):
    known = len(list((CORPUS / name).glob("*")))
    result = child.fuzz(name, seed=1, executions=known + FEWER.get(name, 300), kept=tmp_path)
    assert result["findings"] == {}
    assert result["executions"] >= known + 100
    assert result["refused"] > 20, "mutations that change nothing find nothing"
    assert result["lines"] > result["of"] / 5


def test_rounds_add_up(tmp_path):
    first = dict(name="a", executions=10, refused=4, kept=2, lines=3, of=9, seconds=1.5, findings={"x at y": "1"})
    rounds = [first, first | dict(lines=5, kept=3, findings={}), first | dict(name="b", findings={})]
    (tmp_path / "rounds.jsonl").write_text("".join(json.dumps(one) + "\n" for one in rounds))
    a, b, both = total(tmp_path / "rounds.jsonl")
    assert a == first | dict(executions=20, refused=8, kept=3, lines=5, seconds=3.0) and b["executions"] == 10
    assert both["executions"] == 30 and both["lines"] == 8 and both["findings"] == {"a: x at y": "1"}
    assert table([a, b, both]).splitlines()[-1] == "| all | 30 | 4 | 12 | 5 | 8 of 18 (44%) | 1 |"


def test_the_corpus_is_small_and_of_harnesses_that_there_are():
    assert {path.name for path in CORPUS.iterdir()} <= {*HARNESSES, ".gitkeep"}
    assert sum(path.stat().st_size for path in CORPUS.rglob("*") if path.is_file()) < 200_000


def test_mistakes_of_every_kind_are_found_and_kept(child, tmp_path):
    result = child.fuzz("tests.fuzz.mistaken", seed=1, executions=200, kept=tmp_path)
    kinds = sorted(text.split()[0] for text in result["findings"])
    assert kinds == ["KeyError", "TooLongError", "an", "memory:"], result["findings"]
    for text, file in result["findings"].items():
        kept = (tmp_path / "tests.fuzz.mistaken" / file).read_bytes()
        assert kept[:1] in b"kmse"
        if text.startswith("KeyError"):
            assert kept == b"k", "the shortest input that does it"
    assert "| tests.fuzz.mistaken | 200 |" in table([result])


def test_after_a_crash_the_next_harness_runs(child, tmp_path):
    result = child.fuzz("tests.fuzz.crashing", seed=1, executions=200, kept=tmp_path)
    ((text, file),) = result["findings"].items()
    assert text.startswith("the process ended with code -")
    assert not (tmp_path / "tests.fuzz.crashing" / file).read_bytes().startswith(b"o")
    assert child.fuzz("mask_expressions", seed=1, executions=50, kept=tmp_path)["executions"] == 50
