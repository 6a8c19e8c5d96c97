"""The user's files: every mistake is one line that names file, line and cure."""

import json

import pytest

from regard.data.readers.pairs import read_pairs
from regard.data.sets.text_pairs import PairsConfig

KEYS = ("source", "target")


def write(path, content):
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return str(path)


def test_two_files_tsv_and_jsonl_give_the_same(tmp_path):
    expected = [("one", "eins"), ("two", "zwei")]
    a, b = write(tmp_path / "a", "one\ntwo\n"), write(tmp_path / "b", "eins\r\nzwei\r\n")
    assert read_pairs(a, b, None, KEYS) == expected
    assert read_pairs(None, None, write(tmp_path / "p.tsv", "one\teins\ntwo\tzwei\n"), KEYS) == expected
    rows = "".join(json.dumps({"en": s, "de": t}) + "\n" for s, t in expected)
    assert read_pairs(None, None, write(tmp_path / "p.jsonl", rows), ("en", "de")) == expected


def test_only_newlines_end_a_line(tmp_path):
    """Unicode's other line separators must not shift two files against each other."""
    a, b = write(tmp_path / "a", "one\u2028more\ntwo\x0c\n"), write(tmp_path / "b", "eins\nzwei\n")
    assert len(read_pairs(a, b, None, KEYS)) == 2


@pytest.mark.parametrize(
    ("left", "right", "message"),
    [
        ("one\ntwo\n", "eins\n", "a has 2 lines, .*b has 1"),
        ("", "eins\n", "a: the file is empty"),
        ("\n \n", "eins\n", "a: the file is empty"),
        (b"one\nt\xff\n", "eins\nzwei\n", "a, line 2: not UTF-8"),
        ("one\n", None, "b: no such file"),
        ("one\n\n", "\neins\n", "no pair has text on both sides"),
    ],
)
def test_bad_text_files(tmp_path, left, right, message):
    a = write(tmp_path / "a", left)
    b = write(tmp_path / "b", right) if right is not None else str(tmp_path / "b")
    with pytest.raises(ValueError, match=message):
        read_pairs(a, b, None, KEYS)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("p.tsv", "one\teins\ntwo\n", "p.tsv, line 2: a pair is two texts"),
        ("p.tsv", "a\tb\tc\n", "p.tsv, line 1: .* got 3"),
        ("p.jsonl", '{"source": "a", "target": "b"}\n{"source": "a"}\n', "line 2: no text under 'target'"),
        ("p.jsonl", '{"source": 3, "target": "b"}\n', "line 1: no text under 'source'"),
        ("p.jsonl", "{nonsense\n", "line 1: not JSON"),
        ("p.docx", "a,b\n", "pairs come as .jsonl, .csv, .tsv"),
    ],
)
def test_bad_pair_files(tmp_path, name, content, message):
    with pytest.raises(ValueError, match=message):
        read_pairs(None, None, write(tmp_path / name, content), KEYS)


def test_config_wants_both_sides_or_one_file():
    with pytest.raises(ValueError, match="go together"):
        PairsConfig(source="a")
    with pytest.raises(ValueError, match="not both"):
        PairsConfig(pairs="a.tsv", source="a", target="b")


def test_validation_is_held_out(tmp_path):
    lines = "".join(f"w{i}\n" for i in range(100))
    path = write(tmp_path / "a", lines)
    train, valid = PairsConfig(source=path, target=path).split()
    assert len(train) == 95 and len(valid) == 5 and not set(train) & set(valid)
