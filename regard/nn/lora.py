"""Low-rank adaptation (LoRA: Hu et al., 2022): frozen matrices, and a trainable low-rank product beside each."""

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from regard.config import at_least


class LowRank(nn.Linear):
    """A LoRA layer: x W + x A B · scale with A narrow; B is initialised to zero, so training starts from the base
    model."""

    def __init__(self, frozen: nn.Linear, rank: int, *, scale: float) -> None:
        nn.Module.__init__(self)
        self.in_features, self.out_features = frozen.in_features, frozen.out_features
        self.weight, self.bias, self.scale = frozen.weight, frozen.bias, scale
        narrow = torch.randn(rank, self.in_features) * self.in_features**-0.5
        self.narrow = nn.Parameter(narrow.to(frozen.weight))
        self.wide = nn.Parameter(frozen.weight.new_zeros(self.out_features, rank))

    def forward(self, x: Float[Tensor, "*N I"]) -> Float[Tensor, "*N O"]:
        return F.linear(x, self.weight, self.bias) + F.linear(F.linear(x, self.narrow), self.wide) * self.scale

    def merged(self) -> nn.Linear:
        """Return one ordinary linear layer with the same output."""
        layer = nn.utils.skip_init(nn.Linear, self.in_features, self.out_features, bias=self.bias is not None)
        layer.to(self.weight)
        with torch.no_grad():
            layer.weight.copy_(self.weight + self.wide @ self.narrow * self.scale)
            if self.bias is not None:
                layer.bias.copy_(self.bias)
        return layer


def add_low_rank(model: nn.Module, rank: int, *, scale: float = 2.0) -> None:
    """Add a LoRA adapter to every projection to queries, keys and values; freeze everything else."""
    at_least(1, rank=rank)
    model.requires_grad_(False)
    for module in list(model.modules()):
        for name in ("query", "key_value"):
            layer = getattr(module, name, None)
            if isinstance(layer, nn.Linear) and not isinstance(layer, LowRank):
                setattr(module, name, LowRank(layer, rank, scale=scale))


def merge_low_rank(model: nn.Module) -> None:
    """Merge every LoRA adapter into its matrix."""
    for module in list(model.modules()):
        for name, layer in list(module.named_children()):
            if isinstance(layer, LowRank):
                setattr(module, name, layer.merged())
