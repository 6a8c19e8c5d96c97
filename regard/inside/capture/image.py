"""Attention weights of an image model at work on one image, brought back to the cells of the image.

Families differ in what a token is: a patch, a cell of a window, of a pooled grid or of a feature map. Here all are
cells of a `PatchGrid`, and everything is computed in these.
"""

from dataclasses import dataclass, fields

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from regard.inside.capture.weights import Layers, look, matching
from regard.models import parts
from regard.nn.grids import LayerGrids, PatchGrid
from regard.nn.weights import find_kernels
from regard.objectives.matching import best_objects
from regard.tasks.prepared import SURE, Prepared

At = tuple[int, int]
"""Row and column of a patch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageLayer(LayerGrids):
    """The weights of one attention layer for one image."""

    name: str
    number: int
    """Its index among the layers that read the image."""
    heads: tuple[int, ...]
    """The indices of the heads in `weights`."""
    weights: Float[Tensor, "N H T S"]
    """Attention weights of each window; of the whole image where there are no windows."""

    def attended(self, queries: Float[Tensor, "T"]) -> Float[Tensor, "H S"]:
        """Return the attention of each head to prefix and cells, averaged over queries with the given weights.

        With windows, the padding that fills them up at the image's edges is left out.
        """
        if self.windows is None:
            return torch.einsum("t,hts->hs", queries, self.weights[0])
        shares = self.windows.split(queries[None, :, None])[..., 0]
        return self.windows.join(torch.einsum("nt,nhts->nsh", shares, self.weights))[0].T

    def inside(self) -> Float[Tensor, "T"]:
        """Return the share of each query's attention, averaged over heads, that is on the image rather than on
        padding."""
        count = self.prefix + len(self.queries)
        if self.windows is None:
            return torch.ones(count)
        real = self.windows.split(torch.ones(1, count, 1))  # N W 1, zeros behind the edges
        return self.windows.join((self.weights @ real[:, None]).mean(1))[0, :, 0].clamp(min=1e-9)

    def entropy(self, queries: Float[Tensor, "T"]) -> Float[Tensor, "H"]:
        """Return the entropy of each head in bits, averaged over queries with the given weights; 0 attends to one
        token."""
        bits = torch.special.entr(self.weights).sum(-1).movedim(1, -1) / np.log(2)  # N T H
        if self.windows is not None:
            return torch.einsum("nt,nth->h", self.windows.split(queries[None, :, None])[..., 0], bits)
        return queries @ bits[0]


@dataclass(frozen=True, slots=True)
class ImageWeights:
    """One image at the model's size, and the weights of the layers that read it."""

    pixels: np.ndarray
    """Bytes, rows × columns × channels."""
    patches: PatchGrid
    """The grid of patches that `at` refers to."""
    layers: list[ImageLayer]

    def queries(self, layer: ImageLayer, at: At | None = None) -> Float[Tensor, "T"]:
        """Return averaging weights over a layer's queries: the patch `at`, else the class token or, without one, all
        equally."""
        rows, columns = self.patches.grid
        queries = torch.zeros(layer.prefix + len(layer.queries))
        if at is not None:
            if not (0 <= at[0] < rows and 0 <= at[1] < columns):
                raise ValueError(
                    f"no patch {at[0]},{at[1]}: the image has {rows} × {columns}, 0,0 to {rows - 1},{columns - 1}"
                )
            queries[layer.prefix + layer.queries.index_of(at, self.patches)] = 1
        elif layer.prefix:
            queries[layer.reader] = 1
        else:
            queries[:] = 1 / len(queries)
        return queries

    def maps(self, layer: ImageLayer, at: At | None = None) -> np.ndarray:
        """Return attention maps, heads × rows × columns of `layer.keys`, without the prefix."""
        return layer.attended(self.queries(layer, at))[:, layer.prefix :].unflatten(1, layer.keys.grid).numpy()

    def rollout(self, at: At | None = None) -> np.ndarray:
        """Attention rollout (Abnar and Zuidema, 2020): rows × columns of `patches`, through all layers here.

        Every layer passes on half of what it had and half of what its heads, on average, attended to. Where a grid
        gets coarser, a cell stands for those that it was made of, evenly.
        """
        share = self.queries(self.layers[-1], at)
        below = [layer.queries for layer in self.layers[:-1]]
        for layer, inputs in zip(reversed(self.layers), [*reversed(below), self.patches], strict=True):
            attended = layer.attended(share / layer.inside()).mean(0)
            stays, goes = (
                torch.cat([x[: layer.prefix], cells.spread(x[layer.prefix :], inputs)])
                for x, cells in ((share, layer.queries), (attended, layer.keys))
            )
            share = (stays + goes) / 2
        return share[self.layers[0].prefix :].unflatten(0, self.patches.grid).numpy()


def image_cells(prepared: Prepared) -> tuple[np.ndarray, PatchGrid]:
    """Return the pixels of an image at the model's size, and the grid of its patches."""
    pixels, cells = prepared.image, prepared.sequences[0].grid
    assert pixels is not None and cells is not None
    return pixels, cells


def image_layers(prepared: Prepared) -> list[str]:
    """Return the names of the attention layers of the model's image tower."""
    names = list(find_kernels(prepared.tower or prepared.model))
    if not prepared.grids:
        raise ValueError(f"the image cells of a {type(prepared.model).__name__} are not known; use regard.look")
    return names


@torch.inference_mode()
def image_weights(prepared: Prepared, *, layers: Layers | None = None, head: int | None = None) -> ImageWeights:
    """The weights of an image model's layers for its image; `layers` are numbers or names, as `look` takes them."""
    names = image_layers(prepared)
    with look(prepared.tower or prepared.model, layers=layers, heads=head) as seen:
        prepared.run(prepared.inputs)
    kept = []
    for number, (name, grids) in enumerate(zip(names, prepared.grids.values(), strict=True)):
        if name in seen.names:
            weights = seen.attention[name]
            heads = seen.heads or tuple(range(weights.shape[1]))
            own = {field.name: getattr(grids, field.name) for field in fields(LayerGrids)}
            kept.append(ImageLayer(**own, name=name, number=number, heads=heads, weights=weights))
    return ImageWeights(*image_cells(prepared), kept)


@dataclass(frozen=True, slots=True)
class QueryObject:
    """The object that one query of a detector found, and where the query attended to."""

    query: int
    label: str
    score: float
    box: tuple[float, float, float, float]
    """Left, top, right and bottom, in pixels of the image at the model's size."""
    weights: np.ndarray
    """Rows × columns of cells of the feature map: the mean of the heads, or one of them."""


@torch.inference_mode()
def query_objects(
    prepared: Prepared, *, layer: int = -1, head: int | None = None, least: float = SURE
) -> list[QueryObject]:
    """The objects that a detector's queries found with a score of at least `least`, best first."""
    model, (pixels, cells) = prepared.model, image_cells(prepared)
    names = [name for name in parts.attention_layers(model) if name.endswith(".cross")]
    with look(model, layers=matching(layer, names), heads=head) as seen:
        scores, indices, boxes = best_objects(model(**prepared.inputs)[0].cpu(), pixels.shape[:2])
    weights = seen.of("cross")[0][0].mean(0)
    return [
        QueryObject(
            query, prepared.labels[int(indices[query])], float(scores[query]), tuple(boxes[query].tolist()),
            weights[query].unflatten(0, cells.grid).numpy(),
        )
        for query in scores.argsort(descending=True, stable=True).tolist()
        if scores[query] >= least
    ]  # fmt: skip
