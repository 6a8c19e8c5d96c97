"""What a model that sees looks at in one picture, as arrays: weights brought back to the places of the picture.

Families differ in what a token is: a patch, a place of a window, of a pooled grid or of a feature map. Here all become
`Places`, rows and columns of squares on the picture, and every question is asked in these.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import singledispatch
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn

from regard.data.readers.image_files import read_image
from regard.inside.capture import Layers, look, matching
from regard.models import CLIP, DETR, MAE, CNNAttention, MViT, Swin, ViT
from regard.nn.convolution import ImageAttention, ResidualBlock
from regard.nn.heads import apart
from regard.nn.pooling import Grid, pooled
from regard.nn.resnet import halved
from regard.nn.weights import find_kernels
from regard.nn.windows import Windows
from regard.objectives.matching import corners
from regard.tasks import PixelModel

At = tuple[int, int]
"""Row and column of a patch."""


@dataclass(frozen=True, slots=True)
class Places:
    """Squares on a picture, row by row from its upper left corner; the last may reach over its edges."""

    grid: Grid
    cell: int
    """Pixels of a side."""

    def __len__(self) -> int:
        return self.grid[0] * self.grid[1]

    def of(self, at: At, other: "Places") -> int:
        """The number of the place here that holds a place of another, finer grid."""
        times = self.cell // other.cell
        return at[0] // times * self.grid[1] + at[1] // times

    def spread(self, x: Float[Tensor, "*H S"], finer: "Places") -> Float[Tensor, "*H T"]:
        """Each number shared out evenly among the places of a finer grid that this one was made of."""
        if finer == self:
            return x
        times = self.cell // finer.cell
        rows, columns = (torch.arange(side) // times for side in finer.grid)
        owner = (rows[:, None] * self.grid[1] + columns).flatten()
        return (x / owner.bincount(minlength=len(self)).clamp(min=1))[..., owner]


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Where the queries and keys of an attention layer lie on a picture."""

    queries: Places
    keys: Places
    first: int = 0
    """Tokens in front of the places, on both sides."""
    whole: int = 0
    """Where there are some, the token that reads for the whole picture: the first, or the last of one that paints."""
    windows: Windows | None = None
    """How the places are cut, where they see only their own window."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Layer(Plan):
    """The weights of one attention layer for one picture."""

    name: str
    number: int
    """Among the layers of the model."""
    heads: tuple[int, ...]
    """Whose weights these are."""
    weights: Float[Tensor, "N H T S"]
    """Of each window; of the whole picture where there are none."""

    def looks(self, asks: Float[Tensor, "T"]) -> Float[Tensor, "H S"]:
        """What a mixture of queries sees: for each head the mean of their weights, for tokens in front and places.

        With windows, what lies outside the picture, where they are filled up, is left out.
        """
        if self.windows is None:
            return torch.einsum("t,hts->hs", asks, self.weights[0])
        seen = torch.einsum("nt,nhts->nsh", self.windows.split(asks[None, :, None])[..., 0], self.weights)
        return self.windows.join(seen)[0].T

    def inside(self) -> Float[Tensor, "T"]:
        """How much of its weights each query, on average over heads, gives to the picture: not to what fills it up."""
        count = self.first + len(self.queries)
        if self.windows is None:
            return torch.ones(count)
        real = self.windows.split(torch.ones(1, count, 1))  # N W 1, zeros behind the edges
        return self.windows.join((self.weights @ real[:, None]).mean(1))[0, :, 0].clamp(min=1e-9)

    def entropy(self, asks: Float[Tensor, "T"]) -> Float[Tensor, "H"]:
        """In bits, the mean over a mixture of queries: 0 looks at one token, log₂ of their number at all alike."""
        bits = torch.special.entr(self.weights).sum(-1).movedim(1, -1) / np.log(2)  # N T H
        if self.windows is not None:
            return torch.einsum("nt,nth->h", self.windows.split(asks[None, :, None])[..., 0], bits)
        return asks @ bits[0]


@dataclass(frozen=True, slots=True)
class Sight:
    """One picture as a model sees it, and what its layers look at."""

    pixels: np.ndarray
    """Bytes, rows × columns × channels: the picture as it was brought to the model's size."""
    patches: Places
    """What `at` counts in."""
    layers: list[Layer]

    def asks(self, layer: Layer, at: At | None = None) -> Float[Tensor, "T"]:
        """Which queries look, as shares: that of a patch, else the one for the whole picture or, without, all alike."""
        rows, columns = self.patches.grid
        asks = torch.zeros(layer.first + len(layer.queries))
        if at is not None:
            if not (0 <= at[0] < rows and 0 <= at[1] < columns):
                raise ValueError(
                    f"no patch {at[0]},{at[1]}: the picture has {rows} × {columns}, 0,0 to {rows - 1},{columns - 1}"
                )
            asks[layer.first + layer.queries.of(at, self.patches)] = 1
        elif layer.first:
            asks[layer.whole] = 1
        else:
            asks[:] = 1 / len(asks)
        return asks

    def maps(self, layer: Layer, at: At | None = None) -> np.ndarray:
        """Weights on the picture, heads × rows × columns of `layer.keys`; those of tokens in front are left out."""
        return layer.looks(self.asks(layer, at))[:, layer.first :].unflatten(1, layer.keys.grid).numpy()

    def rollout(self, at: At | None = None) -> np.ndarray:
        """Attention rollout (Abnar and Zuidema, 2020): rows × columns of `patches`, through all layers seen.

        Every layer passes on half of what it had and half of what its heads, on average, looked at. Where a grid gets
        coarser, a place stands for those that it was made of, evenly.
        """
        share = self.asks(self.layers[-1], at)
        below = [layer.queries for layer in self.layers[:-1]]
        for layer, inputs in zip(reversed(self.layers), [*reversed(below), self.patches], strict=True):
            seen = layer.looks(share / layer.inside()).mean(0)
            stays, goes = (
                torch.cat([x[: layer.first], places.spread(x[layer.first :], inputs)])
                for x, places in ((share, layer.queries), (seen, layer.keys))
            )
            share = (stays + goes) / 2
        return share[self.layers[0].first :].unflatten(0, self.patches.grid).numpy()


@dataclass(frozen=True, slots=True)
class Tower:
    """The part of a model that reads pictures."""

    family: Any
    """What `layout` knows."""
    watched: nn.Module
    """Where its attention layers are."""
    read: Callable[[Tensor], Any]
    """From pixels to what it makes of them."""


def tower(loaded: Any) -> Tower:
    """Of two towers the one for pictures, of an encoder and a decoder the encoder."""
    model = loaded.model
    if isinstance(loaded, PixelModel):
        return Tower(loaded, model, model)
    family = model.vit if isinstance(model, MAE) else model.vision if isinstance(model, CLIP) else model
    if layout.dispatch(type(family)) is layout.dispatch(object):
        layout(family, Places((1, 1), 1))
    if isinstance(family, DETR):
        return Tower(family, family.encoder, family.encode)
    return Tower(family, family, family.features)


@singledispatch
def layout(model: Any, patches: Places) -> Iterator[Plan]:
    """The attention layers of a family as they are called, without weights: where their queries and keys lie."""
    raise ValueError(f"where a {type(model).__name__} looks on a picture is not known; use regard.look in Python")


@layout.register
def layout_of_painter(painter: PixelModel, patches: Places) -> Iterator[Plan]:
    for _ in find_kernels(painter.model):
        yield Plan(queries=patches, keys=patches, first=1, whole=-1)


@layout.register
def layout_of_vit(model: ViT, patches: Places) -> Iterator[Plan]:
    for _ in range(model.config.depth):
        yield Plan(queries=patches, keys=patches, first=model.config.first)


@layout.register
def layout_of_swin(model: Swin, patches: Places) -> Iterator[Plan]:
    for stage, depth in zip(model.stages, model.config.depths, strict=True):
        cuts = stage.windows(patches.grid)  # type: ignore[operator]
        for block in range(depth):
            yield Plan(queries=patches, keys=patches, windows=cuts[block % 2])
        patches = coarser(patches, 2)


@layout.register
def layout_of_mvit(model: MViT, patches: Places) -> Iterator[Plan]:
    for block in model.blocks:
        queries, keys = (coarser(patches, stride) for stride in block.attention.strides)  # type: ignore[union-attr]
        yield Plan(queries=queries, keys=keys)
        patches = queries


@layout.register
def layout_of_cnn(model: CNNAttention, patches: Places) -> Iterator[Plan]:
    for block in model.blocks:
        if isinstance(block, ResidualBlock):
            patches = coarser(patches, block.convolutions[0].stride[0])  # type: ignore[index, arg-type]
        if isinstance(block, ImageAttention):
            yield Plan(queries=patches, keys=patches)


@layout.register
def layout_of_detr(model: DETR, patches: Places) -> Iterator[Plan]:
    for _ in range(model.config.depth):
        yield Plan(queries=patches, keys=patches)


def coarser(places: Places, stride: int) -> Places:
    return Places(pooled(places.grid, stride), places.cell * stride)


def cut(model: Any, size: Grid) -> Places:
    """The patches of a picture: a ViT leaves out what does not fill one, the others fill it up."""
    if isinstance(model, PixelModel):
        return Places(size, 1)
    if isinstance(model, DETR):
        halvings = len(model.config.blocks) + 1
        return Places((halved(size[0], halvings), halved(size[1], halvings)), 2**halvings)
    patch = model.config.patch
    return Places((size[0] // patch, size[1] // patch) if isinstance(model, ViT) else pooled(size, patch), patch)


@torch.inference_mode()
def see(loaded: Any, picture: Any, *, layers: Layers | None = None, head: int | None = None) -> Sight:
    """A picture (a path, or an image of Pillow's) as a loaded model sees it, with the weights of some or all layers.

    `layers` are numbers or names, as `look` takes them.
    """
    model = tower(loaded)
    bytes_, pixels = prepared(loaded, picture)
    patches = cut(model.family, bytes_.shape[:2])
    with look(model.watched, layers=layers, heads=head) as seen:
        model.read(pixels)
    found = []
    for number, (plan, name) in enumerate(zip(layout(model.family, patches), seen.layers, strict=True)):
        if name in seen.names:
            weights = seen.attention[name]
            heads = seen.heads or tuple(range(weights.shape[1]))
            fields = {field: getattr(plan, field) for field in Plan.__dataclass_fields__}
            found.append(Layer(**fields, name=name, number=number, heads=heads, weights=weights))
    return Sight(bytes_, patches, found)


def prepared(loaded: Any, picture: Any) -> tuple[np.ndarray, Tensor]:
    """A picture at the model's size, as bytes and as what the model reads: numbers 1 C Y X, or ids of colours 1 T."""
    if isinstance(loaded, PixelModel):
        ids = loaded.pixels.encode(loaded.arrays([picture]))
        return loaded.pixels.decode(ids)[0], torch.tensor([[loaded.pixels.start, *ids[0]]])
    bytes_ = loaded.preparation.fit(read_image(picture))
    numbers = torch.from_numpy(loaded.preparation.numbers(bytes_))[None]
    return bytes_, numbers.to(next(loaded.model.parameters()))


@dataclass(frozen=True, slots=True)
class Finding:
    """What one query of a DETR found, and where it looked."""

    query: int
    label: str
    score: float
    box: tuple[float, float, float, float]
    """Left, top, right and bottom, in pixels of the picture as the model sees it."""
    weights: np.ndarray
    """Rows × columns of cells of the feature map: the mean of the heads, or one of them."""


@torch.inference_mode()
def findings(
    loaded: Any, picture: Any, *, layer: int = -1, head: int | None = None, least: float = 0.5
) -> tuple[np.ndarray, Places, list[Finding]]:
    """What the queries of a DETR found with a score of at least `least`, best first, with their cross-attention.

    Also the picture as the model sees it, and the cells that weights are for.
    """
    model = loaded.model
    bytes_, pixels = prepared(loaded, picture)
    names = [name for name in find_kernels(model) if name.endswith(".cross")]
    with look(model, layers=matching(layer, names), heads=head) as seen:
        scores, boxes = apart(model(pixels)[0])
    weights, places = seen.of("cross")[0][0].mean(0), cut(model, bytes_.shape[:2])
    best = scores.softmax(-1)[:, :-1].max(-1)  # the last score is for nothing
    rows, columns = bytes_.shape[:2]
    pixels_of = corners(boxes).clamp(0, 1) * torch.tensor([columns, rows, columns, rows])
    found = [
        Finding(
            query, model.config.labels[int(best.indices[query])], float(best.values[query]),
            tuple(pixels_of[query].tolist()), weights[query].unflatten(0, places.grid).numpy(),
        )
        for query in best.values.argsort(descending=True, stable=True).tolist()
        if best.values[query] >= least
    ]  # fmt: skip
    return bytes_, places, found
