"""Looking into every registered family: what is captured is the plain softmax, and the model does not notice."""

import copy
import math

import pytest
import torch
import torch.nn.functional as F

from regard.inside.capture.weights import look, watch
from regard.nn.kernels import Additive, Cosine, Dot, General, Kernel, Normalized
from regard.nn.weights import behind_kernels, find_kernels
from tests.laws.cases import CASES, KERNEL_CASES, example, has, make


def reference(kernel, q, k, v, mask=None, bias=None, scale=None, **ignored):
    """softmax(scores + bias) under a mask, one formula for each kind of score, in float64."""
    q, k = q.double(), k.double().repeat_interleave(q.shape[1] // k.shape[1], 1)
    T, S, root = q.shape[2], k.shape[2], q.shape[-1] ** -0.5
    if isinstance(kernel, Additive):
        pairs = torch.tanh(q[:, :, :, None] + k[:, :, None])
        scores = (pairs * kernel.vector.double()[None, :, None, None]).sum(-1) * (1 if scale is None else scale)
    else:
        if isinstance(kernel, Normalized):
            q, k = (x / x.square().mean(-1, keepdim=True).sqrt() for x in (q, k))
        if isinstance(kernel, Cosine):
            q, k = F.normalize(q, dim=-1), F.normalize(k, dim=-1)
            q = q * kernel.log_scale.double().clamp(max=math.log(100)).exp()[:, None, None]
        if isinstance(kernel, General):
            q = q @ kernel.matrix.double()
        own = 1.0 if isinstance(kernel, Dot | Cosine) else root
        scores = q @ k.mT * (own if scale is None else scale)
    if bias is not None:
        scores = scores + bias.dense(T, S).double()
    if mask is None:
        return scores.softmax(-1)
    seen = mask.dense(T, S)
    return scores.masked_fill(~seen, -math.inf).softmax(-1).masked_fill(~seen.any(-1, keepdim=True), 0.0)


@pytest.mark.parametrize("family, number", CASES)
def test_weights_are_the_plain_softmax_and_the_output_stays(family, number):
    model = make(family, number).eval()
    inputs = example(model)
    if not any(isinstance(module, Kernel) for module in model.modules()):
        with pytest.raises(ValueError, match="no attention to look at"), look(model):
            pass
        return
    calls = {}

    def keep(name, kind, kernel, given):
        calls.setdefault(name, []).append((kernel, given))

    with torch.no_grad():
        before = model(**inputs)
        with look(model) as seen:
            within = model(**inputs)
        with watch(model, keep):
            model(**inputs)
        assert torch.equal(before, within) and torch.equal(before, model(**inputs))
        assert seen.names == list(find_kernels(model)) == [name for name in seen.layers if name in calls]
        for name, made in calls.items():
            found = [call.weights for call in seen.calls[name]]
            assert len(found) == len(made)
            for weights, (kernel, given) in zip(found, made, strict=True):
                wanted = reference(kernel, **given)
                torch.testing.assert_close(weights.double(), wanted, atol=1e-5, rtol=0)
                sums = weights.sum(-1)
                torch.testing.assert_close(sums, wanted.sum(-1).round().float(), atol=1e-5, rtol=0)
                assert (sums > 0.5).any() and (weights >= 0).all()


@pytest.mark.parametrize(
    "family, number, changes",
    [
        *((family, number, {}) for family, number in CASES),
        *(("bert", 0, dict(kernel=kernel)) for kernel in [*KERNEL_CASES, "performer:features=16,redraw=2"]),
    ],
)
def test_training_goes_on_as_if_nobody_looked(family, number, changes):
    """Two passes and their gradients bit for bit, the random numbers, and what kernels keep between passes."""
    changes = dict(changes, dropout=0.3) if has(family, "dropout") else changes
    watched = make(family, number, **changes).train()
    names = [name for name, part in watched.named_modules() if isinstance(part, Kernel) and part.weighs]
    inputs, alone = example(watched), copy.deepcopy(watched)
    if not names:
        return
    torch.manual_seed(7)
    wanted = [alone(**inputs) for _ in range(3)]
    wanted[-1].square().mean().backward()
    state = torch.get_rng_state()
    torch.manual_seed(7)
    with look(watched):
        found = [watched(**inputs) for _ in range(3)]
        found[-1].square().mean().backward()
    assert torch.equal(torch.get_rng_state(), state)
    assert all(torch.equal(one, other) for one, other in zip(found, wanted, strict=True))
    for one, other in zip(watched.parameters(), alone.parameters(), strict=True):
        assert (one.grad is None) == (other.grad is None) and (one.grad is None or torch.equal(one.grad, other.grad))
    for one, other in zip(watched.buffers(), alone.buffers(), strict=True):
        assert torch.equal(one, other)


def test_weights_are_of_the_directions_that_made_the_output():
    """Of a kernel that draws new ones while it is trained."""
    model = make("bert", 0, kernel="performer:features=16,redraw=1").train()
    found = []

    def keep(name, kernel, given, output):
        (weights,) = (call.weights for call in seen.calls[name])
        found.append((output[0], weights @ given["v"]))

    kernels = find_kernels(model)
    with look(model) as seen, behind_kernels(kernels, keep), torch.no_grad():
        model(**example(model))
    assert len(found) == len(kernels)
    for output, mixed in found:
        torch.testing.assert_close(output, mixed, atol=1e-4, rtol=1e-4)
