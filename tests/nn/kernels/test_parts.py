"""Attention in tiles: the fused path, the plain path and a dense mask give one answer for every size."""

import pytest
import torch

from regard.doctor.laws import close, direction
from regard.nn.kernels import build_kernel, parts
from regard.nn.kernels.window import Ruled
from regard.nn.masks import causal, padding
from tests.laws.rules import MASKS, N

H, K = 4, 6
CASES = [
    "window:radius=2,chunk=3", "window:radius=0", "window:radius=5,chunk=2", "window:radius=40",
    "sparse:radius=1,stride=3,far=2,tokens=2,chunk=2", "sparse:radius=0,stride=4,far=1,tokens=1",
    "sparse:radius=3,stride=1,far=2,tokens=0", "sparse:radius=2,stride=50,far=1,tokens=30",
]  # fmt: skip


def given(rows, n, *, groups=H, dtype=torch.float64):
    shapes = [(rows, H, n, K), (rows, groups, n, K), (rows, groups, n, K)]
    return [torch.randn(shape, dtype=dtype, requires_grad=True) for shape in shapes]


def answers(kernel, tensors, **how):
    out = kernel(*tensors, **how)[0]
    return [out, *torch.autograd.grad((out * direction(out)).sum(), tensors)]


@pytest.fixture
def fused_calls(monkeypatch):
    calls = []
    real = parts.FUSED

    def spy(*args, **how):
        calls.append(args[0].shape)
        return real(*args, **how)

    monkeypatch.setattr(parts, "FUSED", spy)
    return calls


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("mask", MASKS)
def test_fused_tiles_equal_a_dense_mask(name, mask, fused_calls):
    kernel, rule = build_kernel(name, heads=H, head_dim=K), MASKS[mask]
    for groups in (H, 2):
        tensors = given(3, N, groups=groups)
        found = answers(kernel, tensors, mask=rule)
        assert fused_calls, "this test is about the fused path"
        for got, wanted in zip(found, answers(kernel, tensors, mask=rule, weights=True), strict=True):
            close(got, wanted, f"{name} under {mask}")


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("n", [1, 13, 29, 67])
def test_plain_tiles_equal_the_fused_ones(name, n, monkeypatch):
    kernel, tensors = build_kernel(name, heads=H, head_dim=K), given(2, n)
    for mask in (None, causal(), causal() & padding(torch.tensor([n, max(1, n - 5)]))):
        fused = answers(kernel, tensors, mask=mask)
        monkeypatch.setattr(
            parts, "FUSED", None
        )  # a value of another size, a bias or another device take the plain one
        monkeypatch.setattr(parts._Fused, "apply", plainly)
        for got, wanted in zip(answers(kernel, tensors, mask=mask), fused, strict=True):
            close(got, wanted, f"{name} with {n} positions")
        monkeypatch.undo()


def plainly(q, k, v, some, scale):
    return parts.joined([parts.plain(part, q, k, v, scale, None) for part in some])


@pytest.mark.parametrize("name", ["window:radius=9", "sparse:radius=5,stride=7,far=3,tokens=3"])
def test_many_groups_of_tiles_equal_one(name, monkeypatch):
    kernel, tensors = build_kernel(name, heads=H, head_dim=K), given(2, 211)
    whole = answers(kernel, tensors, mask=causal())
    monkeypatch.setattr(parts, "TOGETHER", 32)
    for got, wanted in zip(answers(kernel, tensors, mask=causal()), whole, strict=True):
        close(got, wanted, name)


@pytest.mark.parametrize("name", ["window:radius=70", "sparse"])
def test_float32_and_long_sequences_equal_pytorch(name):
    kernel, tensors = build_kernel(name, heads=H, head_dim=K), given(1, 523, dtype=torch.float32)
    found = answers(kernel, tensors, mask=causal())
    dense = (causal() & kernel.rule()).dense(523, 523)
    out = torch.nn.functional.scaled_dot_product_attention(*tensors, attn_mask=dense)
    wanted = [out, *torch.autograd.grad((out * direction(out)).sum(), tensors)]
    for got, right in zip(found, wanted, strict=True):
        close(got, right, name, 1e-5 * max(1.0, right.abs().max().item()))


def test_nothing_in_a_tile_is_as_large_as_the_matrix(fused_calls):
    n = 4099
    kernel = build_kernel("window:radius=16", heads=H, head_dim=K)
    with torch.no_grad():
        kernel(*given(1, n, dtype=torch.float32), mask=causal())
    assert len(fused_calls) > 1 and all(shape[-2] <= 32 for shape in fused_calls)


def test_every_ruled_kernel_cuts_its_rule_into_parts_that_do_not_overlap():
    """Each pair that may be seen is in exactly one tile of one part: counted over a few lengths and masks."""
    for name in CASES:
        kernel = build_kernel(name, heads=1, head_dim=K)
        assert isinstance(kernel, Ruled)
        for n in (1, 7, 29):
            for mask in (None, causal()):
                counted = torch.zeros(n, n)
                for part in kernel.parts(mask, n, n):
                    place = part.arrange(torch.arange(n).view(1, 1, n, 1).float() + 1)  # 0 is filled in
                    for group, allowed in part.tiles(place, place):
                        i, j = group.queries(place)[:, 0, :, 0].long(), group.keys(place)[:, 0, :, 0].long()
                        for tile, (rows, columns) in enumerate(zip(i, j, strict=True)):
                            seen = allowed[tile, 0] & (rows[:, None] > 0) & (columns > 0)
                            for a, b in seen.nonzero():
                                counted[rows[a] - 1, columns[b] - 1] += 1
                rule = kernel.rule() if mask is None else mask & kernel.rule()
                assert torch.equal(counted, rule.dense(n, n)[0, 0].float()), (name, n, mask)
