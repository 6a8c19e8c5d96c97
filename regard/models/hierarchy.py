"""Base of families whose grid of tokens shrinks from stage to stage, as in a CNN.

pixels B C Y X → … → a vector for each cell of the last grid B T D → norm → mean → labels
"""

import math
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from regard.config import check_fractions, check_positive
from regard.nn.block import Activation
from regard.nn.dropout import Dropout
from regard.nn.grids import PatchGrid
from regard.nn.heads import LabelHead
from regard.nn.norm import build_norm
from regard.nn.patches import Side, sides
from regard.nn.pooling import pooled


@dataclass(frozen=True, kw_only=True, slots=True)
class HierarchyConfig:
    """Sizes of the stages and their labels."""

    image: Side = 224
    """Pixels of a side that the model is built for, or rows,columns; images of other sizes are read too."""
    channels: int = 3
    """Channels of a pixel: 3 for colour, 1 for grey."""
    patch: int = 4
    """Pixels from one patch to the next."""
    dim: int = 96
    """Width of the first stage; each further one has twice that."""
    depths: tuple[int, ...] = (2, 2, 6, 2)
    """Blocks of each stage."""
    activation: Activation = "gelu"
    """Activation between matrices."""
    norm_eps: float = 1e-5
    """Epsilon of the norms, added to the variance."""
    kernel: str = "full"
    """Attention kernel."""
    dropout: float = 0.0
    """Dropout on the embeddings and on the output of each part."""
    attention_dropout: float = 0.0
    """Dropout on the attention weights."""
    path_dropout: float = 0.0
    """Stochastic depth: probability of skipping the last block for an example; it rises from 0 at the first."""
    labels: tuple[str, ...] = ()
    """Names of the classes; without any, an image becomes a vector."""

    def __post_init__(self) -> None:
        check_positive(self, "channels", "patch", "dim")
        if not self.depths or min(self.depths) < 1:
            raise ValueError(f"depths={self.depths} must have a positive number for each stage, such as 2,2,6,2")
        check_fractions(self, "path_dropout")
        sides(self.image)

    @classmethod
    def fitting(cls, rows: int, columns: int, *, finest: int = 8, blocks: int = 2) -> dict[str, Any]:
        """Fields that suit images of this size: the first grid is fine, and is halved until 2 to 7 rows are left.

        Images with a side below `finest` have patches of one pixel; every stage has so many `blocks`.
        """
        side = min(rows, columns)
        patch = 1 if side < finest else 2 if side < 48 else 4
        grid = -(-side // patch)
        stages = 1 if grid < 4 else next((n for n in (2, 3) if grid <= 7 * 2 ** (n - 1)), 4)
        return dict(patch=patch, depths=(blocks,) * stages)

    @property
    def tokens(self) -> int:
        """Tokens of the first grid."""
        return math.prod(pooled(sides(self.image), self.patch))

    @property
    def width(self) -> int:
        """Width of the last stage, and of an image's vector."""
        return self.dim * 2 ** (len(self.depths) - 1)

    @property
    def rates(self) -> list[list[float]]:
        """Probability of skipping each block of each stage."""
        every = iter(torch.linspace(0, self.path_dropout, sum(self.depths), device="cpu").tolist())
        return [[next(every) for _ in range(depth)] for depth in self.depths]


class Hierarchy(nn.Module):
    """Base of these families: subclasses implement `cells`, from pixels to the tokens of the last grid."""

    def __init__(self, config: HierarchyConfig) -> None:
        super().__init__()
        self.config = config
        self.norm = build_norm("layer", config.width, config.norm_eps)
        self.dropout = Dropout(config.dropout)
        self.head = LabelHead(config.width, len(config.labels), dropout=0.0) if config.labels else None

    @property
    def task(self) -> str:
        return "classify-images" if self.config.labels else "embed-images"

    def patch_grid(self, size: tuple[int, int]) -> PatchGrid:
        """The patches of an image of that size; it is filled up where the patch does not divide it."""
        return PatchGrid(size, 1).coarser(self.config.patch)

    def cells(self, pixels: Float[Tensor, "B C Y X"]) -> Float[Tensor, "B T D"]:
        """Return a vector for each cell of the last grid, row by row."""
        raise NotImplementedError

    def features(self, pixels: Float[Tensor, "B C Y X"]) -> Float[Tensor, "B T D"]:
        """Return the normalised vector of each cell of the last grid."""
        if pixels.shape[1] != self.config.channels:
            raise ValueError(f"images have {pixels.shape[1]} channels, the model reads {self.config.channels}")
        return self.norm(self.cells(pixels))

    def embed(self, pixels: Float[Tensor, "B C Y X"]) -> Float[Tensor, "B D"]:
        """Return one vector for each image."""
        return self.features(pixels).mean(1)

    def forward(self, pixels: Float[Tensor, "B C Y X"]) -> Float[Tensor, "B N"]:
        """Return logits over labels; without labels the vector of each image."""
        x = self.embed(pixels)
        return x if self.head is None else self.head(x)
