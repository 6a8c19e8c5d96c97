"""Hidden words: how many, which, and what stands there instead."""

import itertools

import numpy as np
import pytest
import torch

from regard.data.sets.batches import IGNORE
from regard.data.sets.masked_text import MaskedConfig, hide, pair_up, sentences, stretches
from regard.recipes import recipe
from regard.runs.fit import prepare
from regard.tokens import Tokenizer
from regard.tokens.encoding import mask_texts
from regard.train.progress import Line

MASK, ORDINARY = 3, np.arange(4, 104)


def hide_many(draws=400, rate=0.15, length=60):
    """Words of one to three tokens between special ones, hidden again and again."""
    words, sizes = [None], itertools.cycle([1, 2, 3])
    while len(words) < length:
        words += [(0, len(words))] * next(sizes)
    words.append(None)
    rng = np.random.default_rng(0)
    ids = [1, *rng.integers(4, 104, len(words) - 2).tolist(), 2]
    for _ in range(draws):
        yield ids, words, *hide(ids, words, rng, rate=rate, mask=MASK, ordinary=ORDINARY)


def test_eighty_ten_ten():
    masked = changed = kept = 0
    for ids, _, shown, targets in hide_many():
        for true, seen, target in zip(ids, shown, targets, strict=True):
            if target == IGNORE:
                assert seen == true
                continue
            assert target == true, "the target is what stood there"
            masked, changed, kept = masked + (seen == MASK), changed + (seen not in (MASK, true)), kept + (seen == true)
    total = masked + changed + kept
    # One draw in a hundred of "some other token" happens to be the true one. 4,000 words: ± 3 deviations are 2 %.
    assert masked / total == pytest.approx(0.8, abs=0.03)
    assert changed / total == pytest.approx(0.1, abs=0.025) and kept / total == pytest.approx(0.1, abs=0.025)


@pytest.mark.parametrize("rate", [0.15, 0.4])
def test_about_so_many_are_hidden_in_whole_words_and_never_special_ones(rate):
    shares = []
    for _, words, shown, targets in hide_many(rate=rate):
        assert targets[0] == targets[-1] == IGNORE and (shown[0], shown[-1]) == (1, 2)
        chosen = {word for word, target in zip(words, targets, strict=True) if target != IGNORE}
        for i, word in enumerate(words):
            assert (targets[i] != IGNORE) == (word in chosen), "all tokens of a word, or none"
            if word in chosen and shown[i] == MASK:
                assert all(s == MASK for s, w in zip(shown, words, strict=True) if w == word), "and with one fate"
        shares.append(sum(t != IGNORE for t in targets) / (len(words) - 2))
    assert rate - 0.01 <= np.mean(shares) < rate + 0.03  # the last word may go a little over


def test_every_text_has_something_to_find_and_random_tokens_are_ordinary():
    rng = np.random.default_rng(1)
    for _ in range(300):
        shown, targets = hide([1, 50, 2], [None, (0, 0), None], rng, rate=0.01, mask=MASK, ordinary=np.array([7, 9]))
        assert targets == [IGNORE, 50, IGNORE] and shown[1] in (MASK, 50, 7, 9)


def test_sentences_and_stretches():
    text = "One here.  Two\nthere! Three:\nfour\n\nfive. 3.5 is no end"
    assert sentences(text) == ["One here.", "Two", "there!", "Three:", "four", "five.", "3.5 is no end"]
    assert sentences("一。二！") == ["一。", "二！"]
    assert stretches(["a", "b", "c", "d"], [2, 3, 9, 1], 5) == ["a b", "c", "d"]
    assert stretches([], [], 5) == []


def test_half_of_the_second_texts_follow_and_labels_say_which():
    parts = [f"part {i}" for i in range(400)]
    pairs = pair_up(parts, np.random.default_rng(0))
    follows = [parts.index(two) == parts.index(one) + 1 for one, two, _ in pairs]
    assert [label == 0 for _, _, label in pairs] == follows and len(pairs) == 399
    assert 0.4 < np.mean(follows) < 0.6
    assert [one for one, _, _ in pairs] == parts[:-1]


@pytest.fixture(scope="module")
def tokenizer():
    texts = ["the unseen words of the unseen book. are they seen? " * 30]
    return Tokenizer.train(texts=texts, vocab_size=300, specials=("<mask>",))


def test_frames_keep_their_marks_and_tell_the_two_sides_apart(tokenizer):
    data = MaskedConfig(rate=0.5)
    parts = ["the unseen words", "of the book", "are they seen?", "the words"]
    for one in mask_texts(parts, tokenizer, data, 40, np.random.default_rng(0)):
        true = [seen if target == IGNORE else target for seen, target in zip(one.framed.ids, one.targets, strict=True)]
        second = tokenizer.decode([id for id, side in zip(true, one.framed.side, strict=True) if side == 1])
        assert true[0] == tokenizer.bos and true[-1] == tokenizer.eos and one.framed.types[-1] == 1
        assert tokenizer.decode([id for id, side in zip(true, one.framed.side, strict=True) if side == 0]) in parts
        assert (second == parts[one.number]) == (one.label == 0)


def test_random_tokens_are_never_special_wherever_the_mask_stands(tokenizer, tmp_path):
    """RoBERTa's mask is the last of its vocabulary."""
    data = MaskedConfig(rate=0.9, next_sentence=False)
    inner = Tokenizer.train(texts=["the unseen words of the book " * 30], vocab_size=290).inner
    inner.add_special_tokens(["<mask>"])
    last = Tokenizer(inner)
    assert last.mask == len(last) - 1
    for tokens in (tokenizer, last):
        rng, strange = np.random.default_rng(0), set()
        for one in mask_texts(["the unseen words of the book"] * 300, tokens, data, 40, rng):
            for seen, target in zip(one.framed.ids, one.targets, strict=True):
                strange |= {seen} if target not in (IGNORE, seen) and seen != tokens.mask else set()
        assert len(strange) > 50 and not strange & {tokens.pad, tokens.bos, tokens.eos, tokens.mask}


def test_resuming_gives_the_same_hidden_words(tmp_path):
    (tmp_path / "t").write_text("".join(f"Sentence {i} is about thing {i * 7 % 31}.\n\n" for i in range(200)))
    changes = {"data.text": [str(tmp_path / "t")], "data.vocab_size": 270, "data.max_len": 40}
    plan = recipe("bert", changes | {"train.batch_tokens": 900})

    def job():
        return prepare(plan.data, plan, tmp_path / "run", False, Line(quiet=True))

    whole = list(itertools.islice(job().stream.batches(), 12))
    epochs = {epoch for epoch, _, _ in whole}
    assert len(epochs) > 1, "the test must cross an epoch"
    epoch, index, _ = whole[7]
    for (_, _, one), (_, _, two) in zip(whole[8:], job().stream.batches(epoch, index), strict=False):
        assert torch.equal(one.targets, two.targets) and torch.equal(one.labels, two.labels)
        assert torch.equal(one.inputs["ids"], two.inputs["ids"])
    first, second = (next(job().stream.batches(epoch))[2] for epoch in (0, 1))
    assert first.inputs["ids"].shape != second.inputs["ids"].shape or (first.targets != second.targets).any()


@pytest.mark.parametrize(
    ("field", "message"),
    [({"rate": 0.0}, "rate=0.0 is not between 0 and 1"), ({"max_len": 7}, "max_len=7 is too short")],
)
def test_settings_that_make_no_sense(field, message):
    with pytest.raises(ValueError, match=message):
        MaskedConfig(**field)
