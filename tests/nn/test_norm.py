"""RMSNorm against PyTorch's."""

import pytest
import torch
import torch.nn.functional as F

from regard.nn.norm import rms_norm


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("transposed", [False, True])
def test_equals_pytorch_with_gradients(weighted, transposed):
    x = torch.randn(3, 5, 7, 11, dtype=torch.float64)
    x = (x.transpose(1, 2) if transposed else x).requires_grad_()
    weight = torch.randn(11, dtype=torch.float64, requires_grad=True) if weighted else None
    ours, theirs = rms_norm(x, weight, 1e-3), F.rms_norm(x, (11,), weight, 1e-3)
    torch.testing.assert_close(ours, theirs)
    inputs, grad = [x, *([weight] if weighted else [])], torch.randn_like(theirs)
    for own, other in zip(
        torch.autograd.grad(ours, inputs, grad), torch.autograd.grad(theirs, inputs, grad), strict=True
    ):
        torch.testing.assert_close(own, other)


def test_a_row_of_zeros_stays_zero():
    x = torch.zeros(2, 5, requires_grad=True)
    rms_norm(x, None, 1e-6).sum().backward()
    assert torch.isfinite(x.grad).all()
