"""Full attention with other scores: additive, bilinear, or products with other scales or norms of q and k."""

import math

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from regard.nn.kernels.base import Terms
from regard.nn.kernels.full import Full, repeat_heads
from regard.nn.norm import rms_norm
from regard.registry import register_kernel


@register_kernel("additive")
class Additive(Full):
    """softmax(wᵀ tanh(q + k) · scale) · v with a vector w for each head (Bahdanau et al., 2015).

    q and k arrive projected to one width; needs B·H·T·S·K intermediate numbers.
    """

    reference = False

    def __init__(self, **sizes: int) -> None:
        super().__init__(**sizes)
        vectors = torch.empty(self.heads, self.head_dim).uniform_(-1, 1)
        self.vector = nn.Parameter(vectors * (3 / self.head_dim) ** 0.5)

    def terms(self, q: Float[Tensor, "B H T K"], k: Float[Tensor, "B G S K"], scale: float | None) -> Terms:
        sums = q.unsqueeze(3) + repeat_heads(k, q.shape[1]).unsqueeze(2)  # B H T S K
        scores = torch.einsum("bhtsk,hk->bhts", sums.tanh(), self.vector) * (1.0 if scale is None else scale)
        return q, k, None, scores


@register_kernel("general")
class General(Full):
    """softmax(q W kᵀ · scale) · v with a matrix for each head, initialised to the identity (Luong et al., 2015)."""

    reference = False

    def __init__(self, key_dim: int | None = None, **sizes: int) -> None:
        super().__init__(**sizes)
        self.matrix = nn.Parameter(torch.eye(self.head_dim, key_dim or self.head_dim).repeat(self.heads, 1, 1))

    def terms(self, q: Float[Tensor, "B H T K"], k: Float[Tensor, "B G S J"], scale: float | None) -> Terms:
        return super().terms(q @ self.matrix, k, scale)


@register_kernel("dot")
class Dot(Full):
    """Plain products, without 1/√K (T5 includes that factor in its initial weights)."""

    reference = False

    def terms(self, q: Float[Tensor, "B H T K"], k: Float[Tensor, "B G S K"], scale: float | None) -> Terms:
        return q, k, 1.0 if scale is None else scale, None


@register_kernel("normalized")
class Normalized(Full):
    """q and k normalised to length √K (Henry et al., 2020): scores cannot grow with the weights.

    Rotary positions keep lengths, so the order of rotation and norm does not matter.
    """

    reference = False

    def terms(self, q: Float[Tensor, "B H T K"], k: Float[Tensor, "B G S K"], scale: float | None) -> Terms:
        eps = torch.finfo(q.dtype).eps
        return super().terms(rms_norm(q, None, eps), rms_norm(k, None, eps), scale)


@register_kernel("cosine")
class Cosine(Full):
    """Cosine similarity of q and k times a learned scale for each head, 100 at most (Swin v2)."""

    reference, plain_keys = False, True
    limit = math.log(100.0)

    def __init__(self, **sizes: int) -> None:
        super().__init__(**sizes)
        self.log_scale = nn.Parameter(torch.full((self.heads,), math.log(10.0)))

    def terms(self, q: Float[Tensor, "B H T K"], k: Float[Tensor, "B G S K"], scale: float | None) -> Terms:
        eps = max(1e-12, torch.finfo(q.dtype).tiny)  # padding of a window has zero keys
        learned = self.log_scale.clamp(max=self.limit).exp()[:, None, None]
        q, k = F.normalize(q, dim=-1, eps=eps) * learned, F.normalize(k, dim=-1, eps=eps)
        return q, k, 1.0 if scale is None else scale, None
