"""What every kernel declares, and the check that a model asks for nothing else."""

from typing import ClassVar

from jaxtyping import Float
from torch import Tensor, nn

from regard.nn.masks import Mask
from regard.nn.positions import Bias
from regard.registry import kernels


class Kernel(nn.Module):
    """score → mask → softmax → mix. Subclasses say what they support and implement `forward`."""

    exact: ClassVar[bool] = True
    """Equals its plain formula under the same mask; otherwise `tolerance` states the error."""
    tolerance: ClassVar[float] = 0.0
    """Largest relative error of an approximation, on inputs of unit variance."""
    reference: ClassVar[bool] = True
    """Its formula is scaled dot-product attention, so it may be compared with `full`."""
    causal: ClassVar[bool] = True
    """Can hide the future."""
    cached: ClassVar[bool] = True
    """Works on keys and values that a cache holds, a query at a time."""
    biased: ClassVar[bool] = True
    """Takes a bias on the scores (relative positions, ALiBi)."""
    weighs: ClassVar[bool] = True
    """Can return its weights, and so be looked at."""

    def __init__(self, *, heads: int, head_dim: int) -> None:
        super().__init__()
        self.heads, self.head_dim = heads, head_dim

    def forward(
        self,
        q: Float[Tensor, "B H T K"],
        k: Float[Tensor, "B G S J"],
        v: Float[Tensor, "B G S C"],
        *,
        mask: Mask | None = None,
        bias: Bias | None = None,
        scale: float | None = None,
        dropout: float = 0.0,
        weights: bool = False,
    ) -> tuple[Float[Tensor, "B H T C"], Float[Tensor, "B H T S"] | None]:
        """The mixed values, and the weights where asked. `scale` None is the kernel's own (1/√K for `full`)."""
        raise NotImplementedError


def build_kernel(name: str, *, heads: int, head_dim: int, causal: bool, cached: bool, biased: bool) -> Kernel:
    """The kernel of that name, or an error that says which kernels could do what is asked of it."""
    needs = {"causal": causal, "cached": cached, "biased": biased}
    missing = [need for need, wanted in needs.items() if wanted and not getattr(kernels[name], need)]
    if missing:
        able = [other for other in kernels if all(getattr(kernels[other], n) for n, w in needs.items() if w)]
        raise ValueError(f"kernel {name!r} cannot be {' or '.join(missing)}; these can: {', '.join(able)}")
    return kernels.build(name, heads=heads, head_dim=head_dim)
