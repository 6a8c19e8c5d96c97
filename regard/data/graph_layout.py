"""Positions of a graph's nodes in the plane, for figures and the page."""

from collections.abc import Sequence

import numpy as np

ROUNDS = 200
APART = 3.0
"""Distance at which nodes without a path between them are drawn, beyond half of the longest path."""


def layout(count: int, edges: Sequence[Sequence[int]]) -> np.ndarray:
    """Positions of nodes (count × 2), in lengths of an edge, whose distances are about as long as their shortest paths:
    stress majorisation (Gansner et al., 2004), from a start that is always the same."""
    hops = np.full((count, count), np.inf)
    np.fill_diagonal(hops, 0)
    for a, b in edges:
        if a != b:
            hops[a, b] = hops[b, a] = 1
    for middle in range(count):
        hops = np.minimum(hops, hops[:, middle, None] + hops[None, middle])
    longest = hops[np.isfinite(hops)].max()
    hops[~np.isfinite(hops)] = longest / 2 + APART
    weights = np.where(hops > 0, 1 / np.maximum(hops, 1) ** 2, 0)
    centred = hops**2 - (hops**2).mean(0) - (hops**2).mean(1)[:, None] + (hops**2).mean()
    values, vectors = np.linalg.eigh(-centred / 2)
    places = vectors[:, -2:] * np.sqrt(np.maximum(values[-2:], 1e-3)) if count > 1 else np.zeros((1, 2))
    turns = 2.4 * np.arange(count)  # moves apart those that start in one place
    places = places + 0.05 * np.stack([np.cos(turns), np.sin(turns)], axis=1)
    inverse = np.linalg.pinv(np.diag(weights.sum(1)) - weights)
    for _ in range(ROUNDS):
        apart = np.linalg.norm(places[:, None] - places[None], axis=-1)
        pull = -weights * hops / np.maximum(apart, 1e-6)
        np.fill_diagonal(pull, 0)
        np.fill_diagonal(pull, -pull.sum(1))
        places = inverse @ (pull @ places)
    return places - places.min(0)
