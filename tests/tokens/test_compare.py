"""One text in four kinds of tokens."""

import json

import pytest

from regard.tokens import compare as module
from regard.tokens.compare import compare
from tests.cli.calling import call, fails, said

CORPUS = ["the student is running", "students run and the teacher runs", "it was a run of students"] * 3


def by_kind(text, **changes):
    return {row.kind: row for row in compare(text, CORPUS, vocab_size=300, **changes)}


def test_what_each_kind_makes_of_a_text():
    rows = by_kind("the students wandered")
    assert [len(row.tokens) for row in rows.values()][:2] == [21, 3]
    assert rows["characters"].back == rows["subwords"].back == "the students wandered"
    assert rows["words"].unknown == ["wandered"] and rows["words"].back == "the students [UNK]"
    assert rows["stems"].back == "the student wander" and rows["stems"].unknown == ["wander"]
    assert rows["stems"].lost == ["students → student", "wandered → wander"]
    assert not rows["subwords"].lost and not rows["subwords"].unknown
    assert 3 < len(rows["subwords"].tokens) < 21 and rows["words"].pairs == 9


def test_unseen_characters_are_unknown():
    row = by_kind("the ß")["characters"]
    assert row.unknown == ["ß"] and row.lost == ["ß → \N{REPLACEMENT CHARACTER}"]


def test_the_command(capsys, tmp_path):
    file = tmp_path / "text.txt"
    file.write_text("\n".join(CORPUS))
    options = ("--corpus", file, "--vocab-size", 300)
    (line,) = said(capsys, "tokenizer", "compare", "The students were running", *options, "--json")
    rows = json.loads(line)
    assert rows["stems"]["back"] == "the student were run" and rows["characters"]["pairs"] == 625
    lines = said(capsys, "tokenizer", "compare", "students ran", *options)
    assert lines[-1] == "stems       loses students → student"
    assert "no such file" in fails(capsys, "tokenizer", "compare", "a", "--corpus", tmp_path / "none.txt")


def test_without_a_stemmer_the_rest_is_shown(capsys, monkeypatch, tmp_path):
    monkeypatch.setattr(module, "stemmer", lambda: None)
    file = tmp_path / "text.txt"
    file.write_text("\n".join(CORPUS))
    call("tokenizer", "compare", "students", "--corpus", file, "--vocab-size", 300)
    printed = capsys.readouterr()
    assert "stems" not in printed.out and "pip install 'regard[text]'" in printed.err


def test_an_unpaired_surrogate_is_one_line():
    with pytest.raises(ValueError, match="surrogate"):
        compare("\ud800", CORPUS, vocab_size=300)
