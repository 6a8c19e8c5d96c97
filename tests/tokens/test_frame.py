"""Frames against `transformers`' own tokenizers: ids, segments, offsets, words, cut and in windows."""

import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from regard.tokens import Framed, Tokenizer
from tests.tokens.conftest import LINES, NAMES, TEXTS

KINDS = ["bert", "roberta", "t5", "albert"]
Their = dict[str, tuple[Path, Any]]
OURS = {
    kind: Tokenizer.train(texts=LINES, kind=kind, vocab_size=320, specials=["<mask>"])
    for kind in ("bpe", "word", "char")
}


def trimmed(text: str, start: int, end: int) -> tuple[int, int]:
    while end - start > 1 and text[start].isspace() and text[start:end].strip():
        start += 1
    while end - start > 1 and text[end - 1].isspace() and text[start:end].strip():
        end -= 1
    return start, end


def their_frame(batch: Any, row: int, texts: tuple[str, ...]) -> Framed:
    """A row of what `transformers` gives, in our form; their offsets may hold the space before a word."""
    sides = batch.sequence_ids(row)
    spans = batch["offset_mapping"][row]
    return Framed(
        ids=batch["input_ids"][row],
        types=batch["token_type_ids"][row],
        offsets=[
            None if side is None else trimmed(texts[side], *span) for side, span in zip(sides, spans, strict=True)
        ],
        side=sides,
        words=batch.word_ids(row),
    )


def call(their: Any, *texts: Any, **options: Any) -> Any:
    return their(*texts, return_offsets_mapping=True, return_token_type_ids=True, split_special_tokens=True, **options)


@pytest.mark.parametrize("kind", KINDS)
def test_single_texts(kind: str, theirs: Their) -> None:
    folder, their = theirs[kind]
    tokenizer = Tokenizer.load(folder)
    # Unigram takes a special token's name in a text for the token, even when told to split it; ours does not.
    texts = [*TEXTS, NAMES] if kind in ("bert", "roberta") else TEXTS
    batch = call(their, texts)
    assert tokenizer.frame(texts) == [their_frame(batch, row, (text,)) for row, text in enumerate(texts)]
    special = {their.pad_token_id, *their.all_special_ids} - {their.unk_token_id}
    assert not special & set(tokenizer.encode(NAMES))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("max_len", [None, 100, 41, 40, 12, 7, 5])
def test_pairs_are_cut_like_theirs(kind: str, max_len: int | None, theirs: Their) -> None:
    folder, their = theirs[kind]
    rng = random.Random(max_len or 0)
    words = " ".join(LINES[:4]).split()
    firsts, seconds = ([" ".join(rng.sample(words, rng.randint(0, 30))) for _ in range(25)] for _ in range(2))
    cut = {} if max_len is None else {"truncation": "longest_first", "max_length": max_len}
    tokenizer = Tokenizer.load(folder)
    framed = tokenizer.frame(firsts, seconds, max_len=max_len)
    batch = call(their, firsts, seconds, **cut)
    assert framed == [their_frame(batch, row, pair) for row, pair in enumerate(zip(firsts, seconds, strict=True))]
    assert max_len in (None, 100) or max(map(len, framed)) == max_len
    single = call(their, firsts, **cut)
    assert tokenizer.frame(firsts, max_len=max_len) == [
        their_frame(single, row, (text,)) for row, text in enumerate(firsts)
    ]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("max_len", "stride"), [(40, 10), (31, 0), (30, 3), (64, 29), (500, 100)])
def test_windows_over_a_long_passage(kind: str, max_len: int, stride: int, theirs: Their) -> None:
    folder, their = theirs[kind]
    question, passage = "the cat sat", " ".join(LINES[:3])
    options = {"truncation": "only_second", "max_length": max_len, "stride": stride}
    batch = call(their, question, passage, return_overflowing_tokens=True, **options)
    wanted = [their_frame(batch, row, (question, passage)) for row in range(len(batch["input_ids"]))]
    if kind == "t5":  # the library gives the first window one segment, and the others two
        assert set(wanted[0].types) == {0}
        wanted = [replace(window, types=[0] * len(window)) for window in wanted]
    assert Tokenizer.load(folder).frame_windows(question, passage, max_len, stride) == wanted
    assert (len(wanted) == 1) == (max_len == 500)


@pytest.mark.parametrize("kind", KINDS)
def test_an_empty_passage_is_one_window(kind: str, theirs: Their) -> None:
    tokenizer = Tokenizer.load(theirs[kind][0])
    assert tokenizer.frame_windows("the cat", "", 30, 5) == tokenizer.frame(["the cat"], [""])


@pytest.mark.parametrize("kind", KINDS)
def test_roles(kind: str, theirs: Their) -> None:
    folder, their = theirs[kind]
    tokenizer = Tokenizer.load(folder)
    for role in ("pad", "unk", "mask", "cls", "sep"):
        wanted = getattr(their, f"{role}_token_id", None)
        if wanted is not None:
            assert getattr(tokenizer, role) == wanted, role
    assert tokenizer.eos == (their.sep_token_id if kind == "bert" else their.eos_token_id)
    assert tokenizer.sentinels == ([their.convert_tokens_to_ids(f"<extra_id_{n}>") for n in range(7)] * (kind == "t5"))


# --- masks


@pytest.mark.parametrize("kind", ["bert", "roberta", "albert"])
def test_every_usual_name_of_the_mask(kind: str, theirs: Their) -> None:
    folder, their = theirs[kind]
    tokenizer = Tokenizer.load(folder)
    own = their.mask_token
    batch = their([f"the {own} sat on the {own}."], return_offsets_mapping=True)
    for name in ("[MASK]", "<mask>", "<|mask|>"):
        text = f"the {name} sat on the {name}."
        framed = tokenizer.frame([text], parse_special=True)[0]
        assert framed.ids == batch["input_ids"][0] and framed.ids.count(tokenizer.mask) == 2
        for id, span in zip(framed.ids, framed.offsets, strict=True):
            if id == tokenizer.mask:
                assert span is not None and text[slice(*span)] == name
        assert [text[slice(*span)] for span in framed.offsets if span][-1] == "."
        assert tokenizer.mask not in tokenizer.frame([text])[0].ids, "text, unless asked for"


def test_a_mask_of_our_own() -> None:
    for tokenizer in OURS.values():
        assert tokenizer.mask == 3
        framed = tokenizer.frame(["The [MASK] sat", "on <mask>"], parse_special=True)
        assert [row.ids.count(3) for row in framed] == [1, 1]
        assert [row.ids.count(3) for row in tokenizer.frame(["The [MASK] sat", "on <mask>"])] == [0, 0]


def test_without_a_mask_its_names_are_text(theirs: Their) -> None:
    tokenizer = Tokenizer.load(theirs["t5"][0])
    assert tokenizer.mask is None
    assert tokenizer.frame(["the [MASK]"], parse_special=True) == tokenizer.frame(["the [MASK]"])
    sentinel = tokenizer.frame(["the <extra_id_0> sat <extra_id_1>"], parse_special=True)[0].ids
    assert [id for id in sentinel if id in tokenizer.sentinels] == tokenizer.sentinels[:2]


# --- our own frame


@pytest.mark.parametrize("kind", OURS)
def test_our_own_frame(kind: str) -> None:
    tokenizer = OURS[kind]
    one, two = tokenizer.encode("The cat"), tokenizer.encode("sat on the mat.")
    assert (tokenizer.cls, tokenizer.sep) == (1, 2) == (tokenizer.bos, tokenizer.eos)
    single, pair = tokenizer.frame(["The cat"])[0], tokenizer.frame(["The cat"], ["sat on the mat."])[0]
    assert single.ids == [1, *one, 2] and set(single.types) == {0}
    assert pair.ids == [1, *one, 2, *two, 2]
    assert pair.types == [0] * (len(one) + 2) + [1] * (len(two) + 1)
    assert pair.side == [None, *[0] * len(one), None, *[1] * len(two), None]
    assert [span is None for span in pair.offsets] == [side is None for side in pair.side]
    cut = tokenizer.frame(["The cat"], ["sat on the mat."], max_len=6)[0]
    assert len(cut) == 6 and cut.ids[0] == 1 and cut.ids.count(2) == 2


def test_words_without_a_pre_tokenizer_are_what_white_space_separates() -> None:
    framed = OURS["char"].frame(["The cat  sat."])[0]
    assert framed.words == [None, *[0] * 3, *[1] * 4, *[2] * 6, None]
    words = OURS["bpe"].frame(["The cat sat."])[0].words
    assert [word for word in words if word is not None] == sorted(word for word in words if word is not None)


@settings(deadline=None, max_examples=200)
@given(st.lists(st.text(max_size=6) | st.sampled_from([*TEXTS[:6], " ", "\u00a0"]), max_size=5).map("".join))
def test_offsets_point_at_what_was_read(text: str) -> None:
    """In order, inside the text, without white space at either end, and together they hold every other character."""
    for tokenizer in OURS.values():
        framed = tokenizer.frame([text])[0]
        assert framed.ids[1:-1] == tokenizer.encode(text)
        spans = [span for span in framed.offsets if span is not None]
        assert spans == sorted(spans)
        covered = {place for start, end in spans for place in range(start, end)}
        assert all(place in covered for place, letter in enumerate(text) if not letter.isspace())
        assert all(0 <= start < end <= len(text) for start, end in spans)
        for start, end in spans:
            assert text[start:end].isspace() or text[start:end] == text[start:end].strip()


# --- what cannot be framed


def test_bad_frames_say_so() -> None:
    tokenizer = OURS["bpe"]
    with pytest.raises(ValueError, match="2 texts and 1 second texts; give one"):
        tokenizer.frame(["a", "b"], ["c"])
    with pytest.raises(ValueError, match="max_len=3 leaves no room beside 3 special tokens"):
        tokenizer.frame(["a"], ["c"], max_len=3)
    with pytest.raises(ValueError, match=r"max_len=8 leaves 4 tokens .* stride=4 .* larger max_len"):
        tokenizer.frame_windows("a", "b c d e f", 8, 4)
    with pytest.raises(ValueError, match="max_len=4 leaves 0 tokens of passage beside a question of 3"):
        tokenizer.frame_windows("zqk", "b c d e f", 4, 0)
    with pytest.raises(ValueError, match=r"lone surrogate U\+D800"):
        tokenizer.frame(["a\ud800"])
