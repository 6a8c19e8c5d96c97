"""One stack of blocks with every kernel, and with every position: what each may see, and what a cache changes."""

import pytest
import torch

from regard.doctor.laws import close, differs, direction
from regard.nn import masks
from regard.nn.block import BlockConfig
from regard.nn.stack import Stack, build_position
from regard.registry import kernels, positions
from tests.laws.cases import KERNEL_CASES, KNOW_ORDER
from tests.laws.test_kernels import FORMULAS, plain

B, T, D, DEPTH = 3, 7, 20, 2
COMBINATIONS = [(kernel, "sinusoidal") for kernel in KERNEL_CASES] + [("full", position) for position in positions]
PRODUCT = [(kernel, position) for kernel in KERNEL_CASES for position in positions]
every_combination = pytest.mark.parametrize(
    ("kernel", "position"),
    [pytest.param(*pair, marks=[] if pair in COMBINATIONS else pytest.mark.slow) for pair in PRODUCT],
)


class Small(torch.nn.Module):
    """Positions and a stack, on vectors."""

    def __init__(self, kernel: str, position: str, causal: bool) -> None:
        super().__init__()
        config = BlockConfig(
            dim=D, heads=3, head_dim=10, ffn_dim=29, max_len=31, dropout=0.0, kernel=kernel, position=position
        )
        self.position, self.rule = build_position(config), masks.causal() if causal else masks.everything()
        self.stack = Stack(config, self.position, depth=DEPTH, causal=causal, cross=False, final_norm=True)
        with torch.no_grad():
            for parameter in self.position.parameters():
                parameter.normal_()

    def forward(self, x, *, lengths=None, cache=None):
        x = self.position.embed(x, cache.length if cache else 0)
        return self.stack(x, mask=self.rule if lengths is None else self.rule & masks.padding(lengths), cache=cache)


def make(kernel, position, *, causal):
    supported = kernels[kernel]
    biased = build_position(BlockConfig(dim=D, heads=3, head_dim=10, position=position, max_len=9)).bias() is not None
    if (causal and not able(kernel)) or (biased and not supported.biased):
        with pytest.raises(ValueError, match="cannot .*; these can"):
            Small(kernel, position, causal)
        pytest.skip(f"{kernel} says that it cannot do this")
    return Small(kernel, position, causal).double().eval()


def able(kernel):
    """Whether it can stand in a stack that writes."""
    return kernels[kernel].causal and kernels[kernel].cached


def vectors(n=T):
    return torch.randn(B, n, D, dtype=torch.float64, requires_grad=True)


def reached(model, n):
    """Which positions each one hears of: itself, and a step further at every depth."""
    seen = (model.rule & model.stack.blocks[0].attention.kernel.rule()).dense(n, n)[0, 0] | torch.eye(n).bool()
    return torch.linalg.matrix_power(seen.double(), DEPTH) > 0


def hears(grad, seen, kernel):
    """A gradient from every position that is seen, and from no other; one that chooses need not choose them all."""
    assert grad[:, ~seen].eq(0).all(), "a gradient from a position that is hidden"
    assert plain(kernel) in FORMULAS or grad[:, seen].abs().sum(-1).gt(0).all(), "none from one that is seen"


@every_combination
def test_no_position_sees_the_future(kernel, position):
    model = make(kernel, position, causal=True)
    for n in (1, T, 13, 31) if position == "sinusoidal" else (T,):
        alone, seen, later = vectors(n)[:1].detach(), reached(model, n), torch.ones(n, n).triu(1).bool()
        x = alone.repeat(n, 1, 1).requires_grad_()  # row t asks for position t: one backward pass for all
        out = model(x)
        (grad,) = torch.autograd.grad((out.diagonal(dim1=0, dim2=1).T * direction(out)).sum(), x)
        assert not (seen & later).any()
        for t in range(n):
            hears(grad[t : t + 1], seen[t], kernel)
        with torch.no_grad():
            other = model(torch.where(later[..., None], torch.randn_like(x), x))
        close(other.masked_fill(later[..., None], 0), out.masked_fill(later[..., None], 0), "later ones were changed")


@every_combination
def test_everyone_sees_everyone_without_a_mask(kernel, position):
    model, x = make(kernel, position, causal=False), vectors()
    out = model(x)
    for t in (0, T - 1):
        (grad,) = torch.autograd.grad((out[:, t] * direction(out)).sum(), x, retain_graph=True)
        hears(grad, reached(model, T)[t], kernel)


@every_combination
@pytest.mark.parametrize("causal", [False, True])
def test_padding_changes_nothing(kernel, position, causal):
    model, n = make(kernel, position, causal=causal), 31 if position == "sinusoidal" else T
    x, lengths = vectors(n), torch.tensor([n, 2, n - 2])
    out = model(x, lengths=lengths)
    real = torch.arange(n) < lengths[:, None]
    (grad,) = torch.autograd.grad((out[real] * direction(out)).sum(), x)
    assert grad[~real].eq(0).all() and grad[real].abs().sum(-1).gt(0).all()
    for row, length in enumerate(lengths.tolist()):
        alone = model(x[row : row + 1, :length])
        close(alone, out[row : row + 1, :length], f"row {row} of {n} positions, alone and without padding")


@every_combination
@torch.no_grad()
def test_cached_equals_uncached(kernel, position):
    model, n = make(kernel, position, causal=True), 31 if position == "sinusoidal" else T
    x = vectors(n)
    out = model(x)
    for parts in ([3, 1, 1, n - 5], [n - 3, 1, 2]):
        cache = model.stack.new_cache(n)
        got = [model(part, cache=cache) for part in x.split(parts, dim=1)]
        close(torch.cat(got, dim=1), out, f"in parts of {parts}")


@every_combination
def test_order_is_known_with_positions_and_only_with_them(kernel, position):
    model, x = make(kernel, position, causal=False), vectors()
    order = torch.tensor([3, 0, 6, 1, 5, 4, 2])
    rule = model.stack.blocks[0].attention.kernel.rule()
    if position == "none" and rule.is_everything and plain(kernel) not in KNOW_ORDER:
        close(model(x[:, order]), model(x)[:, order], "permuted in is not permuted out")
    else:
        differs(model(x[:, order]), model(x)[:, order], "the tokens were permuted")


@every_combination
def test_every_parameter_receives_a_gradient(kernel, position):
    model = make(kernel, position, causal=able(kernel))
    out = model(vectors())
    (out * direction(out)).sum().backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None and parameter.grad.abs().max() > 0, f"{name} has no gradient"


@every_combination
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["float32", "bfloat16"])
def test_finite(kernel, position, dtype):
    model = make(kernel, position, causal=able(kernel)).to(dtype)
    x = vectors().detach().to(dtype).requires_grad_()
    out = model(x, lengths=torch.tensor([7, 0, 5]))  # a row of nothing but padding, too
    assert out.dtype == dtype and out.isfinite().all()
    out.float().square().sum().backward()
    assert x.grad.isfinite().all()
    assert all(parameter.grad.isfinite().all() for parameter in model.parameters())
