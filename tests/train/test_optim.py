"""Optimizers against PyTorch's."""

import pytest
import torch

from regard.models import build, preset
from regard.train.optim import Muon, build_optimizers, orthogonalize

COEFFICIENTS = (3.4445, -4.7750, 2.0315)


@pytest.mark.parametrize("shape", [(7, 13), (13, 7), (11, 11), (7, 29), (29, 7)])
def test_orthogonalize_brings_singular_values_near_one(shape):
    values = torch.linalg.svdvals(orthogonalize(torch.randn(3, *shape), COEFFICIENTS, 5, 1e-7))
    assert values.min() > 0.3 and values.max() < 1.4


@pytest.mark.parametrize("shape", [(24, 40), (17, 71), (71, 17)])
def test_muon_follows_torch_optim_muon(shape):
    """The same updates as PyTorch's, but for its bfloat16."""
    start = torch.randn(2, *shape)
    ours = [torch.nn.Parameter(m.clone()) for m in start]
    theirs = [torch.nn.Parameter(m.clone()) for m in start]
    own = Muon(ours, lr=0.02, weight_decay=0.1)
    other = torch.optim.Muon(theirs, lr=0.02, weight_decay=0.1, adjust_lr_fn="match_rms_adamw")
    for _ in range(5):
        for mine, yours in zip(ours, theirs, strict=True):
            mine.grad = torch.randn(shape)
            yours.grad = mine.grad.clone()
        own.step()
        other.step()
    for before, mine, yours in zip(start, ours, theirs, strict=True):
        moved, moved_too = mine - before, yours - before
        assert (moved - moved_too).norm() < 0.02 * moved_too.norm()


def test_muon_takes_the_matrices_inside_blocks_only():
    model = build("transformer", preset("transformer", "tiny", vocab_size=31, dim=8, heads=2, depth=1))
    adamw, muon = build_optimizers(model, name="muon", lr=1e-3, betas=(0.9, 0.98), weight_decay=0.1)
    inner = {id(p) for group in muon.param_groups for p in group["params"]}
    for name, p in model.named_parameters():
        assert (id(p) in inner) == (p.dim() == 2 and ".blocks." in name), name
    counted = sum(len(group["params"]) for optimizer in (adamw, muon) for group in optimizer.param_groups)
    assert counted == len(list(model.parameters()))


def test_only_matrices_decay():
    model = build("transformer", preset("transformer", "tiny", vocab_size=31, dim=8, heads=2, depth=1))
    (adamw,) = build_optimizers(model, name="adamw", lr=1e-3, betas=(0.9, 0.98), weight_decay=0.1)
    for group in adamw.param_groups:
        assert all((p.dim() >= 2) == (group["weight_decay"] > 0) for p in group["params"])
