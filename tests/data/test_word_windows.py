"""Rows of words for skip-gram: what is thinned out, how far windows reach, and where a run goes on."""

import numpy as np
import pytest
import torch

from regard.data.readers.word_lists import read_analogies, read_similarities
from regard.data.sets import word_windows
from regard.data.sets.batches import IGNORE
from regard.data.sets.word_windows import OUTSIDE, ROW, WordsConfig, WordStream


def stream(count=3000, words=7, **fields):
    ids = np.random.default_rng(1).integers(1, words, count)
    return WordStream(ids, np.bincount(ids, minlength=words), **dict(window=2, rows=5) | fields)


def test_every_word_is_a_centre_once_with_its_neighbours_beside_it():
    words = stream()
    centres, seen = [], 0
    for batch in words.once():
        ids, reach = batch.inputs["ids"].numpy(), batch.targets.numpy()
        real = reach != IGNORE
        centres += ids[:, 2:-2][real].tolist()
        assert set(reach[real]) <= {1, 2} and (ids[:, 2:-2][~real] == OUTSIDE).all()
        for row, start in zip(ids, batch.examples, strict=True):
            text = words.ids[max(0, start - 2) : start + ROW + 2]
            assert row[row != OUTSIDE].tolist() == text.tolist()
            seen += 1
    assert centres == words.ids.tolist() and seen == -(-3000 // ROW)


def test_frequent_words_are_thinned_out_and_rare_ones_kept():
    counts = np.array([0, 9000, 990, 10])
    words = WordStream(np.repeat(np.arange(4), counts), counts, window=2, rows=5, subsample=0.01)
    share = counts / counts.sum()
    expected = [0, *(min(1, (0.01 / f) ** 0.5 + 0.01 / f) for f in share[1:])]
    np.testing.assert_allclose(words.kept, expected, rtol=1e-6)
    kept = np.bincount(words.thinned(words.ids, np.random.default_rng(0)), minlength=4)
    assert kept[0] == 0 and kept[3] == 10 and abs(kept[1] - 9000 * expected[1]) < 5 * (9000 * expected[1]) ** 0.5


def test_noise_words_follow_their_frequency_to_three_quarters():
    counts = np.array([0, 16, 81, 0, 256])
    words = WordStream(np.arange(5), counts, window=1, rows=1)
    drawn = np.bincount(words.noise_words(99_000, np.random.default_rng(0)), minlength=5)
    assert drawn[0] == drawn[3] == 0
    np.testing.assert_allclose(drawn[[1, 2, 4]] / 1000, [8, 27, 64], rtol=0.05)


def test_it_goes_on_at_any_batch(monkeypatch):
    monkeypatch.setattr(word_windows, "SEGMENT", 900)
    words = stream(subsample=0.05)
    batches = [next(walk) for walk in [words.batches()] for _ in range(12)]
    assert {epoch for epoch, _, _ in batches} == {0, 1}
    for (epoch, index, _), (_, _, wanted) in zip(batches, batches[1:], strict=False):
        *_, got = next(words.batches(epoch, index))
        assert torch.equal(got.inputs["ids"], wanted.inputs["ids"]) and torch.equal(got.targets, wanted.targets)
        assert torch.equal(got.inputs["noise"], wanted.inputs["noise"])


LISTS = {
    "tabs": "# WordSim\n# Word 1\tWord 2\tHuman (mean)\nlove\tsex\t6.77\ntiger\tcat\t7.35\n",
    "commas": "Word 1,Word 2,Human (mean)\nlove,sex,6.77\ntiger,cat,7.35\n",
    "spaces": "love sex 6.77\n\ntiger cat 7.35\n",
    "columns": "word1\tword2\tPOS\tSimLex999\tconc\nlove\tsex\tN\t6.77\t1\ntiger\tcat\tN\t7.35\t2\n",
}


@pytest.mark.parametrize("kind", LISTS)
def test_lists_of_similarities_of_every_layout(kind, tmp_path):
    (tmp_path / "list.txt").write_text(LISTS[kind])
    assert read_similarities(tmp_path / "list.txt") == [("love", "sex", 6.77), ("tiger", "cat", 7.35)]


def test_lists_that_are_none_say_so(tmp_path):
    path = tmp_path / "list.txt"
    for text, reader, message in (
        ("a b 1\nc d\n", read_similarities, "line 2: two words and a number are expected, got 'c d'"),
        ("a b 1\nc d nan\n", read_similarities, "line 2: two words and a number are expected, got 'c d nan'"),
        ("a b c\n", read_similarities, "no line has two words and a number"),
        (": title\na b c d\na b c\n", read_analogies, "line 3: an analogy has four words, got 3"),
        (": title\n", read_analogies, "no line has four words"),
    ):
        path.write_text(text)
        with pytest.raises(ValueError, match=message):
            reader(path)
    path.write_text(": capitals\nAthens Greece Rome Italy\n")
    assert read_analogies(path) == [("Athens", "Greece", "Rome", "Italy")]


@pytest.mark.parametrize("fields", [dict(window=0), dict(negatives=0), dict(min_count=0), dict(subsample=-1.0)])
def test_settings_out_of_range(fields):
    with pytest.raises(ValueError, match=f"{next(iter(fields))}="):
        WordsConfig(**fields)
