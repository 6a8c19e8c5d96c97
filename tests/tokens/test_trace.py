"""The tracer against the lecture, against the library's trainer and against the library's merging."""

import re
from collections import Counter

import pytest
import tokenizers
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tokenizers import decoders, models, pre_tokenizers, trainers

from regard.tokens import Tokenizer, trace

PHRASE = "The transformer generalized to unseen words."
CORPUS = [PHRASE, "then the other one used the unseen thing, undone and unwed; he needed the bread €5"] * 3


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return Tokenizer.train(texts=CORPUS, vocab_size=330)


def test_the_lectures_phrase_alone() -> None:
    """44 characters. Only ·t ra ns or er en occur twice, and `ra` takes the r of one `er`."""
    lower = [f"{left}{right}" for left, right in zip(PHRASE.lower(), PHRASE.lower()[1:], strict=False)]
    counts = Counter(lower)
    assert {pair for pair, count in counts.items() if count == 2} == {" t", "ra", "ns", "or", "er", "en"}
    assert [counts[pair] for pair in ("th", "ed", "un")] == [1, 1, 1]

    seen = trace(PHRASE)
    assert seen.initial == tuple(PHRASE.replace(" ", "·")) and len(seen.initial) == 44
    assert [step.symbol for step in seen.steps] == ["·t", "ra", "ns", "or", "en"]
    assert [step.count for step in seen.steps] == [2] * 5
    assert [len(step.symbols) for step in seen.steps] == [42, 40, 38, 36, 34]
    assert " ".join(seen.pieces) == "T h e ·t ra ns f or m e r · g en e ra l i z e d ·t o · u ns e en · w or d s ."


def test_the_lectures_merges_come_from_a_corpus(tokenizer: Tokenizer) -> None:
    symbols = [step.symbol for step in trace(PHRASE.lower(), tokenizer).steps]
    assert {"ed", "un"} <= {symbol.lstrip("·") for symbol in symbols}
    assert any("th" in symbol for symbol in symbols)


def test_pairs_do_not_cross_words_and_the_most_frequent_comes_first() -> None:
    seen = trace("ab ab ab bc bc")
    assert [(step.pair, step.count) for step in seen.steps] == [
        (("a", "b"), 3),
        (("·", "ab"), 2),
        (("·", "b"), 2),
        (("·b", "c"), 2),
    ]
    assert seen.pieces == ("ab", "·ab", "·ab", "·bc", "·bc")


@pytest.mark.parametrize("text", ["", "a", " ", "ab"])
def test_nothing_to_merge(text: str) -> None:
    assert trace(text).steps == () and len(trace(text).pieces) == len(text)
    assert str(trace(text)).startswith(f"{len(text)} symbols")


def rival_merges(text: str) -> list[tuple[str, str]]:
    """Merges of the published pseudo-code (Sennrich et al., 2016), up to the first tie or a count below 2."""
    vocabulary = Counter(" ".join(word) for word in re.findall("_*[^_]+|_+", text))
    merges = []
    while True:
        counts: Counter[tuple[str, str]] = Counter()
        for word, count in vocabulary.items():
            symbols = word.split()
            for pair in zip(symbols, symbols[1:], strict=False):
                counts[pair] += count
        best = counts.most_common(2)
        if not best or best[0][1] < 2 or (len(best) > 1 and best[1][1] == best[0][1]):
            return merges
        merges.append(best[0][0])
        bigram = re.compile(r"(?<!\S)" + re.escape(" ".join(best[0][0])) + r"(?!\S)")
        merged: Counter[str] = Counter()
        for word, count in vocabulary.items():
            merged[bigram.sub("".join(best[0][0]), word)] += count
        vocabulary = merged


@settings(deadline=None, max_examples=200)
@given(st.lists(st.text("abc", min_size=1, max_size=6), max_size=30).map(" ".join))
def test_textbook_merges_equal_the_library_trainers_until_a_tie(text: str) -> None:
    certain = rival_merges(text.replace(" ", "_"))
    mine = [tuple(symbol.replace("·", "_") for symbol in step.pair) for step in trace(text).steps]
    assert mine[: len(certain)] == certain

    library = tokenizers.Tokenizer(models.BPE())
    library.pre_tokenizer = pre_tokenizers.Split(tokenizers.Regex(r"\s*\S+|\s+"), "isolated")
    trainer = trainers.BpeTrainer(vocab_size=10_000, min_frequency=2, show_progress=False)
    library.train_from_iterator([text], trainer)
    learned = re.findall(r'\["([^"]*)","([^"]*)"\]', library.model.__getstate__().decode())
    assert [tuple(part.replace(" ", "_") for part in pair) for pair in learned][: len(certain)] == certain


def test_the_comparison_with_the_trainer_sees_many_merges() -> None:
    """The property above would be empty if every text had a tie at once."""
    assert len(rival_merges("abc_abc_abc_abcab_abcab_abcabc_b_b_b_b_b_b_b_b")) >= 3


@settings(deadline=None, max_examples=300)
@given(st.text() | st.text("theun sd.€é\n😀0", max_size=60))
def test_the_last_step_is_the_tokenizers_answer(text: str) -> None:
    for tokenizer in TRAINED:
        seen = trace(text, tokenizer)
        assert list(seen.pieces) == tokenizer.pieces(tokenizer.encode(text))
        sizes = [len(seen.initial), *(len(step.symbols) for step in seen.steps)]
        assert [before - after for before, after in zip(sizes, sizes[1:], strict=False)] == [
            step.count for step in seen.steps
        ]


TRAINED = [
    Tokenizer.train(texts=CORPUS, vocab_size=340),
    Tokenizer.train(texts=CORPUS, vocab_size=340, lowercase=True),
    Tokenizer.train(texts=CORPUS, vocab_size=290, kind="word"),
    Tokenizer.train(texts=CORPUS, vocab_size=290, kind="char"),
]


@st.composite
def merge_tables(draw: st.DrawFn) -> tuple[dict[str, int], list[tuple[str, str]]]:
    """Any table, also one that reaches a symbol by two ways, so that merging frees a merge of lower rank."""
    symbols, merges = ["a", "b", "c"], []
    for _ in range(draw(st.integers(0, 12))):
        pair = (draw(st.sampled_from(symbols)), draw(st.sampled_from(symbols)))
        if pair not in merges and len("".join(pair)) <= 8:
            merges.append(pair)
            symbols = list(dict.fromkeys([*symbols, "".join(pair)]))
    order = draw(st.permutations(merges))
    return {symbol: id for id, symbol in enumerate(symbols)}, list(order)


FREED = ({"a": 0, "b": 1, "c": 2, "bc": 3, "abc": 4, "abca": 5}, [("b", "c"), ("abc", "a"), ("a", "bc")])


@example(FREED, "abcabc")
@settings(deadline=None, max_examples=300)
@given(merge_tables(), st.text("abc", min_size=1, max_size=40))
def test_merging_equals_the_librarys_for_any_table(
    table: tuple[dict[str, int], list[tuple[str, str]]], text: str
) -> None:
    vocabulary, merges = table
    inner = tokenizers.Tokenizer(models.BPE(vocab=vocabulary, merges=merges))
    seen = trace(text, Tokenizer(inner))
    assert list(seen.pieces) == inner.encode(text).tokens
    for step in seen.steps:
        assert step.rank is not None and merges[step.rank] == step.pair


def test_ranks_and_bytes_are_shown(tokenizer: Tokenizer) -> None:
    seen = trace(" €", tokenizer)
    assert seen.initial == ("·", "⟨E2⟩", "⟨82⟩", "⟨AC⟩") and seen.pieces == ("·€",)
    assert [step.symbol for step in seen.steps][-1] == "·€"
    assert "→ ·€   1×   learned as merge" in seen.render()
    ranks = [step.rank for step in trace(PHRASE, tokenizer).steps]
    assert ranks == sorted(ranks) and len(set(ranks)) == len(ranks)


def test_render_shows_every_step_within_the_width() -> None:
    seen = trace(PHRASE)
    lines = seen.render(width=40).splitlines()
    assert max(map(len, lines)) <= 40
    assert lines[0] == "44 symbols, 34 after 5 merges"
    heads = [line for line in lines if "→" in line]
    assert heads[1] == "  2  r + a → ra   2×" and len(heads) == 5
    assert str(seen) == seen.render()


def test_a_published_tokenizer_with_byte_fallback() -> None:
    """Llama's kind: ▁ for a space, no pre-tokens, bytes for what is not in the vocabulary."""
    entries = ["<unk>", *(f"<0x{byte:02X}>" for byte in range(256)), *"▁abc", "▁a", "▁ab", "bc"]
    merges = [("▁", "a"), ("▁a", "b"), ("b", "c")]
    model = models.BPE(vocab={entry: id for id, entry in enumerate(entries)}, merges=merges, byte_fallback=True)
    inner = tokenizers.Tokenizer(model)
    inner.pre_tokenizer = pre_tokenizers.Metaspace(split=False)
    inner.decoder = decoders.Sequence([decoders.ByteFallback(), decoders.Metaspace(split=False)])
    tokenizer = Tokenizer(inner)
    seen = trace("abc é", tokenizer)
    assert list(seen.pieces) == tokenizer.pieces(tokenizer.encode("abc é")) == ["·ab", "c", "·", "⟨C3⟩", "⟨A9⟩"]


def test_what_cannot_be_traced_says_so() -> None:
    inner = tokenizers.Tokenizer(models.WordPiece({"[UNK]": 0, "a": 1}, unk_token="[UNK]"))
    with pytest.raises(ValueError, match="wordpiece tokenizer has no merges"):
        trace("a", Tokenizer(inner))
    with pytest.raises(ValueError, match=r"U\+D800"):
        trace("a\ud800")
    unknown = Tokenizer(tokenizers.Tokenizer(models.BPE({"[UNK]": 0, "a": 1}, [], unk_token="[UNK]")))
    with pytest.raises(ValueError, match="more than merge"):
        trace("ab", unknown)
