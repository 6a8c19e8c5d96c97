"""What a page knows of a pass, asked in whatever order."""

import pytest
import torch

from regard.inside.capture.ablation import without
from regard.inside.page import Page
from regard.inside.page.offline import everything
from regard.nn.heads import split_predictions
from regard.objectives.matching import corners
from regard.tasks import ImageClassifier, ObjectDetector, TextClassifier
from tests.inside.loaded import encoder, writer
from tests.inside.seeing import detr, loaded, mvit, picture, swin, vit


@pytest.mark.parametrize("model", [vit, swin, mvit])
def test_layers_are_the_same_before_and_after_they_are_described(model):
    sees = loaded(model(labels=("a", "b")), kind=ImageClassifier)
    late = Page(sees, picture(14, 18))
    late.describe()
    early = Page(sees, picture(14, 18))
    for number in reversed(range(len(early.layers))):
        assert early.layer(number) == late.layer(number)


def test_boxes_are_those_of_the_model_with_heads_off():
    finds = loaded(detr(), kind=ObjectDetector)
    page = Page(finds, picture(32, 32), off=[("decoder.blocks.0.cross", 1)])
    with torch.no_grad(), without(finds.model, page.off):
        _, boxes = split_predictions(finds.model(**page.prepared.inputs)[0].float())
    wanted = corners(boxes).clamp(0, 1) * 32
    page.effects()
    torch.testing.assert_close(torch.tensor(page.describe()["answer"]["boxes"]), wanted, atol=0.01, rtol=0)
    whole = torch.tensor(Page(finds, picture(32, 32)).describe()["answer"]["boxes"])
    assert (whole - wanted).abs().max() > 0.05


def test_broken_weights_are_told():
    writes = writer()
    with torch.no_grad():
        writes.model.decoder.blocks[0].feedforward.down.weight.fill_(torch.nan)
    with pytest.raises(ValueError, match="is NaN"):
        Page(writes, "She sat")


def test_heads_are_tried_until_nobody_waits():
    asked = iter([False, False, True])
    with pytest.raises(ValueError, match="was cancelled"):
        Page(writer(), "She sat on the bank").effects(lambda: next(asked))
    assert next(asked, "none") == "none"


def test_a_text_that_is_cut_is_read_as_far_as_it_is_kept():
    writes = writer()
    whole = Page(writes, "She sat on the bank").prepared.sequences[0].ids
    cut = Page(writes, "She sat on the bank", target=[7, 9], kept=3)
    assert cut.prepared.sequences[0].ids == [*whole[:3], 7, 9] and cut.describe()["input"]["kept"] == 3
    torch.testing.assert_close(cut.logits[:3], Page(writes, "She sat on the bank").logits[:3])
    for view in ("rollout", "gradient", "lens"):
        found = cut.view(view)
        assert len(found["outputs"]) == 5
        if "tokens" in found:
            assert found["tokens"] == writes.tokenizer.pieces(cut.prepared.sequences[0].ids)
    other = Page(writes, "Banks are rivers", target=[7, 9], kept=3)
    assert len(other.prepared.sequences[0].ids) == 5
    patched = cut.view("patch", against=other.prepared.request["read"])
    assert patched["positions"][0]["tokens"][-2:] == cut.view("rollout")["tokens"][-2:]
    place = next(i for i, piece in enumerate(writes.tokenizer.pieces(writes.tokenizer.encode("日本"))) if "⟨" in piece)
    assert len(Page(writes, "日本", kept=place + 1).view("rollout")["tokens"]) == place + 1  # inside a character


def test_a_kernel_without_weights_leaves_out_what_needs_them():
    reads = encoder(kernel="linformer", task="classify", labels=("a", "b"), pooler=True)
    page = Page(TextClassifier(reads.model.eval(), reads.tokenizer), "She sat on the bank")
    told, kept = page.describe(), everything(page)
    assert told["layers"] == [] and told["views"] == ["lens"] and told["opaque"] == ["linformer"]
    assert list(kept["views"]) == ["lens"] and "problem" not in kept["views"]["lens"]
    with pytest.raises(ValueError, match="there is no view 'rollout'"):
        page.view("rollout")
