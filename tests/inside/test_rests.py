"""Which views a page has of a model, that they are of the tokens it shows, and what a file keeps of them."""

import pytest
import torch

from regard.inside.capture.ablation import without
from regard.inside.page import Page
from regard.inside.page import offline as module
from regard.inside.page.offline import everything
from regard.inside.views.explanations import EXPLANATIONS, explain, render
from regard.models import Seq2Seq, Seq2SeqConfig
from regard.nn.weights import find_kernels
from regard.tasks import ImageClassifier, ImageEncoder, MaskFiller, ObjectDetector, TextClassifier, Translator
from tests.inside.loaded import GENERATION, encoder, recurrent, spread_out, translator, writer
from tests.inside.seeing import captions, detr, loaded, picture, swin, vit

TEXT = "the bank is open"
WRITES = GENERATION | dict(max_length=20)


def told(speaker):
    speaker.generation = WRITES
    return speaker


def single():
    """A translator of the old kind, with one attention."""
    tokenizer = translator().tokenizer
    return Translator(spread_out(Seq2Seq(Seq2SeqConfig(vocab_size=len(tokenizer), dim=14))), tokenizer, WRITES)


def reader(kind, **changes):
    made = encoder(**changes)
    return kind(made.model, made.tokenizer)


ALONE = ["rollout", "gradient", "ablation", "agreement"]
SEEN = {
    "gpt": (lambda: [writer(), TEXT], list(EXPLANATIONS)),
    "t5": (lambda: [told(translator()), TEXT], list(EXPLANATIONS)),
    "one attention": (lambda: [single(), TEXT], ["ablation"]),
    "lstm": (lambda: [recurrent(), TEXT], []),
    "vector": (lambda: [encoder(task="none"), TEXT], ALONE),
    "label": (
        lambda: [reader(TextClassifier, task="classify", pooler=True, labels=("no", "yes")), TEXT], list(EXPLANATIONS),
    ),
    "pair": (
        lambda: [reader(TextClassifier, task="classify", pooler=True, labels=("no", "yes"), types=2), TEXT, TEXT],
        [view for view in EXPLANATIONS if view != "patch"],
    ),
    "picture": (
        lambda: [loaded(vit(labels=("no", "yes")), (12, 20), ImageClassifier), picture(12, 20)],
        [view for view in EXPLANATIONS if view != "patch"],
    ),
    "windows": (
        lambda: [loaded(swin(labels=("no", "yes")), (14, 18), ImageClassifier), picture(14, 18)],
        ["ablation"],
    ),
    "boxes": (lambda: [loaded(detr(), (32, 32), ObjectDetector), picture(32, 32)], ["rollout", "gradient", "ablation"]),
    "picture's vector": (lambda: [loaded(vit(), (12, 20), ImageEncoder), picture(12, 20)], ALONE),
    "caption": (lambda: [captions(), picture(12, 20, "RGB")], ["rollout", "gradient", "ablation", "lens"]),
    "recurrent caption": (lambda: [captions(decoder="recurrent"), picture(12, 20, "RGB")], ["ablation"]),
}  # fmt: skip


@pytest.mark.parametrize("name", SEEN)
def test_the_views_that_a_page_offers_are_those_that_there_are(name):
    make, wanted = SEEN[name]
    page = Page(*make())
    assert page.describe()["views"] == wanted
    kept = everything(page)["views"]
    assert set(kept) == set(wanted) - {"patch"}
    assert not any("problem" in found for found in kept.values())
    for view in set(EXPLANATIONS) - set(wanted):
        with pytest.raises(ValueError, match="there is no view"):
            page.view(view)


def test_a_view_is_of_the_tokens_that_are_shown_with_the_heads_that_are_off():
    made = writer()
    ids = made.tokenizer.encode(" open")
    page = Page(made, TEXT, target=ids, off=[(0, 1)])
    tokens = page.describe()["sequences"][0]["tokens"]
    found = page.view("rollout")
    assert found["tokens"] == tokens and len(found["outputs"]) == len(tokens)
    with without(made.model, [(0, 1)]):
        assert page.view("ablation", at=2) == explain(made.read(TEXT, target=ids), "ablation", at=2)[0]
    assert page.view("ablation")["layers"][0]["heads"][1] == 0  # it is off already
    assert page.view("ablation") != Page(made, TEXT, target=ids).view("ablation")
    translates = told(translator())
    page = Page(translates, TEXT, target=[5, 9])
    assert page.view("gradient")["tokens"] == page.describe()["sequences"][0]["tokens"]
    assert len(page.view("gradient")["outputs"]) == 3  # and its end


@pytest.mark.parametrize("view", ["rollout", "gradient", "agreement"])
def test_nothing_comes_through_heads_that_are_off(view):
    made = writer()
    kernels = find_kernels(made.model)
    layers = [(name, head) for name in kernels for head in range(kernels[name].heads)]

    def weights(off):
        found = Page(made, TEXT, off=off).view(view)["weights"]
        return {name: torch.tensor(one) for name, one in (found if view == "agreement" else {view: found}).items()}

    for name, one in weights(layers).items():
        away = one - one.diagonal().diag() if name != "attention" else one  # that one does not count what stays
        assert away.abs().max() < 1e-6, name
    for name, one in weights(layers[:2]).items():
        assert not torch.allclose(one, weights([])[name]), name


def test_outputs_that_are_too_many_are_said_to_be_left_out():
    made = writer(max_len=256)
    said, _ = explain(made.read("ab " * 60), "rollout")
    tokens = len(said["tokens"])
    assert said["left_out"] == tokens - 64 > 0 and len(said["outputs"]) == 64
    assert f"({tokens - 64} outputs before these are left out; --at chooses one)" in render(said)
    assert "left_out" not in explain(made.read("ab " * 60), "rollout", at=2)[0]


def test_a_patch_has_the_same_tokens_behind_both_texts():
    torch.manual_seed(1)
    made = writer()
    ids = made.tokenizer.encode("r")
    found = Page(made, "a", target=ids).view("patch", against="k")
    assert found["positions"][0]["tokens"][-2:] == ["a | k", "r"]


def test_a_file_keeps_no_views_that_take_long_and_tells_what_is_refused(monkeypatch):
    page = Page(reader(MaskFiller), TEXT)
    assert "no [MASK]" in everything(page)["views"]["lens"]["problem"]
    monkeypatch.setattr(module, "MOST_WORK", 10)
    assert everything(page)["views"] == {}
    monkeypatch.undo()
    monkeypatch.setattr(module, "MOST_TOKENS", 3)
    assert everything(page)["views"] == {}


def test_copies_are_what_goes_through_the_model():
    made = writer()
    page, passes = Page(made, TEXT), []
    handle = made.model.register_forward_hook(lambda module, args, output: passes.append(len(output)))
    for view, spare in (("ablation", 4), ("agreement", 6), ("rollout", 4)):
        passes.clear()
        page.view(view)
        assert 0 <= sum(passes) - page.copies(view) <= spare
    handle.remove()
