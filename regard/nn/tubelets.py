"""Clips to tokens: tubelets, which are patches of a few successive frames, and learned positions in space and time.

Clips are B T C Y X: frames, channels, rows, columns. Pixels beyond the last whole patch are cropped at the bottom and
the right; beyond the last frame it is repeated.
"""

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.nn.patches import grid_of

Clips = Float[Tensor, "B T C Y X"]
Lengths = Int[Tensor, "B"] | None
"""Frames of each clip that do not fill up a batch; None: all."""


def held(
    video: Float[Tensor, "B T C Y X"], frames: int, lengths: Int[Tensor, "B"] | None
) -> Float[Tensor, "B N C Y X"]:
    """Return clips of so many frames, in which the last frame of each is held behind its end."""
    last = torch.arange(frames, device=video.device).clamp(max=video.shape[1] - 1)
    if lengths is None:
        return video if frames == video.shape[1] else video[:, last]
    index = torch.minimum(last, lengths[:, None] - 1)
    return video.gather(1, index[:, :, None, None, None].expand(-1, -1, *video.shape[2:]))


class TubeletEmbedding(nn.Module):
    """A vector for each tubelet: its pixels times one matrix, as a convolution whose stride is its size."""

    def __init__(self, channels: int, tubelet: int, patch: int, dim: int) -> None:
        super().__init__()
        self.channels, self.size = channels, (tubelet, patch, patch)
        self.project = nn.Conv3d(channels, dim, self.size, stride=self.size)
        nn.init.xavier_uniform_(self.project.weight.detach().flatten(1))
        assert self.project.bias is not None
        nn.init.zeros_(self.project.bias)

    def forward(self, video: Float[Tensor, "B T C Y X"]) -> Float[Tensor, "B N R S D"]:
        """Return vectors on their grid of steps, rows and columns, by one product, which is faster than a
        convolution."""
        if video.shape[2] != self.channels:
            raise ValueError(f"clips have {video.shape[2]} channels, the model reads {self.channels}")
        tubelet, patch, _ = self.size
        rows, columns = grid_of(tuple(video.shape[3:]), patch)
        steps = video.shape[1] // tubelet
        x = video[..., : rows * patch, : columns * patch]
        x = x.unflatten(4, (columns, patch)).unflatten(3, (rows, patch)).unflatten(1, (steps, tubelet))
        cut = x.permute(0, 1, 4, 6, 3, 2, 5, 7).flatten(4)  # B N R S · C t p p
        return F.linear(cut, self.project.weight.flatten(1), self.project.bias)


def resample_clip(
    table: Float[Tensor, "N D"], old: tuple[int, int, int], new: tuple[int, int, int], *, first: int = 0
) -> Float[Tensor, "M D"]:
    """Interpolate learned positions of steps, rows and columns to other numbers of them; the `first` rows are kept."""
    if old == new:
        return table
    on_grid = table[first:].unflatten(0, old).movedim(-1, 0)[None]  # 1 D T Y X
    stretched = F.interpolate(on_grid, size=new, mode="trilinear", align_corners=False)
    return torch.cat([table[:first], stretched[0].flatten(1).mT])
