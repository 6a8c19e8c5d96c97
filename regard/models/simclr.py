"""SimCLR: contrastive training of an image encoder (Chen et al., 2020).

It is not a registered family: any image encoder, and a small projection head that only the loss uses. After training
the head is discarded, and the encoder is saved.
pixels B C Y X → the encoder's vectors B D → wide → B P
"""

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from regard.nn.patches import sides


class SimCLR(nn.Module):
    """An image encoder and a projection head of two linear layers, each followed by a batch norm if `norm`: these keep
    the vectors of images that look alike from becoming the same."""

    def __init__(self, encoder: Any, projection: int, *, norm: bool = False) -> None:
        super().__init__()
        self.config, self.encoder = encoder.config, encoder
        blank = next(encoder.parameters()).new_zeros(1, encoder.config.channels, *sides(encoder.config.image))
        with torch.no_grad():
            width = encoder.eval().embed(blank).shape[1]
        wide, narrow = nn.Linear(width, 2 * width), nn.Linear(2 * width, projection)
        layers = [wide, nn.BatchNorm1d(2 * width), nn.GELU(), narrow, nn.BatchNorm1d(projection)]
        self.project = nn.Sequential(*(layers if norm else (wide, nn.GELU(), narrow)))

    def embed(self, pixels: Float[Tensor, "B C Y X"]) -> Float[Tensor, "B D"]:
        """Return one vector for each image: the encoder's own."""
        return self.encoder.embed(pixels)

    def forward(self, pixels: Float[Tensor, "B C Y X"]) -> Float[Tensor, "B P"]:
        """Return the projected vectors that the loss compares."""
        return self.project(self.embed(pixels))
