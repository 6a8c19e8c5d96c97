"""PatchTST: a window of a series as a sequence of patches (Nie et al., 2023).

Unlike vit.py: patches are stretches of time, each channel is a sequence of its own, and what is predicted has the
window's own mean and scale again (reversible instance norm, Kim et al., 2022). Channels may attend to each other at
each patch, or, with one patch for a whole window, instead of time (iTransformer, Liu et al., 2024).
series B T C → patches (B·C) N D + positions → blocks → all patches at once → horizon B H C
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.config import check_fractions, check_positive
from regard.nn.block import Activation, BlockConfig
from regard.nn.dropout import Dropout
from regard.nn.masks import padding
from regard.nn.series import Relative, SeriesBlock, SeriesPatches, pooled, relative, visible
from regard.nn.stack import build_position, glorot
from regard.registry import register_model


@dataclass(frozen=True, kw_only=True, slots=True)
class PatchTSTConfig(BlockConfig):
    """Sizes of a forecaster of series."""

    channels: int = 1
    """Series that are forecast together; without attention between them, any number of them is read."""
    context: int = 336
    """Steps that a forecast is made from."""
    horizon: int = 24
    """Steps that are forecast."""
    patch: int = 16
    """Steps of a patch."""
    stride: int | None = None
    """Steps from one patch to the next (none: a patch); the oldest steps that fill no patch are left out."""
    attends: Literal["time", "channels", "both"] = "time"
    """Attention over the patches of a channel, over the channels at each patch, or by the same layer over both."""
    covariates: int = 0
    """Further series that are read, not forecast; those known in advance are read for the horizon, too."""
    quantiles: tuple[float, ...] = ()
    """Levels of quantiles that are forecast beside the mean."""
    scaling: Literal["std", "none"] = "std"
    """Reversible instance norm: a window is read relative to its mean and standard deviation, or as it is."""
    pooling: Literal["none", "mean", "max"] = "none"
    """Patches that the head reads: all of them side by side, their mean, or their maximum."""
    linear: bool = False
    """A linear forecast from the window, to which the Transformer's is added."""
    batch_norm: bool = False
    """Batch norms in the blocks in place of layer norms, as most published models have."""
    head_dropout: float = 0.0
    """Dropout on what the head reads."""
    depth: int = 3
    """Blocks."""
    dim: int = 128
    heads: int = 4
    ffn_dim: int = 256
    activation: Activation = "gelu"
    position: str = "learned"
    max_len: int = 1024
    """Not used: the context determines the number of patches."""

    def __post_init__(self) -> None:
        BlockConfig.__post_init__(self)
        check_positive(self, "channels", "context", "horizon", "patch", "stride", "depth")
        check_fractions(self, "head_dropout")
        if self.patch > self.context:
            raise ValueError(f"a patch of {self.patch} steps does not fit into context={self.context}; use a shorter")
        if self.covariates < 0:
            raise ValueError(f"covariates={self.covariates} must not be negative")
        if list(self.quantiles) != sorted(set(self.quantiles)) or not all(0 < each < 1 for each in self.quantiles):
            raise ValueError(f"quantiles={self.quantiles} must ascend between 0 and 1, as in 0.1,0.5,0.9")
        if self.reversible:
            raise ValueError("blocks of series are not reversible; use reversible=False")

    @property
    def idle(self) -> dict[str, str]:
        """Fields without effect, and why."""
        return {"max_len": f"context {self.context}"}

    @property
    def step(self) -> int:
        """Steps from one patch to the next."""
        return self.stride or self.patch

    @property
    def past(self) -> int:
        """Patches of a window."""
        return (self.context - self.patch) // self.step + 1

    @property
    def ahead(self) -> int:
        """Patches of the horizon, which are read where there are covariates."""
        return -(-self.horizon // self.patch) if self.covariates else 0

    @property
    def tokens(self) -> int:
        """Tokens of a window, of all its channels."""
        return self.channels * (self.past + self.ahead)


@register_model("patchtst")
class PatchTST(nn.Module):
    """A forecaster: the mean, and quantiles, of each step of the horizon."""

    config_class, task = PatchTSTConfig, "forecast"
    task_names, optional_names = ("head.", "line."), ("patches.covariates.",)
    small: ClassVar[dict[str, Any]] = dict(
        dim=32, depth=2, heads=2, ffn_dim=64, context=24, horizon=6, patch=4, quantiles=(0.1, 0.5, 0.9)
    )
    presets: ClassVar[dict[str, dict[str, Any]]] = {
        "tiny": dict(dim=32, depth=2, heads=4, ffn_dim=128, patch=24, dropout=0.2),
        "patchtst": dict(dim=128, depth=3, heads=16, ffn_dim=256, patch=16, stride=8, horizon=96, batch_norm=True,
                         dropout=0.2, norm_place="post"),
        "itransformer": dict(dim=512, depth=3, heads=8, ffn_dim=512, context=96, patch=96, horizon=96, channels=7,
                             attends="channels", norm_place="post"),
    }  # fmt: skip

    def __init__(self, config: PatchTSTConfig) -> None:
        super().__init__()
        self.config = config
        sized = replace(config, max_len=config.past + config.ahead)
        self.position = build_position(sized)
        ways: dict[str, bool] = dict(times=config.attends != "channels", across=config.attends != "time")
        blocks = (SeriesBlock(sized, self.position, **ways, batch_norm=config.batch_norm) for _ in range(config.depth))
        self.blocks = nn.ModuleList(blocks)
        self.patches = SeriesPatches(config.patch, config.step, config.dim, covariates=config.covariates)
        self.dropout, self.head_dropout = Dropout(config.dropout), Dropout(config.head_dropout)
        width = config.dim * (sized.max_len if config.pooling == "none" else 1)
        self.head = nn.Linear(width, config.horizon * (1 + len(config.quantiles)))
        self.line = nn.Linear(config.context, config.horizon) if config.linear else None
        glorot(self)

    def example(self, rows: int) -> dict[str, Tensor]:
        """Windows of random walks, with covariates where the model reads them."""
        config = self.config
        inputs = {"series": torch.randn(rows, config.context, config.channels).cumsum(1)}
        if config.covariates:
            inputs["covariates"] = torch.randn(rows, config.context + config.horizon, config.covariates)
        return inputs

    def token_names(self, label: Callable[[int], str], columns: Sequence[str]) -> list[str]:
        """Return the labels of the tokens that attend to each other: the columns, or the first step of each patch;
        `label` names a step, of which the first one that is forecast is 0."""
        config = self.config
        if config.attends == "channels":
            return list(columns)
        past = [(i - config.past + 1) * config.step - config.patch for i in range(config.past)]
        return [label(step) for step in (*past, *range(0, config.ahead * config.patch, config.patch))]

    def relative(self, series: Float[Tensor, "B T C"], lengths: Int[Tensor, "B"] | None = None) -> Relative:
        """Return windows relative to their mean and standard deviation, and those two."""
        if series.shape[1] != self.config.context:
            raise ValueError(f"a window has {series.shape[1]} steps, the model reads {self.config.context}")
        return relative(series, lengths, scaled=self.config.scaling == "std")

    def hidden(self, lengths: Int[Tensor, "B"] | None, channels: int) -> Int[Tensor, "M"] | None:
        """Return the number of patches of each channel that are before its first step; None where windows are full."""
        if lengths is None:
            return None
        return (self.config.past - -(-lengths // self.config.step)).clamp(min=0).repeat_interleave(channels)

    def encode(
        self, scaled: Float[Tensor, "B T C"], hidden: Int[Tensor, "M"] | None, covariates: Tensor | None
    ) -> Float[Tensor, "M N D"]:
        """Return the vectors of patches in their context; those of hidden ones are zeros."""
        x = self.dropout(self.position.embed(self.patches(scaled, covariates)))
        mask, bias = None if hidden is None else ~padding(hidden), self.position.bias()
        for block in self.blocks:
            x = block(x, scaled.shape[2], mask, bias)
        return x if hidden is None else x * visible(x, hidden)

    def features(
        self, series: Float[Tensor, "B T C"], lengths: Int[Tensor, "B"] | None = None, covariates: Tensor | None = None
    ) -> Float[Tensor, "M N D"]:  # fmt: skip
        """Return a vector for each patch, the channels of a window one after the other."""
        return self.encode(self.relative(series, lengths)[0], self.hidden(lengths, series.shape[2]), covariates)

    def embed(self, **inputs: Tensor) -> Float[Tensor, "B D"]:
        """Return one vector for each window, the mean over its patches and channels."""
        hidden = self.hidden(inputs.get("lengths"), inputs["series"].shape[2])
        x = pooled(self.features(**inputs), "mean", hidden)
        return x.unflatten(0, (len(inputs["series"]), -1)).mean(1)

    def forward(
        self, series: Float[Tensor, "B T C"], lengths: Int[Tensor, "B"] | None = None, covariates: Tensor | None = None
    ) -> Float[Tensor, "B H C"] | Float[Tensor, "B H C N"]:  # fmt: skip
        """Return the mean of each step of the horizon and, with quantiles, these behind it in one more axis."""
        scaled, mean, scale = self.relative(series, lengths)
        hidden = self.hidden(lengths, series.shape[2])
        x = pooled(self.encode(scaled, hidden, covariates), self.config.pooling, hidden)
        y = self.head(self.head_dropout(x)).view(len(series), series.shape[2], self.config.horizon, -1)
        if self.line is not None:
            y = y + self.line(scaled.mT)[..., None]
        y = y.transpose(1, 2) * scale[..., None] + mean[..., None]
        return y if self.config.quantiles else y[..., 0]
