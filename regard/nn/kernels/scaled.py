"""Full attention with other scales or norms of q and k."""

import math

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from regard.nn.kernels.full import Full
from regard.nn.norm import rms_norm
from regard.registry import register_kernel


@register_kernel("dot")
class Dot(Full):
    """Plain products, without 1/√K (T5 includes that factor in its initial weights)."""

    reference = False

    def prepared(
        self, q: Float[Tensor, "B H T K"], k: Float[Tensor, "B G S K"], scale: float | None
    ) -> tuple[Float[Tensor, "B H T K"], Float[Tensor, "B G S K"], float]:
        return q, k, 1.0 if scale is None else scale


@register_kernel("normalized")
class Normalized(Full):
    """q and k normalised to length √K (Henry et al., 2020): scores cannot grow with the weights.

    Rotary positions keep lengths, so the order of rotation and norm does not matter.
    """

    reference = False

    def prepared(
        self, q: Float[Tensor, "B H T K"], k: Float[Tensor, "B G S K"], scale: float | None
    ) -> tuple[Float[Tensor, "B H T K"], Float[Tensor, "B G S K"], float]:
        eps = torch.finfo(q.dtype).eps
        return super().prepared(rms_norm(q, None, eps), rms_norm(k, None, eps), scale)


@register_kernel("cosine")
class Cosine(Full):
    """Cosine similarity of q and k times a learned scale for each head, 100 at most (Swin v2)."""

    reference, plain_keys = False, True
    limit = math.log(100.0)

    def __init__(self, **sizes: int) -> None:
        super().__init__(**sizes)
        self.log_scale = nn.Parameter(torch.full((self.heads,), math.log(10.0)))

    def prepared(
        self, q: Float[Tensor, "B H T K"], k: Float[Tensor, "B G S K"], scale: float | None
    ) -> tuple[Float[Tensor, "B H T K"], Float[Tensor, "B G S K"], float]:
        eps = max(1e-12, torch.finfo(q.dtype).tiny)  # padding of a window has zero keys
        learned = self.log_scale.clamp(max=self.limit).exp()[:, None, None]
        q, k = F.normalize(q, dim=-1, eps=eps) * learned, F.normalize(k, dim=-1, eps=eps)
        return q, k, 1.0 if scale is None else scale
