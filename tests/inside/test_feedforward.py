"""Feed-forward layers: shares that sum to one, parts that write nothing, neurons followed to the logits."""

import pytest
import torch

from regard.inside.explain.feedforward import block_writes, most_excited, part_effects, stream_shares, strongest_neurons
from regard.inside.page import Page
from regard.inside.views import find_view, show_view
from regard.tasks import ImageClassifier, MaskFiller, ObjectDetector, TextClassifier
from tests.inside.loaded import encoder, recurrent, translator, writer
from tests.inside.seeing import captions, detr, loaded, picture, swin, vit

TEXT = "the bank is open"
LABELS = ("no", "yes")
MADE = {
    "gpt": lambda: writer().read(TEXT),
    "linear attention": lambda: writer(kernel="linear").read(TEXT),
    "gated": lambda: writer(activation="swiglu", bias=False).read(TEXT),
    "reversible": lambda: writer(reversible=True).read(TEXT),
    "translator": lambda: translator().read(TEXT),
    "filler": lambda: MaskFiller(encoder().model, encoder().tokenizer).read("the [MASK] is open"),
    "vector": lambda: encoder(task="none").read(TEXT),
    "label": lambda: classifier().read(TEXT),
    "one block": lambda: classifier(shared=True).read(TEXT),
    "image": lambda: loaded(vit(labels=LABELS), (12, 20), ImageClassifier).read(picture(12, 20)),
    "windows": lambda: loaded(swin(labels=LABELS), (14, 18), ImageClassifier).read(picture(14, 18)),
    "boxes": lambda: loaded(detr(), (32, 32), ObjectDetector).read(picture(32, 32)),
    "caption": lambda: captions().read(picture(12, 20, "RGB")),
}


def classifier(**changes):
    made = encoder(task="classify", pooler=True, labels=LABELS, **changes)
    return TextClassifier(made.model, made.tokenizer)


@pytest.mark.parametrize("name", MADE)
def test_every_model_with_such_layers_has_the_view(name, tmp_path):
    prepared = MADE[name]()
    data, draw = show_view(prepared, "ffn")
    assert data["layers"] and all({"attention", "feedforward"} <= set(one["parts"]) for one in data["layers"])
    assert all(
        values["written"] is None or values["written"] > 0 for one in data["layers"] for values in one["parts"].values()
    )
    for one in data.get("neurons", ()):
        assert len(one["promotes"]) and one["raised"] == sorted(one["raised"], reverse=True)
    assert ("neurons" in data) == (name not in ("reversible", "vector", "windows", "boxes"))
    lines = find_view(prepared, "ffn").render(data)
    assert lines.count("\n") >= 2 * len(data["layers"])
    figure = draw(tmp_path / "ffn.png")
    bars = sum(len(one["parts"]) for one in data["layers"])
    assert sum(len(axes.patches) for axes in figure.axes) >= 2 * bars


def test_shares_of_a_stack_sum_to_one_and_an_absent_part_is_one_of_zero_weights():
    prepared = writer().read(TEXT)
    prepared = prepared.select()
    writes = block_writes(prepared)
    shares = stream_shares(prepared, writes)
    assert len(shares) == 5 and sum(shares.values()) == pytest.approx(1, abs=1e-5)
    effects = part_effects(prepared, writes)
    with torch.no_grad():
        before = prepared.loss().item()
        down = prepared.model.decoder.blocks[1].feedforward.down
        down.weight.zero_(), down.bias.zero_()
        assert prepared.loss().item() - before == pytest.approx(effects["decoder.blocks.1", 0, "feedforward"], abs=1e-5)


def test_a_shared_block_is_ablated_at_one_call_only():
    prepared = classifier(shared=True).read(TEXT).select()
    writes = block_writes(prepared)
    assert [(one.name, one.call) for one in writes] == [("encoder.blocks.0", 0), ("encoder.blocks.0", 1)]
    effects = part_effects(prepared, writes)
    first, second = (effects["encoder.blocks.0", call, "feedforward"] for call in (0, 1))
    assert first != second


def test_a_neuron_raises_the_logits_that_its_value_vector_points_to():
    made = writer()
    prepared = made.read(TEXT).select(-1)
    neurons = strongest_neurons(prepared, 6)
    assert [one.block for one in neurons] == [0, 0, 0, 1, 1, 1] and neurons[0].strength > neurons[1].strength
    model, last = prepared.model, neurons[0]
    value = last.activation * model.decoder.blocks[last.block].feedforward.down.weight[:, last.index].detach()
    assert float(value.norm()) == pytest.approx(last.strength, rel=1e-5)
    states = []
    with torch.no_grad(), model.decoder.blocks[-1].register_forward_hook(lambda m, a, out: states.append(out)):
        model(**prepared.inputs)
        state = states[0][0, -1]
        expected = model.head(model.decoder.norm(state)) - model.head(model.decoder.norm(state - value))
    torch.testing.assert_close(last.logits, expected, atol=1e-4, rtol=1e-4)


def test_examples_that_excite_most_come_first():
    made = writer()
    prepared = made.read(TEXT).select(-1)
    neurons = strongest_neurons(prepared, 3)
    examples = [made.read(text) for text in ("a river", "the bank of the river", "open")]
    best = most_excited(neurons, examples, 2)
    every = most_excited(neurons, examples, 100)
    for neuron, rows, whole in zip(neurons, best, every, strict=True):
        assert [row[0] for row in rows] == [row[0] for row in whole[:2]]
        signed = [row[0] if neuron.activation > 0 else -row[0] for row in whole]
        assert signed == sorted(signed, reverse=True) and len(whole) == sum(len(one.tokens) for one in examples)


def test_a_page_has_it_and_what_has_none_says_so():
    page = Page(writer(), TEXT)
    assert page.describe()["mechanisms"] == ["beam", "ffn"] and page.view("ffn")["neurons"]
    with pytest.raises(ValueError, match="no view 'ffn' of this input; use beam"):
        find_view(recurrent().read(TEXT), "ffn")
    with pytest.raises(ValueError, match="no output 99: there are"):
        show_view(writer().read(TEXT), "ffn", at=99)
