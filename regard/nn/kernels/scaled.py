"""Full attention with another idea of how large a score is."""

import torch
from jaxtyping import Float
from torch import Tensor

from regard.nn.kernels.full import Full
from regard.nn.norm import rms_norm
from regard.registry import register_kernel


@register_kernel("dot")
class Dot(Full):
    """Plain products, without 1/√K (T5 has that factor in its first weights)."""

    reference = False

    def forward(
        self, q: Float[Tensor, "B H T K"], k: Float[Tensor, "B G S K"], v: Float[Tensor, "B G S C"], **rest
    ) -> tuple[Float[Tensor, "B H T C"], Float[Tensor, "B H T S"] | None]:
        return super().forward(q, k, v, **rest | {"scale": 1.0 if rest.get("scale") is None else rest["scale"]})


@register_kernel("normalized")
class Normalized(Full):
    """q and k brought to length √K first (Henry et al., 2020): scores cannot grow with the weights.

    Rotary positions keep lengths, so it makes no difference that they come before.
    """

    reference = False

    def forward(
        self, q: Float[Tensor, "B H T K"], k: Float[Tensor, "B G S K"], v: Float[Tensor, "B G S C"], **rest
    ) -> tuple[Float[Tensor, "B H T C"], Float[Tensor, "B H T S"] | None]:
        eps = torch.finfo(q.dtype).eps
        return super().forward(rms_norm(q, None, eps), rms_norm(k, None, eps), v, **rest)
