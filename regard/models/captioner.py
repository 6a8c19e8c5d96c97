"""Image captioning with visual attention (Xu et al., 2015): each word attends to the image.

Unlike seq2seq.py and transformer.py: the decoder attends not to words but to cells of a convolutional feature map.
pixels B C Y X → h B S D; recurrent: e_ti = f_att(s_{t−1}, h_i), α_t = softmax e_t, c_t = Σ α_ti h_i, s_t = RNN(y, c_t);
transformer: the decoder of transformer.py, whose cross-attention reads h
"""

from dataclasses import dataclass, fields
from typing import Any, ClassVar, Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.config import check_positive
from regard.models.seq2seq import RecurrentCache, RecurrentDecoder, Seq2SeqConfig
from regard.models.towers import FeatureMap, Tower
from regard.nn.block import BlockConfig
from regard.nn.cache import Cache, KeyValues
from regard.nn.convolution import ConvStem
from regard.nn.embeddings import Embedding, Head
from regard.nn.grids import PatchGrid
from regard.nn.masks import causal
from regard.nn.patches import Side, resample, sides
from regard.nn.stack import Stack, build_position, glorot
from regard.registry import register_model


@dataclass(frozen=True, kw_only=True, slots=True)
class CaptionerConfig(FeatureMap, BlockConfig):
    """Sizes of the convolutions and of the decoder; heads, ffn_dim, kernel … are the Transformer decoder's."""

    vocab_size: int = 4000
    """Entries of the vocabulary."""
    image: Side = 64
    """Pixels of a side that positions are learned for, or rows,columns."""
    channels: int = 3
    """Channels of a pixel: 3 for colour, 1 for grey."""
    widths: tuple[int, ...] = (24, 48, 96)
    """Channels of the convolutions; each entry halves the image's sides."""
    tower: str = ""
    """A trained image model in place of the convolutions: its family and config as JSON."""
    decoder: Literal["recurrent", "transformer"] = "recurrent"
    """Decoder: a recurrent network with f_att, or Transformer blocks with cross-attention."""
    cell: Literal["rnn", "gru", "lstm"] = "gru"
    """Kind of recurrent cell."""
    layers: int = 1
    """Recurrent layers."""
    score: Literal["additive", "dot", "general"] = "additive"
    """f_att of the recurrent decoder: additive, or Luong's dot product or bilinear form."""
    depth: int = 3
    """Blocks of the Transformer decoder."""
    dim: int = 128
    """Width of features, embeddings and states."""
    heads: int = 4
    ffn_dim: int = 256
    max_len: int = 64
    """Longest caption expected; a hard limit only for learned positions."""

    def __post_init__(self) -> None:
        BlockConfig.__post_init__(self)
        check_positive(self, "vocab_size", "channels", "layers", "depth")
        if not self.widths or min(self.widths) < 1:
            raise ValueError(f"widths={self.widths} must be at least one positive number")
        sides(self.image)
        if self.decoder == "recurrent":
            self.recurrent  # noqa: B018  its own checks

    def convolved(self, size: tuple[int, int]) -> PatchGrid:
        return PatchGrid(size, 1).coarser(2 ** len(self.widths))

    @property
    def idle(self) -> dict[str, str]:
        """Fields without effect, those of the other decoder, and why."""
        names = {"cell", "layers", "score"}
        if self.decoder == "recurrent":
            names = {field.name for field in fields(BlockConfig)} - {"dim", "dropout", "max_len"} | {"depth"}
        return dict.fromkeys(sorted(names), f"decoder {self.decoder}") | self.idle_convolutions()

    @property
    def recurrent(self) -> Seq2SeqConfig:
        """Config of the recurrent decoder."""
        return Seq2SeqConfig(
            vocab_size=self.vocab_size, dim=self.dim, depth=self.layers, cell=self.cell, score=self.score,
            dropout=self.dropout, max_len=self.max_len,
        )  # fmt: skip


class RecurrentCaptionDecoder(RecurrentDecoder):
    """Recurrent decoder: starts from the mean of all cells, then attends to them at each word."""

    def build_encoder(self) -> None:
        parts = 2 if self.config.cell == "lstm" else 1
        self.begin = nn.ModuleList(nn.Linear(self.config.dim, self.config.dim) for _ in range(parts))

    def start(
        self, cells: Float[Tensor, "B S D"], ids: Int[Tensor, "B T"], cache: RecurrentCache
    ) -> Float[Tensor, "B T D"]:
        mean = cells.mean(1).expand(self.config.depth, -1, -1)
        cache.state = [linear(mean).tanh() for linear in self.begin]
        cache.keys, cache.values = self.key(cells), cells
        return self.write(ids, cache)

    def features(self, cells: Float[Tensor, "B S D"], target: Int[Tensor, "B T"]) -> Float[Tensor, "B T D"]:
        return self.start(cells, target, RecurrentCache())


class TransformerCaptionDecoder(nn.Module):
    """Transformer decoder: attends to the words so far and, through cross-attention, to the cells."""

    def __init__(self, config: CaptionerConfig) -> None:
        super().__init__()
        position = build_position(config)
        final = config.norm_place == "pre"
        self.decoder = Stack(config, position, depth=config.depth, causal=True, cross=True, final_norm=final)
        glorot(self)
        self.embedding = Embedding(config.vocab_size, config.dim, position, dropout=config.dropout)
        self.head = Head(config.vocab_size, config.dim, tied=self.embedding)

    def new_cache(self, room: int) -> Cache:
        return self.decoder.new_cache(room)

    def start(self, cells: Float[Tensor, "B S D"], ids: Int[Tensor, "B T"], cache: Cache) -> Float[Tensor, "B T D"]:
        cache.source = [KeyValues(cells.shape[1], fixed=True) for _ in cache.own]
        return self.write(ids, cache, cells)

    def write(
        self, ids: Int[Tensor, "B T"], cache: Cache, cells: Float[Tensor, "B S D"] | None = None
    ) -> Float[Tensor, "B T D"]:
        return self.decoder(self.embedding(ids, start=cache.length), cells, mask=causal(), cache=cache)

    def features(self, cells: Float[Tensor, "B S D"], target: Int[Tensor, "B T"]) -> Float[Tensor, "B T D"]:
        return self.decoder(self.embedding(target), cells, mask=causal())


@register_model("captioner")
class Captioner(nn.Module):
    """Convolutions that encode an image, and a decoder that generates its caption."""

    reads: ClassVar[tuple[str, ...]] = ("pixels",)
    config_class = CaptionerConfig
    task = "caption"
    presets: ClassVar[dict[str, dict[str, Any]]] = {
        "tiny": dict(dropout=0.0),
        "small": dict(dim=256, widths=(48, 96, 192), ffn_dim=1024),
        "base": dict(dim=512, widths=(64, 128, 256, 512), heads=8, ffn_dim=2048, depth=6, image=128),
    }

    def __init__(self, config: CaptionerConfig) -> None:
        super().__init__()
        self.config = config
        own = Tower(config.tower, config.dim) if config.tower else None
        self.eye = own or ConvStem(config.channels, config.widths, config.dim)
        rows, columns = config.grid
        self.positions = nn.Parameter(torch.randn(rows * columns, config.dim) * 0.02)
        recurrent = config.decoder == "recurrent"
        self.writer = RecurrentCaptionDecoder(config.recurrent) if recurrent else TransformerCaptionDecoder(config)

    @property
    def head(self) -> Head:
        return self.writer.head

    def image_tower(self) -> nn.Module:
        """The convolutions, or the trained image model in their place."""
        return self.eye.inner if isinstance(self.eye, Tower) else self.eye

    def patch_grid(self, size: tuple[int, int]) -> PatchGrid:
        """The cells of the feature map of an image of that size."""
        return self.config.cells(size)

    def cells(self, pixels: Float[Tensor, "B C Y X"]) -> Float[Tensor, "B S D"]:
        """Return the features h_i of each cell, row by row, with their positions."""
        x = self.eye(pixels)
        rows, columns = x.shape[2:]
        return x.flatten(2).mT + resample(self.positions, self.config.grid, (rows, columns))

    def embed(self, pixels: Float[Tensor, "B C Y X"]) -> Float[Tensor, "B D"]:
        """Return one vector for each image: the mean of its cells."""
        return self.cells(pixels).mean(1)

    def features(self, pixels: Float[Tensor, "B C Y X"], target: Int[Tensor, "B T"]) -> Float[Tensor, "B T D"]:
        return self.writer.features(self.cells(pixels), target)

    def forward(self, pixels: Float[Tensor, "B C Y X"], target: Int[Tensor, "B T"]) -> Float[Tensor, "B T V"]:
        return self.head(self.features(pixels, target))

    def new_cache(self, room: int) -> Any:
        return self.writer.new_cache(room)

    def prefill(
        self, prefix: Int[Tensor, "B T"], cache: Any, *, pixels: Float[Tensor, "B C Y X"]
    ) -> Float[Tensor, "B V"]:
        return self.head(self.writer.start(self.cells(pixels), prefix, cache)[:, -1])

    def step(self, ids: Int[Tensor, "B"], cache: Any) -> Float[Tensor, "B V"]:
        return self.head(self.writer.write(ids[:, None], cache)[:, -1])
