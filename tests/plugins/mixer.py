"""MLP-Mixer (Tolstikhin et al., 2021): an image classifier without attention, as a user's own family.

regard --plugin mixer train vit --model mixer
"""

from dataclasses import dataclass
from typing import Any, ClassVar

from torch import Tensor, nn

from regard import register_model
from regard.nn.patches import Side, grid_of


@dataclass(frozen=True, kw_only=True, slots=True)
class MixerConfig:
    """Sizes of a Mixer."""

    image: Side = 32
    """Pixels of a side, or rows,columns."""
    channels: int = 3
    """Numbers of a pixel."""
    patch: int = 4
    """Pixels of a patch's side."""
    dim: int = 48
    """Width of the token vectors."""
    depth: int = 2
    """Blocks."""
    labels: tuple[str, ...] = ()
    """Names of the classes."""

    @property
    def tokens(self) -> int:
        rows, columns = grid_of(self.image, self.patch)
        return rows * columns

    @classmethod
    def fitting(cls, rows: int, columns: int) -> dict[str, Any]:
        """A patch that suits images of this size."""
        return {"patch": max(1, min(rows, columns) // 8)}


class MixerBlock(nn.Module):
    """An MLP over tokens, and one over channels."""

    def __init__(self, config: MixerConfig) -> None:
        super().__init__()
        self.norms = nn.ModuleList(nn.LayerNorm(config.dim) for _ in range(2))
        self.tokens, self.channels = (
            nn.Sequential(nn.Linear(size, 2 * size), nn.GELU(), nn.Linear(2 * size, size))
            for size in (config.tokens, config.dim)
        )

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.tokens(self.norms[0](x).mT).mT
        return x + self.channels(self.norms[1](x))


@register_model("mixer")
class Mixer(nn.Module):
    """Patches, blocks, and the mean of the tokens."""

    config_class = MixerConfig
    task = "classify-images"
    presets: ClassVar[dict[str, dict[str, Any]]] = {"tiny": {}}

    def __init__(self, config: MixerConfig) -> None:
        super().__init__()
        self.config = config
        self.patches = nn.Conv2d(config.channels, config.dim, config.patch, stride=config.patch)
        self.blocks = nn.ModuleList(MixerBlock(config) for _ in range(config.depth))
        self.norm = nn.LayerNorm(config.dim)
        self.head = nn.Linear(config.dim, len(config.labels)) if config.labels else None

    def features(self, pixels: Tensor) -> Tensor:
        x = self.patches(pixels).flatten(2).mT
        for block in self.blocks:
            x = block(x)
        return self.norm(x)

    def embed(self, pixels: Tensor) -> Tensor:
        return self.features(pixels).mean(1)

    def forward(self, pixels: Tensor) -> Tensor:
        return self.embed(pixels) if self.head is None else self.head(self.embed(pixels))
