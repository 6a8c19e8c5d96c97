"""Optimizers against PyTorch's."""

import pytest
import torch

from regard.models import build, preset
from regard.train.optim import Muon, build_optimizers, for_muon, orthogonalize

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


def test_muon_takes_kernels_of_convolutions_as_matrices():
    """A kernel is updated as the matrix of its outputs by its inputs is; one of single channels is AdamW's."""
    model = build("cnn-attention", preset("cnn-attention", "tiny", image=8, dim=8, labels=("a", "b")))
    named = dict(model.named_parameters())
    kernel = next(name for name, p in named.items() if ".convolutions." in name)
    sets = {
        name: {id(p) for group in build_optimizers(model, name=name, lr=1e-3, betas=(0.9, 0.98), weight_decay=0.1)[1]
               .param_groups for p in group["params"]} for name in ("muon", "muon-conv")
    }  # fmt: skip
    assert id(named[kernel]) in sets["muon-conv"] - sets["muon"] and sets["muon"] < sets["muon-conv"]
    assert id(named["patches.weight"]) not in sets["muon-conv"]
    assert not for_muon(torch.zeros(6, 1, 3, 3), "muon-conv") and not for_muon(torch.zeros(6, 4), "adamw")

    start, grad = torch.randn(6, 4, 3, 3), torch.randn(6, 4, 3, 3)
    four, two = torch.nn.Parameter(start.clone()), torch.nn.Parameter(start.flatten(1).clone())
    four.grad, two.grad = grad, grad.flatten(1)
    for p in (four, two):
        Muon([p], lr=0.02, weight_decay=0.1).step()
    assert torch.equal(four.flatten(1), two) and not torch.equal(four, start)


def test_only_matrices_decay():
    model = build("transformer", preset("transformer", "tiny", vocab_size=31, dim=8, heads=2, depth=1))
    (adamw,) = build_optimizers(model, name="adamw", lr=1e-3, betas=(0.9, 0.98), weight_decay=0.1)
    for group in adamw.param_groups:
        assert all((p.dim() >= 2) == (group["weight_decay"] > 0) for p in group["params"])
