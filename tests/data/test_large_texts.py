"""Texts larger than memory: the same text, hash, ids and batches as in memory."""

import numpy as np
import pytest

from regard.data.readers import large_texts
from regard.data.readers.large_texts import LargeText
from regard.data.readers.text_files import read_text
from regard.data.sets.running_text import TextConfig
from regard.recipes import recipe
from regard.runs.fit import prepare
from regard.tokens import Tokenizer
from regard.tokens.encoding import encode_large, encode_text
from regard.train.progress import Line


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("REGARD_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def files(tmp_path):
    rng = np.random.default_rng(2)
    words = ["naïve", "tree", "of", "a\r\n", "größer", "and", "日本", "\n\n", "sea"]
    for name, count in (("a.txt", 60_000), ("b.txt", 9_000)):
        text = " ".join(words[i] for i in rng.integers(len(words), size=count))
        (tmp_path / name).write_bytes(text.encode())
    return str(tmp_path / "a.txt"), str(tmp_path / "b.txt")


def test_in_blocks_it_is_the_same_text(files):
    data = TextConfig(text=files, memory=0.0)
    assert data.large and not TextConfig(text=files).large
    assert tuple("".join(part) for part in data.large_split()) == TextConfig(text=files).split()
    assert data.digest() == TextConfig(text=files).digest()
    assert data.held_out() == TextConfig(text=files).held_out()
    with_own = dict(text=files[:1], valid_text=files[1:])
    assert (
        tuple("".join(part) for part in TextConfig(**with_own, memory=0.0).large_split())
        == TextConfig(**with_own).split()
    )
    assert LargeText(files, 10).beginning(7) == read_text(files)[10:17]


def test_the_ids_are_those_of_the_text_in_memory_and_are_found_again(files, cache, monkeypatch):
    text = LargeText(files, 5, 300_000)
    tokenizer = Tokenizer.train(texts=["".join(text)], kind="bpe", vocab_size=400)
    ids = encode_large(tokenizer, text, "hash")
    assert ids.dtype == np.uint16 and np.array_equal(ids, encode_text(tokenizer, "".join(text)))
    assert len(list(cache.iterdir())) == 1
    monkeypatch.setattr(LargeText, "__iter__", lambda self: pytest.fail("the text was read again"))
    assert np.array_equal(encode_large(tokenizer, text, "hash"), ids)


def test_training_has_the_same_batches(files, tmp_path):
    jobs = []
    for memory in (0.25, 0.0):
        plan = recipe("lm", {"data.text": files, "data.memory": memory, "data.vocab_size": 300})
        jobs.append(prepare(plan.data, plan, tmp_path / "run", False, Line(quiet=True)))
    assert jobs[0].recipe.data.sha256 == jobs[1].recipe.data.sha256
    first, second = ([b for _, (*_, b) in zip(range(20), job.stream.batches(), strict=False)] for job in jobs)
    assert all(np.array_equal(a.inputs["ids"], b.inputs["ids"]) for a, b in zip(first, second, strict=True))
    for a, b in zip(jobs[0].valid(), jobs[1].valid(), strict=True):
        assert np.array_equal(a.targets, b.targets)


def test_errors_name_file_and_line(files, tmp_path, monkeypatch):
    bad = tmp_path / "bad.txt"
    bad.write_bytes(b"fine\n" * 300_000 + b"caf\xe9\n")
    with pytest.raises(ValueError, match=r"bad.txt, line 300001: not UTF-8; convert it: iconv"):
        TextConfig(text=(str(bad),), memory=0.0).digest()
    bad.write_bytes(b" \n" * 10)
    with pytest.raises(ValueError, match=r"bad.txt: the file is empty"):
        TextConfig(text=(str(bad),), memory=0.0).digest()
    assert large_texts.text_bytes((str(tmp_path / "x.gz"),)) == 0
