"""All data of a page for a single file: what its scripts would otherwise ask a server for."""

from collections.abc import Sequence
from typing import Any

MOST_BYTES = 1_500_000
"""The most bytes of q, k and v in a file; larger ones are left out, and the page says so."""

MOST_PASSES = 150
"""Heads that are ablated one by one for the file."""

MOST_ROWS = 128
"""Rows whose probabilities are kept; of more, the last."""
MOST_TOKENS = 64
MOST_WORK = 4e10
"""Parameters × tokens², up to which views are kept in a file: some seconds of one core."""


def everything(page: Any) -> dict[str, Any]:
    """Return the answers to all requests that the scripts of a page may send to a server."""
    look, layers = page.describe(), page.layers
    heads: dict[str, Any] = {}
    size = 0
    for number, layer in enumerate(layers):
        for head in range(layer.heads):
            for row in range(look["layers"][number]["size"][0]):
                one = page.head(number, head, row, kind="f2") if size < MOST_BYTES else None
                size += 0 if one is None else sum(len(x["data"]) for x in one.values() if isinstance(x, dict))
                heads[f"{number},{head},{row}"] = one
    rows = range(len(page.logits)) if page.prepared.answers not in ("vector", "number") else range(0)
    return {
        "look": look,
        "layers": [page.layer(number) for number in range(len(layers))],
        "heads": heads if size < MOST_BYTES else {},
        "probabilities": {row: page.probabilities(row) for row in rows[-MOST_ROWS:]},
        "alignment": page.best_alignment(),
        "effects": page.effects() if sum(layer.heads for layer in layers) <= MOST_PASSES else None,
        "views": kept_views(page, [view for view in page.views if view != "patch"]),
        "mechanisms": kept_views(page, page.prepared.mechanisms),
    }


def kept_views(page: Any, names: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Views that need no other text; none where that takes long. The error of a view that fails is kept instead."""
    size = sum(parameter.numel() for parameter in page.model.parameters())
    if page.length > MOST_TOKENS or size * page.length**2 > MOST_WORK:
        return {}
    views: dict[str, dict[str, Any]] = {}
    for name in names:
        try:
            views[name] = page.view(name)
        except ValueError as error:
            views[name] = {"problem": str(error)}
    return views
