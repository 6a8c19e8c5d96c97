"""Every registered kernel computes its formula, under every mask, with biases and with shared heads."""

import math

import pytest
import torch
import torch.nn.functional as F

from regard.nn.kernels import build_kernel
from regard.nn.masks import causal
from regard.nn.positions import Alibi, RelativeBias
from regard.registry import kernels
from tests.laws import laws
from tests.laws.rules import LITERAL, MASKS, B, N, table

H, K, C = 6, 5, 3  # query heads, head size, size of a value


# What a kernel scores, where that is no scaled dot product: one line for each kernel with `reference = False`.
SCORES = {
    "additive": lambda kernel: lambda q, k, h: (q[:, None] + k[None]).tanh() @ kernel.vector[h],
    "dot": lambda kernel: lambda q, k, h: q @ k.T,
    "general": lambda kernel: lambda q, k, h: q @ kernel.matrix[h] @ k.T / math.sqrt(K),
    "normalized": lambda kernel: lambda q, k, h: math.sqrt(K) * unit(q) @ unit(k).T,
}


def unit(x):
    return x / x.square().sum(-1, keepdim=True).sqrt()


def scaled_dot(kernel):
    return lambda q, k, h: q @ k.T / math.sqrt(K)


BIASES = {
    "no bias": None,
    "alibi": Alibi(dim=H * K, heads=H, head_dim=K, max_len=N),
    "relative": RelativeBias(dim=H * K, heads=H, head_dim=K, max_len=N, buckets=6, far=5),
}
every_kernel = pytest.mark.parametrize("name", list(kernels))
WEIGHING = [name for name in kernels if kernels[name].weighs]


def make(name):
    kernel = build_kernel(name, heads=H, head_dim=K).double()
    with torch.no_grad():
        for parameter in kernel.parameters():
            parameter.normal_()
    return kernel


def tensors(G=H, T=N, S=N, dtype=torch.float64):
    shapes = [(B, H, T, K), (B, G, S, K), (B, G, S, C)]
    return [torch.randn(shape, dtype=dtype, requires_grad=True) for shape in shapes]


def applies(kernel, mask_name, bias_name="no bias"):
    return (kernel.causal or "causal" not in mask_name) and (kernel.biased or bias_name == "no bias")


def check(name, mask_name, *, G=H, bias_name="no bias", T=N, start=0):
    kernel, mask, scheme = make(name), MASKS[mask_name], BIASES[bias_name]
    if not applies(kernel, mask_name, bias_name):
        return
    q, k, v = tensors(G, T)
    allowed = table(LITERAL[mask_name], T=T, start=start)[:, None].expand(B, H, T, N)
    mask = mask.at(start) if mask is not None else None
    i, j = torch.arange(start, start + T)[:, None], torch.arange(N)[None]
    numbers = None if scheme is None else scheme.of_distance(j - i, causal=False).detach()
    wanted = laws.attention_by_hand(SCORES.get(name, scaled_dot)(kernel), q, k, v, allowed, numbers)

    bias = None if scheme is None else scheme.bias().at(start)
    out, _ = kernel(q, k, v, mask=mask, bias=bias)
    if kernel.exact:
        laws.close(out, wanted, f"{name} under {mask_name}")
        ours = torch.autograd.grad((out * laws.direction(out)).sum(), (q, k, v), retain_graph=True)
        theirs = torch.autograd.grad((wanted * laws.direction(out)).sum(), (q, k, v))
        for letter, got, right in zip("qkv", ours, theirs, strict=True):
            assert got.isfinite().all()
            laws.close(got, right, f"{name} under {mask_name}: gradient of {letter}")
    else:
        error = ((out - wanted).norm() / wanted.norm()).item()
        assert error <= kernel.tolerance, (
            f"{name} states an error of {kernel.tolerance}, under {mask_name} it is {error}"
        )
    if not kernel.weighs:
        return
    seen, weights = kernel(q, k, v, mask=mask, bias=bias, weights=True)
    laws.close(seen, out, f"{name} answers differently when its weights are looked at")
    laws.weights_are_a_distribution(weights, allowed)
    laws.close(weights @ v.repeat_interleave(H // G, dim=1), seen, f"{name}: weights times values")
    for tensor in torch.autograd.grad((seen * laws.direction(out)).sum(), (q, k, v)):
        assert tensor.isfinite().all()


@every_kernel
def test_every_kernel_states_its_formula(name):
    kernel = kernels[name]
    known = kernel.reference or name in SCORES
    assert known, f"kernel {name!r} is no scaled dot product: say what it scores in tests/laws/test_kernels.py:SCORES"
    assert kernel.exact or kernel.tolerance > 0, f"kernel {name!r} is not exact: state its `tolerance`"


@every_kernel
@pytest.mark.parametrize("mask", MASKS)
def test_formula_under_every_mask(name, mask):
    check(name, mask)


@every_kernel
@pytest.mark.parametrize("bias", [bias for bias in BIASES if BIASES[bias]])
@pytest.mark.parametrize("mask", ["none", "causal", "causal & padding", "an empty row"])
def test_formula_with_a_bias(name, mask, bias):
    check(name, mask, bias_name=bias)


@every_kernel
@pytest.mark.parametrize("groups", [1, 2, 3])
@pytest.mark.parametrize("mask", ["none", "causal", "padding"])
def test_formula_with_grouped_heads(name, mask, groups):
    check(name, mask, G=groups)


@every_kernel
@pytest.mark.parametrize("mask", ["causal", "causal & padding", "window", "strided"])
def test_formula_for_the_last_queries_only(name, mask):
    check(name, mask, T=2, start=N - 2)
    check(name, mask, T=1, start=N - 1, bias_name="alibi")


@every_kernel
def test_formula_for_as_many_queries_as_keys_but_later_ones(name):
    check(name, "causal", start=2)


@pytest.mark.parametrize("name", [name for name in kernels if kernels[name].reference and kernels[name].exact])
@pytest.mark.parametrize("mask", ["none", "causal", "padding", "window"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=["float32", "float64"])
def test_reference_kernels_equal_pytorch(name, mask, dtype):
    kernel = make(name).to(dtype)
    if not applies(kernel, mask):
        return
    q, k, v = tensors(dtype=dtype)
    wanted = F.scaled_dot_product_attention(q, k, v, attn_mask=table(LITERAL[mask])[:, None])
    laws.close(kernel(q, k, v, mask=MASKS[mask])[0], wanted, name, 2e-6 if dtype == torch.float32 else 1e-12)


@every_kernel
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["float32", "bfloat16"])
def test_a_query_without_keys_gets_zeros(name, dtype):
    kernel = make(name).to(dtype)
    for weights in {False, kernel.weighs}:
        q, k, v = tensors(dtype=dtype)
        out, _ = kernel(q, k, v, mask=MASKS["an empty row"], weights=weights)
        assert out[1].eq(0).all() and out[0].ne(0).any()
        for grad in torch.autograd.grad(out.float().square().sum(), (q, k, v)):
            assert grad.isfinite().all()


@every_kernel
def test_dropout_acts_on_the_weights(name):
    kernel = make(name)
    q, k, v = (tensor[:1].detach() for tensor in tensors())
    plain = kernel(q, k, v)[0]
    many = [tensor.expand(2000, -1, -1, -1) for tensor in (q, k, v)]
    for weights in {False, kernel.weighs}:
        dropped = kernel(*many, dropout=0.2, weights=weights)[0]
        laws.differs(dropped[0], plain[0], "weights were dropped")
        laws.close(dropped.mean(0), plain[0], "the mean over many dropouts", 0.1)


@pytest.mark.parametrize("name", WEIGHING)
def test_a_scale_of_zero_attends_evenly(name):
    q, k, v = tensors()
    out, weights = make(name)(q, k, v, scale=0.0, weights=True)
    laws.close(weights, torch.full_like(weights, 1 / N), "weights")
    laws.close(make(name)(q, k, v, scale=0.0)[0], out, "output")


def test_what_a_kernel_cannot_do_fails_when_it_is_built(monkeypatch):
    class Blind(kernels["full"]):
        causal = False

    monkeypatch.setitem(kernels._entries, "blind", Blind)
    build_kernel("blind", needs=("cached", "biased"), heads=H, head_dim=K)
    with pytest.raises(ValueError, match="'blind' cannot hide the future; these can: additive, dot, full, general"):
        build_kernel("blind", needs=("causal", "cached"), heads=H, head_dim=K)
    with pytest.raises(ValueError, match="unknown kernel 'ful'; did you mean 'full'"):
        build_kernel("ful", heads=H, head_dim=K)


# ---- the fast paths are really taken --------------------------------------------------------------------------


@pytest.fixture
def calls(monkeypatch):
    """The arguments of every call of PyTorch's fused attention."""
    seen = []
    fused = F.scaled_dot_product_attention

    def spy(q, k, v, **how):
        seen.append(how)
        return fused(q, k, v, **how)

    monkeypatch.setattr("regard.nn.kernels.full.F.scaled_dot_product_attention", spy)
    return seen


@pytest.mark.parametrize(
    ("mask", "T", "start", "is_causal", "tensor"),
    [
        ("none", N, 0, False, False),
        ("everything", N, 0, False, False),
        ("causal", N, 0, True, False),
        ("causal", 1, N - 1, False, False),  # the newest position sees all keys
        ("causal", 1, N - 2, False, True),
        ("causal", 2, N - 2, False, True),
        ("causal", N, 2, False, True),  # queries 2 … 8: the shape is square, the rule is not
        ("causal", 3, 0, False, True),  # is_causal would align the last query, not the first
        ("causal & padding", N, 0, False, True),
        ("padding", N, 0, False, True),
    ],
)
def test_fast_paths(calls, mask, T, start, is_causal, tensor):
    q, k, v = tensors(T=T)
    rule = MASKS[mask]
    make("full")(q, k, v, mask=None if rule is None else rule.at(start))
    assert calls[0]["is_causal"] is is_causal
    assert (calls[0]["attn_mask"] is not None) is tensor


def test_a_bias_is_never_dropped_by_the_fast_path(calls):
    q, k, v = tensors()
    make("full")(q, k, v, mask=causal(), bias=BIASES["alibi"].bias())
    assert calls[0]["attn_mask"] is not None and calls[0]["is_causal"] is False


def test_a_decoder_in_training_uses_no_mask_tensor_and_neither_does_a_cached_step(calls):
    from tests.laws.cases import example
    from tests.laws.cases import make as make_model

    model = make_model("transformer", depth=1)
    inputs = example(model)
    model.features(**inputs)
    encoder, own, cross = calls
    assert own["is_causal"] and own["attn_mask"] is None
    assert encoder["attn_mask"] is not None and cross["attn_mask"] is not None  # there is padding
    assert not encoder["is_causal"] and not cross["is_causal"]

    calls.clear()
    cache = model.new_cache(5)
    target = inputs.pop("target")
    model.prefill(target[:, :1], cache, **inputs)
    calls.clear()
    model.step(target[:, 1], cache)
    own, cross = calls
    assert own["attn_mask"] is None and not own["is_causal"]
    assert cross["attn_mask"].shape[-2:] == (1, 7)
