"""How texts and pictures become sequences: the figures show the merges and the patches that there are."""

import numpy as np
import pytest
from PIL import Image

from regard.inside.draw.figures import draw_figure
from regard.inside.draw.sequences import merged_rows, patches_of
from regard.models import ViT, ViTConfig
from regard.tokens import Tokenizer
from regard.tokens.trace import trace


def words(figure):
    return [text.get_text() for text in figure.axes[0].texts]


@pytest.mark.parametrize("text", ["low lower lowest", "aaaa aaa", "naïve größe 漢字漢字 😀😀", "abc"])
def test_boxes_span_the_letters_that_they_were_made_of(text, tmp_path):
    learned = Tokenizer.train(texts=[text] * 3, vocab_size=300)
    for found in (trace(text), trace(text, learned)):
        letters = len(found.initial)
        for (_, symbols, widths, new), step in zip(merged_rows(found), found.steps, strict=True):
            assert sum(widths) == letters and len(widths) == len(symbols) == len(new)
            assert any(new) and all(symbol == step.symbol for symbol, made in zip(symbols, new, strict=True) if made)
        if found.steps and text.isascii():
            assert widths == [len(piece) for piece in found.pieces]


def test_merges_are_drawn_from_letters_to_tokens(tmp_path):
    found = trace("low lower lowest")
    drawn = words(draw_figure("bpe", tmp_path / "bpe.svg", text="low lower lowest"))
    assert drawn[0] == "letters" and drawn[1:17] == list(found.initial)
    assert drawn[-2 - len(found.pieces) : -1] == [*found.pieces, f"{len(found.pieces)} tokens"]
    Tokenizer.train(texts=["low lower lowest"] * 3, vocab_size=300).save(tmp_path / "tok.json")
    short = words(draw_figure("bpe", text="lowest low", tokenizer=str(tmp_path / "tok.json"), steps="2"))
    assert any(" more, then " in word for word in short)
    for wrong, cure in (
        (dict(text=""), "give a word"),
        (dict(text="a" * 99), "99 letters"),
        (dict(steps=0), "at least"),
    ):
        with pytest.raises(ValueError, match=cure):
            draw_figure("bpe", **wrong)


def test_patches_are_those_that_a_model_flattens(tmp_path):
    pixels = np.random.default_rng(0).integers(0, 256, (12, 20, 3), dtype=np.uint8)
    cut = patches_of(pixels, 4)
    assert cut.shape == (15, 4, 4, 3) and np.array_equal(cut[7], pixels[4:8, 8:12])
    model = ViT(ViTConfig(image=(12, 20), patch=4, dim=12, depth=1, heads=2))
    assert model.config.tokens - model.config.first == len(cut)
    Image.fromarray(np.pad(pixels, ((1, 2), (0, 3), (0, 0)))).save(tmp_path / "a.png")
    figure = draw_figure("patches", tmp_path / "b.png", image=str(tmp_path / "a.png"), patch="4")
    shown = [image.get_array() for image in figure.axes[0].images]
    assert np.array_equal(shown[0], np.pad(pixels, ((1, 2), (0, 3), (0, 0)))[1:13, 1:21])  # the middle of 15 × 23
    assert len(shown) == 1 + 2 * 15 and shown[2].size == 4 * 4 * 3
    assert words(figure)[-1].endswith("a sequence of 15 vectors of 4 · 4 · 3 = 48 numbers")


def test_a_grey_picture_and_mistakes(tmp_path):
    Image.fromarray(np.zeros((28, 28), dtype=np.uint8)).save(tmp_path / "grey.png")
    assert (
        "4 vectors of 14 · 14 · 1 = 196 numbers"
        in words(draw_figure("patches", image=str(tmp_path / "grey.png"), patch=14))[-1]
    )
    wrong = (
        (dict(patch=2), "use larger"),
        (dict(patch=65), "use 1 to 64"),
        (dict(patch=0), "use 1 to"),
        (dict(image="x"), "no such"),
    )
    for settings, cure in wrong:
        with pytest.raises(ValueError, match=cure):
            draw_figure("patches", **settings)


def test_the_singular_names_the_same_figure():
    assert len(draw_figure("mask").axes) == len(draw_figure("masks").axes)
    assert len(draw_figure("positional", scheme="alibi", length=9).axes) == len(
        draw_figure("positions", scheme="alibi", length=9).axes
    )


def test_a_drawn_graph_has_as_many_positions_as_nodes():
    graph = draw_figure("mask", rule="edges(0-1, 1-2, 2-0, 2 - 3)").axes[0].images[0].get_array()
    assert graph.shape == (4, 4) and (graph > 0).sum() == 8
    assert draw_figure("mask", rule="causal").axes[0].images[0].get_array().shape == (12, 12)
    with pytest.raises(ValueError, match="names position 100000, but there are 64"):
        draw_figure("mask", rule="edges(0-100000)")
