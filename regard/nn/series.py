"""Series to tokens: windows relative to their own mean and scale, patches of time, blocks over time and channels."""

from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from regard.nn.block import Block, BlockConfig
from regard.nn.dropout import Dropout
from regard.nn.masks import Mask
from regard.nn.norm import build_norm
from regard.nn.positions import Position
from regard.nn.rows import normalized, shared

EPS = 1e-5
"""Added to the variance of a window, so that a constant one has a scale, too."""

Relative = tuple[Float[Tensor, "B T C"], Float[Tensor, "B 1 C"], Float[Tensor, "B 1 C"]]


def relative(series: Float[Tensor, "B T C"], lengths: Int[Tensor, "B"] | None, *, scaled: bool) -> Relative:
    """Return windows relative to their mean and standard deviation, and those two (reversible instance norm, Kim et
    al., 2022); without `scaled` they stay as they are. Only the last `lengths` steps count, the others become zeros."""
    if lengths is None:
        variance, mean = torch.var_mean(series, 1, correction=0, keepdim=True)
    else:
        steps = torch.arange(series.shape[1], device=series.device)
        real = steps[:, None] >= (series.shape[1] - lengths)[:, None, None]
        series, count = series * real, lengths[:, None, None]
        mean = series.sum(1, keepdim=True) / count
        variance = ((series - mean) * real).square().sum(1, keepdim=True) / count
    if not scaled:
        return series, torch.zeros_like(mean), torch.ones_like(mean)
    scale = (variance + EPS).sqrt()
    shifted = (series - mean) / scale
    return (shifted if lengths is None else shifted * real), mean, scale


def cut(x: Float[Tensor, "B N T"], patch: int, step: int) -> Float[Tensor, "B N _ _"]:
    """Return the patches of windows, of which the last ends with its window; the oldest steps may be left out."""
    count = (x.shape[-1] - patch) // step + 1
    return x[..., x.shape[-1] - patch - (count - 1) * step :].unfold(-1, patch, step)


class SeriesPatches(nn.Module):
    """A vector for each patch of each channel. Covariates are added to it, and go on over the patches of a horizon."""

    def __init__(self, patch: int, step: int, dim: int, *, covariates: int) -> None:
        super().__init__()
        self.patch, self.step = patch, step
        self.project = nn.Linear(patch, dim)
        self.covariates = nn.Linear(patch * covariates, dim) if covariates else None

    def forward(
        self, series: Float[Tensor, "B T C"], covariates: Float[Tensor, "B _ _"] | None
    ) -> Float[Tensor, "M N D"]:
        """Rows are the channels of each window, one after the other."""
        x = self.project(cut(series.mT, self.patch, self.step)).flatten(0, 1)
        if self.covariates is None:
            return x
        steps, each = series.shape[1], self.covariates.in_features // self.patch
        if covariates is None or covariates.shape[2] != each or covariates.shape[1] <= steps:
            raise ValueError(f"the model reads {each} covariates of its context and its horizon")
        past, ahead = covariates[:, :steps].mT, covariates[:, steps:].mT
        ahead = F.pad(ahead, (0, -ahead.shape[-1] % self.patch)).unflatten(-1, (-1, self.patch))
        both = torch.cat([cut(past, self.patch, self.step), ahead], dim=2)
        beside = self.covariates(both.transpose(1, 2).flatten(2))
        return F.pad(x, (0, 0, 0, ahead.shape[2])) + beside.repeat_interleave(series.shape[2], 0)


def pooled(x: Float[Tensor, "M N D"], kind: str, hidden: Int[Tensor, "M"] | None) -> Float[Tensor, "M _"]:
    """Return the vectors of all patches side by side ("none"), their mean or their maximum; the `hidden` first ones of
    a row, which are zeros, do not count."""
    if kind == "none":
        return x.flatten(1)
    if kind == "mean":
        return x.mean(1) if hidden is None else x.sum(1) / (x.shape[1] - hidden)[:, None]
    return (x if hidden is None else x.masked_fill(~visible(x, hidden), -torch.inf)).amax(1)


def visible(x: Float[Tensor, "M N D"], hidden: Int[Tensor, "M"]) -> Bool[Tensor, "M N 1"]:
    """Return whether each patch is behind the `hidden` first ones of its row."""
    return (torch.arange(x.shape[1], device=x.device) >= hidden[:, None])[..., None]


class BatchNorm(nn.BatchNorm1d):
    """Batch norm of vectors: mean and variance of each number are those over all tokens of the batch, whichever process
    has them."""

    def forward(self, x: Float[Tensor, "B T D"]) -> Float[Tensor, "B T D"]:
        tokens = x.flatten(0, 1)
        return (normalized(self, tokens) if self.training and shared() else super().forward(tokens)).view_as(x)


class SeriesBlock(Block):
    """Attention over the patches of each channel, over the channels at each patch, or by one layer over both, and the
    feed-forward layer."""

    def __init__(
        self, config: BlockConfig, position: Position, *, times: bool, across: bool, batch_norm: bool
    ) -> None:  # fmt: skip
        super().__init__(config, position, causal=False, cross=False)
        self.times, self.across = times, across
        parts = ["attention"] * times + ["channels"] * across + ["feedforward"]

        def norm() -> nn.Module:
            both = config.dim, config.norm_eps
            return BatchNorm(both[0], eps=both[1]) if batch_norm else build_norm(config.norm, *both)

        self.norms = nn.ModuleDict({part: norm() for part in parts})
        self.drops = nn.ModuleDict({part: Dropout(config.dropout) for part in parts})

    def forward(  # type: ignore[override]
        self, x: Float[Tensor, "B T D"], channels: int, mask: Mask | None, bias: Any
    ) -> Float[Tensor, "B T D"]:
        """Rows are the channels of each window, one after the other."""
        y: Any = x
        if self.times:
            y = self.add(y, "attention", lambda z: self.attention(z, mask=mask, bias=bias))
        if self.across:
            turned: Any = y.unflatten(0, (-1, channels)).transpose(1, 2).flatten(0, 1)
            turned = self.add(turned, "channels", self.attention)
            y = turned.unflatten(0, (-1, x.shape[1])).transpose(1, 2).flatten(0, 1)
        y = self.add(y, "feedforward", self.feedforward)
        return y
