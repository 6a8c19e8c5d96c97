"""The view of a beam search: paths through the tree, greedy choice beside it, and one line for what cannot be."""

import pytest

from regard.inside.page import Page
from regard.inside.page.offline import everything
from regard.inside.views import find_view, show_view
from tests.inside.loaded import encoder, recurrent, translator, writer
from tests.inside.seeing import captions, picture

TEXT = "the bank is open"
MADE = {
    "translator": lambda: translator().read(TEXT),
    "language model": lambda: writer().read(TEXT),
    "recurrent": lambda: recurrent().read(TEXT),
    "captioner": lambda: captions().read(picture(12, 20, "RGB")),
}


def walked(steps, path):
    """The tokens along ranks, checked to continue each other."""
    beam, ids = 0, []
    for step, rank in zip(steps, path, strict=False):
        assert step[rank]["origin"] == beam
        beam = step[rank]["beam"]
        ids.append(step[rank]["id"])
    return ids


@pytest.mark.parametrize("name", MADE)
def test_every_generating_model_has_a_tree(name, tmp_path):
    prepared = MADE[name]()
    data, draw = show_view(prepared, "beam", beams=3)
    assert data["beams"] == 3 and len(data["hypotheses"]) == 3
    for one in data["hypotheses"]:
        ids = walked(data["steps"], one["path"])
        assert prepared.generation.decode([id for id in ids if id not in prepared.generation.ends]) == one["text"]
    greedy = data["greedy"]
    walked(data["steps"], greedy["path"])
    assert data["hypotheses"][0]["score"] >= greedy["score"] - 1e-6 or greedy["dropped"] is not None
    figure = draw(tmp_path / "tree.png")
    texts = [text.get_text() for text in figure.axes[0].texts]
    assert f"step {len(data['steps'])}" in texts and any("(greedy)" in text for text in texts)
    assert find_view(prepared, "beam").render(data).count("\n") >= len(data["steps"]) + 5


def test_a_page_keeps_the_tree_and_continues_chosen_tokens():
    made = translator()
    page = Page(made, TEXT)
    assert "beam" in page.describe()["mechanisms"]
    kept = everything(page)["mechanisms"]["beam"]
    assert kept == page.view("beam")
    chosen = Page(made, TEXT, target=[9, 11]).view("beam")
    assert len(chosen["prefix"]) == len(kept["prefix"]) + 2


def test_what_has_no_search_says_so():
    with pytest.raises(ValueError, match="no view 'beam' of this input; use heads or"):
        find_view(encoder().read("the [MASK] is open"), "beam")
    with pytest.raises(ValueError, match="LSTM has no attention to look at; use --view beam or --out page.html"):
        find_view(recurrent().read(TEXT))
    with pytest.raises(ValueError, match="the view beam has no option at"):
        show_view(writer().read(TEXT), "beam", at=3)
