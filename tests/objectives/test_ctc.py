"""CTC: the loss and its gradient are PyTorch's, a decoder's loss joins it, and what cannot be spelled is known."""

import pytest
import torch
import torch.nn.functional as F

from regard.data.sets.batches import IGNORE, Batch
from regard.models import Conformer, ConformerConfig
from regard.objectives.ctc import ctc, fewest_frames

SMALL = dict(dim=16, depth=1, heads=2, ffn_dim=24, channels=3, bands=12, vocab_size=11, dropout=0.0, subsampling=2)


def batch():
    torch.manual_seed(0)
    targets = torch.tensor([[3, 3, 5, 7], [2, 4, IGNORE, IGNORE], [IGNORE] * 4])
    return Batch({"audio": torch.randn(3, 40, 12), "lengths": torch.tensor([40, 23, 31])}, targets, (0, 1, 2))


@pytest.mark.parametrize("blank", [0, 10])
def test_loss_and_gradient_are_pytorchs(blank):
    torch.manual_seed(1)
    model, one = Conformer(ConformerConfig(**SMALL, blank=blank)).eval(), batch()
    loss, count = ctc(model, one)
    logits = model(**one.inputs).detach().requires_grad_()
    lengths, rows = [20, 12, 16], [[3, 3, 5, 7], [2, 4], []]
    expected = sum(
        F.ctc_loss(row[:n].log_softmax(-1)[:, None], torch.tensor([ids or [0]]), [n], [len(ids)], blank, "sum")
        for row, n, ids in zip(logits, lengths, rows, strict=True)
    )
    assert count == 4 + 2 + 1
    assert loss.item() == pytest.approx(expected.item(), rel=1e-5)
    expected.backward()
    loss.backward()
    assert torch.allclose(model.head.bias.grad, logits.grad.sum((0, 1)), atol=1e-4)


def test_padding_has_no_part_in_the_loss():
    model, one = Conformer(ConformerConfig(**SMALL)).eval(), batch()
    wider = Batch(
        {"audio": F.pad(one.inputs["audio"], (0, 0, 0, 9), value=3.0), "lengths": one.inputs["lengths"]},
        F.pad(one.targets, (0, 3), value=IGNORE), one.examples,
    )  # fmt: skip
    assert ctc(model, wider)[0].item() == pytest.approx(ctc(model, one)[0].item(), rel=1e-5)


def test_a_decoder_has_its_share():
    torch.manual_seed(2)
    model, one = Conformer(ConformerConfig(**SMALL, decoder_depth=1, decoder_share=0.25)).eval(), batch()
    loss, _ = ctc(model, one)
    x = model.features(**one.inputs)
    logits = model.decoder_head(model.written(x, one.inputs["lengths"], torch.tensor([[0, 3, 3, 5, 7]] * 3)))
    first = F.cross_entropy(logits[0], torch.tensor([3, 3, 5, 7, 0]), reduction="sum")
    second = F.cross_entropy(
        model.decoder_head(model.written(x, one.inputs["lengths"], torch.tensor([[0, 2, 4]] * 3)))[1],
        torch.tensor([2, 4, 0]), reduction="sum",
    )  # fmt: skip
    nothing = F.cross_entropy(logits[2, :1], torch.tensor([0]), reduction="sum")
    alone = F.ctc_loss(
        model.head(x).log_softmax(-1).transpose(0, 1), one.targets.clamp(min=0), [20, 12, 16], [4, 2, 0],
        reduction="sum",
    )  # fmt: skip
    assert loss.item() == pytest.approx((0.75 * alone + 0.25 * (first + second + nothing)).item(), rel=1e-4)
    loss.backward()
    assert all(parameter.grad is not None for parameter in model.parameters())


def test_equal_neighbours_need_a_blank_between_them():
    assert [fewest_frames(ids) for ids in ([], [3], [3, 4], [3, 3], [3, 3, 3, 4])] == [0, 1, 2, 3, 6]
