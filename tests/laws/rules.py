"""Each mask rule beside the sentence that it stands for, so that tests never ask a rule about itself."""

import torch

from regard.nn.masks import (
    Mask,
    causal,
    edges,
    everything,
    global_tokens,
    padding,
    prefix,
    segments,
    strided,
    valid_keys,
    window,
)  # fmt: skip

B, N = 3, 7
LENGTHS = [7, 3, 5]
SEGMENTS = [[0, 0, 0, 1, 1, 1, 1], [0, 1, 2, 3, 4, 5, 6], [0, 0, 1, 1, 0, 0, 2]]
MARKS = [[1, 0, 1, 1, 0, 0, 1], [0, 1, 0, 0, 0, 0, 0], [1, 1, 1, 1, 1, 1, 1]]
GRAPH = [[(i * j + i) % 3 != 1 or i == j for j in range(N)] for i in range(N)]
GRAPHS = [[[(i + j * b) % 2 == 0 or i == j for j in range(N)] for i in range(N)] for b in range(B)]

RULES = {
    "everything": (everything(), lambda b, i, j: True),
    "causal": (causal(), lambda b, i, j: j <= i),
    "padding": (padding(torch.tensor(LENGTHS)), lambda b, i, j: j < LENGTHS[b]),
    "marked": (valid_keys(torch.tensor(MARKS).bool()), lambda b, i, j: bool(MARKS[b][j])),
    "window": (window(2), lambda b, i, j: abs(i - j) <= 2),
    "strided": (strided(3), lambda b, i, j: (i - j) % 3 == 0),
    "global": (global_tokens(2), lambda b, i, j: i < 2 or j < 2),
    "prefix": (prefix(3), lambda b, i, j: j < 3),
    "segments": (segments(torch.tensor(SEGMENTS)), lambda b, i, j: SEGMENTS[b][i] == SEGMENTS[b][j]),
    "edges": (edges(torch.tensor(GRAPH)), lambda b, i, j: GRAPH[i][j]),
    "edges of each row": (edges(torch.tensor(GRAPHS)), lambda b, i, j: GRAPHS[b][i][j]),
}

# What models use. The last two leave some queries with nobody to see.
MASKS = {
    "none": None,
    **{name: rule for name, (rule, _) in RULES.items()},
    "causal & padding": causal() & RULES["padding"][0],
    "prefix | causal": prefix(3) | causal(),
    "causal & window & padding": causal() & window(2) & RULES["padding"][0],
    "window | global": window(1) | global_tokens(1),
    "no neighbours": ~window(1) & causal(),
    "an empty row": padding(torch.tensor([7, 0, 5])),
}
PLAIN = ("none", "everything", "causal", "padding", "marked", "prefix", "causal & padding", "an empty row")
"""Those that every kernel takes: nothing, the past, some of the keys."""
LITERAL = {
    "none": RULES["everything"][1],
    **{name: says for name, (_, says) in RULES.items()},
    "causal & padding": lambda b, i, j: j <= i and j < LENGTHS[b],
    "prefix | causal": lambda b, i, j: j < 3 or j <= i,
    "causal & window & padding": lambda b, i, j: j <= i and i - j <= 2 and j < LENGTHS[b],
    "window | global": lambda b, i, j: abs(i - j) <= 1 or i < 1 or j < 1,
    "no neighbours": lambda b, i, j: j <= i and abs(i - j) > 1,
    "an empty row": lambda b, i, j: j < [7, 0, 5][b],
}


def table(says, *, T: int = N, S: int = N, start: int = 0) -> torch.Tensor:
    """The sentence, asked about every pair: B T S."""
    return torch.tensor([[[says(b, start + i, j) for j in range(S)] for i in range(T)] for b in range(B)])


def dense(mask: Mask, T: int = N, S: int = N) -> torch.Tensor:
    return mask.dense(T, S).expand(B, 1, T, S)[:, 0]
