"""Encodings of structure beside PyTorch Geometric's, and what renumbering must not change."""

import networkx
import numpy as np
import pytest
import torch

from regard.nn import structure

torch_geometric = pytest.importorskip("torch_geometric")
GRAPHS = {
    "petersen": networkx.petersen_graph(),  # eigenvalues that many eigenvectors share
    "two parts": networkx.disjoint_union(networkx.cycle_graph(5), networkx.path_graph(4)),
    "random": networkx.gnm_random_graph(17, 31, seed=2),
    "one node": networkx.empty_graph(1),
}


def edges_of(graph: networkx.Graph) -> torch.Tensor:
    pairs = [pair for a, b in graph.edges for pair in ((a, b), (b, a))]
    return torch.tensor(pairs or [(-1, -1)]).reshape(1, -1, 2)


def everything(edges: torch.Tensor, N: int) -> dict[str, torch.Tensor]:
    matrix, real = structure.adjacency(edges, N), torch.ones(1, N, dtype=torch.bool)
    links = (edges.sum(-1, keepdim=True) % 3 == 0).double()
    hops = structure.distances(matrix, 5)
    every = structure.EdgeBias(edges, links, N).dense(N, N).movedim(1, -1)
    return {
        "walk": structure.random_walk(matrix, 6), "spectrum": structure.spectrum(matrix, real, 4), "hops": hops,
        "paths": structure.along_paths(matrix, every, hops, 5), "degree": structure.degrees(edges, N),
    }  # fmt: skip


@pytest.mark.parametrize("name", list(GRAPHS))
def test_random_walks_are_those_of_torch_geometric(name):
    graph = GRAPHS[name]
    edges, N = edges_of(graph), len(graph)
    pairs = edges[0][edges[0, :, 0] >= 0].T
    data = torch_geometric.data.Data(edge_index=pairs, num_nodes=N)
    theirs = torch_geometric.transforms.AddRandomWalkPE(6)(data).random_walk_pe
    assert torch.allclose(structure.random_walk(structure.adjacency(edges, N), 6)[0], theirs.double(), atol=1e-6)


def test_the_laplacian_is_that_of_torch_geometric():
    graph, count = GRAPHS["random"], 5
    edges, N = edges_of(graph), len(graph)
    data = torch_geometric.data.Data(edge_index=edges[0].T, num_nodes=N)
    theirs = torch_geometric.transforms.AddLaplacianEigenvectorPE(count, is_undirected=True)(data)
    values, vectors = structure.laplacian(structure.adjacency(edges, N), torch.ones(1, N, dtype=torch.bool))
    assert values[0].diff().min() > 1e-4  # each eigenvector is one up to its sign
    ours = vectors[0, :, 1 : count + 1].abs()
    assert torch.allclose(ours, theirs.laplacian_eigenvector_pe.double().abs(), atol=1e-5)
    parts = structure.spectrum(structure.adjacency(edges, N), torch.ones(1, N, dtype=torch.bool), count + 1)[0]
    assert torch.allclose(parts[:, 1 : count + 1], ours, atol=1e-9)
    assert torch.allclose(parts[0, count + 1 :], values[0, : count + 1], atol=1e-9)


@pytest.mark.parametrize("name", list(GRAPHS))
def test_renumbered_nodes_take_their_encodings_with_them(name):
    graph = GRAPHS[name]
    edges, N = edges_of(graph), len(graph)
    order = torch.from_numpy(np.random.default_rng(1).permutation(N))
    place = torch.argsort(order)
    # Links are features of the edge, whatever its ends are called.
    matrix, links = structure.adjacency(edges, N), (edges.sum(-1, keepdim=True) % 3 == 0).double()
    moved = torch.where(edges < 0, -1, place[edges.clamp(min=0)])
    first, second = everything(edges, N), everything(moved, N)
    hops = structure.distances(structure.adjacency(moved, N), 5)
    every = structure.EdgeBias(moved, links, N).dense(N, N).movedim(1, -1)
    second["paths"] = structure.along_paths(structure.adjacency(moved, N), every, hops, 5)
    assert matrix.sum() == 2 * graph.number_of_edges()
    for what in ("walk", "spectrum", "degree"):
        assert torch.allclose(first[what][:, order].double(), second[what].double(), atol=1e-7), what
    for what in ("hops", "paths"):
        assert torch.allclose(first[what][:, order][:, :, order].double(), second[what].double(), atol=1e-9), what


def test_distances_and_paths_are_those_of_networkx():
    graph = GRAPHS["random"]
    edges, N = edges_of(graph), len(graph)
    weights = {tuple(pair): float(sum(pair) % 3 == 0) for pair in edges[0].tolist()}
    parts = everything(edges, N)
    for a in range(N):
        for b in range(N):
            if a == b or not networkx.has_path(graph, a, b):
                continue
            paths = list(networkx.all_shortest_paths(graph, a, b))
            assert parts["hops"][0, a, b] == min(6, len(paths[0]) - 1)
            mean = np.mean([np.mean([weights[pair] for pair in zip(path, path[1:], strict=False)]) for path in paths])
            assert len(paths[0]) > 6 or abs(parts["paths"][0, a, b, 0] - mean) < 1e-9


def test_a_graph_that_is_too_large_for_a_matrix_says_so():
    edges = torch.zeros(1, 1, 2, dtype=torch.long)
    with pytest.raises(ValueError, match="too large for an n × n matrix .* use attention=edges"):
        structure.adjacency(edges, structure.MOST_NODES + 1)
    assert structure.degrees(edges, 100_000).sum() == 0


def test_what_follows_from_the_same_tensor_of_edges_is_computed_once():
    edges, calls = edges_of(GRAPHS["random"]), []
    for _ in range(2):
        structure.once(edges, ("a",), lambda: calls.append(1) or torch.zeros(1))
    structure.once(edges.clone(), ("a",), lambda: calls.append(1) or torch.zeros(1))
    assert len(calls) == 2
