"""Every registered kernel computes its formula, under every mask that it takes, with biases and with shared heads."""

import itertools
import math

import pytest
import torch
import torch.nn.functional as F

from regard.doctor import kernel_claims, kernel_laws, laws
from regard.nn.attention import Attention, AttentionConfig
from regard.nn.cache import KeyValues
from regard.nn.kernels import build_kernel
from regard.nn.masks import causal
from regard.nn.positions import Alibi, RelativeBias
from regard.registry import kernels
from tests.laws.cases import KERNEL_CASES
from tests.laws.rules import LITERAL, MASKS, PLAIN, B, N, table

H, K, C = 4, 5, 3  # query heads, head size, size of a value
LENGTHS = (1, 13, 31)


# What a kernel scores, where that is no scaled dot product: one line for each kernel with `reference = False`.
SCORES = {
    "additive": lambda kernel: lambda q, k, h: (q[:, None] + k[None]).tanh() @ kernel.vector[h],
    "cosine": lambda kernel: lambda q, k, h: unit(q) @ unit(k).T * kernel.log_scale[h].exp().clamp(max=100),
    "dot": lambda kernel: lambda q, k, h: q @ k.T,
    "linear": lambda kernel: lambda q, k, h: (positive(q) @ positive(k).T).log(),
    "performer": lambda kernel: lambda q, k, h: estimated(kernel.directions, q / K**0.25, k / K**0.25),
    "general": lambda kernel: lambda q, k, h: q @ kernel.matrix[h] @ k.T / math.sqrt(K),
    "normalized": lambda kernel: lambda q, k, h: math.sqrt(K) * unit(q) @ unit(k).T,
}

# What a kernel computes, where that is no softmax of scores: (kernel, q, k, v, allowed B H T S, bias H T S) → output.
FORMULAS = {
    "topk": lambda *given: of_each_query(best_keys, *given),
    "reformer": lambda *given: of_each_query(bucket_mates, *given),
    "linformer": lambda *given: of_each_query(mixed_slots, *given),
}


def of_each_query(answer, kernel, q, k, v, allowed, bias):
    """`answer(kernel, q K, keys S K, values S C, allowed S, place, bias S)` for one query after the other."""
    B, H, T, _ = q.shape
    start = k.shape[2] - T if kernel.shares else 0
    rows = []
    for b, h, t in itertools.product(range(B), range(H), range(T)):
        group = h * v.shape[1] // H
        shift = torch.zeros(k.shape[2]).to(q) if bias is None else bias[h, t]
        rows.append(answer(kernel, q[b, h, t], k[b, group], v[b, group], allowed[b, h, t], t + start, shift))
    return torch.stack(rows).view(B, H, T, -1)


def softmax_over(scores, v, chosen):
    """Weights of the chosen keys only; nothing for none."""
    powers = scores[chosen].exp()
    return (powers / powers.sum()) @ v[chosen] if len(chosen) else v.new_zeros(v.shape[1])


def best_keys(kernel, q, k, v, allowed, place, bias):
    seen = allowed.nonzero()[:, 0].tolist()
    scores = k @ q / math.sqrt(K) + bias
    order = sorted(seen, key=lambda j: -scores[j].item())
    if len(order) <= kernel.k:
        return softmax_over(scores, v, order)
    if kernel.temperature:
        border = (scores[order[kernel.k - 1]] + scores[order[kernel.k]]) / 2
        return softmax_over(scores + torch.sigmoid((scores - border) / kernel.temperature).log(), v, order)
    return softmax_over(scores, v, order[: kernel.k])


def bucket_mates(kernel, q, k, v, allowed, place, bias):
    k = unit(k)
    mates = set()
    for turn in kernel.rotations:
        bucket = [max(range(2 * turn.shape[1]), key=[*(x @ turn), *-(x @ turn)].__getitem__) for x in k]
        members = [j for j in range(len(k)) if bucket[j] == bucket[place]]
        mates |= {j for j in members if abs(members.index(j) - members.index(place)) <= kernel.reach}
    seen = [j for j in sorted(mates) if allowed[j] and j != place]
    return softmax_over(k @ q / math.sqrt(K), v, seen or [place] * bool(allowed[place]))


def mixed_slots(kernel, q, k, v, allowed, place, bias):
    real = allowed.nonzero()[:, 0]
    keys, values = kernel.mix_keys[:, real] @ k[real], kernel.mix_values[:, real] @ v[real]
    return softmax_over(keys @ q / math.sqrt(K), values, list(range(len(keys))) if len(real) else [])


def positive(x):
    """elu + 1, read aloud."""
    return torch.where(x > 0, x + 1, x.exp())


def estimated(w, q, k):
    """ln of the estimate of exp(q·k) by random directions."""
    left, right = q @ w.T - q.square().sum(-1, keepdim=True) / 2, k @ w.T - k.square().sum(-1, keepdim=True) / 2
    return (left.exp() @ right.exp().T / len(w)).log()


def unit(x):
    return x / x.square().sum(-1, keepdim=True).sqrt()


def scaled_dot(kernel):
    return lambda q, k, h: q @ k.T / math.sqrt(K)


def attention_by_hand(score, q, k, v, allowed, bias=None):
    """Attention with explicit loops: for each query, exp of each allowed score over their sum, times the values.

    `score(q, k, head)` returns the T × S scores of one head.
    """
    B, H, T, _ = q.shape
    out = v.new_zeros(B, H, T, v.shape[-1])
    for b in range(B):
        for h in range(H):
            group = h * v.shape[1] // H  # H/G neighbouring query heads share a key/value head
            scores = score(q[b, h], k[b, group], h) + (0.0 if bias is None else bias[h])
            for t in range(T):
                seen = allowed[b, h, t].nonzero()[:, 0]
                if len(seen):
                    powers = scores[t, seen].exp()
                    out[b, h, t] = (powers / powers.sum()) @ v[b, group, seen]
    return out


def formula(case, kernel, q, k, v, allowed, bias):
    """What the kernel should say, by plain loops."""
    name = plain(case)
    if name in FORMULAS:
        return FORMULAS[name](kernel, q, k, v, allowed, bias)
    return attention_by_hand(SCORES.get(name, scaled_dot)(kernel), q, k, v, allowed, bias)


def plain(case):
    """A name without settings."""
    return case.partition(":")[0]


BIASES = {
    "no bias": None,
    "alibi": Alibi(dim=H * K, heads=H, head_dim=K, max_len=N),
    "relative": RelativeBias(dim=H * K, heads=H, head_dim=K, max_len=N, buckets=6, far=5),
}
every_kernel = pytest.mark.parametrize("name", KERNEL_CASES)


def that(*declared):
    """The cases whose kernels declare all of these; `not shares` for one that does not."""
    wanted = [(word.removeprefix("not "), not word.startswith("not ")) for word in declared]
    return [case for case in KERNEL_CASES if all(getattr(kernels[case], word) is value for word, value in wanted)]


def only(*declared):
    return pytest.mark.parametrize("name", that(*declared))


def make(name):
    kernel = build_kernel(name, heads=H, head_dim=K, max_len=37).double().eval()
    with torch.no_grad():
        for parameter in kernel.parameters():
            parameter.normal_()
    return kernel


def tensors(kernel=None, G=H, T=N, S=N, dtype=torch.float64, values=C):
    shapes = [(B, H, T, K), (B, G, S, K), (B, G, S, values)]
    q, k, v = (torch.randn(shape, dtype=dtype, requires_grad=True) for shape in shapes)
    return q, q if kernel is not None and kernel.shares else k, v


def refuses(kernel, mask_name):
    """A mask that the kernel does not declare: it must say so, whatever else it could do."""
    hides = MASKS[mask_name] is not None and MASKS[mask_name].hides_future
    return (hides and not kernel.causal) or (mask_name not in PLAIN and not kernel.any_mask)


def check(name, mask_name, *, G=H, bias_name="no bias", T=N, S=N, start=0, values=C):
    kernel, mask, scheme = make(name), MASKS[mask_name], BIASES[bias_name]
    q, k, v = tensors(kernel, G, T, S, values=values)
    mask = mask.at(start) if mask is not None else None
    if refuses(kernel, mask_name):
        with pytest.raises(ValueError, match="these "):
            kernel(q, k, v, mask=mask)
        return
    allowed = table(LITERAL[mask_name], T=T, S=S, start=start)[:, None].expand(B, H, T, S)
    allowed = allowed & kernel.rule().at(start).dense(T, S)
    i, j = torch.arange(start, start + T)[:, None], torch.arange(S)[None]
    numbers = None if scheme is None else scheme.of_distance(j - i, causal=False).detach()
    bias = None if scheme is None else scheme.bias().at(start)
    out, _ = kernel(q, k, v, mask=mask, bias=bias)

    # A table states what an approximation computes, once its random parts are drawn; `tolerance` is its way to `full`.
    if kernel.exact or plain(name) in (*SCORES, *FORMULAS):
        wanted = formula(name, kernel, q, k, v, allowed, numbers)
        laws.close(out, wanted, f"{name} under {mask_name}")
        leaves = kernel_laws.leaves(q, k, v)
        ours = torch.autograd.grad((out * laws.direction(out)).sum(), leaves.values(), retain_graph=True)
        theirs = torch.autograd.grad((wanted * laws.direction(out)).sum(), leaves.values())
        for letter, got, right in zip(leaves, ours, theirs, strict=True):
            assert got.isfinite().all()
            laws.close(got, right, f"{name} under {mask_name}: gradient of {letter}")
    if kernel.reference and not kernel.exact:
        wanted = attention_by_hand(scaled_dot(kernel), q, k, v, allowed, numbers)
        error = ((out - wanted).norm() / wanted.norm()).item()
        assert error <= kernel.tolerance, (
            f"{name} states an error of {kernel.tolerance}, it is {error} under {mask_name}"
        )
    if not kernel.weighs:
        return
    seen, weights = kernel(q, k, v, mask=mask, bias=bias, weights=True)
    laws.close(seen, out, f"{name} answers differently when its weights are looked at")
    if kernel.shares:  # padding may meet nobody, and is nobody's to see
        allowed = allowed & weights.sum(-1, keepdim=True).ne(0)
    kernel_claims.weights_are_a_distribution(weights, allowed)
    laws.close(weights @ v.repeat_interleave(H // G, dim=1), seen, f"{name}: weights times values")
    for tensor in torch.autograd.grad((seen * laws.direction(out)).sum(), (q, k, v)):
        assert tensor.isfinite().all()


@every_kernel
def test_every_kernel_states_its_formula(name):
    kernel = kernels[name]
    known = kernel.reference or plain(name) in (*SCORES, *FORMULAS)
    assert known, f"kernel {name!r} is no scaled dot product: say what it scores in tests/laws/test_kernels.py:SCORES"
    assert kernel.exact or kernel.tolerance > 0, f"kernel {name!r} is not exact: state its `tolerance`"
    assert not kernel.exact or kernel.tolerance == 0, f"kernel {name!r} is exact: it has no `tolerance`"


@every_kernel
@pytest.mark.parametrize("mask", MASKS)
def test_formula_under_every_mask(name, mask):
    check(name, mask, values=K)  # as models have them: fused kernels want values of the keys' size


@only("biased")
@pytest.mark.parametrize("bias", [bias for bias in BIASES if BIASES[bias]])
@pytest.mark.parametrize("mask", ["none", "causal", "causal & padding", "an empty row"])
def test_formula_with_a_bias(name, mask, bias):
    check(name, mask, bias_name=bias)


@only("not shares")
@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize("mask", ["none", "causal & padding"])
def test_formula_with_grouped_heads(name, mask, groups):
    check(name, mask, G=groups, values=K)


@only("crosses", "not shares")
@pytest.mark.parametrize("mask", ["none", "padding", "an empty row"])
def test_formula_for_two_sequences(name, mask):
    check(name, mask, T=4)
    check(name, mask, T=N, S=5)


@pytest.mark.parametrize(
    "name", [case for case in that("cached", "any_mask", "not shares") if type(make(case).memory(1)) is KeyValues]
)
@pytest.mark.parametrize("mask", ["causal", "causal & padding", "window", "strided"])
def test_formula_for_the_last_queries_only(name, mask):
    check(name, mask, T=2, start=N - 2)
    check(name, mask, T=1, start=N - 1, bias_name="alibi" if kernels[name].biased else "no bias")


@only("causal", "crosses", "any_mask", "not shares")
def test_formula_for_as_many_queries_as_keys_but_later_ones(name):
    check(name, "causal", start=2)


@only("causal")
def test_no_position_sees_the_future(name):
    kernel_laws.hides_the_future(builder(name), LENGTHS)
    kernel_laws.future_has_no_gradient(builder(name), LENGTHS)


@every_kernel
def test_padding_changes_nothing(name):
    kernel_laws.padding_changes_nothing(builder(name), LENGTHS)
    kernel_laws.batch_equals_single(builder(name), LENGTHS)


@only("causal", "cached")
def test_cached_equals_uncached(name):
    kernel_laws.cached_equals_uncached(builder(name), LENGTHS)


def builder(name):
    return lambda **sizes: build_kernel(name, **sizes)


@only("reference", "exact")
@pytest.mark.parametrize("mask", ["none", "causal", "padding", "window"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=["float32", "float64"])
def test_reference_kernels_equal_pytorch(name, mask, dtype):
    kernel = make(name).to(dtype)
    if refuses(kernel, mask):
        return
    q, k, v = tensors(kernel, dtype=dtype)
    allowed = table(LITERAL[mask])[:, None] & kernel.rule().dense(N, N)
    wanted = F.scaled_dot_product_attention(q, k, v, attn_mask=allowed)
    laws.close(kernel(q, k, v, mask=MASKS[mask])[0], wanted, name, 2e-6 if dtype == torch.float32 else 1e-12)


@every_kernel
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["float32", "bfloat16"])
def test_a_query_without_keys_gets_zeros(name, dtype):
    kernel = make(name).to(dtype)
    for weights in {False, kernel.weighs}:
        q, k, v = tensors(kernel, dtype=dtype)
        out, _ = kernel(q, k, v, mask=MASKS["an empty row"], weights=weights)
        assert out[1].eq(0).all() and out[0].ne(0).any()
        for grad in torch.autograd.grad(out.float().square().sum(), (q, k, v)):
            assert grad.isfinite().all()


@only("drops")
def test_dropout_acts_on_the_weights(name):
    kernel = make(name)
    q, k, v = (tensor[:1].detach().expand(2000, -1, -1, -1) for tensor in tensors(kernel))
    k = q if kernel.shares else k
    plain = kernel(q[:1], q[:1] if kernel.shares else k[:1], v[:1])[0]
    for weights in {False, kernel.weighs}:
        dropped = kernel(q, k, v, dropout=0.2, weights=weights)[0]
        laws.differs(dropped[0], plain[0], "weights were dropped")
        laws.close(dropped.mean(0), plain[0], "the mean over many dropouts", 0.1 * max(1.0, plain.abs().max().item()))


@pytest.mark.parametrize("name", [case for case in that("weighs") if plain(case) not in FORMULAS])
def test_a_scale_of_zero_attends_evenly(name):
    kernel = make(name)
    q, k, v = tensors(kernel)
    out, weights = kernel(q, k, v, scale=0.0, weights=True)
    seen = kernel.rule().dense(N, N).to(weights.dtype)
    laws.close(weights, (seen / seen.sum(-1, keepdim=True)).expand_as(weights), "weights")
    laws.close(kernel(q, k, v, scale=0.0)[0], out, "output")


@every_kernel
def test_what_a_layer_asks_is_checked_when_it_is_built(name):
    """Nothing that a kernel does not declare is dropped silently."""
    sizes = dict(dim=12, heads=3, kernel=name)
    for need in ("causal", "cached", "biased", "crosses"):
        if not getattr(kernels[name], need):
            with pytest.raises(ValueError, match="cannot .*; these can"):
                Attention(AttentionConfig(**sizes, needs=frozenset({need})))
    if not kernels[name].drops:
        with pytest.raises(ValueError, match="cannot drop weights .*; these can"):
            Attention(AttentionConfig(**sizes, dropout=0.1))
    if kernels[name].shares:
        with pytest.raises(ValueError, match="leave kv_heads unset"):
            Attention(AttentionConfig(**sizes, kv_heads=1))


def test_what_a_kernel_cannot_do_fails_when_it_is_built(monkeypatch):
    class Blind(kernels["full"]):
        causal = False

    monkeypatch.setitem(kernels._entries, "blind", Blind)
    build_kernel("blind", needs=("cached", "biased"), heads=H, head_dim=K)
    with pytest.raises(ValueError, match="'blind' cannot hide the future; these can: additive, cosine, dot, edges,"):
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
