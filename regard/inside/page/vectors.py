"""The parts of each token's vector before the first block: its embedding or patch, its position, and their sum."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from regard.inside.draw.packing import in_signs, packed
from regard.models import parts
from regard.nn.embeddings import Embedding

SHOWN = 64
"""Numbers of a vector that a strip shows."""
Parts = list[tuple[str, Tensor]]
"""The summands of the tokens' vectors, and the sum, by name."""


class Strips:
    """The recorded embeddings of a pass, by their token ids; those of patches have none."""

    def __init__(self) -> None:
        self.known: list[tuple[list[int], Parts, str]] = []

    def of(self, ids: list[int]) -> dict[str, Any] | None:
        """Return the embedding of a sequence as data, without padding."""
        for known, vectors, order in sorted(self.known, key=lambda one: len(one[0])):
            if known == ids or ids and known[: len(ids)] == ids:
                return strip_data([(name, x[:, : len(ids) or None]) for name, x in vectors], order)
        return None


@contextmanager
def embedded(model: nn.Module, pixels: Tensor | None = None) -> Iterator[Strips]:
    """Record every embedding of tokens, and of the patches of an image, inside this context."""
    strips = Strips()

    def after(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Tensor) -> None:
        strips.known.append((args[0][0].tolist(), *parts_of(module, args[0][:1], kwargs.get("types"), output[:1])))

    stack = next(iter(parts.stacks(parts.image_tower(model)).values()), None)
    with ExitStack() as hooks:
        for module in model.modules():
            if isinstance(module, Embedding):
                hooks.enter_context(module.register_forward_hook(after, with_kwargs=True))
        if stack is not None and pixels is not None:
            hooks.enter_context(stack.register_forward_pre_hook(partial(patches_enter, model, pixels[:1], strips)))
        yield strips


def patches_enter(model: Any, pixels: Tensor, strips: Strips, stack: Any, args: tuple[Any, ...]) -> None:
    """Record the input of an image tower's first block, if it is the whole image."""
    output, vectors = args[0][:1], parts.patch_vectors(model, pixels)
    if vectors is not None and output.shape == vectors[0].shape:
        token, whole = vectors
        last = "sum" if torch.equal(whole, output) else "sum, normalised"
        placed = [] if torch.equal(whole, token) else [("position", whole - token)]
        order = order_of(stack.position, bool(placed))
        strips.known.append(([], [("patch", token), *placed, (last, output)], order))


def parts_of(embedding: Any, ids: Tensor, types: Tensor | None, output: Tensor) -> tuple[Parts, str]:
    """The summands of each token's vector, and a sentence that says where position enters."""
    token = embedding.vectors(ids) * embedding.scale
    placed = embedding.position.embed(token) - token
    summands = [("token", token), ("position", placed)] if placed.any() else [("token", token)]
    if embedding.types is not None:
        kinds = embedding.types[torch.zeros_like(ids) if types is None else types[:1]]
        summands.append(("segment", kinds))
    summands.append(("sum, normalised" if embedding.norm is not None else "sum", output))
    return summands, order_of(embedding.position, bool(placed.any()))


def strip_data(vectors: Parts, order: str) -> dict[str, Any]:
    """Lengths and first numbers of the summands of each token's vector."""
    return {
        "width": vectors[0][1].shape[-1],
        "order": order,
        "parts": [
            {"name": name, "norms": packed(x[0].float().norm(dim=-1)), **in_signs(x[0, :, :SHOWN].float())}
            for name, x in vectors
        ],
    }


def order_of(position: Any, added: bool) -> str:
    """A sentence that says where position enters."""
    if added:
        return "Position is a vector that is added here."
    if position.rotates:
        return "Position is not added here: it rotates q and k in every layer."
    if position.bias(causal=False) is not None:
        return "Position is not added here: it is a bias on the scores in every layer."
    return "This model adds no position here."
