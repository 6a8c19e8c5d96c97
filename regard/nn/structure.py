"""Structure of graphs as numbers: degrees, random walks, the Laplacian's spectrum, shortest paths; and biases.

All of it follows from the edges alone, in double precision where the device has it, and moves with the nodes when these
are renumbered: no sign, no basis of an eigenspace and no choice among shortest paths is left open. Edges are pairs
(i, j): node i sees node j; −1 fills up the lists of smaller graphs. Repeated edges count once, edges from a node to
itself not at all.
"""

from collections.abc import Callable

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.utils.weak import WeakTensorKeyDictionary

from regard.nn.masks import neighbours
from regard.nn.positions import Bias

MOST_NODES = 2048
"""Nodes of the largest graph of which a matrix is made."""
SAME = 1e-6
"""Difference below which neighbouring eigenvalues count as one, in double precision."""
FILLED = 4.0
"""Eigenvalue of what fills up a batch; those of a normalised Laplacian lie between 0 and 2."""

Edges = Int[Tensor, "B E 2"]


def adjacency(edges: Edges, N: int) -> Float[Tensor, "B N N"]:
    """1 where node i sees another node j; in float64, which Apple's GPUs have not, on the CPU alone."""
    if N > MOST_NODES:
        raise ValueError(
            f"a graph of {N:,} nodes is too large for an n × n matrix (at most {MOST_NODES:,}); use attention=edges "
            "with encodings=degree, which need none"
        )
    kind = torch.float64 if edges.device.type in ("cpu", "meta") else torch.float32
    matrix = neighbours(edges).dense(N, N)[:, 0].to(kind)
    return matrix * (1 - torch.eye(N, dtype=matrix.dtype, device=matrix.device))


def degrees(edges: Edges, N: int) -> Int[Tensor, "B N"]:
    """The number of edges from each node to others."""
    real = (edges[..., 0] >= 0) & (edges[..., 0] != edges[..., 1])
    counts = torch.zeros(len(edges), N, dtype=torch.long, device=edges.device)
    return counts.scatter_add_(1, edges[..., 0].clamp(min=0), real.long())


def random_walk(matrix: Float[Tensor, "B N N"], steps: int) -> Float[Tensor, "B N C"]:
    """The probability that a random walk from a node is back after 1, 2 … steps (Dwivedi et al., 2022)."""
    move = matrix / matrix.sum(-1, keepdim=True).clamp(min=1)
    power, returns = move, []
    for _ in range(steps):
        returns.append(power.diagonal(dim1=-2, dim2=-1))
        power = power @ move
    return torch.stack(returns, dim=-1)


def laplacian(matrix: Float[Tensor, "B N N"], real: Bool[Tensor, "B N"]) -> tuple[Tensor, Tensor]:
    """Eigenvalues B N, ascending, and eigenvectors B N N (in columns) of I − D^−½ A D^−½, edges taken both ways."""
    both = torch.maximum(matrix, matrix.mT)
    degree = both.sum(-1)
    scale = torch.where(degree > 0, degree.clamp(min=1) ** -0.5, 0.0)
    each = torch.eye(both.shape[-1], dtype=both.dtype, device=both.device)
    filled = torch.where(real, 1.0, FILLED)[:, :, None]
    return torch.linalg.eigh(each * filled - scale[:, :, None] * both * scale[:, None])


def spectrum(matrix: Float[Tensor, "B N N"], real: Bool[Tensor, "B N"], count: int) -> Float[Tensor, "B N C"]:
    """For each of the `count` lowest eigenvalues of the Laplacian, itself and the length of a node's part in its
    eigenspace: the absolute value of the eigenvector, or where several share the value, what no basis of them changes.
    """
    values, vectors = laplacian(matrix, real)
    same = max(SAME, 1000 * torch.finfo(values.dtype).eps)
    new = values.diff(dim=-1, prepend=values[:, :1] - 1) > same
    group = (new.cumsum(-1) - 1).clamp(max=count)  # the last one takes what is left over
    parts = vectors.new_zeros(*vectors.shape[:2], count + 1)
    parts.scatter_add_(2, group[:, None].expand_as(vectors), vectors.square())
    first = torch.where(new & (values < FILLED - 1), values, 0.0)
    lowest = values.new_zeros(len(values), count + 1).scatter_add_(1, group, first)
    together = torch.cat([parts.sqrt()[..., :count], lowest[:, None, :count].expand(-1, vectors.shape[1], -1)], dim=-1)
    return together * real[:, :, None]


def distances(matrix: Float[Tensor, "B N N"], far: int) -> Int[Tensor, "B N N"]:
    """The number of edges of a shortest path from node i to node j; far + 1 where it has more, or there is none."""
    reached = torch.eye(matrix.shape[-1], dtype=matrix.dtype, device=matrix.device).expand_as(matrix)
    hops = torch.where(reached > 0, 0, far + 1)
    edge = reached
    for length in range(1, far + 1):
        edge = ((edge @ matrix) > 0) & (hops > far)
        hops = torch.where(edge, length, hops)
        edge = edge.to(matrix)
    return hops


def along_paths(
    matrix: Float[Tensor, "B N N"], links: Float[Tensor, "B N N C"], hops: Int[Tensor, "B N N"], far: int
) -> Float[Tensor, "B N N C"]:
    """The mean of the edges' features on a shortest path from node i to node j, averaged over all shortest paths, so
    that none has to be chosen; 0 where there is none."""
    features = links.movedim(-1, 1).to(matrix) * matrix[:, None]  # B C N N
    count, total = (hops == 0).to(matrix), torch.zeros_like(features)
    result = torch.zeros_like(features)
    for length in range(1, far + 1):
        here = hops == length
        grown = (total @ matrix[:, None] + count[:, None] @ features) * here[:, None]
        count = (count @ matrix) * here
        total = grown
        result = result + grown / (count.clamp(min=1) * length)[:, None]
    return result.movedim(1, -1)


def with_loops(
    edges: Int[Tensor, "B E 2"], links: Float[Tensor, "B E C"], lengths: Int[Tensor, "B"], N: int
) -> tuple[Int[Tensor, "B M 2"], Float[Tensor, "B M L"]]:
    """Edges, and one from each node to itself, with the features of each and one more that says which these are."""
    nodes = torch.arange(N, device=edges.device).expand(len(edges), N)
    loops = torch.where(nodes < lengths[:, None], nodes, -1)
    others = torch.where((edges[..., :1] == edges[..., 1:]), -1, edges)  # loops of the graph's own
    pairs = torch.cat([others, loops[..., None].expand(-1, -1, 2)], dim=1)
    width = links.shape[-1]
    own = torch.cat([links.new_zeros(*loops.shape, width), links.new_ones(*loops.shape, 1)], dim=-1)
    return pairs, torch.cat([torch.cat([links, links.new_zeros(*links.shape[:2], 1)], dim=-1), own], dim=1)


def random_graphs(lengths: Int[Tensor, "B"], seed: int = 3) -> Edges:
    """Random edges of undirected graphs of so many nodes, of which some are not connected."""
    N = int(lengths.max())
    choice = torch.rand(len(lengths), N, N, generator=torch.Generator().manual_seed(seed)).triu(1) > 0.5
    real = torch.arange(N) < lengths[:, None]
    pairs = [own.nonzero() for own in (choice | choice.mT) & real[:, None] & real[:, :, None]]
    return nn.utils.rnn.pad_sequence(pairs, batch_first=True, padding_value=-1)


_known: WeakTensorKeyDictionary = WeakTensorKeyDictionary()


@torch.no_grad()
def once(edges: Edges, key: tuple, make: Callable[[], Tensor]) -> Tensor:
    """The result of `make` for these edges, computed once as long as their tensor lives."""
    if edges.is_meta:
        return make()
    kept = _known.setdefault(edges, {})
    if key not in kept:
        with torch.inference_mode(False):
            kept[key] = make()
    return kept[key]


class PairBias(Bias):
    """A bias with a number of its own for each pair of nodes."""

    def __init__(self, numbers: Float[Tensor, "B H N N"]) -> None:
        self.numbers = numbers

    def dense(self, T: int, S: int) -> Float[Tensor, "B H T S"]:
        return self.numbers

    def values(self, i: Int[Tensor, "*N T 1"], j: Int[Tensor, "*N 1 S"]) -> Float[Tensor, "H *N T S"]:
        raise ValueError("a bias of pairs of nodes needs a kernel that takes it whole; use kernel=full or edges")

    def at_pairs(self, rows: Int[Tensor, "E"], i: Int[Tensor, "E"], j: Int[Tensor, "E"]) -> Float[Tensor, "H E"]:
        return self.numbers[rows, :, i, j].mT


class EdgeBias(PairBias):
    """A bias with a number for each edge, of which no matrix is made unless one is asked for; 0 elsewhere."""

    def __init__(self, pairs: Edges, numbers: Float[Tensor, "B E H"], N: int) -> None:
        self.pairs, self.numbers, self.size = pairs, numbers, N

    def dense(self, T: int, S: int) -> Float[Tensor, "B H T S"]:
        rows, i, j, numbers = self.real()
        matrix = numbers.new_zeros(len(self.pairs), T, S, numbers.shape[-1])
        return matrix.index_put((rows, i, j), numbers).movedim(-1, 1)

    def real(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Row, query, key and numbers of each edge."""
        real = self.pairs[..., 0] >= 0
        rows = torch.arange(len(self.pairs), device=real.device)[:, None].expand_as(real)[real]
        i, j = self.pairs[real].unbind(-1)
        return rows, i, j, self.numbers[real]

    def at_pairs(self, rows: Int[Tensor, "E"], i: Int[Tensor, "E"], j: Int[Tensor, "E"]) -> Float[Tensor, "H E"]:
        own_rows, own_i, own_j, numbers = self.real()
        keys, order = ((own_rows * self.size + own_i) * self.size + own_j).sort(stable=True)
        wanted = (rows * self.size + i) * self.size + j
        places = torch.searchsorted(keys, wanted).clamp(max=len(keys) - 1)
        there = keys[places] == wanted
        return torch.where(there, numbers[order[places]].mT, 0.0)
