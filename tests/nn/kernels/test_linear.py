"""Linear attention keeps a state instead of keys; Performer's features are softmax's on average."""

import pytest
import torch
import torch.nn.functional as F

from regard.bench.error import measure_errors
from regard.doctor.laws import close
from regard.inside import look
from regard.models import GPT, GPTConfig
from regard.nn.kernels import build_kernel
from regard.nn.kernels.performer import orthogonal
from regard.nn.masks import causal, padding

SIZES = dict(vocab_size=53, dim=24, depth=2, heads=3, ffn_dim=32, max_len=64, dropout=0.0)


def bytes_of(cache):
    tensors = [value for layer in cache.own for value in vars(layer).values() if isinstance(value, torch.Tensor)]
    return sum(tensor.untyped_storage().nbytes() for tensor in tensors)


@pytest.mark.parametrize("kernel", ["linear", "performer"])
@torch.no_grad()
def test_a_state_does_not_grow(kernel):
    model = GPT(GPTConfig(**SIZES, kernel=kernel)).eval()
    sizes = []
    for context in (3, 60, 1000):
        cache = model.new_cache(context + 1)
        model.prefill(torch.randint(53, (2, context)), cache)
        model.step(torch.tensor([1, 2]), cache)
        assert cache.length == context + 1
        sizes.append(bytes_of(cache))
    assert sizes[0] == sizes[1] == sizes[2]
    with pytest.raises(ValueError, match="room for 1001 positions, got 1002"):
        model.step(torch.tensor([1, 2]), cache)


def test_nothing_of_the_length_squared_is_kept_for_backward():
    saved = {}
    for n in (256, 512):
        kernel = build_kernel("linear:chunk=64", heads=2, head_dim=8)
        tensors = [torch.randn(1, 2, n, 8, requires_grad=True) for _ in range(3)]
        seen = {}

        def pack(tensor, seen=seen):
            seen[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
            kernel(*tensors, mask=causal())
        saved[n] = sum(seen.values())
    assert saved[512] < 2.2 * saved[256]


@torch.no_grad()
def test_huge_keys_of_the_future_do_not_push_the_past_below_what_numbers_can_hold():
    """Scaling all keys by their largest, as is often done, would: exp(w·k − m) is 0 for all but the largest."""
    kernel = build_kernel("performer", heads=2, head_dim=16)
    q, k, v = (torch.randn(1, 2, 40, 16) for _ in range(3))
    before = kernel(q, k, v, mask=causal())[0][:, :, :20]
    k[:, :, 30:] *= 60
    assert torch.equal(kernel(q, k, v, mask=causal())[0][:, :, :20], before)


@torch.no_grad()
def test_the_mean_over_many_draws_is_the_exponential():
    q, k = torch.randn(2, 16, dtype=torch.float64) * 0.25
    estimates = []
    for _ in range(400):
        w = orthogonal(64, 16).double()
        estimates.append((w @ q - q @ q / 2).exp() @ (w @ k - k @ k / 2).exp() / 64)
    mean, spread = torch.stack(estimates).mean(), torch.stack(estimates).std() / 20
    assert abs(mean - (q @ k).exp()) < 4 * spread and spread < 0.1 * mean


def test_directions_are_orthogonal_within_a_block_and_as_long_as_normal_ones():
    w = orthogonal(40, 16)
    assert w.shape == (40, 16)
    products = F.normalize(w[:16], dim=1) @ F.normalize(w[:16], dim=1).T
    close(products, torch.eye(16), "orthogonal", 1e-5)
    lengths = orthogonal(4000, 16).square().sum(1)
    assert abs(lengths.mean() - 16) < 0.5 and abs(lengths.var() - 32) < 5


def test_features_are_redrawn_in_training_only_and_the_backward_pass_knows_the_old_ones():
    kernel = build_kernel("performer:redraw=2,chunk=4", heads=2, head_dim=8)
    first = kernel.directions.clone()
    tensors = [torch.randn(1, 2, 9, 8, requires_grad=True) for _ in range(3)]
    kernel.eval()(*tensors)
    kernel.eval()(*tensors)
    assert torch.equal(kernel.directions, first)
    out = kernel.train()(*tensors, mask=causal())[0]
    wanted = torch.autograd.grad(out.sum(), tensors, retain_graph=True)
    kernel(*tensors)
    assert not torch.equal(kernel.directions, first)
    for got, right in zip(torch.autograd.grad(out.sum(), tensors), wanted, strict=True):
        close(got, right, "the gradient after a redraw", 0.0)


def test_errors_of_approximations_fall_as_theory_says():
    found = {row["kernel"]: row for row in measure_errors(draws=3)["kernels"]}
    assert -0.65 < found["performer"]["fit"]["exponent"] < -0.35  # the mean of many: one over the root
    for row in found.values():
        errors = [point["error"] for point in row["points"]]
        assert all(later < 1.05 * earlier for earlier, later in zip(errors, errors[1:], strict=False)), row
        assert errors[-1] < 0.2 * errors[0], row
    assert found["linformer"]["points"][-1]["error"] < 1e-9  # rank = length: every position has its slot


@pytest.mark.parametrize("head_dim", [8, 64, 128, 256])
@torch.no_grad()
def test_features_of_wide_heads_still_tell_keys_apart(head_dim):
    """The estimate may be rough, but it must not sink to the plain mean of all values."""
    kernel = build_kernel("performer", heads=1, head_dim=head_dim)
    q = torch.randn(1, 1, 60, head_dim)
    k, v = torch.randn(1, 1, 60, head_dim), torch.randn(1, 1, 60, head_dim)
    out = kernel(q, k, v)[0]
    assert (out - v.mean(2, keepdim=True)).norm() > 0.3 * out.norm()


@pytest.mark.parametrize("name", ["linear", "performer"])
@torch.no_grad()
def test_a_state_of_a_thousand_tokens_in_bfloat16_is_as_good_as_one_pass(name):
    kernel = build_kernel(name, heads=2, head_dim=16)
    q, k, v = (torch.randn(1, 2, 1500, 16) for _ in range(3))
    wanted = kernel(q, k, v, mask=causal())[0]
    q, k, v = (x.bfloat16() for x in (q, k, v))
    memory = kernel.memory(1500)
    parts = [x.split([1400] + [1] * 100, 2) for x in (q, k, v)]
    found, start = [], 0
    for part in zip(*parts, strict=True):
        found.append(memory.attend(kernel, *part, mask=causal().at(start)))
        start += part[0].shape[2]
    error = (torch.cat(found, 2).float() - wanted)[:, :, 1400:].norm() / wanted[:, :, 1400:].norm()
    assert error < 0.1, error


def test_a_state_hides_padding_and_refuses_what_it_cannot_know():
    kernel = build_kernel("linear", heads=2, head_dim=8).double()
    q, k, v = (torch.randn(2, 2, 9, 8, dtype=torch.float64) for _ in range(3))
    mask = causal() & padding(torch.tensor([9, 4]))
    memory = kernel.memory(9)
    found = [
        memory.attend(kernel, q[:, :, here], k[:, :, here], v[:, :, here], mask=mask.at(here.start))
        for here in (slice(0, 3), slice(3, 8), slice(8, 9))
    ]
    close(torch.cat(found, 2), kernel(q, k, v, mask=mask)[0], "in parts, with padding")
    with pytest.raises(ValueError, match="needs a causal mask; pass mask=causal"):
        kernel.memory(9).attend(kernel, q, k, v)


def test_gradients_of_the_values_alone():
    kernel = build_kernel("linear", heads=2, head_dim=8)
    q, k, v = (torch.randn(1, 2, 9, 8) for _ in range(3))
    (grad,) = torch.autograd.grad(kernel(q, k, v.requires_grad_())[0].sum(), v)
    close(grad, kernel(q, k, v, weights=True)[1].sum(2)[..., None].expand_as(v).detach(), "dv", 1e-5)


def test_looking_at_a_state_says_what_to_do_instead():
    model = GPT(GPTConfig(**SIZES, kernel="linear")).eval()
    ids, cache = torch.randint(53, (1, 5)), model.new_cache(6)
    with look(model) as seen:
        model(ids)
    assert len(seen.names) == 2
    with look(model), pytest.raises(ValueError, match="look at one forward pass"):
        model.prefill(ids, cache)
