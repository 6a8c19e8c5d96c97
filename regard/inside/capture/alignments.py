"""The alignment of a text and its translation, for a server that translates at the same time."""

import copy
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from regard.inside.capture.weights import cross_attention


def align(
    task: Any, text: str, ids: tuple[int, ...], model: Any = None
) -> tuple[Float[Tensor, "T S"], list[str], list[str]]:
    """The mean cross-attention of all layers and heads, and the tokens that were read and written.

    `model` is a twin of the task's own, if that one is at work elsewhere.
    """
    prepared = task.read(text, target=ids)
    with torch.inference_mode():
        weights = cross_attention(model or prepared.model, prepared.inputs)[0]
    return weights, prepared.tokens, prepared.output_names


def twin_of(model: nn.Module) -> nn.Module:
    """A second tree of modules over the same weights: to look into while the first one works."""
    shared = {id(tensor): tensor for tensor in (*model.parameters(), *model.buffers())}
    return copy.deepcopy(model, shared)
