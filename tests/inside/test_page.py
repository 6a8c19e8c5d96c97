"""What a page knows of a pass, asked in whatever order."""

import pytest
import torch

from regard.inside.ablation import without
from regard.inside.page import Page
from regard.nn.heads import apart
from regard.objectives.matching import corners
from regard.tasks import Detector, PictureClassifier
from tests.inside.loaded import writer
from tests.inside.seeing import detr, loaded, mvit, picture, swin, vit


@pytest.mark.parametrize("model", [vit, swin, mvit])
def test_layers_are_the_same_before_and_after_they_are_described(model):
    sees = loaded(model(labels=("a", "b")), kind=PictureClassifier)
    late = Page(sees, picture(14, 18))
    late.describe()
    early = Page(sees, picture(14, 18))
    for number in reversed(range(len(early.layers))):
        assert early.layer(number) == late.layer(number)


def test_boxes_are_those_of_the_model_with_heads_off():
    finds = loaded(detr(), kind=Detector)
    page = Page(finds, picture(32, 32), off=[("decoder.blocks.0.cross", 1)])
    with torch.no_grad(), without(finds.model, page.off):
        _, boxes = apart(finds.model(page.subject.pixels)[0].float())
    wanted = corners(boxes).clamp(0, 1) * 32
    page.effects()
    torch.testing.assert_close(torch.tensor(page.describe()["answer"]["boxes"]), wanted, atol=0.01, rtol=0)
    whole = torch.tensor(Page(finds, picture(32, 32)).describe()["answer"]["boxes"])
    assert (whole - wanted).abs().max() > 0.05


def test_broken_weights_are_told():
    writes = writer()
    with torch.no_grad():
        writes.model.decoder.blocks[0].feedforward.down.weight.fill_(torch.nan)
    with pytest.raises(ValueError, match="no number"):
        Page(writes, "She sat")


def test_heads_are_tried_until_nobody_waits():
    asked = iter([False, False, True])
    with pytest.raises(ValueError, match="nobody waits"):
        Page(writer(), "She sat on the bank").effects(lambda: next(asked))
    assert next(asked, "none") == "none"
