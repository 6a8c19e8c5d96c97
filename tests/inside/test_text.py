"""A single text as a model reads it, and pictures of where its tokens look."""

from dataclasses import replace

import pytest
import torch

from regard.inside.capture.weights import look
from regard.inside.views.tokens import render_heads, show_heads
from tests.inside.loaded import TEXTS, encoder, recurrent, writer
from tests.inside.test_views import overlaps, png_size


def test_an_encoder_reads_a_framed_text():
    loaded = encoder()
    one = loaded.read(TEXTS[0])
    assert one.tokens[0] == "[CLS]" and one.tokens[-1] == "[SEP]"
    assert one.sequences[0].spans[0] is one.sequences[0].spans[-1] is None
    assert one.inputs["ids"].shape == (1, len(one.tokens)) and one.inputs["lengths"].tolist() == [len(one.tokens)]
    assert not one.inputs["types"].any()
    spelled = "".join(TEXTS[0][start:end] for start, end in one.sequences[0].spans[1:-1])
    assert spelled == TEXTS[0].replace(" ", "")


def test_a_pair_has_two_types_and_the_places_of_the_first():
    one = encoder().read(TEXTS[0], TEXTS[1])
    assert one.inputs["types"][0].tolist() == sorted(one.inputs["types"][0].tolist()) and one.inputs["types"].any()
    assert one.tokens.count("[SEP]") == 2
    assert all(span is None for span, kind in zip(one.sequences[0].spans, one.inputs["types"][0], strict=True) if kind)
    assert "types" not in encoder(types=1).read(TEXTS[0], TEXTS[1]).inputs


def test_a_writer_reads_a_text_as_a_prompt():
    loaded = writer()
    one = loaded.read(TEXTS[3])
    assert one.inputs.keys() == {"ids"} and one.inputs["ids"][0].tolist() == loaded.tokenizer.encode(TEXTS[3])
    assert len(one.sequences[0].spans) == len(one.tokens) == one.inputs["ids"].shape[1]
    loaded.front = [1]  # as published models that begin every text with a mark
    begun = loaded.read(TEXTS[3])
    assert begun.tokens == ["<bos>", *one.tokens] and begun.sequences[0].spans == [None, *one.sequences[0].spans]


@pytest.mark.parametrize("make", [encoder, writer, lambda: encoder(shared=True)])
def test_every_layer_and_head_is_drawn_with_readable_labels(make, tmp_path):
    loaded, path = make(), tmp_path / "heads.png"
    one = loaded.read(TEXTS[0])
    figure = show_heads(one)[1](path)
    panels = figure.axes[:-1]
    assert len(panels) == 2 * 3 and png_size(path)[0] < 6000
    assert [axes.get_ylabel() for axes in panels[::3]] == ["layer 0", "layer 1"]
    labels = panels[0].get_yticklabels()
    assert [label.get_text() for label in labels] == one.tokens
    assert min(label.get_fontsize() for label in labels) >= 7
    assert not overlaps(labels, 1) and not overlaps(panels[0].get_xticklabels(), 0)
    with torch.no_grad(), look(loaded.model) as seen:
        loaded.model.features(**one.inputs)
    shown = torch.tensor(panels[3 + 2].images[0].get_array())
    torch.testing.assert_close(shown, seen.attention[1, 2][0])


@pytest.mark.parametrize("make", [encoder, writer])
def test_lines_show_the_last_layer(make, tmp_path):
    loaded, path = make(), tmp_path / "lines.svg"
    one = loaded.read(TEXTS[0])
    figure = show_heads(one, lines=True)[1](path)
    texts = [text.get_text() for text in figure.axes[0].texts]
    assert texts[: len(one.tokens)] == texts[len(one.tokens) : 2 * len(one.tokens)] == one.tokens
    assert len(figure.axes[0].collections) == 3 and path.stat().st_size > 1000
    if make is writer:  # nobody sees the future
        lines = [line for each in figure.axes[0].collections for line in each.get_segments()]
        assert lines and all(start[1] >= end[1] for start, end in lines)


def test_segments_change_what_is_drawn():
    loaded = encoder()
    one = loaded.read("A bank.", "A river.")
    other = replace(one, inputs=one.inputs | {"types": torch.zeros_like(one.inputs["types"])})
    with_types, without = (show_heads(each)[1](None).axes[4].images[0].get_array() for each in (one, other))
    assert abs(with_types - without).max() > 1e-3


def test_what_is_shown_is_data_lines_and_a_picture(tmp_path):
    loaded = encoder()
    said, draw = show_heads(loaded.read("A bank.", "A river."))
    with torch.no_grad(), look(loaded.model) as seen:
        loaded.model.features(**loaded.read("A bank.", "A river.").inputs)
    assert [one["layer"] for one in said["layers"]] == seen.names
    torch.testing.assert_close(torch.tensor(said["layers"][1]["heads"]), seen.attention[1][0], atol=1e-6, rtol=0)
    draw(tmp_path / "a.png")
    lines = render_heads(said).splitlines()
    assert len(lines) == 2 + 2 * 3 and lines[2].split()[:3] == ["layer", "0", "0"]
    weight, strongest = seen.attention[0, 0][0].max(), divmod(int(seen.attention[0, 0][0].argmax()), len(said["rows"]))
    assert f"{weight:.3f}  {said['rows'][strongest[0]]} → {said['columns'][strongest[1]]}" in lines[2]
    said, draw = show_heads(writer().read(TEXTS[0]), lines=True)
    assert len(said["layers"]) == 1
    draw(tmp_path / "b.png")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.png", "b.png"]


def test_what_cannot_be_drawn_says_why(tmp_path):
    with pytest.raises(ValueError, match="a figure ends in"):
        show_heads(encoder().read(TEXTS[0]))[1](tmp_path / "x.gif")
    with pytest.raises(ValueError, match="a GPT reads one text at a time, got 2"):
        writer().read(TEXTS[0], TEXTS[1])
    with pytest.raises(ValueError, match="a GPT has one kind of attention; leave out --kind"):
        show_heads(writer().read(TEXTS[0]), kind="cross")
    with pytest.raises(ValueError, match="LSTM has no attention to look at"):
        show_heads(recurrent().read(TEXTS[0]))
    for make in (encoder, writer, lambda: writer(position="rotary")):  # also where positions would go on
        with pytest.raises(ValueError, match=r"the text has \d+ tokens, the model's context is 64; give it a shorter"):
            make().read(TEXTS[0] * 30)
    with pytest.raises(ValueError, match="the text is empty"):
        writer().read("")
    assert not list(tmp_path.iterdir())
