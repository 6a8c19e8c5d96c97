"""Laws of kernels about their outputs and further declarations, in the form of `kernel_laws`."""

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor

from regard.doctor.kernel_laws import HEADS, SIZE, Build, allowed_pairs, each, gradients, made, part, repeated, sample
from regard.doctor.laws import close, differs, direction, gets_gradients
from regard.nn.kernels import Kernel
from regard.nn.kernels.full import attend, repeat_heads
from regard.nn.masks import Mask, causal, padding
from regard.nn.positions import Alibi, RelativeBias


def answers(build: Build) -> None:
    """forward returns (output, None) in the shape and dtype of the queries, twice the same."""
    kernel = made(build)
    q, k, v = sample(kernel, 7, rows=3)
    result = kernel(q, k, v)
    assert isinstance(result, tuple) and len(result) == 2, (
        f"forward returned {type(result).__name__}, not (out, weights)"
    )
    out, weights = result
    assert weights is None, "forward returned weights without weights=True; return None beside the output"
    assert isinstance(out, Tensor) and out.shape == q.shape, f"output {shape_of(out)}, not {shape_of(q)}"
    assert out.dtype == q.dtype, f"{q.dtype} in, {out.dtype} out"
    close(kernel(q, k, v)[0], out, "the same input again", 1e-12)


def shape_of(value: Any) -> str:
    """The shape of a tensor, or the name of another type."""
    return str(tuple(value.shape)) if isinstance(value, Tensor) else type(value).__name__


def masks_to_try(kernel: Kernel, n: int) -> list[Mask | None]:
    """No mask, padding with one empty row, and for causal kernels both with a causal mask."""
    real = padding(torch.tensor([n, 0, n // 2 + 1]))
    return [None, real, causal(), causal() & real] if kernel.causal else [None, real]


def weights_explain_the_output(build: Build, lengths: Iterable[int] = (1, 7, 31, 65)) -> None:
    """Returning weights changes no output; they are distributions over visible keys, and weights · v is the output."""
    kernel = made(build)
    for n in lengths:
        q, k, v = sample(kernel, n, rows=3)
        for mask in masks_to_try(kernel, n):
            out = kernel(q, k, v, mask=mask)[0]
            seen, weights = kernel(q, k, v, mask=mask, weights=True)
            close(seen, out, f"the output of {n} positions with weights=True")
            assert weights is not None, "weights=True gave None; return them, or declare weighs = False"
            allowed = allowed_pairs(kernel, mask, n, n).expand_as(weights)
            real = allowed.diagonal(dim1=2, dim2=3)  # of padded queries, a kernel that chooses keys may choose none
            weights_are_a_distribution(weights[real], allowed[real])
            close(weights @ v, seen, f"weights · values of {n} positions, beside the output")


def plain_attention(q: Tensor, k: Tensor, v: Tensor, allowed: Tensor, bias: Tensor | None = None) -> Tensor:
    """softmax(q·kᵀ/√K + bias) · v over the allowed keys, with the whole matrix."""
    scores = q @ repeat_heads(k, q.shape[1]).transpose(-1, -2) * q.shape[-1] ** -0.5
    return attend(scores if bias is None else scores + bias.to(scores), v, mask=allowed)[0]


def equals_plain_attention(build: Build, lengths: Iterable[int] = (1, 7, 31, 65, 150, 257)) -> None:
    """An exact kernel equals the formula under its mask and its own rule, forward and backward."""
    for dtype, tolerance in ((torch.float64, 1e-9), (torch.float32, 1e-5)):
        kernel = made(build, dtype=dtype)
        for n in lengths:
            for mask in masks_to_try(kernel, n):
                q, k, v = sample(kernel, n, rows=3, dtype=dtype)
                out, wanted = kernel(q, k, v, mask=mask)[0], plain_attention(q, k, v, allowed_pairs(kernel, mask, n, n))
                what = f"{n} positions under {'no mask' if mask is None else mask!r}, {dtype}"
                close(out, wanted, what, tolerance)
                ours, theirs = (gradients((x * direction(x)).sum(), (q, k, v)) for x in (out, wanted))
                for letter, right in theirs.items():
                    size = max(1.0, right.abs().max().item())  # a key that all queries see sums all their gradients
                    close(ours[letter] / size, right / size, f"{what}: gradient of {letter}", tolerance)


@torch.no_grad()
def stays_within_its_tolerance(build: Build, lengths: Iterable[int] = (31, 257)) -> None:
    """The error of an approximation, relative to the norm of the output, is within its declared tolerance."""
    kernel = made(build)
    for n in lengths:
        for mask in masks_to_try(kernel, n):
            q, k, v = sample(kernel, n, rows=3)
            wanted = plain_attention(q, k, v, allowed_pairs(kernel, mask, n, n))
            error = ((kernel(q, k, v, mask=mask)[0] - wanted).norm() / wanted.norm()).item()
            assert error <= kernel.tolerance, f"{n} positions: off by {error:.3f}, declared are {kernel.tolerance}"


@torch.no_grad()
def grouped_heads_equal_repeated(build: Build, lengths: Iterable[int] = (1, 13, 65)) -> None:
    """Key/value heads that several query heads share give the output of those heads repeated."""
    kernel = made(build, heads=4)
    for n in lengths:
        for groups in (1, 2):
            q, k, v = sample(kernel, n, rows=3, groups=groups)
            for mask in masks_to_try(kernel, n):
                wanted = kernel(q, repeat_heads(k, 4), repeat_heads(v, 4), mask=mask)[0]
                close(kernel(q, k, v, mask=mask)[0], wanted, f"{groups} key/value heads for 4, {n} positions")


def cross_attends(build: Build) -> None:
    """Queries of one sequence attend to keys of another: longer, shorter, padded."""
    kernel = made(build)
    for n, keys in ((7, 31), (65, 13), (1, 64)):
        q, k, v = sample(kernel, n, rows=3, keys=keys)
        mask = padding(torch.tensor([keys, keys // 2, 1]))
        out = kernel(q, k, v, mask=mask)[0]
        assert out.shape == q.shape, f"{n} queries, {keys} keys: output {shape_of(out)}, not {shape_of(q)}"
        for row, length in enumerate([keys, keys // 2, 1]):
            alone = kernel(q[row : row + 1], k[row : row + 1, :, :length], v[row : row + 1, :, :length])[0]
            close(alone, out[row : row + 1], f"{n} queries, {keys} keys, row {row} by itself")
        differs(kernel(q, k, v + 1.0, mask=mask)[0], out, "the values were changed")


def nothing_to_see_gives_zeros(build: Build, lengths: Iterable[int] = (1, 7, 65)) -> None:
    """A query whose keys are all hidden gets an output of zeros, and gradients stay finite."""
    kernel = made(build)
    for n in lengths:
        q, k, v = sample(kernel, n, rows=3)
        out = kernel(q, k, v, mask=padding(torch.tensor([n, 0, n])))[0]
        assert out[1].eq(0).all(), f"{n} positions, all keys hidden: the output is {out[1].abs().max():.1e}, not 0"
        for grad in gradients(out.square().sum(), (q, k, v)).values():
            assert grad.isfinite().all(), f"{n} positions, all keys hidden: the gradient is not finite"


def stays_finite(build: Build, lengths: Iterable[int] = (1, 31, 129)) -> None:
    """Outputs and gradients are finite in float32 and bfloat16, also for inputs ten times as large."""
    for dtype in (torch.float32, torch.bfloat16):
        kernel = made(build, dtype=dtype)
        for n in lengths:
            for size in (1.0, 10.0):
                for mask in masks_to_try(kernel, n)[1::2]:
                    example = sample(kernel, n, rows=3, dtype=dtype)
                    example = each(lambda x: (size * x.detach()).requires_grad_(), example)  # noqa: B023
                    out = kernel(*example, mask=mask)[0]
                    assert out.dtype == dtype, f"{dtype} in, {out.dtype} out"
                    what = f"{n} positions of size {size:.0f} in {dtype}"
                    assert out.isfinite().all(), f"{what}: the output is not finite"
                    for grad in gradients(out.float().square().sum(), example).values():
                        assert grad.isfinite().all(), f"{what}: the gradient is not finite"


# ---- what else it declares ------------------------------------------------------------------------------------


def every_parameter_learns(build: Build) -> str:
    """Each parameter has a gradient; returns their number."""
    kernel = made(build)
    count = sum(1 for _ in kernel.parameters())
    if not count:
        return "it has none"
    gets_gradients(kernel, kernel(*sample(kernel, 31, rows=3), mask=causal() if kernel.causal else None)[0])
    return f"{count} of {count}"


def takes_a_bias(build: Build, n: int = 31) -> None:
    """A bias changes the output and gets a gradient; exact kernels add it to their scores; decoding takes it, too."""
    kernel = made(build)
    sizes: dict[str, Any] = dict(dim=HEADS * SIZE, heads=HEADS, head_dim=SIZE, max_len=n)
    mask = causal() if kernel.causal else None
    q, k, v = sample(kernel, n, rows=3)
    learned = RelativeBias(**sizes)
    out = kernel(q, k, v, mask=mask, bias=learned.bias())[0]
    (out * direction(out)).sum().backward()
    assert learned.table.grad is not None and learned.table.grad.abs().max() > 0, "a learned bias has no gradient"
    bias = Alibi(**sizes).bias()
    out = kernel(q, k, v, mask=mask, bias=bias)[0]
    differs(out, kernel(q, k, v, mask=mask)[0], "a bias was added")
    if kernel.exact and kernel.reference:
        wanted = plain_attention(q, k, v, allowed_pairs(kernel, mask, n, n), bias.dense(n, n))
        close(out, wanted, f"{n} positions with a bias")
    if kernel.causal and kernel.cached:
        memory, half = kernel.memory(n), n // 2
        for start, end in ((0, half), (half, n)):
            with torch.no_grad():
                now = part((q, k, v), start, end)
                got = memory.attend(kernel, *now, mask=causal().at(start), bias=bias.at(start))
            close(got, out[:, :, start:end], f"positions {start} … {end - 1} of {n}, in parts, with a bias")


@torch.no_grad()
def drops_weights(build: Build, n: int = 7) -> None:
    """The mean of many outputs with dropout is near the output without."""
    kernel = made(build)
    example = repeated(sample(kernel, n), 1000)
    plain, dropped = kernel(*example)[0], kernel(*example, dropout=0.2)[0]
    differs(dropped, plain, "weights were dropped")
    close(dropped.mean(0), plain[0], "the mean over many dropouts", 0.15 * max(1.0, plain.abs().max().item()))


@torch.no_grad()
def does_not_collapse(build: Build, n: int = 65) -> str:
    """Different queries get different outputs that do not lie on one line; returns the measured rank."""
    kernel = made(build)
    out = kernel(*sample(kernel, n))[0][0]
    spread = (out - out.mean(1, keepdim=True)).norm() / out.norm()
    assert spread > 1e-3, f"all {n} queries get the same output (they differ by {spread:.0e} of its size)"
    singular = torch.linalg.svdvals(out)
    rank = int((singular > 1e-3 * singular[:, :1]).sum(1).min())
    assert rank > 1, f"the outputs of {n} queries have rank {rank} of {SIZE}: all lie on one line"
    return f"rank {rank} of {SIZE}, queries differ by {100 * spread:.0f} %"


# ---- formulas -------------------------------------------------------------------------------------------------


def weights_are_a_distribution(weights: Tensor, allowed: Tensor) -> None:
    """Weights are non-negative, zero at hidden keys, and sum to one, or to zero where all keys are hidden."""
    assert (weights >= 0).all(), "a weight is negative"
    assert weights[~allowed].eq(0).all(), "a hidden key has a weight"
    close(weights.sum(-1), allowed.any(-1).to(weights.dtype), "the sum of each row's weights")
