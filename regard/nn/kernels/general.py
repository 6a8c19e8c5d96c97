"""General scores, q·W·k (Luong et al., 2015): a learned bilinear form."""

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from regard.nn.kernels.full import Full
from regard.registry import register_kernel


@register_kernel("general")
class General(Full):
    """softmax(q W kᵀ · scale) · v with a matrix for each head, and the identity at the start."""

    reference = False

    def __init__(self, key_dim: int | None = None, **sizes: int) -> None:
        super().__init__(**sizes)
        self.matrix = nn.Parameter(torch.eye(self.head_dim, key_dim or self.head_dim).repeat(self.heads, 1, 1))

    def forward(
        self, q: Float[Tensor, "B H T K"], k: Float[Tensor, "B G S J"], v: Float[Tensor, "B G S C"], **how: Any
    ) -> tuple[Float[Tensor, "B H T C"], Float[Tensor, "B H T S"] | None]:
        return super().forward(q @ self.matrix, k, v, **how)
