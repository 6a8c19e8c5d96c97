"""Tokenizer files of strangers: replacements, patterns and numbers without end, and panics of the library."""

import base64
import json
import os
import struct
from concurrent.futures import ThreadPoolExecutor

import pytest

from regard.tokens import Tokenizer, bounds
from regard.tokens.spm import read_pieces

PARTS = ("normalizer", "pre_tokenizer", "post_processor", "decoder", "truncation", "padding")
BPE = {"type": "BPE", "vocab": {"a": 0, "b": 1, "ab": 2}, "merges": ["a b"], "unk_token": None}
SPLIT = {"type": "Split", "behavior": "Isolated", "invert": False}


def replace(pattern, content):
    return {"type": "Replace", "pattern": pattern, "content": content}


def precompiled(table):
    return {"type": "Precompiled", "precompiled_charsmap": base64.b64encode(table).decode()}


def write(folder, **parts):
    content = {"version": "1.0", "added_tokens": [], "model": BPE} | dict.fromkeys(PARTS) | parts
    (folder / "tokenizer.json").write_text(json.dumps(content))
    return folder


def refusal(folder, **parts):
    with pytest.raises(ValueError) as caught:
        Tokenizer.load(write(folder, **parts))
    assert "\n" not in str(caught.value) and str(folder) in str(caught.value)
    return str(caught.value)


def test_the_small_tokenizer_itself_is_read(tmp_path):
    assert Tokenizer.load(write(tmp_path, normalizer=replace({"String": "c"}, "ab"))).encode("abc") == [2, 2]


@pytest.mark.parametrize(
    "normalizer",
    [
        {"type": "Sequence", "normalizers": [replace({"String": "a"}, "aa")] * 40},
        replace({"Regex": "."}, "a" * 1_000_000),
        precompiled(struct.pack("<I", 4) + bytes(4) + b"a" * 100_000 + b"\0"),
    ],
)
def test_a_text_that_grows_without_end(tmp_path, normalizer):
    assert "characters of one, at most 64 are allowed" in refusal(tmp_path, normalizer=normalizer)


def test_a_decoder_that_grows_without_end(tmp_path):
    steps = [{"type": "Replace", "pattern": {"String": "a"}, "content": "aa"}] * 40
    assert "at most 64" in refusal(tmp_path, decoder={"type": "Sequence", "decoders": steps})


def test_a_pattern_that_searches_for_ages_panics(tmp_path, capfd):
    assert "retry-limit" in refusal(tmp_path, pre_tokenizer=SPLIT | {"pattern": {"Regex": "(q+)+$"}})
    assert "panicked" not in capfd.readouterr().err


def test_the_time_of_unknown_patterns_is_measured(tmp_path, monkeypatch):
    pattern = SPLIT | {"pattern": {"Regex": r"\w+|\s"}}
    assert Tokenizer.load(write(tmp_path, pre_tokenizer=pattern)).encode("a b") == [0, 1]
    monkeypatch.setattr(bounds, "MOST_SECONDS", 0.0)
    assert "its pattern takes more than 0.0 s for 128 times 'a'" in refusal(tmp_path, pre_tokenizer=pattern)
    Tokenizer.train(texts=["some text"], vocab_size=300).save(tmp_path)
    Tokenizer.load(tmp_path)  # our own patterns are known


@pytest.mark.parametrize(
    "parts",
    [
        {"normalizer": precompiled(b"\0\0\0")},
        {"normalizer": precompiled(struct.pack("<I", 4) + b"\0\0\0\xff" + b"\0\0")},
        {"model": BPE | {"vocab": {"a": 0, "b": 1}}},
        {"post_processor": {
            "type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "zz", "type_id": 0}}], "pair": [],
            "special_tokens": {},
        }},
        {"model": BPE | {"vocab": {"a": 4294967295, "b": 1, "ab": 2}}},
        {"model": BPE | {"vocab": {}, "merges": []}},
        {"model": BPE | {"vocab": {"a": 0, "é": 1, "aé": 2}, "merges": [["a", "é"]], "continuing_subword_prefix": "1"}},
        {"model": BPE | {"vocab": {"a": 0, "é": 1, "aé": 2}, "merges": ["a é"], "continuing_subword_prefix": "1"}},
        {"post_processor": {"type": "BertProcessing", "sep": ["x", 99999999], "cls": ["y", 1]}},
        {"model": {"type": "Unigram", "unk_id": 50, "vocab": [["a", 0.0]]}},
    ],
)  # fmt: skip
def test_what_is_wrong_inside_is_one_line(tmp_path, parts, capfd):
    """Half of these are panics, which are no `Exception` and print a backtrace."""
    refusal(tmp_path, **parts)
    assert "panicked" not in capfd.readouterr().err


def test_a_panic_at_a_text_is_one_line(tmp_path, monkeypatch):
    tokenizer = Tokenizer.load(write(tmp_path))
    monkeypatch.setattr(bounds, "UNITS", ())
    monkeypatch.setattr(bounds, "LENGTHS", ())
    tokenizer = Tokenizer.load(write(tmp_path, pre_tokenizer=SPLIT | {"pattern": {"Regex": "(a+)+$"}}))
    with pytest.raises(ValueError, match="the tokenizer fails on this text .*retry-limit.*use another text or model"):
        tokenizer.encode("a" * 60 + "!")


def test_truncation_and_padding_of_a_file_are_not_used(tmp_path):
    cut = {"direction": "Right", "max_length": 1, "strategy": "LongestFirst", "stride": 5}
    pad = {"strategy": {"Fixed": 10**12}, "direction": "Right", "pad_to_multiple_of": None, "pad_id": 0,
           "pad_type_id": 0, "pad_token": "a"}  # fmt: skip
    assert Tokenizer.load(write(tmp_path, truncation=cut, padding=pad)).encode("abab") == [2, 2]


def test_files_are_not_read_beyond_a_size(tmp_path, monkeypatch):
    monkeypatch.setattr("regard.tokens.tokenizer.MOST_BYTES", 100)
    assert "bytes, at most 100 are read" in refusal(tmp_path)
    monkeypatch.setattr("regard.tokens.spm.MOST_BYTES", 100)
    (tmp_path / "a.model").write_bytes(bytes(101))
    with pytest.raises(ValueError, match="a.model has 101 bytes, at most 100 are read"):
        read_pieces(tmp_path / "a.model")


def piece(name):
    inner = b"\x0a" + varint(len(name)) + name
    return b"\x0a" + varint(len(inner)) + inner


def varint(value):
    out = b""
    while value > 127:
        out, value = out + bytes([value & 127 | 128]), value >> 7
    return out + bytes([value])


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        (b"\x80" * 1_000_000, "not a SentencePiece model"),  # a number of seven million bits
        (b"\x0a\xff\xff\xff\xff\x0f", "not a SentencePiece model"),  # four gigabytes that are not there
        (piece(b"a")[:-1], "not a SentencePiece model"),
        (piece(b"a") + b"\x15\0", "not a SentencePiece model"),  # half of a float
        (piece(b"a") + piece(b"a" * 5000), "a piece has 5,000 characters, at most 1000 are read"),
    ],
)
def test_a_sentencepiece_file_that_is_none(tmp_path, raw, message):
    (tmp_path / "a.model").write_bytes(raw)
    with pytest.raises(ValueError, match=message):
        read_pieces(tmp_path / "a.model")


def test_stderr_is_back_after_many_threads(capfd):
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda _: silent(), range(50)))
    os.write(2, b"heard")
    assert capfd.readouterr().err.endswith("heard")


def silent():
    with bounds.muted():
        os.write(2, b"nothing")
