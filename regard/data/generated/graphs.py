"""Generated graphs whose facts need structure, and molecules with properties that RDKit computes.

Numbers of nodes, and where possible of edges and degrees, are spread alike over all answers, so that who does not see
which nodes are joined is left with guessing.
"""

from collections.abc import Callable
from functools import lru_cache
from pathlib import Path

import numpy as np

from regard.data.readers.graph_files import Graph
from regard.data.readers.molecules import NEEDS, graph_of, lines_of

PARTS = {"train": (0, 4000), "valid": (1, 500), "test": (2, 1000)}
"""The seed and the number of graphs of each part."""
FARTHEST = 5
"""Longest of the generated distances."""
TRIANGLES = 4
"""Largest of the generated numbers of triangles."""


def matrix_of(count: int, edges: np.ndarray) -> np.ndarray:
    """The adjacency matrix of a graph, of whole numbers."""
    matrix = np.zeros((count, count), dtype=np.int64)
    matrix[edges[:, 0], edges[:, 1]] = matrix[edges[:, 1], edges[:, 0]] = 1
    return matrix


def hops_from(matrix: np.ndarray, node: int) -> np.ndarray:
    """The distance of each node from one; −1 where there is no path."""
    hops = np.full(len(matrix), -1)
    edge, length = np.array([node]), 0
    while len(edge):
        hops[edge] = length
        length += 1
        edge = np.flatnonzero(matrix[edge].any(0) & (hops < 0))
    return hops


def random_tree(nodes: np.ndarray, rng: np.random.Generator) -> list[tuple[int, int]]:
    """Edges of a random tree over these nodes: each joins one that came before."""
    return [(int(nodes[rng.integers(i)]), int(nodes[i])) for i in range(1, len(nodes))]


def random_edges(nodes: np.ndarray, more: int, rng: np.random.Generator) -> np.ndarray:
    """Edges of a random connected graph: a tree, and so many more."""
    edges = set(random_tree(nodes, rng))
    for _ in range(20 * more):
        if len(edges) == len(nodes) - 1 + more:
            break
        a, b = sorted(rng.choice(len(nodes), 2, replace=False))
        edges.add((int(nodes[a]), int(nodes[b]))) if (int(nodes[b]), int(nodes[a])) not in edges else None
    return np.array(sorted(edges), dtype=np.int64).reshape(-1, 2)


def shuffled(count: int, edges: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Edges with the nodes renumbered at random, in random order."""
    return rng.permutation(rng.permutation(count)[edges])


def connected(rng: np.random.Generator, count: int) -> list[Graph]:
    """Graphs of one part or of two. Each comes with a twin of the other kind, whose nodes have the same degrees: two
    edges have exchanged their ends."""
    graphs: list[Graph] = []
    while len(graphs) < count:
        size = int(rng.integers(12, 21))
        half = size // 2 + int(rng.integers(-1, 2))
        parts = [random_edges(own, len(own) // 2, rng) for own in (np.arange(half), np.arange(half, size))]
        apart = np.concatenate(parts)
        (a, b), (c, d) = (part[rng.integers(len(part))] for part in parts)
        kept = [edge for edge in apart.tolist() if edge not in ([a, b], [c, d])]
        joined = np.array([*kept, (a, c), (b, d)], dtype=np.int64)
        if (hops_from(matrix_of(size, joined), 0) < 0).any():  # one of the edges was the only way to its end
            continue
        for edges, label in ((apart, "no"), (joined, "yes")):
            graphs.append(Graph(size, shuffled(size, edges, rng), facts={"connected": label}))
    return graphs[:count]


def distance(rng: np.random.Generator, count: int) -> list[Graph]:
    """Graphs with two marked nodes, and the length of the shortest path between them."""
    graphs: list[Graph] = []
    while len(graphs) < count:
        size, wanted = int(rng.integers(14, 23)), 1 + len(graphs) % FARTHEST
        edges = shuffled(size, random_edges(np.arange(size), size // 4, rng), rng)
        matrix, start = matrix_of(size, edges), int(rng.integers(size))
        ends = np.flatnonzero(hops_from(matrix, start) == wanted)
        if not len(ends):
            continue
        mark = np.full(size, "no", dtype=object)
        mark[[start, int(rng.choice(ends))]] = "yes"
        graphs.append(Graph(size, edges, {"marked": mark}, facts={"distance": str(wanted)}))
    return graphs


def triangles(rng: np.random.Generator, count: int) -> list[Graph]:
    """Graphs with 0 to 4 triangles, those of each number with equally many nodes and edges."""
    graphs: list[Graph] = []
    while len(graphs) < count:
        size = int(rng.integers(9, 16))
        pairs, wanted = np.argwhere(np.triu(np.ones((size, size)), 1)), size + size // 3
        waiting = set(range(TRIANGLES + 1))
        while waiting:  # one of each number, all of one size
            chosen = np.argpartition(rng.random((64, len(pairs))), wanted, axis=1)[:, :wanted]
            drawn = pairs[chosen]  # 64 sets of edges
            matrix = np.zeros((64, size, size))
            matrix[np.arange(64)[:, None], drawn[..., 0], drawn[..., 1]] = 1
            matrix = matrix + matrix.swapaxes(1, 2)
            numbers = np.einsum("bij,bji->b", matrix @ matrix, matrix).astype(int) // 6
            for edges, number in zip(drawn, numbers.tolist(), strict=True):
                if number in waiting:
                    waiting.remove(number)
                    graphs.append(Graph(size, edges, facts={"triangles": str(number)}))
    return graphs[:count]


COMMUNITIES, MEMBERS, SHARED = 4, 200, 0.5
"""Communities of the one large graph, nodes of each, and the share of nodes whose own colour is a wrong one."""


def communities(rng: np.random.Generator, count: int) -> list[Graph]:
    """One graph of 800 nodes in four communities: most edges are inside of one. Each node has a colour, which is that
    of its community for half of them; a node in twenty is for training."""
    size = COMMUNITIES * MEMBERS
    own = rng.permutation(np.repeat(np.arange(COMMUNITIES), MEMBERS))
    same = own[:, None] == own
    chosen = np.triu(rng.random((size, size)) < np.where(same, 6 / MEMBERS, 1.2 / MEMBERS), 1)
    colour = np.where(rng.random(size) < SHARED, own, rng.integers(COMMUNITIES, size=size))
    part = rng.permutation(np.repeat(["train", "valid", "test"], [size // 20, size // 20, size - size // 10]))
    nodes = {"community": own.astype(str), "colour": colour.astype(str), "split": part}
    return [Graph(size, np.argwhere(chosen), {name: values.astype(object) for name, values in nodes.items()})]


GENERATED: dict[str, Callable[[np.random.Generator, int], list[Graph]]] = {
    "connected": connected, "distance": distance, "triangles": triangles, "communities": communities,
}  # fmt: skip


@lru_cache(maxsize=8)
def graphs(kind: str, part: str) -> list[Graph]:
    """The embedded graphs of a kind, of the part "train", "valid" or "test"."""
    if kind == "molecules":
        return [graph for number, graph in enumerate(molecules()) if part_of(number) == part]
    seed, count = PARTS[part] if kind != "communities" else PARTS["train"]
    return GENERATED[kind](np.random.default_rng((seed, len(kind))), count)


def part_of(number: int) -> str:
    """The part of an embedded molecule: each tenth is for validation, the next one for the test."""
    return {8: "valid", 9: "test"}.get(number % 10, "train")


@lru_cache(maxsize=1)
def molecules() -> list[Graph]:
    """The molecules of the National Cancer Institute that come with RDKit, with two facts that it computes: logP
    (Wildman and Crippen's), and whether two rings share a bond."""
    try:
        from rdkit import Chem, RDConfig, RDLogger
        from rdkit.Chem import Crippen
    except ImportError:
        raise ValueError(NEEDS) from None
    RDLogger.DisableLog("rdApp.*")  # type: ignore[attr-defined]
    path = Path(RDConfig.RDDataDir) / "NCI" / "first_5K.smi"
    found = []
    for _, smiles, _ in lines_of(path.read_text(encoding="utf-8")):
        mol = Chem.MolFromSmiles(smiles)
        if mol is None or not mol.GetNumAtoms():
            continue
        rings = mol.GetRingInfo()
        fused = any(rings.NumBondRings(bond.GetIdx()) > 1 for bond in mol.GetBonds())
        facts = {"logp": Crippen.MolLogP(mol), "fused": "yes" if fused else "no"}  # type: ignore[attr-defined]
        found.append(graph_of(mol, facts=facts, title=smiles))
    return found
