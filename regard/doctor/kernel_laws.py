"""Laws of kernels about masks and caches, as functions of a callable that builds one; AssertionError if broken.

`build(heads=…, head_dim=…, max_len=…)` returns the kernel. Laws about outputs and further declarations are in
`kernel_claims`; `kernels` holds the declarations that each law needs.
"""

from collections.abc import Callable, Iterable

import torch
from torch import Tensor

from regard.doctor.laws import close, direction
from regard.nn.kernels import Kernel
from regard.nn.masks import Mask, causal, everything, padding, prefix, segments, strided, window

Build = Callable[..., Kernel]
Example = tuple[Tensor, Tensor, Tensor]
"""q, k and v."""
HEADS, SIZE = 2, 8
LENGTHS = (1, 7, 13, 31, 63, 64, 65, 127, 128, 129, 255, 256, 257)
"""Sequence lengths: primes that no window, chunk or bucket divides, and the neighbours of usual sizes."""


def made(build: Build, *, heads: int = HEADS, dtype: torch.dtype = torch.float64) -> Kernel:
    """A kernel in evaluation mode; its parameters get noise, so that none is at an initial zero."""
    kernel = build(heads=heads, head_dim=SIZE, max_len=max(LENGTHS) + 3).to(dtype).eval()
    with torch.no_grad():
        for parameter in kernel.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    return kernel


def sample(
    kernel: Kernel, n: int, *, rows: int = 1, keys: int | None = None, groups: int | None = None,
    dtype: torch.dtype = torch.float64,
) -> Example:  # fmt: skip
    """q, k and v of unit variance, as leaves; k is q itself where a kernel shares them."""
    keys, groups = keys or n, groups or kernel.heads
    q = torch.randn(rows, kernel.heads, n, kernel.head_dim, dtype=dtype, requires_grad=True)
    k, v = (torch.randn(rows, groups, keys, kernel.head_dim, dtype=dtype, requires_grad=True) for _ in range(2))
    return q, q if kernel.shares else k, v


def cuts(n: int) -> list[int]:
    """Positions to test: all of a short sequence; of a long one both ends and both sides of every power of two."""
    if n <= 16:
        return list(range(n))
    sides = [2**power + side for power in range(4, 12) for side in (-1, 0)]
    return sorted({t for t in (0, 1, 11, 37, 101, 199, n - 2, n - 1, *sides) if t < n})


def each(change: Callable[[Tensor], Tensor], example: Example) -> Example:
    """q, k and v, each changed by a function; k stays q itself where it was."""
    q, k, v = example
    changed = change(q)
    return changed, changed if k is q else change(k), change(v)


def part(example: Example, start: int, end: int) -> Example:
    """q, k and v of some positions."""
    return each(lambda x: x[:, :, start:end], example)


def with_noise(example: Example, where: Tensor, size: float = 1.0) -> Example:
    """q, k and v with random numbers where a mask is True; it may have more rows than the example."""
    return each(lambda x: torch.where(where, size * torch.randn(len(where), *x.shape[1:]).to(x), x), example)


def repeated(example: Example, rows: int) -> Example:
    """q, k and v with one example in every row, as leaves."""
    return each(lambda x: x.detach().expand(rows, -1, -1, -1).clone().requires_grad_(), example)


def leaves(q: Tensor, k: Tensor, v: Tensor) -> dict[str, Tensor]:
    """Return the tensors that receive gradients, by name: q, k, v."""
    return {"q": q, "v": v} if k is q else {"q": q, "k": k, "v": v}


def gradients(scalar: Tensor, example: Example) -> dict[str, Tensor]:
    """The gradients of a scalar with respect to q, k and v, by name."""
    tensors = leaves(*example)
    return dict(zip(tensors, torch.autograd.grad(scalar, list(tensors.values())), strict=True))


def directions(kernel: Kernel) -> list[Mask]:
    """The masks of a kernel that say which side a position may see: both, and the past if it can hide the future."""
    return [everything(), causal()] if kernel.causal else [everything()]


def allowed_pairs(kernel: Kernel, mask: Mask | None, T: int, S: int) -> Tensor:
    """The pairs that a kernel may attend to: its mask and its own rule."""
    mask = everything() if mask is None else mask
    return (mask.dense(T, S) & kernel.rule().at(mask.start).dense(T, S)).contiguous()


# ---- what a position may see ----------------------------------------------------------------------------------


@torch.no_grad()
def hides_the_future(build: Build, lengths: Iterable[int] = LENGTHS) -> None:
    """Changing queries, keys and values after position t changes no output up to t."""
    kernel = made(build)
    for n in lengths:
        example, positions = sample(kernel, n), cuts(n)
        out = kernel(*example, mask=causal())[0]
        later = (torch.arange(n) > torch.tensor(positions)[:, None])[:, None, :, None]
        other = kernel(*with_noise(example, later), mask=causal())[0]
        for row, t in enumerate(positions):
            moved = (other[row] - out[0]).abs().amax((0, 2))
            first = int(moved[: t + 1].argmax())
            assert moved[: t + 1].max() <= 1e-9, (
                f"of {n} positions those after {t} were changed, and the output at {first} moved by {moved[first]:.1e}"
            )
        assert n < 4 or (other[0] - out[0]).abs().max() > 1e-9, f"all of {n} positions were changed, and nothing moved"


def reach(kernel: Kernel, n: int, mask: Mask | None, positions: list[int]) -> dict[str, Tensor]:
    """The size of the gradient of the output at each position of `positions` by each query, key and value."""
    example = repeated(sample(kernel, n), len(positions))
    out = kernel(*example, mask=mask)[0]
    at = out[torch.arange(len(positions)), :, torch.tensor(positions)]  # of each row the output at its own position
    grads = gradients((at * direction(out)).sum(), example)
    return {letter: grad.abs().sum((1, 3)) for letter, grad in grads.items()}


def future_has_no_gradient(build: Build, lengths: Iterable[int] = LENGTHS) -> None:
    """The output at t has exactly no gradient with respect to any query, key or value after t."""
    kernel = made(build)
    for n in lengths:
        positions = cuts(n)
        reached = reach(kernel, n, causal(), positions)
        later = torch.arange(n) > torch.tensor(positions)[:, None]
        late = {letter: grads.masked_fill(~later, 0.0) for letter, grads in reached.items()}
        worst = max(late, key=lambda letter: late[letter].max().item())
        row, s = divmod(int(late[worst].argmax()), n)
        size, t = late[worst][row, s].item(), positions[row]
        assert size == 0, f"of {n} positions, the output at {t} has a gradient of {size:.1e} from {worst} at {s}"
        assert (reached["v"].sum(1) > 0).all(), f"of {n} positions, one has no gradient from any value"


def honours_masks(build: Build, n: int = 13) -> None:
    """Hidden keys have no gradient, by masks and by the kernel's own rule; undeclared masks are refused."""
    kernel, positions = made(build), list(range(n))
    packed = segments((torch.arange(n) // 4)[None])
    others: list[Mask] = [window(2), strided(3), prefix(3) | causal(), causal() & packed, ~window(1)]
    taken = [mask for mask in others if kernel.any_mask and (kernel.causal or not mask.hides_future)]
    for mask in [None, *taken]:
        allowed = allowed_pairs(kernel, mask, n, n)[0, 0]
        for letter, gradient in reach(kernel, n, mask, positions).items():
            mine = torch.eye(n).bool() if letter == "q" else torch.zeros(n, n).bool()
            seen = (gradient > 0) & ~allowed & ~mine
            if kernel.shares or letter != "q":
                assert not seen.any(), f"under {mask!r}, {first_pair(seen)} is hidden and has a gradient"
    refused = [] if kernel.any_mask else [packed]
    for mask in refused if kernel.causal else [*refused, causal()]:
        try:
            kernel(*sample(kernel, n), mask=mask)
        except ValueError:
            continue
        raise AssertionError(f"it declares no such masks, but accepts {mask!r}")


def first_pair(seen: Tensor) -> str:
    """The first pair of a mask, in words."""
    t, s = seen.nonzero()[0].tolist()
    return f"query {t} → key {s}"


def padding_changes_nothing(build: Build, lengths: Iterable[int] = LENGTHS) -> None:
    """Neither the content nor the amount of padding changes an output, and no gradient flows into it."""
    kernel = made(build)
    for n in (n for n in lengths if n > 1):
        real = torch.tensor([n, n // 2 + 1, 1])
        hidden = (torch.arange(n) >= real[:, None])[:, None, :, None]
        for rule in directions(kernel):
            mask = rule & padding(real)
            example = sample(kernel, n, rows=3)
            out = kernel(*example, mask=mask)[0]
            seen = (out * direction(out)).masked_fill(hidden, 0.0).sum()
            for letter, grad in gradients(seen, example).items():
                assert grad.masked_select(hidden).eq(0).all(), (
                    f"of {n} positions, a gradient flows into padded {letter}"
                )
            with torch.no_grad():
                junk = with_noise(example, hidden, 10.0)
                wide = (
                    each(lambda x: torch.cat([x, 10 * torch.randn_like(x[:, :, :3])], dim=2), junk) if n > 2 else junk
                )
                for changed, what in ((junk, "other vectors"), (wide, "more columns")):
                    got = kernel(*changed, mask=mask)[0][:, :, :n]
                    kept, was = got.masked_fill(hidden, 0), out.masked_fill(hidden, 0)
                    close(kept, was, f"{what} in the padding of {n} positions")


@torch.no_grad()
def batch_equals_single(build: Build, lengths: Iterable[int] = LENGTHS) -> None:
    """A row computed alone, without its padding, equals that row of the batch."""
    kernel = made(build)
    for n in lengths:
        real = torch.tensor([n, n // 2 + 1, 1])
        example = sample(kernel, n, rows=3)
        for rule in directions(kernel):
            out = kernel(*example, mask=rule & padding(real))[0]
            for row, length in enumerate(real.tolist()):
                alone = kernel(*each(lambda x: x[row : row + 1, :, :length], example), mask=rule)[0]  # noqa: B023
                close(alone, out[row : row + 1, :, :length], f"row {row} of {n} positions by itself")


@torch.no_grad()
def cached_equals_uncached(build: Build, lengths: Iterable[int] = LENGTHS) -> None:
    """Parts with the kernel's memory between them give the output of one pass; rows may be reordered."""
    kernel = made(build)
    for n in lengths:
        example = sample(kernel, n, rows=2)
        out = kernel(*example, mask=causal())[0]
        half = [n - n // 2, *[1] * min(3, n // 2), n // 2 - min(3, n // 2)]
        for sizes in ([1] * min(n, 16) + [n - min(n, 16)], half, [n]):
            memory, start = kernel.memory(n), 0
            for size in filter(None, sizes):
                got = memory.attend(kernel, *part(example, start, start + size), mask=causal().at(start))
                close(got, out[:, :, start : start + size], f"positions {start} … {start + size - 1} of {n}, in parts")
                start += size
            assert memory.length == n, f"the memory reports length {memory.length} after {n} positions"
        memory = kernel.memory(n + 1)
        memory.attend(kernel, *example, mask=causal().at(0))
        memory.select(torch.tensor([1, 0, 1]))
        longer = each(lambda x: torch.cat([x, torch.randn_like(x[:, :, :1])], dim=2)[[1, 0, 1]], example)
        got = memory.attend(kernel, *part(longer, n, n + 1), mask=causal().at(n))
        close(got, kernel(*longer, mask=causal())[0][:, :, n:], f"position {n} after rows were reordered")
