"""Graphs: nodes and edges with attributes, read by the list of these, which is saved as `graph_features.json`."""

import json
from pathlib import Path
from typing import Any

from regard.data.generated.graphs import graphs
from regard.data.readers.graph_files import Graph
from regard.data.readers.graph_sources import from_bytes, from_value, open_graphs
from regard.data.readers.molecules import molecule
from regard.modalities.base import Modality
from regard.registry import register_modality
from regard.tokens.graph_features import FILE, GraphFeatures

SUFFIXES = (".graphml", ".smi", ".json", ".csv")


def read(item: Any) -> list[Graph]:
    """The graphs of a file, mostly one: from its name or bytes, an object of nodes and edges, or a SMILES."""
    if isinstance(item, Graph):
        return [item]
    if isinstance(item, list) and all(isinstance(each, Graph) for each in item):
        return item
    if isinstance(item, dict):
        return [from_value(item)]
    if isinstance(item, bytes):
        return from_bytes(item)
    path = Path(str(item))
    if path.suffix.lower() in SUFFIXES or len(str(item)) < 256 and path.exists():
        return open_graphs(path)
    return [molecule(str(item), "input")]


def as_value(item: Any) -> dict[str, Any]:
    """A graph as an object of nodes and edges."""
    graph = read(item)[0]
    rows, links = (
        [{name: plain(values[i]) for name, values in columns.items() if values[i] == values[i]} for i in range(count)]
        for columns, count in ((graph.nodes, graph.count), (graph.links, len(graph.edges)))
    )  # a missing number is NaN, which is no JSON
    edges = [[*pair, own] if own else pair for pair, own in zip(graph.edges.tolist(), links, strict=True)]
    return {"nodes": rows if graph.nodes else graph.count, "edges": edges, "directed": graph.directed}


def plain(value: Any) -> str | float:
    """A value for JSON."""
    return value if isinstance(value, str) else float(value)


def write(item: Any, folder: Path) -> Path:
    """Save a graph in any form as a JSON file in a folder."""
    (folder / "graph.json").write_text(json.dumps(as_value(item)), encoding="utf-8")
    return folder / "graph.json"


GRAPH = register_modality("graph")(
    Modality(
        name="graph", suffixes=SUFFIXES, types=(Graph, dict, list, bytes), file=FILE, read=read,
        load=lambda path, config: GraphFeatures.load(path), save=lambda features, path: features.save(path),
        value=str | dict[str, Any], unit="nodes", field="graph", send=as_value, write=write,
        examples=lambda path, config: [("", graph) for graph in graphs("distance", "test")[:1]],
    )
)  # fmt: skip
