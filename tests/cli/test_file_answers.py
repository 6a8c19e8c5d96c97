"""Many files at once, vectors in a file, and the mistakes of --engine: the commands of verbs as they are typed."""

import json
import shutil
import sys

import numpy as np
import pytest

from regard.tasks import TextEncoder, load
from tests.cli.calling import call, fails
from tests.recipes.tiny import shared

TEXTS = [
    f"The {colour} {animal} sees a cat." for colour in ("red", "blue", "black") for animal in ("dog", "bird", "cow")
]


@pytest.fixture(scope="session")
def tiny(tmp_path_factory):
    return shared(tmp_path_factory)


@pytest.fixture
def corpus(tmp_path):
    """Two files of texts, and all of them in one."""
    folder = tmp_path / "corpus"
    folder.mkdir()
    lines = [json.dumps({"id": number, "text": text}) + "\n" for number, text in enumerate(TEXTS)]
    (folder / "b.jsonl").write_text("".join(lines[4:]))
    (folder / "a.jsonl").write_text("".join(lines[:4]))
    (tmp_path / "all.jsonl").write_text("".join(lines))
    return folder


def test_a_pattern_is_all_its_files_in_order(tiny, corpus, tmp_path, capsys):
    run = tiny.run("classify")
    call("classify", run, "--input", tmp_path / "all.jsonl", "--out", tmp_path / "one.jsonl")
    call("classify", run, "--input", corpus / "*.jsonl", "--out", tmp_path / "many.jsonl")
    assert (tmp_path / "one.jsonl").read_bytes() == (tmp_path / "many.jsonl").read_bytes()
    call("classify", run, "--input", tmp_path / "**" / "?.jsonl", "--out", tmp_path / "deep.csv")
    assert len((tmp_path / "deep.csv").read_text().splitlines()) == 1 + len(TEXTS)
    capsys.readouterr()
    for words, says in {
        ("--input", corpus / "*.txt", "--out", tmp_path / "o"): "*.txt: no file matches; quote the pattern",
        ("--input", corpus / "*.jsonl", "--out", corpus / "c.jsonl"): "c.jsonl is one of the files that ",
    }.items():  # fmt: skip
        assert says in fails(capsys, "classify", run, *words)
    (corpus / "c.jsonl").write_text('{"text": ""}\n')
    call("classify", run, "--input", corpus / "*.jsonl", "--out", tmp_path / "empty.jsonl")
    assert f"1 of 10 texts is empty and gets no answer: {corpus / 'c.jsonl'}, line 1" in capsys.readouterr().err
    (corpus / "c.txt").write_text("A cat.\n")
    line = fails(capsys, "classify", run, "--input", corpus / "?.*", "--out", tmp_path / "mixed.jsonl")
    assert f"{corpus / 'a.jsonl'} has rows, and {corpus / 'c.txt'} has none; give files of one format" in line
    shutil.copy(corpus / "a.jsonl", corpus / "[x].jsonl")  # a file of that name is no pattern
    call("classify", run, "--input", corpus / "[x].jsonl", "--out", tmp_path / "odd.jsonl")
    assert len((tmp_path / "odd.jsonl").read_text().splitlines()) == 4


def test_vectors_of_a_file_go_on_where_they_were_stopped(tiny, corpus, tmp_path, capsys, monkeypatch):
    run, out = tiny.run("embed"), tmp_path / "vectors.npy"
    wanted = load(run).vectors(TEXTS).numpy()
    plain, asked = TextEncoder.vectors, []

    def stops(self, items):
        asked.extend(items)
        if len(asked) > 8:
            raise KeyboardInterrupt
        return plain(self, items)

    with monkeypatch.context() as patch, pytest.raises(SystemExit):
        patch.setattr(TextEncoder, "vectors", stops)
        call("embed", run, "--input", corpus / "*.jsonl", "--out", out)
    assert not out.exists() and len((tmp_path / "vectors.npy.part").read_text().splitlines()) == 8
    call("embed", run, "--input", corpus / "*.jsonl", "--out", out)
    assert "resuming after 8 answers" in capsys.readouterr().err and not (tmp_path / "vectors.npy.part").exists()
    found = np.load(out)
    assert found.dtype == np.float32 and found.shape == wanted.shape and np.allclose(found, wanted, atol=1e-6)
    call("embed", run, "--input", corpus / "a.jsonl", "--out", tmp_path / "vectors.jsonl")
    row = json.loads((tmp_path / "vectors.jsonl").read_text().splitlines()[3])
    assert row["text"] == TEXTS[3] and np.allclose(row["embedding"], wanted[3], atol=1e-6)
    capsys.readouterr()
    assert "answers are written as .csv" in fails(
        capsys, "classify", tiny.run("classify"), "--input", corpus / "a.jsonl", "--out", tmp_path / "labels.npy"
    )


def test_mistakes_of_an_engine_are_one_line(tiny, corpus, tmp_path, capsys, monkeypatch):
    run, files = tiny.run("classify"), ("--input", corpus / "*.jsonl", "--out", tmp_path / "out.jsonl")
    for words, says in {
        ("A cat.", "--engine", "ray"): "--engine and --actors map a file to a file; name them with --input and --out",
        ("--input", corpus / "a.jsonl", "--actors", "2"): "map a file to a file",
        (*files, "--actors", "2"): "--actors are those of --engine ray; name it, or leave them out",
        (*files, "--engine", "spark"): "'spark' is not 'ray'",
    }.items():
        assert says in fails(capsys, "classify", run, *words)
    line = fails(capsys, "generate", tiny.run("lm"), *files, "--engine", "ray", "--lookup")
    assert "--draft and --lookup do not go with --engine; leave them out: the texts are the same" in line
    monkeypatch.setitem(sys.modules, "ray", None)
    line = fails(capsys, "classify", run, *files, "--engine", "ray")
    assert line.endswith("--engine ray needs an extra: pip install 'regard[ray]'")
