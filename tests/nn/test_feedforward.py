"""Activations that bring their own derivative, against PyTorch's."""

import pytest
import torch
import torch.nn.functional as F

from regard.nn.feedforward import gelu_tanh, quick_gelu, relu_squared

OURS = {
    "gelu-tanh": (gelu_tanh, lambda x: F.gelu(x, approximate="tanh")),
    "quick-gelu": (quick_gelu, lambda x: x * torch.sigmoid(1.702 * x)),
    "relu2": (relu_squared, lambda x: F.relu(x).square()),
}


@pytest.mark.parametrize("name", OURS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_equals_pytorch_with_gradient(name, dtype):
    ours, theirs = OURS[name]
    x = torch.cat([torch.randn(7, 29) * 3, torch.tensor([[0.0, -0.0, 40.0, -40.0] + [1e-3] * 25])]).to(dtype)
    x.requires_grad_()
    slope = torch.randn(8, 29).to(dtype)
    tolerance = dict(rtol=1e-5, atol=2e-6) if dtype != torch.bfloat16 else {}
    torch.testing.assert_close(ours(x), theirs(x), **tolerance)
    torch.testing.assert_close(
        torch.autograd.grad(ours(x), x, slope)[0], torch.autograd.grad(theirs(x), x, slope)[0], **tolerance
    )


@pytest.mark.parametrize("name", OURS)
def test_the_input_is_left_alone(name):
    x = torch.randn(5, 11, requires_grad=True)
    before = x.detach().clone()
    OURS[name][0](x).sum().backward()
    assert torch.equal(x, before)
