"""Every view on every family that reads texts or labels pictures: plain data, lines, and a picture."""

import json
from dataclasses import replace

import pytest
import torch

from regard.inside.explain import aligners
from regard.inside.views.explanations import EXPLANATIONS, explain, render
from regard.nn.heads import split_predictions
from regard.tasks import (
    EntityTagger,
    ImageClassifier,
    MaskFiller,
    ObjectDetector,
    QuestionAnswerer,
    TextClassifier,
    Translator,
)
from tests.inside.loaded import SIZES, TEXTS, encoder, recurrent, translator, writer
from tests.inside.seeing import captions, detr, picture, vit
from tests.inside.seeing import loaded as seeing


def reader(kind, **changes):
    one = encoder(pooler=True, **changes)
    return kind(one.model, one.tokenizer)


def writing():
    """A translator that knows how to translate."""
    one = translator()
    told = dict(num_beams=1, length_penalty=1.0, max_length=8, force_end=False)
    return Translator(one.model, one.tokenizer, one.generation | told)


CASES = {
    "gpt": writer,
    "gpt shared keys": lambda: writer(kv_heads=1),
    "t5": writing,
    "vector": lambda: encoder(task="none"),
    "classifier": lambda: reader(TextClassifier, task="classify", labels=("no", "yes", "so")),
    "albert": lambda: reader(TextClassifier, task="classify", labels=("no", "yes"), shared=True),
    "tagger": lambda: reader(EntityTagger, task="tag", labels=("O", "B-X")),
    "filler": lambda: reader(MaskFiller, task="mask"),
    "answerer": lambda: reader(QuestionAnswerer, task="answer"),
}
TEXT = "the bank is [MASK] river"


@pytest.mark.parametrize("view", [view for view in EXPLANATIONS if view != "patch"])
@pytest.mark.parametrize("name", CASES)
def test_every_family(name, view, tmp_path):
    loaded = CASES[name]()
    if (name, view) == ("vector", "lens"):
        with pytest.raises(ValueError, match="a Bert for this input are not explained by lens; use rollout"):
            explain(loaded.read(TEXT), view)
        return
    asked = loaded.read(TEXT)
    said, draw = explain(asked, view)
    assert said["outputs"] == asked.output_names and json.loads(json.dumps(said, allow_nan=False))["view"] == view
    assert len(render(said).splitlines()) > 1
    if "weights" in said:
        weights = said["weights"]["gradient"] if view == "agreement" else said["weights"]
        assert len(weights) == len(asked.outputs.rows) and {len(row) for row in weights} == {len(asked.tokens)}
    if view == "ablation":
        assert [len(one["heads"]) for one in said["layers"]] == [SIZES["heads"]] * len(said["layers"])
    if view == "lens":
        assert len(said["layers"]) == SIZES["depth"] + 1
    if name in ("gpt", "t5", "classifier"):
        draw(tmp_path / "view.png")
        assert (tmp_path / "view.png").stat().st_size > 3000


@torch.no_grad()
@pytest.mark.parametrize("name", [name for name in CASES if name != "vector"])
def test_the_last_lens_is_the_model_itself_and_nothing_stays_behind(name):
    loaded = CASES[name]()
    asked = loaded.read(TEXT)
    before = asked.logits()
    said, _ = explain(asked, "lens")
    probabilities = asked.log_probabilities().exp()[0]
    torch.testing.assert_close(torch.tensor(said["layers"][-1]["right"]), probabilities, atol=1e-5, rtol=1e-4)
    explain(asked, "agreement")
    assert torch.equal(asked.logits(), before)
    assert not any(part._forward_hooks or part._forward_pre_hooks for part in loaded.model.modules())
    assert all(parameter.grad is None for parameter in loaded.model.parameters())


@pytest.mark.parametrize("name", ["gpt", "t5", "classifier", "albert", "tagger", "filler"])
def test_patching_everything_brings_everything_back(name):
    """With the last block's output of the place that is read, the answer is the first text's."""
    torch.manual_seed(7)
    loaded = CASES[name]()
    if name == "t5":
        first, other = "bank river", "bank bank"
        said, _ = explain(loaded.read(first, target="Ufer Bank"), "patch", against=loaded.read(other))
        assert [one["stack"] for one in said["positions"]] == ["encoder", "decoder"]
        assert len({len(row) for row in said["positions"][1]["shares"]}) == 1
    else:
        for token in (None, *loaded.model.config.labels) if name != "gpt" else (None, "bank"):
            try:
                other = loaded.read("the river is [MASK] bank")
                said, _ = explain(loaded.read(TEXT), "patch", against=other, token=token)
                break
            except ValueError as error:  # a random model may say the same of both
                assert "both texts lead to" in str(error)
    shares = said["positions"][-1]["shares"]
    assert max(shares[-1]) == pytest.approx(1, abs=1e-4)
    assert "comes back from one head" in render(said)


def test_which_output_is_asked_about():
    loaded = writer()
    every = loaded.read(TEXTS[0])
    assert every.outputs.columns[:-1] == every.inputs["ids"][0, 1:].tolist()
    one = every.select(at=2)
    assert one.outputs.rows == [2] and one.outputs.columns == every.outputs.columns[2:3]
    token = every.tokens[3]
    named = every.select(token=loaded.tokenizer.decode(every.inputs["ids"][0, 3:4].tolist()))
    assert named.outputs.rows == every.outputs.rows[-1:] and named.output_names == [token]
    assert writing().read("bank", target="Ufer").output_names[-1] == "<eos>"
    assert len(loaded.read("a " * 30).select().outputs.rows) <= 64


@pytest.mark.parametrize(
    ("make", "how", "wanted"),
    [
        (writer, dict(at=99), "no output 99: there are"),
        (writer, dict(token="xyzzy plugh"), "--token is one token; 'xyzzy plugh' is"),
        (writer, dict(target="x"), "only a translator has a --target"),
        (writer, dict(view="patch"), "--view patch goes with --against"),
        (CASES["classifier"], dict(token="maybe"), "no label 'maybe'"),
        (translator, dict(second="x"), "a T5 reads one text at a time, got 2"),
        (CASES["filler"], dict(text="no mask here"), r"has no \[MASK\]"),
        (recurrent, dict(), "LSTM has no stack of blocks"),
        (lambda: writer(reversible=True), dict(), "reversible blocks do not keep the outputs of their heads"),
        (writer, dict(text="bank " * 64), "context is 64; give it a shorter one"),
    ],
)  # fmt: skip
def test_mistakes(make, how, wanted):
    how = dict(how)
    with pytest.raises(ValueError, match=wanted):
        texts = [how.pop("text", "the bank"), *([how.pop("second")] if "second" in how else [])]
        prepared = make().read(*texts, target=how.pop("target", None))
        explain(prepared, how.pop("view", "gradient"), **how)


def test_the_best_alignment_of_a_translator_is_named():
    found = aligners(writing().read("the river bank", target="Ufer Bank"))
    assert len(found) == 2 * 3 and found == sorted(found, key=lambda one: -one.share)
    assert all(0 <= one.share <= 1 and one.layer.endswith(".cross") for one in found)
    best = replace(found[0], outputs=3)
    assert best.summary.startswith(f"best alignment: {best.layer} head {best.head}")
    assert "none" in replace(best, outputs=0).summary


@pytest.mark.parametrize("view", ["rollout", "gradient"])
def test_things_that_were_found_rest_on_places(view, tmp_path):
    one, image = seeing(detr(), (32, 32), ObjectDetector), picture(32, 32)
    said, draw = explain(one.read(image), view)
    with torch.no_grad():
        pixels = torch.from_numpy(one.pixels([image])[0])[None]
        scores = split_predictions(one.model(pixels)[0])[0].softmax(-1)[:, :-1].amax(-1)
    assert len(said["outputs"]) == max(1, int((scores >= 0.5).sum())) and len(said["tokens"]) == 4 * 4
    draw(tmp_path / "view.png")
    if view == "rollout":
        (row,) = explain(one.read(image), view, at=0)[0]["weights"]
        assert sum(row) == pytest.approx(0.75, abs=1e-5)  # of two cross-attentions, each takes half


def test_words_of_a_caption_rest_on_places():
    one, image = captions(), picture(12, 20, "RGB")
    said = explain(one.read(image, target=[5, 9]), "rollout")[0]
    assert said["outputs"] == [*one.tokenizer.pieces([5, 9]), *one.tokenizer.pieces([2])]
    assert torch.tensor(said["weights"]).shape == (3, 3 * 5) and "0,4" in said["tokens"]
    lens = explain(one.read(image, target=[5, 9]), "lens")[0]["layers"]
    with torch.no_grad():
        pixels = torch.from_numpy(one.pixels([image])[0])[None]
        probabilities = one.model(pixels, torch.tensor([[1, 5, 9]]))[0].softmax(-1)
    assert lens[-1]["right"] == pytest.approx(probabilities[range(3), [5, 9, 2]].tolist(), abs=1e-5)
    with pytest.raises(ValueError, match="a Captioner for this input are not explained by agreement; use rollout"):
        explain(one.read(image), "agreement")


@pytest.mark.parametrize("view", ["gradient", "ablation", "lens", "agreement"])
def test_pictures(view, tmp_path):
    one = seeing(vit(labels=("no", "yes")), (12, 20), ImageClassifier)
    said, draw = explain(one.read(picture(12, 20)), view)
    assert said["outputs"][0] in ("no", "yes") and len(said.get("tokens", [""] * 16)) == 1 + 3 * 5
    draw(tmp_path / "view.png")
    assert (tmp_path / "view.png").stat().st_size > 3000
