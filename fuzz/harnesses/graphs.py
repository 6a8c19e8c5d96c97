"""Graphs: GraphML, JSON, tables of edges, SMILES, as a file or a request brings them; and their arrays and settings."""

from fuzz.scratch import put
from regard.data.readers.graph_sources import from_bytes
from regard.tokens.graph_features import FILE, GraphFeatures

READS = tuple(
    f"regard.{name}"
    for name in (
        "data.readers.graph_files", "data.readers.graph_sources", "data.readers.graph_tables",
        "data.readers.molecules", "tokens.graph_features",
    )
)  # fmt: skip
WORDS = [b"<graph", b"<node", b"<edge", b"<data", b"<key", b"<!DOCTYPE", b"<!ENTITY", b"source", b"target",
         b"id=", b'"nodes"', b'"edges"', b'"smiles"', b'"directed"', b"[[0, 1]]", b"1e999", b"[C@@H]", b"%99",
         b"c1ccccc1"]  # fmt: skip
GRAPHML = b"""<graphml xmlns="http://graphml.graphdrawing.org/xmlns"><key id="k" for="node" attr.name="size"/>
<graph id="g" edgedefault="undirected"><node id="a"><data key="k">1.5</data></node><node id="b"/>
<edge source="a" target="b"/></graph></graphml>"""
FEATURES = b"""{"nodes": [{"name": "size", "values": [], "mean": 1.0, "std": 2.0}], "links": [], "target": "label",
"mean": 0.0, "std": 1.0}"""


def seeds() -> list[bytes]:
    """Return a graph in each format, and the settings beside a model behind a byte 1."""
    return [
        GRAPHML,
        b'{"nodes": [{"a": 1}, {"a": "x"}], "edges": [[0, 1, {"w": 2}]], "directed": true}',
        b'{"nodes": 3, "edges": [[0, 1], [1, 2]]}',
        b"source,target,weight\na,b,1\nb,c,2\nc,c,x\n",
        b"CC(=O)Oc1ccccc1C(=O)O aspirin\nC1CC1\n",
        b"\x01" + FEATURES,
    ]


def run(data: bytes) -> None:
    """Read the graphs and make them arrays; or read settings."""
    if data[:1] == b"\x01":
        GraphFeatures.load(put(FILE, data[1:]).parent)
        return
    graphs = from_bytes(data)
    features = GraphFeatures.of(graphs)
    features.batch([features.encode(graph) for graph in graphs[:8]])
