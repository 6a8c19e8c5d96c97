"""Graphs from any file or folder: GraphML, JSON, tables of edges and nodes, molecules, and TU's format."""

import json
from pathlib import Path
from typing import Any

from regard.data.readers.graph_files import Graph, from_graphml, from_json
from regard.data.readers.graph_tables import (
    ENDS,
    SMILES,
    column_of,
    graphs_from_text,
    is_tu,
    read_folder_tables,
    read_table_file,
    read_tu,
)
from regard.data.readers.molecules import molecule, molecules
from regard.data.readers.text_files import as_text, read_bytes


def from_bytes(raw: bytes, where: str = "graph") -> list[Graph]:
    """The graphs of a file, whose format is seen from its first characters."""
    start = raw.lstrip(b"\xef\xbb\xbf \t\r\n")[:1]
    if start == b"<":
        return from_graphml(raw, where)
    text = as_text(raw, Path(where))
    if start == b"{":
        try:
            return [from_value(json.loads(text), where)]
        except (json.JSONDecodeError, RecursionError) as error:
            raise ValueError(f"{where}: not valid JSON ({error})") from None
    first = text.lstrip().partition("\n")[0]
    names = [name.strip() for name in first.split("\t" if "\t" in first else ",")]
    table = len(names) > 1 and any(column_of(names, known) is not None for known in (*ENDS, SMILES))
    return graphs_from_text(text, where) if table or "," in first else molecules(text, where)


def from_value(value: Any, where: str = "graph") -> Graph:
    """A graph from an object of nodes and edges, or from {"smiles": "CCO"}."""
    if isinstance(value, dict) and isinstance(value.get("smiles"), str):
        return molecule(value["smiles"], where)
    return from_json(value, where)


def open_graphs(source: str | Path) -> list[Graph]:
    """The graphs of a file or folder: GraphML, JSON, SMILES, a table of edges or of molecules, a folder in TU format,
    with edges.csv and nodes.csv, or of such files."""
    path = Path(source)
    if path.is_dir():
        if is_tu(path):
            return read_tu(path)
        if (path / "edges.csv").is_file():
            return [read_folder_tables(path)]
        files = sorted(each for each in path.iterdir() if each.suffix.lower() in (".graphml", ".json", ".smi"))
        if not files:
            raise ValueError(
                f"{path} holds no graphs: edges.csv and nodes.csv, NAME_A.txt and its kin, or .graphml, .json, .smi"
            )
        return [graph for file in files for graph in open_graphs(file)]
    raw = read_bytes(path, folder="a file, or a folder of graphs", empty="a graph")
    if path.suffix.lower() in (".csv", ".tsv"):
        return read_table_file(as_text(raw, path), path)
    return from_bytes(raw, str(path))
