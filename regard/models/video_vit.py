"""Video ViT: clips as tubelets (TimeSformer: Bertasius et al., ViViT: Arnab et al., 2021; VideoMAE: Tong et al., 2022).

Unlike vit.py: a token is a patch of some successive frames, positions are in space and time, and attention over both is
whole, divided into one along time and one over space, or factorised into a part for each frame and one over frames.
video B T C Y X → tubelets B S D + positions → blocks → norm → the first token, or the mean → labels
"""

from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn

from regard.config import check_positive
from regard.models.vit import ImageConfig
from regard.nn.dropout import Dropout
from regard.nn.heads import LabelHead, Pooler
from regard.nn.norm import build_norm
from regard.nn.patches import grid_of
from regard.nn.positions import with_columns
from regard.nn.space_time import ENCODERS, mean_of, real_steps
from regard.nn.stack import glorot, init_keys_as_queries
from regard.nn.tubelets import Clips, Lengths, TubeletEmbedding, held, resample_clip
from regard.registry import register_model


@dataclass(frozen=True, kw_only=True, slots=True)
class VideoViTConfig(ImageConfig):
    """Sizes of an encoder of clips and its labels; the defaults are those of ViViT-B with fewer frames."""

    frames: int = 16
    """Frames that positions are learned for."""
    tubelet: int = 2
    """Frames of a token."""
    attention: Literal["whole", "divided", "factorised"] = "whole"
    """Attention of every tubelet to all, along time and then over space, or within frames and then over frames."""
    over: int = 2
    """Blocks over frames, of factorised attention; `depth` counts those within frames."""
    times: Literal["added", "joint", "none"] = "added"
    """Positions in time: a learned vector for each step beside those of patches, a position for each tubelet of all
    steps counted together, or none."""
    labels: tuple[str, ...] = ()
    """Names of the classes; without any, a clip becomes a vector."""
    pooling: Literal["cls", "mean"] = "cls"
    """The vector of a clip: that of a learned class token, or the mean of its tubelets, without such a token."""
    norm_mean: bool = False
    """The last norm is one of the mean, as a part of the head, and not of each tubelet."""
    pooler: bool = False
    """A layer on the class token's vector, which published encoders without labels have."""

    def __post_init__(self) -> None:
        ImageConfig.__post_init__(self)
        check_positive(self, "frames", "tubelet", "over")
        if self.tubelet > self.frames:
            raise ValueError(f"tubelet={self.tubelet} is more than frames={self.frames}; lower it")
        if self.pooling == "mean" and self.pooler or self.pooling == "cls" and self.norm_mean:
            raise ValueError("a pooler reads the class token, a norm of the mean needs pooling=mean")
        if self.labels and self.pooler:
            raise ValueError("a model with labels has no pooler; set pooler=false")
        if (self.times, self.attention) == ("joint", "factorised") or self.reversible and self.attention == "divided":
            raise ValueError("factorised attention needs times=added, and reversible blocks attention=whole")

    def without_labels(self) -> "VideoViTConfig":
        """The config to fine-tune this model with: no labels, no pooler."""
        return replace(self, labels=(), pooler=False)

    @property
    def idle(self) -> dict[str, str]:
        """Fields without effect, and why."""
        over = {} if self.attention == "factorised" else {"over": f"attention {self.attention}"}
        return {"max_len": f"image {self.image}"} | over

    @property
    def first(self) -> int:
        """Tokens before the tubelets."""
        return int(self.pooling == "cls")

    @property
    def steps(self) -> int:
        """Tubelets in time."""
        return -(-self.frames // self.tubelet)

    @property
    def tokens(self) -> int:
        """Tokens of a clip."""
        rows, columns = grid_of(self.image, self.patch)
        return self.first + self.steps * rows * columns

    @property
    def sized(self) -> "VideoViTConfig":
        """This config with what the clip determines: the number of positions and, for grid positions, the columns."""
        rows, columns = grid_of(self.image, self.patch)
        count = self.tokens if self.times == "joint" else self.first + rows * columns
        return replace(self, max_len=count, position=with_columns(self.position, columns))


@register_model("video-vit")
class VideoViT(nn.Module):
    """An encoder of clips and, for labels, its head."""

    config_class = VideoViTConfig
    task_names, optional_names = ("head.", "head_norm."), ("pooler.",)
    small: ClassVar[dict[str, Any]] = dict(dim=20, depth=2, heads=2, ffn_dim=29, channels=1, image=(8, 12), patch=4,
                                           frames=7, labels=("a", "b", "c"))  # fmt: skip
    presets: ClassVar[dict[str, dict[str, Any]]] = {
        "tiny": dict(dim=64, depth=4, heads=4, ffn_dim=256, channels=1, image=32, patch=8, frames=8, pooling="mean",
                     attention="divided"),
        "videomae-b": dict(position="sinusoidal", times="joint", pooling="mean", norm_mean=True),
        "timesformer-b": dict(frames=8, tubelet=1, attention="divided", norm_eps=1e-6),
        "vivit-b": dict(frames=32, times="joint", activation="gelu-tanh", norm_eps=1e-6),
    }  # fmt: skip

    def __init__(self, config: VideoViTConfig) -> None:
        super().__init__()
        self.config, self.grid, sized = config, grid_of(config.image, config.patch), config.sized
        final = config.norm_place == "pre" and not config.norm_mean
        depths = (config.depth, config.over) if config.attention == "factorised" else (config.depth,)
        self.encoder = ENCODERS[config.attention](sized, *depths, steps=config.steps, final_norm=final)
        self.dropout, labels = Dropout(config.dropout), len(config.labels)
        self.pooler = Pooler(config.dim, activation="tanh") if config.pooler else None
        self.head_norm = build_norm(config.norm, config.dim, 1e-5) if labels and config.norm_mean else nn.Identity()
        self.head = LabelHead(config.dim, labels, dropout=config.dropout) if labels else None
        glorot(self)
        init_keys_as_queries(self.encoder)
        self.tubelets = TubeletEmbedding(config.channels, config.tubelet, config.patch, config.dim)
        self.first = nn.Parameter(torch.randn(config.first, config.dim) * 0.02) if config.first else None
        added = config.times == "added" and config.attention != "factorised"  # which adds them to vectors of frames
        self.times = nn.Parameter(torch.randn(config.steps, config.dim) * 0.02) if added else None

    @property
    def task(self) -> str:
        return "classify-videos" if self.config.labels else "embed-videos"

    def example(self, rows: int) -> dict[str, Tensor]:
        """Clips of unequal length."""
        frames, (height, width) = self.config.frames, (side * self.config.patch for side in self.grid)
        lengths = torch.tensor([4, 7, 3, 6, 5, 7, 4])[:rows].clamp(max=frames)
        return {"video": torch.randn(rows, frames, self.config.channels, height, width), "lengths": lengths}

    def axes(self) -> dict[str, int]:
        """Return the number of frames, for what `regard cost` runs."""
        return {"T": self.config.frames}

    def resized(self, base: "VideoViT", name: str, tensor: Tensor) -> Tensor:
        """Return a tensor of the model that this one starts from; positions are interpolated to its own sizes."""
        in_time, first = name == "times" or ".over." in name, 0 if name == "times" else base.config.first
        if not (in_time or name.endswith("position.table")):
            return tensor
        long = in_time or self.config.times == "joint"
        grids = ((one.config.steps if long else 1, *((1, 1) if in_time else one.grid)) for one in (base, self))
        return resample_clip(tensor.float(), *grids, first=first)

    def tokens(self, video: Clips) -> Float[Tensor, "B S D"]:
        """Return the token in front, if there is one, and a vector for each tubelet, with their positions."""
        x, count = self.tubelets(video), self.config.first
        steps, rows, columns = x.shape[1:4]
        if steps > self.config.steps:
            raise ValueError(f"the clip has {video.shape[1]} frames, the model reads {self.config.frames}")
        position, joint = self.encoder.position, self.config.times == "joint"
        if joint and position.limit is not None and (rows, columns) != self.grid:
            raise ValueError(f"frames have {rows} × {columns} patches, the model's positions are for {self.grid}")
        x = x.flatten(1 if joint else 2, 3).flatten(0, 0 if joint else 1)  # clips, or frames, of patches
        if self.first is not None:
            x = torch.cat([self.first.expand(len(x), -1, -1), x], dim=1)
        if joint and position.limit is not None:
            x = position.embed(x)
        else:
            x = position.embed_grid(x, (x.shape[1] // columns, columns), trained=self.grid, first=count)
        if not joint:
            x = x.unflatten(0, (-1, steps))
            cells = x[:, :, count:] if self.times is None else x[:, :, count:] + self.times[:steps, None]
            x = torch.cat([x[:, 0, :count], cells.flatten(1, 2)], dim=1)
        return self.dropout(x)

    def run(self, video: Clips, lengths: Lengths) -> tuple[Float[Tensor, "B S D"], Any, int]:
        """Return the vectors of `features`, which steps of each clip are real, if not all are, and their number."""
        most = video.shape[1] if lengths is None else self.config.frames  # what fills up a batch is not needed
        steps = -(-min(video.shape[1], most) // self.config.tubelet)
        real = real_steps(lengths, steps, self.config.tubelet)
        x = self.tokens(held(video, steps * self.config.tubelet, lengths))
        return self.encoder.encode(x, steps=steps, first=self.config.first, real=real), real, steps

    def features(self, video: Clips, lengths: Lengths = None) -> Float[Tensor, "B S D"]:
        """Return a vector for the token in front, if there is one, and for each tubelet, or each step of factorised
        attention; `lengths` are the frames of each clip that do not fill up the batch."""
        return self.run(video, lengths)[0]

    def embed(self, video: Clips, lengths: Lengths = None) -> Float[Tensor, "B D"]:
        """Return one vector for each clip."""
        x, real, steps = self.run(video, lengths)
        if self.config.pooling == "mean":
            return mean_of(x.unflatten(1, (steps, -1)), real).mean(1)
        return x[:, 0] if self.pooler is None else self.pooler(x)

    def forward(self, video: Clips, lengths: Lengths = None) -> Float[Tensor, "B N"]:
        """Return logits over labels; without labels the vector of each clip."""
        x = self.head_norm(self.embed(video, lengths))
        return x if self.head is None else self.head(x)
