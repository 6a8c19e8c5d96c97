"""The parts of a model: its towers, its blocks, and the grid of its patches.

A family may say so itself, by a method of the same name as a function here (`image_tower`, `text_tower`, `pretrained`,
`head_names`, `resized`, `patch_grid`, `layer_grids`, `patch_vectors`) or an attribute (`task_names`, `optional_names`).
What it does not say has a default that suits a stack of blocks over patches or tokens, so that most families, and a
user's own, need none of them.
"""

import re
from typing import Any

from jaxtyping import Float
from torch import Tensor, nn

from regard.nn.feedforward import FeedForward
from regard.nn.grids import LayerGrids, PatchGrid
from regard.nn.kernels import Kernel
from regard.nn.pooling import Grid
from regard.nn.stack import Stack
from regard.nn.weights import find_kernels


def image_tower(model: Any) -> Any:
    """The part of a model that reads images; by default all of it."""
    return model.image_tower() if hasattr(model, "image_tower") else model


def text_tower(model: Any) -> Any:
    """The part of a model that reads texts: of an encoder-decoder the encoder; by default all of it."""
    return model.text_tower() if hasattr(model, "text_tower") else model


def pretrained(model: Any) -> Any:
    """The part of a model that fine-tuning starts from: of a masked autoencoder the encoder; by default all of it."""
    return model.pretrained() if hasattr(model, "pretrained") else model


def head_names(model: Any) -> tuple[str, ...]:
    """The beginnings of the names of the head's parameters, for training the head alone."""
    return model.head_names() if hasattr(model, "head_names") else ("head.",)


def task_names(model: Any) -> tuple[str, ...]:
    """The beginnings of the names of parameters that another task, or other labels, initialise anew."""
    return getattr(model, "task_names", ("head.",))


def optional_names(model: Any) -> tuple[str, ...]:
    """The beginnings of the names of parameters that are initialised anew where the model it starts from lacks them."""
    return getattr(model, "optional_names", ())


def resized(model: Any, base: Any, name: str, tensor: Tensor) -> Tensor:
    """Return a tensor of the model that this one starts from, positions interpolated to its own sizes."""
    return model.resized(base, name, tensor) if hasattr(model, "resized") else tensor


def blocks(tower: nn.Module) -> list[nn.Module]:
    """The blocks of a tower in the order of their work; a block that is used several times is listed as often.

    They are the members of its lists called `blocks`, else of its longest list with parameters; a tower without such a
    list is one block.
    """
    named = tower.named_modules(remove_duplicate=False)
    if members := [part for path, part in named if re.search(r"(^|\.)blocks\.\d+$", path)]:
        return members
    lists: list[Any] = [part for part in tower.modules() if isinstance(part, nn.ModuleList) and any(part.parameters())]
    return list(max(lists, key=lambda part: len(list(part)))) if lists else [tower]


def stacks(model: nn.Module) -> dict[str, Stack]:
    """The stacks of blocks of a model by name, in its order; the first reads its input."""
    return {name: part for name, part in model.named_modules() if isinstance(part, Stack)}


def feedforward_blocks(model: nn.Module) -> dict[str, nn.Module]:
    """The blocks of a model that have a feed-forward layer, by name."""
    return {
        name: part
        for name, part in model.named_modules()
        if isinstance(getattr(part, "feedforward", None), FeedForward)
    }


def patch_grid(model: Any, size: Grid) -> PatchGrid:
    """The patches of an image of that size; by default what fills no patch of the config's size is left out."""
    if hasattr(model, "patch_grid"):
        return model.patch_grid(size)
    patch = getattr(model.config, "patch", max(size))
    return PatchGrid((max(1, size[0] // patch), max(1, size[1] // patch)), patch)


def prefix_length(model: Any) -> int:
    """Tokens in front of an image's patches, such as a class token: the `first` of the tower's config."""
    return getattr(getattr(image_tower(model), "config", None), "first", 0)


def layer_grids(model: Any, patches: PatchGrid) -> list[LayerGrids]:
    """The grids of each attention layer of the image tower; by default all see all patches, behind the prefix."""
    if hasattr(model, "layer_grids"):
        return list(model.layer_grids(patches))
    own = LayerGrids(queries=patches, keys=patches, prefix=prefix_length(model))
    return [own] * len(attention_layers(image_tower(model)))


def attention_layers(model: nn.Module) -> dict[str, Kernel]:
    """The attention kernels of a model by the names of their layers; none for a model without attention."""
    return find_kernels(model) if any(isinstance(part, Kernel) for part in model.modules()) else {}


def layer_vectors(model: Any, inputs: dict[str, Tensor]) -> list[Float[Tensor, "B T D"]] | None:
    """Return the vectors of tokens behind each layer, the first ones without context; None for a family without this
    method, such as a stack of blocks."""
    return model.layer_vectors(**inputs) if hasattr(model, "layer_vectors") else None


def patch_vectors(
    model: Any, pixels: Float[Tensor, "B C Y X"]
) -> tuple[Float[Tensor, "B T D"], Float[Tensor, "B T D"]] | None:
    """Return the vectors of tokens without and with their positions; None for a family without this method."""
    tower = image_tower(model)
    return tower.patch_vectors(pixels) if hasattr(tower, "patch_vectors") else None
