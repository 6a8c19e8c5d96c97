"""The interface of kernels, and the check that a kernel supports what a model needs."""

from collections.abc import Collection
from typing import ClassVar, Literal

from jaxtyping import Bool, Float
from torch import Tensor, nn

from regard.nn.cache import KeyValues
from regard.nn.dropout import Dropout
from regard.nn.masks import Mask, conjuncts, everything
from regard.nn.positions import Bias
from regard.registry import kernels

Terms = tuple[Float[Tensor, "B H T J"], Float[Tensor, "B G S J"], float | None, Float[Tensor, "B H T S"] | None]
Need = Literal["causal", "cached", "biased", "crosses", "drops"]
NEEDS: dict[Need, str] = {
    "causal": "hide the future",
    "cached": "decode step by step",
    "biased": "take positions as a bias",
    "crosses": "attend from one sequence to another",
    "drops": "drop weights (attention_dropout)",
}

CURES: dict[Need, str] = {
    "biased": "; or use other positions (--model.position rotary)",
    "crosses": "; or use another for that alone (--model.cross-kernel full)",
}


class Kernel(nn.Module):
    """score → mask → softmax → mix. Subclasses declare what they support and implement `forward`."""

    exact: ClassVar[bool] = True
    """Whether it equals its plain formula under the same mask; otherwise `tolerance` states the error."""
    tolerance: ClassVar[float] = 0.0
    """Largest relative error of an approximation, on inputs of unit variance."""
    reference: ClassVar[bool] = True
    """Whether its formula is scaled dot-product attention, so that it can be compared with `full`."""
    causal: ClassVar[bool] = True
    """Whether it can hide the future."""
    cached: ClassVar[bool] = True
    """Whether it works on cached keys and values, one query at a time."""
    biased: ClassVar[bool] = True
    """Whether it takes a bias on the scores (relative positions, ALiBi)."""
    crosses: ClassVar[bool] = True
    """Whether queries and keys may come from two sequences (cross-attention)."""
    drops: ClassVar[bool] = True
    """Whether it can drop weights in training."""
    weighs: ClassVar[bool] = True
    """Whether it can return its weights."""
    any_mask: ClassVar[bool] = True
    """Whether it takes every mask; otherwise only masks on keys, as padding, and `causal()` if it is causal."""
    dense: ClassVar[bool] = False
    """Whether every visible key gets a weight; otherwise weights of zero mark keys that the kernel left out."""
    plain_keys: ClassVar[bool] = False
    """Whether a bias in the projection of keys would change the scores' meaning and is left out (cosines)."""
    shares: ClassVar[bool] = False
    """Whether keys are the queries themselves: the layer then projects no others."""

    def __init__(self, *, heads: int, head_dim: int, max_len: int = 1024) -> None:
        super().__init__()
        self.heads, self.head_dim, self.max_len = heads, head_dim, max_len
        self.drop = Dropout()
        """Dropout of weights, with the probability that `forward` is given."""

    def rule(self) -> Mask:
        """Return the restriction that always applies, whatever the mask."""
        return everything()

    def terms(self, q: Float[Tensor, "B H T K"], k: Float[Tensor, "B G S J"], scale: float | None) -> Terms:
        """Return q, k and scale as the scores multiply them; or the scores themselves, where those are no product."""
        return q, k, scale, None

    def memory(self, room: int) -> KeyValues:
        """Return a new, empty cache for decoding."""
        return KeyValues(room)

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
        """Return the mixed values, and the weights if requested. `scale` None is the kernel's own (1/√K for `full`)."""
        raise NotImplementedError


def build_kernel(name: str, *, needs: Collection[Need] = (), **sizes: int) -> Kernel:
    """Build a kernel by name, checked to support what is needed."""
    check_kernel(name, needs)
    return kernels.build(name, **sizes)


def check_kernel(name: str, needs: Collection[Need]) -> None:
    """Raise an error that lists the kernels with the needed features, where this one lacks some."""
    missing = [need for need in NEEDS if need in needs and not getattr(kernels[name], need)]
    if missing:
        able = [other for other in kernels if all(getattr(kernels[other], need) for need in needs)]
        wants = " or ".join(NEEDS[need] for need in missing)
        cures = "".join(CURES[need] for need in missing if need in CURES)
        raise ValueError(f"kernel {name!r} cannot {wants}; these can: {', '.join(able)}{cures}")


def causal_and_keys(mask: Mask | None, S: int, kernel: Kernel) -> tuple[bool, Bool[Tensor, "#B 1 S"] | None]:
    """Split a mask for a kernel without `any_mask`: whether it is causal, and which keys are visible."""
    causal, keys = False, None
    for rule in [] if mask is None else conjuncts(mask):
        if rule.is_causal and kernel.causal:
            causal = True
        elif rule.is_keywise:
            real = rule.dense(1, S)[:, :, 0]
            keys = real if keys is None else keys & real
        else:
            able = ", ".join(name for name in kernels if kernels[name].any_mask)
            takes = "causal and padding masks" if kernel.causal else "padding masks"
            raise ValueError(f"{type(kernel).__name__} takes {takes}, got {rule!r}; these take every mask: {able}")
    return causal, keys
