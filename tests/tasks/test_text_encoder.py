"""Vectors of texts and search among them; words, labels, entities and answers read off an encoder by hand."""

import shutil

import numpy as np
import pytest
import torch
from seqeval.metrics.sequence_labeling import get_entities

from regard.models import Bert, BertConfig
from regard.tasks import EntityTagger, MaskFiller, QuestionAnswerer, TextClassifier, TextEncoder, load
from regard.tasks import text_encoder as module
from regard.tasks.text_heads import entities
from regard.tokens import Framed, Tokenizer
from tests.recipes.tiny import shared

TEXTS = ["the cat sat", "a hat", "", "the cat and the hat and the cat", "naïve café", "the  cat sat"]
SIZES = dict(dim=12, heads=2, ffn_dim=24, depth=2, vocab_size=300, max_len=40, dropout=0.1)


@pytest.fixture(scope="module")
def tokenizer():
    texts = ["the cat sat on the hat and a naïve café in New York City, Berlin 1999. " * 20]
    return Tokenizer.train(texts=texts, vocab_size=300, specials=("<mask>",))


def made(cls, tokenizer, task, **fields):
    torch.manual_seed(2)
    model = Bert(BertConfig(**SIZES | fields, task=task))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.3 * torch.randn_like(parameter)
    return cls(model, tokenizer)


def plain(one, text, second=None, **how):
    """The model's scores for one text, without batches; and the text as it was framed."""
    framed = one.tokenizer.frame([text], None if second is None else [second], max_len=one.context, **how)[0]
    with torch.no_grad():
        scores = one.model(torch.tensor([framed.ids]), torch.tensor([len(framed)]), torch.tensor([framed.types]))
    return scores[0], framed


# ---- vectors ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("pooling", ["mean", "first"])
def test_a_batch_has_the_vectors_of_its_texts(tokenizer, pooling, monkeypatch):
    one = made(TextEncoder, tokenizer, "none", pooling=pooling)
    alone = torch.cat([one.embed([text]) for text in TEXTS])
    for size in (8192, 20):
        monkeypatch.setattr(module, "BATCH_TOKENS", size)
        torch.testing.assert_close(one.embed(TEXTS), alone)
    torch.testing.assert_close(alone.norm(dim=-1), torch.ones(len(TEXTS)))
    x, _ = plain(one, TEXTS[0])
    wanted = x.mean(0) if pooling == "mean" else x[0]
    torch.testing.assert_close(one.embed([TEXTS[0]], normalize=False)[0], wanted)
    assert one.embed([]).shape == (0, 12)


def test_a_text_is_cut_to_the_context(tokenizer):
    one = made(TextEncoder, tokenizer, "none")
    assert torch.equal(one.embed(["cat " * 100]), one.embed(["cat " * 200]))


def test_search_ranks_as_numpy_does(tokenizer):
    one = made(TextEncoder, tokenizer, "none")
    corpus = [f"the {word} {i}" for i, word in enumerate(["cat", "hat", "café", "sat", "York"] * 4)]
    vectors, query = one.embed(corpus, normalize=False).numpy(), one.embed(["a cat"], normalize=False).numpy()[0]
    cosine = vectors @ query / np.linalg.norm(vectors, axis=1) / np.linalg.norm(query)
    found = one.search("a cat", corpus, count=7)
    order = np.argsort(-cosine)[:7]
    assert [hit.place for hit in found] == order.tolist() and [hit.text for hit in found] == [corpus[i] for i in order]
    assert [hit.score for hit in found] == pytest.approx(cosine[order].tolist(), abs=1e-6)
    assert len(one.search("a cat", corpus, count=99)) == 20 and one.search("a cat", []) == []


# ---- hidden words -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("task", ["mask", "pretrain"])
def test_fill_takes_the_softmax_at_each_mask(tokenizer, task):
    one = made(MaskFiller, tokenizer, task)
    texts = ["the [MASK] sat on the <mask>", "a [MASK]"]
    for text, places in zip(texts, one.fill(texts, count=3), strict=True):
        scores, framed = plain(one, text, parse_special=True)
        where = [i for i, id in enumerate(framed.ids) if id == tokenizer.mask]
        assert len(places) == len(where) == text.lower().count("mask")
        for place, words in zip(where, places, strict=True):
            best = scores[place].softmax(-1).topk(3)
            assert [word.probability for word in words] == pytest.approx(best.values.tolist(), abs=1e-6)
            assert [word.token for word in words] == [tokenizer.decode([i]).strip() for i in best.indices.tolist()]
    assert len(one.fill(["[MASK]"], count=10_000)[0][0]) == 300


def test_fill_needs_a_mask(tokenizer):
    one = made(MaskFiller, tokenizer, "mask")
    with pytest.raises(ValueError, match=r"text 2 has no \[MASK\]; write it where a word is to be filled in"):
        one.fill(["[MASK]", "the cat"])
    without = made(MaskFiller, Tokenizer.train(texts=["a"], vocab_size=259), "mask")
    with pytest.raises(ValueError, match="has no mask token"):
        without.fill(["[MASK]"])


# ---- labels -----------------------------------------------------------------------------------------------------


def test_classify_is_the_softmax_in_order(tokenizer):
    one = made(TextClassifier, tokenizer, "classify", labels=("x", "y", "z"))
    seconds = [f"{text} too" for text in TEXTS]
    for with_second in (None, seconds):
        for i, found in enumerate(one.classify(TEXTS, with_second)):
            scores, framed = plain(one, TEXTS[i], None if with_second is None else seconds[i])
            wanted = dict(zip("xyz", scores.softmax(-1).tolist(), strict=True))
            assert {label.label: label.probability for label in found} == pytest.approx(wanted, abs=1e-6)
            assert found == sorted(found, key=lambda label: -label.probability)
            assert (1 in framed.types) == (with_second is not None)


# ---- entities ---------------------------------------------------------------------------------------------------

SENTENCE = "Ada  Lovelace saw New York City, then Berlin in 1999 ."


def framed_words(text, halves=()):
    """A frame with one token a word, or two for some."""
    framed = Framed([1], [0], [None], [None], [None])
    start = 0
    for number, word in enumerate(text.split()):
        start = text.index(word, start)
        cuts = [start, start + 1, start + len(word)] if number in halves else [start, start + len(word)]
        for a, b in zip(cuts, cuts[1:], strict=False):
            for values, value in zip(
                (framed.ids, framed.types, framed.offsets, framed.side, framed.words),
                (5, 0, (a, b), 0, number),
                strict=True,
            ):
                values.append(value)
        start += len(word)
    return framed


@pytest.mark.parametrize(
    "tags",
    [
        "B-PER I-PER O B-LOC I-LOC I-LOC O B-LOC O B-DATE O",
        "O O O B-LOC B-LOC I-LOC O O O O O",
        "I-PER I-PER O I-LOC I-LOC I-LOC O I-LOC O O I-DATE",
        "B-PER I-LOC I-LOC O I-PER B-PER I-PER I-PER O O B-LOC",
        "B-PER E-PER O B-LOC I-LOC E-LOC O S-LOC S-LOC S-DATE O",
        "B-geo-loc I-geo-loc O B-geo-loc I-per-loc O O O O O O",
        "O O O O O O O O O O O",
    ],
)
@pytest.mark.parametrize("halves", [(), (0, 4, 10)])
def test_entities_are_those_of_seqeval_with_their_characters(tags, halves):
    words, tags = SENTENCE.split(), tags.split()
    framed = framed_words(SENTENCE, halves)
    # What the later tokens of a word are tagged does not matter: a word is labelled by its first.
    names = ["O"] + [
        tags[word] if word != before else "B-NOISE"
        for before, word in zip(framed.words, framed.words[1:], strict=False)
    ]
    found = entities(SENTENCE, framed, names, [0.5] * len(framed))
    wanted = [(label, " ".join(words[first : last + 1])) for label, first, last in get_entities(tags)]
    assert [(one.label, " ".join(one.text.split())) for one in found] == wanted
    assert all(SENTENCE[one.start : one.end] == one.text == one.text.strip() for one in found)


def test_plain_labels_join_where_they_are_the_same_and_scores_are_the_lowest():
    framed = framed_words("Ada Lovelace Berlin saw Paris")
    names = ["O", "PER", "PER", "LOC", "O", "LOC"]
    found = entities("Ada Lovelace Berlin saw Paris", framed, names, [1.0, 0.9, 0.6, 0.8, 1.0, 0.7])
    assert [(one.text, one.label, one.score) for one in found] == [
        ("Ada Lovelace", "PER", 0.6),
        ("Berlin", "LOC", 0.8),
        ("Paris", "LOC", 0.7),
    ]


def test_tag_reads_the_first_token_of_each_word(tokenizer):
    one = made(EntityTagger, tokenizer, "tag", labels=("O", "B-X", "I-X"))
    texts = ["the cat sat in New York", "naïve café", "Berlin 1999"]
    for text, found in zip(texts, one.tag(texts), strict=True):
        scores, framed = plain(one, text)
        best = scores.softmax(-1).max(-1)
        names = [("O", "B-X", "I-X")[i] for i in best.indices.tolist()]
        assert [(e.start, e.end) for e in found] == [
            (e.start, e.end) for e in entities(text, framed, names, best.values.tolist())
        ]
        assert all(text[e.start : e.end] == e.text for e in found)
    assert any(one.tag(texts)), "the test must find something"
    with pytest.raises(ValueError, match="text 2 has [0-9]+ tokens, the context is 40; split it"):
        one.tag(["the", "cat " * 100])


# ---- answers ----------------------------------------------------------------------------------------------------


class Pointing(torch.nn.Module):
    """A reader that points at given tokens: (start, end) scores of 8 there, and of `nothing` at the first token."""

    def __init__(self, first, last, nothing=0.0):
        super().__init__()
        self.first, self.last, self.nothing = first, last, nothing
        self.config = type("Config", (), {"max_len": 40, "types": 2, "task": "answer"})()

    def forward(self, ids, lengths, types=None):
        scores = torch.zeros(*ids.shape, 2)
        scores[:, 0] = self.nothing
        scores[..., 0] += 8.0 * (ids == self.first)
        scores[..., 1] += 8.0 * (ids == self.last)
        return scores


def words_tokenizer(text):
    return Tokenizer.train(texts=[f"{text} {text}"] * 3, kind="word", vocab_size=320)


PASSAGE = "alpha beta gamma delta epsilon zeta"


@pytest.mark.parametrize(
    ("first", "last", "answer"), [(" beta", " delta", "beta gamma delta"), (" zeta", " zeta", "zeta")]
)
def test_an_answer_is_a_stretch_of_the_passage(first, last, answer):
    tokenizer = words_tokenizer(f"{PASSAGE} which one")
    reader = QuestionAnswerer(Pointing(tokenizer.encode(first)[0], tokenizer.encode(last)[0]), tokenizer)
    # The question has the same words: only the passage counts.
    (found,) = reader.answer([f"which one beta delta zeta{first}{last}"], [f"which one {PASSAGE}"])
    assert found.text == answer and f"which one {PASSAGE}"[found.start : found.end] == answer
    assert 0 < found.score < 1


def test_a_score_is_the_product_of_both_probabilities(tokenizer):
    one = made(QuestionAnswerer, tokenizer, "answer")
    question, passage = "the cat?", "a naïve hat and Berlin"
    (found,) = one.answer([question], [passage])
    scores, framed = plain(one, question, passage)
    begin, end = scores.softmax(0).T.tolist()
    inside = [i for i, side in enumerate(framed.side) if side == 1]
    best = max((begin[i] * end[j], i, j) for i in inside for j in inside if i <= j)
    if best[0] > begin[0] * end[0]:
        assert (found.start, found.end) == (framed.offsets[best[1]][0], framed.offsets[best[2]][1])
        assert found.score == pytest.approx(best[0], abs=1e-6)
    else:
        assert found.text is None and found.score == pytest.approx(begin[0] * end[0], abs=1e-6)


def test_not_answerable_where_nothing_is_likelier():
    tokenizer = words_tokenizer(f"{PASSAGE} which one")
    beta = tokenizer.encode(" beta")[0]
    (found,) = QuestionAnswerer(Pointing(beta, beta, nothing=20.0), tokenizer).answer(["which"], [PASSAGE])
    assert found.text is None and (found.start, found.end) == (0, 0) and found.score > 0.9
    assert QuestionAnswerer(Pointing(beta, beta, nothing=7.0), tokenizer).answer(["which"], [PASSAGE])[0].text == "beta"
    (empty,) = QuestionAnswerer(Pointing(beta, beta), tokenizer).answer(["which"], [""])
    assert empty.text is None


def test_a_span_never_ends_before_it_starts_and_is_not_endless():
    tokenizer = words_tokenizer(f"{PASSAGE} which one")
    delta, beta = tokenizer.encode(" delta")[0], tokenizer.encode(" beta")[0]
    (found,) = QuestionAnswerer(Pointing(delta, beta), tokenizer).answer(["which"], [PASSAGE])
    assert found.start < found.end, "delta comes after beta: the best of what is left"


@pytest.mark.parametrize("place", [1, 57, 140, 199])
def test_a_long_passage_is_read_in_windows(place):
    words = [f"{'abcdefgh'[i % 8]}{'ijklm'[i // 8 % 5]}" for i in range(200)]
    words[place] = "needle"
    passage = " ".join(words)
    tokenizer = words_tokenizer(passage + " needle where is it")
    (needle,) = tokenizer.encode(" needle")
    # In windows without it, "nothing" is the best: only one that every window prefers may win.
    (found,) = QuestionAnswerer(Pointing(needle, needle, nothing=2.0), tokenizer).answer(["where is it"], [passage])
    assert found.text == "needle" and passage[found.start : found.end] == "needle"
    assert found.start == len(" ".join(words[:place])) + 1


def test_a_checkpoint_of_sentence_transformers_says_how_much_of_a_text_is_read(tmp_path, tmp_path_factory):
    tiny = shared(tmp_path_factory)
    run, text = tmp_path / "run", "The red cat sees a cat in May. " * 9
    shutil.copytree(tiny.run("embed"), run)
    whole = load(run)
    (run / "sentence_bert_config.json").write_text('{"max_seq_length": 12, "do_lower_case": false}')
    short = load(run)
    assert short.context == 12 < whole.context and len(short.frame([text])[0]) == 12
    assert not torch.allclose(short.embed(text), whole.embed(text), atol=1e-4)
    assert torch.equal(short.embed("A cat."), whole.embed("A cat."))
    (run / "sentence_bert_config.json").write_text('{"max_seq_length": null}')
    assert load(run).context == whole.context
