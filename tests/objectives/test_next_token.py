"""The chunked loss against PyTorch's own cross-entropy."""

import pytest
import torch
import torch.nn.functional as F

from regard.data.sets.batches import IGNORE, pair_batch
from regard.models import build, preset
from regard.objectives import next_token as module
from regard.objectives.next_token import linear_cross_entropy, next_token


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("bias", [False, True])
def test_equals_cross_entropy_with_all_gradients(smoothing, bias, monkeypatch):
    monkeypatch.setattr(module, "CHUNK_BYTES", 1)  # the smallest chunk, so that several are needed
    x = torch.randn(149, 11, dtype=torch.float64, requires_grad=True)
    weight = torch.randn(37, 11, dtype=torch.float64, requires_grad=True)
    shift = torch.randn(37, dtype=torch.float64, requires_grad=True) if bias else None
    targets = torch.randint(37, (149,))
    inputs = [x, weight, *([shift] if bias else [])]
    ours = linear_cross_entropy(x, weight, shift, targets, smoothing) * 0.7
    theirs = F.cross_entropy(F.linear(x, weight, shift), targets, label_smoothing=smoothing, reduction="sum") * 0.7
    torch.testing.assert_close(ours, theirs)
    for own, other in zip(torch.autograd.grad(ours, inputs), torch.autograd.grad(theirs, inputs), strict=True):
        torch.testing.assert_close(own, other)


def test_large_scores_stay_finite():
    x = torch.tensor([[1e4]], requires_grad=True)
    loss = linear_cross_entropy(x, torch.tensor([[1.0], [-1.0]]), None, torch.tensor([1]))
    loss.backward()
    assert loss.item() == pytest.approx(2e4)
    assert torch.isfinite(x.grad).all()


def test_padding_is_never_scored(monkeypatch):
    seen = []
    real = linear_cross_entropy
    monkeypatch.setattr(module, "linear_cross_entropy", lambda x, *rest: seen.append(x.shape) or real(x, *rest))
    model = build("transformer", preset("transformer", "tiny", vocab_size=31, dim=8, heads=2, depth=1)).eval()
    batch = pair_batch([[5, 6], [7]], [[8, 9, 10], [11]], bos=1, eos=2, pad_id=0)
    loss, count = next_token(model, batch)
    assert count == 6 and seen == [(6, 8)]
    scores = model(**batch.inputs)
    expected = F.cross_entropy(scores.flatten(0, 1), batch.targets.flatten(), ignore_index=IGNORE, reduction="sum")
    torch.testing.assert_close(loss, expected)


def test_teacher_forcing_shifts_by_one():
    batch = pair_batch([[5, 6], [7]], [[8, 9, 10], [11]], bos=1, eos=2, pad_id=0)
    assert batch.inputs["target"].tolist() == [[1, 8, 9, 10], [1, 11, 0, 0]]
    assert batch.targets.tolist() == [[8, 9, 10, 2], [11, 2, IGNORE, IGNORE]]
    assert batch.inputs["source"].tolist() == [[5, 6, 2], [7, 2, 0]]
    assert batch.inputs["lengths"].tolist() == [3, 2]
