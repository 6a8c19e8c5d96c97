"""A Transformer over the nodes of graphs: tokens are nodes, and their numbering means nothing.

Three ways by which structure enters (Dwivedi & Bresson, 2021; Ying et al., 2021): not at all, nodes being a set; edges
as the mask of attention; encodings of structure, added to the nodes (degree, walk, laplacian) or to the scores of pairs
(distance, path).
nodes B N F, lengths B, edges B E 2, links B E C → vectors B N D → blocks → norm → labels or numbers
"""

from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.config import check_positive
from regard.nn import structure
from regard.nn.block import Activation, BlockConfig
from regard.nn.dropout import Dropout
from regard.nn.heads import LabelHead, mean_pool
from regard.nn.masks import Mask, neighbours, padding
from regard.nn.stack import Stack, build_position, glorot
from regard.registry import register_model

ENCODINGS = ("degree", "walk", "laplacian", "distance", "path")
OF_PAIRS = ("distance", "path")
"""Encodings that are added to the scores of pairs of nodes."""
UNIT = 16
"""Nodes whose sum is as large as their mean, so that a head on sums learns as steadily as one on means."""
DEGREES = 64
"""Degrees with a vector of their own; larger ones share the last."""


@dataclass(frozen=True, kw_only=True, slots=True)
class GraphTransformerConfig(BlockConfig):
    """Sizes of a Transformer over nodes, and the ways in which it gets to know the edges."""

    node_features: int = 1
    """Numbers of each node."""
    edge_features: int = 0
    """Numbers of each edge."""
    labels: tuple[str, ...] = ()
    """Names of the classes."""
    numbers: int = 0
    """Numbers that are predicted instead of labels; without either, a graph becomes a vector."""
    level: Literal["graph", "nodes"] = "graph"
    """Predictions for whole graphs, or for each node."""
    attention: Literal["nodes", "edges"] = "nodes"
    """Each node attends to all nodes of its graph, or along edges only, at a cost that grows with these."""
    encodings: tuple[str, ...] = ("degree", "walk")
    """Encodings of structure: degree, walk, laplacian of nodes, distance, path of pairs; () for none."""
    steps: int = 16
    """Longest random walk that returns."""
    frequencies: int = 8
    """Lowest eigenvalues of the Laplacian."""
    far: int = 8
    """Longest distance with a bias of its own."""
    pooling: Literal["mean", "sum"] = "mean"
    """The vector of a graph: the mean of its nodes', or their sum, in units of 16 nodes."""
    depth: int = 4
    """Blocks."""
    dim: int = 64
    heads: int = 4
    ffn_dim: int = 128
    activation: Activation = "gelu"
    dropout: float = 0.0
    position: str = "none"
    """Nodes have no order, so there are no positions."""

    def __post_init__(self) -> None:
        BlockConfig.__post_init__(self)
        check_positive(self, "depth", "node_features", "steps", "frequencies", "far")
        if unknown := [name for name in self.encodings if name not in ENCODINGS]:
            raise ValueError(f"encodings has {unknown[0]!r}, which is none of {', '.join(ENCODINGS)}")
        if self.position != "none":
            raise ValueError(f"position={self.position} would number the nodes, which have no order; use none")
        if self.labels and self.numbers:
            raise ValueError("labels and numbers are two kinds of predictions; leave one of them out")
        if self.attention == "edges" and (idle := [name for name in self.encodings if name in OF_PAIRS]):
            raise ValueError(f"the encoding {idle[0]} is of pairs without an edge, too; use attention=nodes for it")

    @property
    def reads_links(self) -> bool:
        """Whether features of edges are read."""
        return self.attention == "edges" or "path" in self.encodings

    @property
    def outputs(self) -> int:
        """Logits or numbers that are predicted."""
        return len(self.labels) or self.numbers


@register_model("graph-transformer")
class GraphTransformer(nn.Module):
    """An encoder of graphs and, for labels or numbers, its head."""

    config_class = GraphTransformerConfig
    small: ClassVar[dict[str, Any]] = dict(
        dim=24, depth=2, heads=3, ffn_dim=29, node_features=5, edge_features=3, labels=("a", "b", "c"),
        encodings=("degree", "walk", "laplacian", "distance", "path"), steps=3, frequencies=3, far=2,
    )  # fmt: skip
    presets: ClassVar[dict[str, dict[str, Any]]] = {"tiny": {}, "small": dict(dim=128, depth=6, heads=8, ffn_dim=256)}

    def __init__(self, config: GraphTransformerConfig) -> None:
        super().__init__()
        if "path" in config.encodings and not config.edge_features:
            raise ValueError("the encoding path is made of features of edges, and there are none; leave it out")
        self.config, self.along_edges = config, config.attention == "edges"
        own, has = config if not self.along_edges else along_edges(config), set(config.encodings)
        self.nodes = nn.Linear(config.node_features, config.dim)
        self.encoder = Stack(own, build_position(own), depth=config.depth, causal=False, final_norm=True)
        self.dropout = Dropout(config.dropout)
        self.head = LabelHead(config.dim, config.outputs, dropout=config.dropout) if config.outputs else None
        self.walk = nn.Linear(config.steps, config.dim, bias=False) if "walk" in has else None
        self.spectrum = nn.Linear(2 * config.frequencies, config.dim, bias=False) if "laplacian" in has else None
        self.paths = nn.Linear(config.edge_features, config.heads, bias=False) if "path" in has else None
        # A node's view of itself is the last feature of edges.
        self.links = nn.Linear(config.edge_features + 1, config.heads, bias=False) if self.along_edges else None
        glorot(self)
        self.degree = nn.Parameter(torch.randn(DEGREES, config.dim) * 0.02) if "degree" in has else None
        self.distance = nn.Parameter(torch.randn(config.far + 2, config.heads) * 0.02) if "distance" in has else None

    @property
    def task(self) -> str:
        return "predict-graphs" if self.config.outputs else "embed-graphs"

    def example(self, rows: int) -> dict[str, Tensor]:
        """A few random graphs, of which some are not connected."""
        lengths = torch.tensor((4, 7, 2, 6, 5, 1, 3)).repeat(rows // 7 + 1)[:rows]
        edges = structure.random_graphs(lengths)
        nodes = torch.randn(rows, int(lengths.max()), self.config.node_features)
        links = torch.randn(*edges.shape[:2], self.config.edge_features)
        return {"nodes": nodes, "lengths": lengths, "edges": edges, "links": links}

    def tokens(self, nodes: Float[Tensor, "B N F"], lengths: Int[Tensor, "B"], edges: Tensor) -> Float[Tensor, "B N D"]:
        """Return the vectors of nodes with the encodings of their positions in the graph."""
        x, N, config = self.nodes(nodes), nodes.shape[1], self.config
        if self.degree is not None:
            x = x + self.degree[structure.degrees(edges, N).clamp(max=DEGREES - 1)]
        if self.walk is not None:
            returns = structure.once(
                edges, ("walk", N), lambda: structure.random_walk(structure.adjacency(edges, N), config.steps)
            )
            x = x + self.walk(returns.to(x))
        if self.spectrum is not None:
            real = torch.arange(N, device=lengths.device) < lengths[:, None]
            parts = structure.once(
                edges, ("laplacian", N),
                lambda: structure.spectrum(structure.adjacency(edges, N), real, config.frequencies),
            )  # fmt: skip
            x = x + self.spectrum(parts.to(x))
        return self.dropout(x)

    def seen(
        self, x: Float[Tensor, "B N D"], lengths: Int[Tensor, "B"], edges: Tensor, links: Tensor
    ) -> tuple[Mask, structure.PairBias | None]:
        """Return which nodes see which, and the bias of each pair."""
        N, config = x.shape[1], self.config
        if self.links is not None:
            pairs, features = structure.with_loops(edges, links, lengths, N)
            return neighbours(pairs), structure.EdgeBias(pairs, self.links(features), N)
        if self.distance is None and self.paths is None:
            return padding(lengths), None
        matrix = structure.adjacency(edges, N)
        hops = structure.once(edges, ("hops", N), lambda: structure.distances(matrix, config.far))
        bias = x.new_zeros(()) if self.distance is None else self.distance[hops]
        if self.paths is not None:
            every = structure.EdgeBias(edges, links.to(matrix), N).dense(N, N).movedim(1, -1)
            mean = structure.along_paths(matrix, every, hops, config.far)
            bias = bias + self.paths(mean.to(x))
        return padding(lengths), structure.PairBias(bias.movedim(-1, 1).contiguous())

    def features(
        self, nodes: Float[Tensor, "B N F"], lengths: Int[Tensor, "B"], edges: Int[Tensor, "B E 2"],
        links: Float[Tensor, "B E C"],
    ) -> Float[Tensor, "B N D"]:  # fmt: skip
        """Return a vector for each node; node i sees node j for each pair (i, j) of the edges."""
        x = self.tokens(nodes, lengths, edges)
        mask, bias = self.seen(x, lengths, edges, links)
        return self.encoder(x, mask=mask, bias=bias)

    def embed(self, nodes: Tensor, lengths: Int[Tensor, "B"], edges: Tensor, links: Tensor) -> Float[Tensor, "B D"]:
        """Return one vector for each graph."""
        mean = mean_pool(self.features(nodes, lengths, edges, links), lengths)
        return mean if self.config.pooling == "mean" else mean * lengths[:, None] / UNIT

    def forward(
        self, nodes: Tensor, lengths: Int[Tensor, "B"], edges: Tensor, links: Tensor
    ) -> Float[Tensor, "B *N L"]:
        """Return logits or numbers of each graph, or each node; without a head the vector of each graph."""
        if self.head is not None and self.config.level == "nodes":
            return self.head(self.features(nodes, lengths, edges, links))
        x = self.embed(nodes, lengths, edges, links)
        return x if self.head is None else self.head(x)


def along_edges(config: GraphTransformerConfig) -> GraphTransformerConfig:
    """The config of blocks that attend along edges: with the kernel for it, unless another was chosen."""
    return replace(config, kernel="edges") if config.kernel == "full" else config
