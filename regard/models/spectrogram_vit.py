"""A ViT over spectrograms: frequencies are rows, time is columns, patches are squares of both.

Unlike vit.py: it takes frames of sound, and turns them into an image with the low frequencies at the bottom.
audio B T M → image B 1 M T → patches → blocks → the first token → labels
"""

from typing import Any, ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from regard.models.vit import ViT
from regard.nn.patches import sides
from regard.registry import register_model


@register_model("spectrogram-vit")
class SpectrogramViT(ViT):
    """An encoder of sounds of one length and, for labels, its head; `image` is bands, frames."""

    small: ClassVar[dict[str, Any]] = dict(
        dim=32, depth=2, heads=2, ffn_dim=64, channels=1, image=(16, 24), patch=8, labels=("a", "b", "c")
    )
    presets: ClassVar[dict[str, dict[str, Any]]] = {
        "tiny": dict(dim=96, depth=4, heads=4, ffn_dim=384, channels=1, image=(64, 96), patch=8),
        "small": dict(dim=192, depth=8, heads=6, ffn_dim=768, channels=1, image=(64, 96), patch=8),
    }

    @property
    def task(self) -> str:
        return "classify-sounds" if self.config.labels else "embed-sounds"

    def example(self, rows: int) -> dict[str, Tensor]:
        """Frames of a few sounds."""
        bands, frames = sides(self.config.image)
        return {"audio": torch.randn(rows, frames, bands)}

    def features(self, audio: Float[Tensor, "B T M"]) -> Float[Tensor, "B N D"]:
        """Return a vector for each token before the patches and for each patch."""
        return super().features(audio.mT.flip(1)[:, None])

    def embed(self, audio: Float[Tensor, "B T M"]) -> Float[Tensor, "B D"]:
        """Return one vector for each sound."""
        x = self.features(audio)
        return self.pool(x) if self.pooler is None else self.pooler(x)

    def forward(self, audio: Float[Tensor, "B T M"]) -> Float[Tensor, "B N"]:
        """Return logits over labels; without labels the vector of each sound."""
        return self.embed(audio) if self.head is None else self.head(self.pool(self.features(audio)))
