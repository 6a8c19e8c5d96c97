"""Graphs, and their files in GraphML and JSON. Errors name the file and the node or edge."""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from xml.etree import ElementTree
from xml.parsers import expat

import numpy as np

from regard.config import one_line
from regard.data.readers.cells import MISSING

MOST_NODES, MOST_EDGES = 2_000_000, 20_000_000
"""Nodes and edges of the largest graph that is read."""
Columns = dict[str, np.ndarray]
"""Attributes by name: an array of numbers, or of texts, with a value for each node or edge."""


@dataclass(frozen=True, slots=True, eq=False)
class Graph:
    """A graph as it was read: nodes 0 … count − 1, edges as pairs of them, and attributes of nodes, edges and itself.

    An edge of a graph that is not directed goes both ways, listed once or twice.
    """

    count: int
    edges: np.ndarray
    """Pairs (from, to), E × 2."""
    nodes: Columns = field(default_factory=dict)
    links: Columns = field(default_factory=dict)
    facts: dict[str, Any] = field(default_factory=dict)
    """Attributes of the graph itself: numbers and texts."""
    names: Sequence[str] = ()
    """The names of nodes in the file (none: their numbers)."""
    directed: bool = False
    title: str = ""

    def name(self, node: int) -> str:
        """The name of a node."""
        return self.names[node] if len(self.names) else str(node)


def column(values: Sequence[Any]) -> np.ndarray:
    """Values as an array: of finite numbers, with NaN where one is missing, or else of texts."""
    there = np.array([str(value).strip().lower() not in MISSING for value in values], dtype=bool)
    try:
        numbers = np.full(len(values), np.nan)
        numbers[there] = [float(value) for value, known in zip(values, there, strict=True) if known]
        if there.any() and np.isfinite(numbers[there]).all() and not any(isinstance(value, bool) for value in values):
            return numbers
    except (TypeError, ValueError, OverflowError):
        pass
    return np.array([text_of(value) for value in values], dtype=object)


def text_of(value: Any) -> str:
    """A value as a text: the number 2.0 is "2", as it is written in a table."""
    return f"{value:.15g}" if isinstance(value, float) else str(value)


def is_missing(value: Any) -> bool:
    """Whether a value to predict is not there: an empty text, or NaN."""
    return value.strip().lower() in ("", "nan") if isinstance(value, str) else math.isnan(value)


def build_graph(
    where: str, nodes: Sequence[Mapping[str, Any]], edges: Sequence[tuple[int, int]],
    links: Sequence[Mapping[str, Any]] = (), **fields: Any,
) -> Graph:  # fmt: skip
    """A graph from attributes of each node and edge; what some of them lack is an empty text."""
    if not nodes:
        raise ValueError(f"{where}: the graph has no nodes; give it at least one")
    pairs = np.array(edges, dtype=np.int64).reshape(-1, 2)
    return Graph(len(nodes), pairs, columns_of(nodes), columns_of(links), **fields)


def columns_of(rows: Sequence[Mapping[str, Any]]) -> Columns:
    """The attributes of rows by name."""
    names = dict.fromkeys(name for row in rows for name in row)
    return {name: column([row.get(name, "") for row in rows]) for name in names}


# ---- JSON -----------------------------------------------------------------------------------------------------


def from_json(value: Any, where: str = "graph") -> Graph:
    """A graph from {"nodes": a number or a list of attributes, "edges": [[0, 1], [1, 2, {"weight": 2}], …]}; with
    "directed": true edges go one way."""
    if not isinstance(value, dict):
        raise ValueError(f'{where}: a graph is an object such as {{"nodes": 3, "edges": [[0, 1], [1, 2]]}}')
    nodes, edges = value.get("nodes"), value.get("edges", [])
    if isinstance(nodes, int) and not isinstance(nodes, bool):
        if not 0 < nodes <= MOST_NODES:
            raise ValueError(f"{where}: nodes={nodes} is not between 1 and {MOST_NODES:,}")
        nodes = [{}] * nodes
    if not isinstance(nodes, list) or not all(isinstance(node, dict) for node in nodes):
        raise ValueError(f"{where}: nodes is a number, or a list of objects with their attributes")
    if not isinstance(edges, list):
        raise ValueError(f"{where}: edges is a list of pairs of nodes, counted from 0")
    pairs, links = [], []
    for number, edge in enumerate(edges):
        ends = edge[:2] if isinstance(edge, list) and 2 <= len(edge) <= 3 else ()
        if len(ends) < 2 or not all(type(end) is int and 0 <= end < len(nodes) for end in ends):
            got = one_line(json.dumps(edge), 60)
            raise ValueError(f"{where}, edge {number}: two of the {len(nodes):,} nodes, counted from 0; got {got}")
        pairs.append((ends[0], ends[1]))
        links.append(edge[2] if len(edge) > 2 and isinstance(edge[2], dict) else {})
    for row in [*nodes, *links]:
        if wrong := [name for name, item in row.items() if not isinstance(item, str | int | float)]:
            raise ValueError(
                f"{where}: the attribute {wrong[0]!r} is neither a number nor a text; leave a missing one out"
            )
    return build_graph(where, nodes, pairs, links, directed=value.get("directed") is True)


# ---- GraphML --------------------------------------------------------------------------------------------------


def parse_xml(raw: bytes, where: str) -> ElementTree.Element:
    """The root of an XML document; one that declares entities, which can grow without end, is an error."""

    def refuse(*_: Any) -> None:
        raise ValueError(f"{where}: it declares a document type, and entities can fill the memory; take it out")

    first = expat.ParserCreate()
    first.StartDoctypeDeclHandler = refuse
    try:
        first.Parse(raw, True)
        return ElementTree.fromstring(raw)
    except (expat.ExpatError, ElementTree.ParseError) as error:
        raise ValueError(f"{where}, line {getattr(error, 'lineno', '?')}: not valid XML ({error})") from None
    except (LookupError, RecursionError) as error:
        raise ValueError(f"{where} cannot be read as XML ({error}); save it as UTF-8") from None


def from_graphml(raw: bytes, where: str) -> list[Graph]:
    """The graphs of a GraphML document, with the attributes that its keys declare."""
    root = parse_xml(raw, where)
    keys: dict[str, tuple[str, str | None]] = {}
    for key in root.iter():
        if plain(key.tag) == "key":
            name = key.get("attr.name") or key.get("id") or ""
            default = next((child.text for child in key if plain(child.tag) == "default"), None)
            keys[key.get("id") or name] = (name, default)
    domains = {key.get("id"): key.get("for", "all") for key in root.iter() if plain(key.tag) == "key"}
    graphs = [graph for graph in root if plain(graph.tag) == "graph"]
    if not graphs:
        raise ValueError(f"{where}: no <graph>; GraphML has <graphml><graph>…")

    def attributes(element: ElementTree.Element, kind: str) -> dict[str, str]:
        own = {
            name: default for id_, (name, default) in keys.items()
            if default is not None and domains.get(id_) in (kind, "all")
        }  # fmt: skip
        for data in element:
            if plain(data.tag) == "data":
                id_ = data.get("key") or ""
                own[keys.get(id_, (id_, None))[0]] = (data.text or "").strip()
        return own

    return [_graph_of(graph, attributes, f"{where}, graph {i}" if len(graphs) > 1 else where)
            for i, graph in enumerate(graphs, 1)]  # fmt: skip


def _graph_of(graph: ElementTree.Element, attributes: Any, where: str) -> Graph:
    places: dict[str, int] = {}
    nodes = [element for element in graph.iter() if plain(element.tag) == "node"]
    for element in nodes:
        name = element.get("id")
        if name is None or name in places:
            fact = "has no id" if name is None else f"has the id of another, {one_line(name, 40)!r}"
            raise ValueError(f"{where}: node {len(places) + 1} {fact}; give each its own")
        places[name] = len(places)
    edges, links = [], []
    for number, element in enumerate((each for each in graph.iter() if plain(each.tag) == "edge"), 1):
        ends = element.get("source"), element.get("target")
        for end in ends:
            if end not in places:
                raise ValueError(f"{where}, edge {number}: there is no node {one_line(str(end), 40)!r}")
        edges.append((places[str(ends[0])], places[str(ends[1])]))
        links.append(attributes(element, "edge"))
    facts = {
        name: values[0].item() if values.dtype != object else values[0]
        for name, value in attributes(graph, "graph").items() if len(values := column([value]))
    }  # fmt: skip
    return build_graph(
        where, [attributes(element, "node") for element in nodes], edges, links, facts=facts, names=tuple(places),
        directed=graph.get("edgedefault") == "directed", title=graph.get("id") or "",
    )  # fmt: skip


def plain(tag: str) -> str:
    """The name of an element without its namespace."""
    return tag.rpartition("}")[2]
