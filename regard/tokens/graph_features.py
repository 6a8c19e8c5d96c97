"""Graphs as the tensors that a model reads: attributes of nodes and edges as numbers, padded in batches.

Texts become one number for each value that was seen in training; numbers are brought to mean 0 and variance 1.
"""

import json
import math
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from regard.config import one_line, parse, read_json, reading
from regard.data.readers.graph_files import Columns, Graph, text_of
from regard.files import write_text

FILE = "graph_features.json"
MOST_VALUES = 512
"""Values of an attribute that have a number of their own, the most frequent ones."""


@dataclass(frozen=True, slots=True)
class Attribute:
    """An attribute of nodes or edges: the texts that it may be, or the mean and deviation of its numbers."""

    name: str
    values: tuple[str, ...] = ()
    mean: float = 0.0
    std: float = 1.0

    @classmethod
    def of(cls, name: str, columns: Sequence[np.ndarray]) -> "Attribute":
        """The attribute of that name in all graphs."""
        if all(values.dtype != object for values in columns):
            every = np.concatenate(columns).astype(float)
            there = every[~np.isnan(every)]
            return cls(name, (), float(there.mean()), float(there.std()) or 1.0)
        counts = Counter(text_of(value) for values in columns for value in values)
        return cls(name, tuple(value for value, _ in sorted(counts.items(), key=lambda x: (-x[1], x[0]))[:MOST_VALUES]))

    @property
    def width(self) -> int:
        return len(self.values) or 1

    def numbers(self, values: np.ndarray, where: str) -> np.ndarray:
        """A row of numbers for each value: of a text that training did not have all zeros, of a missing number the
        mean."""
        if self.values:
            places = {value: i for i, value in enumerate(self.values)}
            rows = np.zeros((len(values), len(self.values)), dtype=np.float32)
            found = np.array([places.get(text_of(value), -1) for value in values], dtype=np.int64)
            rows[np.flatnonzero(found >= 0), found[found >= 0]] = 1
            return rows
        if values.dtype == object:
            if wrong := [value for value in values if not is_number(value)]:
                got = one_line(repr(wrong[0]), 40)
                raise ValueError(f"{where}: the attribute {self.name!r} is a number, got {got}; correct it")
            values = values.astype(float)
        return np.nan_to_num((values[:, None] - self.mean) / self.std).astype(np.float32)


def is_number(value: Any) -> bool:
    try:
        return math.isfinite(float(value))
    except (TypeError, ValueError):
        return False


@dataclass(frozen=True, slots=True)
class Encoded:
    """A graph as arrays: numbers of nodes, directed edges (i, j) of which i sees j, and numbers of edges."""

    nodes: np.ndarray
    edges: np.ndarray
    links: np.ndarray


@dataclass(frozen=True, slots=True)
class GraphFeatures:
    """The attributes that a model of graphs reads, and the name and scale of what it predicts."""

    nodes: tuple[Attribute, ...] = ()
    links: tuple[Attribute, ...] = ()
    target: str = ""
    """The name of what is predicted."""
    mean: float = 0.0
    std: float = 1.0
    """Mean and deviation of a predicted number."""

    @classmethod
    def of(cls, graphs: Sequence[Graph], without: Collection[str] = (), **fields: Any) -> "GraphFeatures":
        """The attributes of nodes and edges of these graphs, without some."""
        named: dict[str, Any] = {}
        for kind in ("nodes", "links"):
            tables: list[Columns] = [getattr(graph, kind) for graph in graphs]
            names = [name for name in dict.fromkeys(name for table in tables for name in table) if name not in without]
            named[kind] = tuple(Attribute.of(name, [t[name] for t in tables if name in t]) for name in names)
        return cls(**named, **fields)

    @property
    def widths(self) -> tuple[int, int]:
        """The numbers of each node and each edge; a node without attributes has the number 1."""
        return sum(each.width for each in self.nodes) or 1, sum(each.width for each in self.links)

    def encode(self, graph: Graph) -> Encoded:
        """The arrays of a graph. Edges from a node to itself are left out; of one that is listed several times, the
        numbers are the mean, so that their order is nothing."""
        where = graph.title or "the graph"
        nodes = rows_of(self.nodes, graph.nodes, graph.count, where)
        links = rows_of(self.links, graph.links, len(graph.edges), where)
        edges = graph.edges
        if not graph.directed:
            edges, links = np.concatenate([edges, edges[:, ::-1]]), np.concatenate([links, links])
        apart = edges[:, 0] != edges[:, 1]
        edges, links = edges[apart], links[apart]
        keys, place = np.unique(edges[:, 0] * graph.count + edges[:, 1], return_inverse=True)
        total = np.zeros((len(keys), self.widths[1]), np.float32)
        np.add.at(total, place, links)
        mean = total / np.bincount(place, minlength=len(keys))[:, None].astype(np.float32)
        pairs = np.stack([keys // graph.count, keys % graph.count], axis=1)
        return Encoded(nodes if self.nodes else np.ones((graph.count, 1), np.float32), pairs, mean)

    def batch(self, graphs: Sequence[Encoded]) -> dict[str, Tensor]:
        """The inputs of a model: graphs filled up to the largest, and lists of edges with −1."""
        most, edges = max(len(g.nodes) for g in graphs), max(1, *(len(g.edges) for g in graphs))
        inputs = {
            "nodes": torch.zeros(len(graphs), most, self.widths[0]),
            "lengths": torch.tensor([len(g.nodes) for g in graphs]),
            "edges": torch.full((len(graphs), edges, 2), -1),
            "links": torch.zeros(len(graphs), edges, self.widths[1]),
        }
        for row, graph in enumerate(graphs):
            inputs["nodes"][row, : len(graph.nodes)] = torch.from_numpy(graph.nodes)
            inputs["edges"][row, : len(graph.edges)] = torch.from_numpy(graph.edges)
            inputs["links"][row, : len(graph.edges)] = torch.from_numpy(graph.links)
        return inputs

    def save(self, folder: Path) -> None:
        """Write the attributes beside a model."""
        write_text(folder / FILE, json.dumps(asdict(self), indent=1, ensure_ascii=False) + "\n")

    @classmethod
    def load(cls, folder: Path) -> "GraphFeatures":
        """The attributes beside a model."""
        path = folder / FILE
        if not path.is_file():
            raise ValueError(f"{folder} does not say how it reads graphs: {FILE} is missing; copy it there")
        fields = read_json(path)
        with reading(path):
            parts: dict[str, Any] = {
                kind: tuple(map(read_attribute, listed(fields, kind))) for kind in ("nodes", "links")
            }
            numbers = {name: parse(fields.get(name, 0.0), float, name) for name in ("mean", "std")}
            return cls(**parts, **numbers, target=parse(fields.get("target", ""), str, "target"))


def listed(fields: Mapping[str, Any], name: str) -> list[Any]:
    """The list of that name; an error for anything else."""
    if not isinstance(fields.get(name), list) or not all(isinstance(each, dict) for each in fields[name]):
        raise ValueError(f"{name} is a list of attributes")
    return fields[name]


def read_attribute(fields: Mapping[str, Any]) -> Attribute:
    """An attribute as it was saved."""
    values = fields.get("values", [])
    if not isinstance(values, list) or len(values) > MOST_VALUES:
        raise ValueError(f"values is a list of at most {MOST_VALUES} texts")
    numbers = {name: parse(fields.get(name, 0.0), float, name) for name in ("mean", "std")}
    return Attribute(parse(fields.get("name"), str, "name"), tuple(map(str, values)), **numbers)


def rows_of(attributes: Sequence[Attribute], columns: Columns, count: int, where: str) -> np.ndarray:
    """The numbers of all attributes, side by side; an attribute that the graph lacks is an error."""
    for attribute in attributes:
        if attribute.name not in columns and count:
            known = ", ".join(columns) or "none"
            raise ValueError(f"{where} has no attribute {attribute.name!r}, but {one_line(known, 80)}; add it")
    rows = [each.numbers(columns[each.name], where) for each in attributes if count]
    width = sum(each.width for each in attributes)
    return np.concatenate(rows, axis=1) if rows else np.zeros((count, width), np.float32)
