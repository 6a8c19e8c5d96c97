"""General scores, q·W·k (Luong et al., 2015): a learned bilinear form."""

import torch
from jaxtyping import Float
from torch import Tensor, nn

from regard.nn.kernels.full import Full
from regard.registry import register_kernel


@register_kernel("general")
class General(Full):
    """softmax(q W kᵀ · scale) · v with a matrix for each head, initialised to the identity."""

    reference = False

    def __init__(self, key_dim: int | None = None, **sizes: int) -> None:
        super().__init__(**sizes)
        self.matrix = nn.Parameter(torch.eye(self.head_dim, key_dim or self.head_dim).repeat(self.heads, 1, 1))

    def prepared(
        self, q: Float[Tensor, "B H T K"], k: Float[Tensor, "B G S J"], scale: float | None
    ) -> tuple[Float[Tensor, "B H T J"], Float[Tensor, "B G S J"], float]:
        return super().prepared(q @ self.matrix, k, scale)
