"""What each token becomes before the first block: its row of the embedding or its patch, its position, their sum."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from regard.inside.page.packing import in_signs, packed
from regard.models import ViT
from regard.nn.embeddings import Embedding

SHOWN = 64
"""Numbers of a vector that a strip has."""
Parts = list[tuple[str, Tensor]]
"""What a token's vector is the sum of, and the sum, by name."""


class Strips:
    """The embeddings of a pass, by the tokens that they were for; those of patches have none."""

    def __init__(self) -> None:
        self.found: list[tuple[list[int], Parts, str]] = []

    def of(self, ids: list[int]) -> dict[str, Any] | None:
        """Those of a sequence; beside longer ones it was filled up."""
        for known, parts, order in sorted(self.found, key=lambda one: len(one[0])):
            if known == ids or ids and known[: len(ids)] == ids:
                return told([(name, x[:, : len(ids) or None]) for name, x in parts], order)
        return None


@contextmanager
def embedded(model: nn.Module) -> Iterator[Strips]:
    """Watches every embedding of a model, of tokens and of patches."""
    strips = Strips()

    def after(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Tensor) -> None:
        strips.found.append((args[0][0].tolist(), *parts_of(module, args[0][:1], kwargs.get("types"), output[:1])))

    handles = [
        module.register_forward_hook(after, with_kwargs=True)
        for module in model.modules()
        if isinstance(module, Embedding)
    ]
    for module in model.modules():
        if isinstance(module, ViT):
            handles += watch_patches(module, strips)
    try:
        yield strips
    finally:
        for handle in handles:
            handle.remove()


def watch_patches(vit: ViT, strips: Strips) -> list[Any]:
    """Hooks that tell what enters a ViT's first block, if it is the whole picture."""
    seen: list[Tensor] = []

    def enter(module: nn.Module, args: tuple[Any, ...]) -> None:
        output, x = args[0][:1], vit.patches(seen[-1]).flatten(2).mT
        token = x if vit.first is None else torch.cat([vit.first[None], x], 1)
        if output.shape == token.shape:
            whole = ViT.tokens(vit, seen[-1])  # CLIP normalises it
            last = "sum" if torch.equal(whole, output) else "sum, normalised"
            parts = [("patch", token), *([("position", whole - token)] if not torch.equal(whole, token) else [])]
            order = order_of(vit.encoder.position, len(parts) > 1)
            strips.found.append(([], [*parts, (last, output)], order))

    return [
        vit.patches.register_forward_pre_hook(lambda module, args: seen.append(args[0][:1])),
        vit.encoder.register_forward_pre_hook(enter),
    ]


def parts_of(embedding: Any, ids: Tensor, types: Tensor | None, output: Tensor) -> tuple[Parts, str]:
    """The parts of each token's vector, and where order enters."""
    token = embedding.vectors(ids) * embedding.scale
    placed = embedding.position.embed(token) - token
    parts = [("token", token), ("position", placed)] if placed.any() else [("token", token)]
    if embedding.types is not None:
        kinds = embedding.types[torch.zeros_like(ids) if types is None else types[:1]]
        parts.append(("segment", kinds))
    parts.append(("sum, normalised" if embedding.norm is not None else "sum", output))
    return parts, order_of(embedding.position, bool(placed.any()))


def told(parts: Parts, order: str) -> dict[str, Any]:
    """Lengths and first numbers of the parts of each token's vector."""
    return {
        "width": parts[0][1].shape[-1],
        "order": order,
        "parts": [
            {"name": name, "norms": packed(x[0].float().norm(dim=-1)), **in_signs(x[0, :, :SHOWN].float())}
            for name, x in parts
        ],
    }


def order_of(position: Any, added: bool) -> str:
    """Where position enters, in words."""
    if added:
        return "Position is a vector that is added here."
    if position.rotates:
        return "Position is not added here: it turns q and k in every layer."
    if position.bias(causal=False) is not None:
        return "Position is not added here: it shifts the scores in every layer."
    return "This model adds no position here."
