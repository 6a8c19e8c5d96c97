"""A page of the weights that `look` captured, for notebooks: its tokens where they are known, otherwise numbers."""

from typing import Any

from regard.inside.draw.document import whole_page
from regard.inside.draw.packing import in_bytes

SIDES = {"encoder": ("source", "source"), "decoder": ("target", "target")}


def page_of_weights(seen: Any, row: int = 0) -> str:
    """The text of a single-file page for one row of the batch in the last pass."""
    sequences: list[dict[str, Any]] = []
    layers, weights = [], []

    def side(name: str, length: int, labels: list[str] | None) -> int:
        known = [(one["name"], len(one["tokens"])) for one in sequences]
        if (name, length) not in known:
            tokens = labels or [str(i) for i in range(length)]
            sequences.append({"name": name, "title": name.capitalize(), "tokens": tokens, "ids": None})
            return len(known)
        return known.index((name, length))

    for name in seen.names:
        captured = seen.passes(name)[-1][row : row + 1]
        kind = seen.kind_of(name)
        queries, keys = (
            side(*one)
            for one in zip(
                SIDES.get(kind, ("target", "source")), captured.shape[2:], seen.tokens_of(name, row), strict=True
            )
        )
        layers.append({
            "name": name, "kind": kind, "tab": "cross" if kind == "recurrent" else kind, "heads": captured.shape[1],
            "queries": queries, "keys": keys, "kernel": "", "size": [1, *captured.shape[2:]],
        })  # fmt: skip
        weights.append(in_bytes(captured))
    look = {
        "model": "", "name": "", "input": {}, "sequences": sequences, "layers": layers, "off": [], "change": 0.0,
        "answer": {"kind": "vector", "sequence": None, "rows": 0, "row": 0}, "ahead": None, "before": None,
        "temperatures": [1.0], "own": True, "ends": [], "numbers": seen.heads, "views": [],
    }  # fmt: skip
    return whole_page({"look": look, "layers": weights, "heads": {}, "probabilities": {}, "effects": None,
                       "alignment": None, "views": {}})  # fmt: skip
