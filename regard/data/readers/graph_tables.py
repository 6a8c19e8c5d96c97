"""Graphs from tables: edges and nodes as CSV, molecules with their properties, and folders in TU Dortmund's format.

Any order of lines gives the same graph: nodes are those of the table of nodes, else all that edges name, sorted.
"""

import csv
import io
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from regard.config import one_line
from regard.data.readers.graph_files import MOST_EDGES, Graph, column
from regard.data.readers.molecules import molecule
from regard.data.readers.text_files import as_text, read_bytes

ENDS = (("source", "src", "from", "u"), ("target", "dst", "to", "v"))
"""Names of the columns of an edge's two ends."""
IDS = ("id", "node", "name")
"""Names of the column that names a node."""
SMILES = ("smiles",)

Rows = Iterator[tuple[int, list[str]]]


def rows_of(text: str, where: str) -> tuple[list[str], Rows]:
    """The header of a table and its rows with their line numbers; a row of another length is an error."""
    separator = "\t" if "\t" in text.partition("\n")[0] else ","
    reader = csv.reader(io.StringIO(text), delimiter=separator)
    try:
        header = [name.strip() for name in next(reader)]
    except (StopIteration, csv.Error):
        raise ValueError(f"{where}: no header; the first line names the columns") from None

    def rows() -> Rows:
        try:
            for row in reader:
                if len(row) != len(header):
                    if not row:
                        continue
                    raise ValueError(
                        f"{where}, line {reader.line_num}: {len(row)} cells, the header has {len(header)}; correct it"
                    )
                yield reader.line_num, row
        except csv.Error as error:
            raise ValueError(f"{where}, line {reader.line_num}: {error}") from None

    return header, rows()


def column_of(header: Sequence[str], names: Sequence[str]) -> int | None:
    """The index of the first column with one of these names."""
    lower = [name.lower() for name in header]
    return next((lower.index(name) for name in names if name in lower), None)


def edges_from_text(text: str, where: str, nodes: Graph | None = None) -> Graph:
    """The graph of a table of edges: columns source and target, others are attributes; its nodes are those of `nodes`,
    which may not lack any, or those that the edges name."""
    header, rows = rows_of(text, where)
    ends = [column_of(header, names) for names in ENDS]
    if None in ends or len(header) < 2:
        raise ValueError(f"{where}: the columns source and target are missing, got {one_line(', '.join(header), 80)}")
    first, second = ends
    names: list[tuple[str, str]] = []
    others = {name: [] for index, name in enumerate(header) if index not in ends}  # type: dict[str, list[str]]
    known = None if nodes is None else {name: number for number, name in enumerate(nodes.names)}
    for line, row in rows:
        pair = row[first].strip(), row[second].strip()  # type: ignore[index]
        for end in pair:
            if not end:
                raise ValueError(f"{where}, line {line}: an end of the edge is empty; name two nodes")
            if known is not None and end not in known:
                raise ValueError(f"{where}, line {line}: there is no node {one_line(end, 40)!r} in the table of nodes")
        names.append(pair)
        if len(names) > MOST_EDGES:
            raise ValueError(f"{where}: more than {MOST_EDGES:,} edges")
        for index, name in enumerate(header):
            if index not in ends:
                others[name].append(row[index].strip())
    if known is None:
        if not names:
            raise ValueError(f"{where}: the graph has no nodes; give edges, or a table of nodes beside them")
        known = {
            name: number for number, name in enumerate(sorted({end for pair in names for end in pair}, key=natural))
        }
    edges = np.array([(known[a], known[b]) for a, b in names], dtype=np.int64).reshape(-1, 2)
    order = np.lexsort((edges[:, 1], edges[:, 0])) if len(edges) else np.arange(0)
    links = {name: column(values)[order] for name, values in others.items()}
    if nodes is None:
        return Graph(len(known), edges[order], {}, links, names=tuple(known))
    return Graph(nodes.count, edges[order], nodes.nodes, links, names=nodes.names)


def natural(name: str) -> list[Any]:
    """A key that sorts n2 before n10."""
    return [(0, int(part), "") if part.isdecimal() else (1, 0, part) for part in re.split(r"(\d{1,18})", name) if part]


def nodes_from_text(text: str, where: str) -> Graph:
    """Nodes without edges, from a table whose first column, or that named id, names them."""
    header, rows = rows_of(text, where)
    own = column_of(header, IDS) or 0
    lines: dict[str, int] = {}
    values: list[list[str]] = []
    for line, row in rows:
        name = row[own].strip()
        if name in lines:
            raise ValueError(f"{where}, line {line}: the node {one_line(name, 40)!r} stands in line {lines[name]}, too")
        lines[name] = line
        values.append(row)
    if not lines:
        raise ValueError(f"{where}: no nodes; the header alone is no graph")
    columns = {
        name: column([row[index].strip() for row in values]) for index, name in enumerate(header) if index != own
    }
    return Graph(len(lines), np.empty((0, 2), dtype=np.int64), columns, names=tuple(lines))


def read_text(path: Path) -> str:
    return as_text(read_bytes(path, folder="a file", empty="a table"), path)


def read_folder_tables(folder: Path) -> Graph:
    """The graph of a folder with edges.csv and, for attributes and nodes without edges, nodes.csv."""
    nodes = None
    if (folder / "nodes.csv").is_file():
        nodes = nodes_from_text(read_text(folder / "nodes.csv"), str(folder / "nodes.csv"))
    return edges_from_text(read_text(folder / "edges.csv"), str(folder / "edges.csv"), nodes)


def read_table_file(text: str, path: Path) -> list[Graph]:
    """The graphs of a table, with a table of nodes beside it, if that is called nodes.csv."""
    beside = path.parent / "nodes.csv"
    there = column_of(rows_of(text, str(path))[0], SMILES) is None and beside.is_file() and path != beside
    return graphs_from_text(text, str(path), nodes_from_text(read_text(beside), str(beside)) if there else None)


def graphs_from_text(text: str, where: str, nodes: Graph | None = None) -> list[Graph]:
    """The graphs of a table: molecules, where it has a column of SMILES, else the edges of one graph."""
    header, rows = rows_of(text, where)
    own = column_of(header, SMILES)
    if own is None:
        return [edges_from_text(text, where, nodes)]
    graphs, found = [], list(rows)
    others = {name: column([row[i].strip() for _, row in found]) for i, name in enumerate(header) if i != own}
    for number, (line, row) in enumerate(found):
        facts = {name: values[number] for name, values in others.items()}
        graphs.append(molecule(row[own].strip(), f"{where}, line {line}", facts=facts))
    if not graphs:
        raise ValueError(f"{where}: no molecules; the header alone is no data")
    return graphs


# ---- TU Dortmund ----------------------------------------------------------------------------------------------


def is_tu(folder: Path) -> bool:
    """Whether a folder is in the format of TU Dortmund: NAME_A.txt and NAME_graph_indicator.txt."""
    return any((folder / f"{path.name[:-6]}_graph_indicator.txt").is_file() for path in folder.glob("*_A.txt"))


def read_tu(folder: Path) -> list[Graph]:
    """The graphs of a folder in TU Dortmund's format, with the labels and attributes of nodes, edges and graphs."""
    stem = next(path.name[:-6] for path in sorted(folder.glob("*_A.txt")))

    def read(kind: str) -> tuple[Path, list[list[str]]] | None:
        path = folder / f"{stem}_{kind}.txt"
        if not path.is_file():
            return None
        return path, [
            [cell.strip() for cell in line.split(",")] for line in read_text(path).splitlines() if line.strip()
        ]

    def whole(found: tuple[Path, list[list[str]]] | None, width: int, most: int) -> np.ndarray:
        assert found is not None
        path, lines = found
        for number, cells in enumerate(lines, 1):
            if len(cells) != width or not all(cell.isdecimal() and 1 <= int(cell) <= most for cell in cells):
                what = f"{width} number{'s' * (width > 1)} from 1 to {most:,}"
                raise ValueError(f"{path}, line {number}: {what}, got {one_line(', '.join(cells), 40)}")
        return np.array(lines, dtype=np.int64).reshape(-1, width) - 1

    indicator = read("graph_indicator")
    assert indicator is not None
    count = len(indicator[1])
    owner = whole(indicator, 1, count)[:, 0]
    edges, graphs = whole(read("A"), 2, count), int(owner.max()) + 1
    if len(wrong := np.flatnonzero(owner[edges[:, 0]] != owner[edges[:, 1]])):
        raise ValueError(f"{folder / f'{stem}_A.txt'}, line {wrong[0] + 1}: its two nodes are of different graphs")
    columns = {kind: tu_columns(read, kind, size) for kind, size in
               (("node", count), ("edge", len(edges)), ("graph", graphs))}  # fmt: skip
    first = np.searchsorted(owner, np.arange(graphs)) if (np.diff(owner) >= 0).all() else None
    if first is None or len(np.unique(owner)) < graphs:
        raise ValueError(f"{indicator[0]}: nodes are not listed graph by graph, from the first to the last; sort them")
    sizes, result = np.bincount(owner, minlength=graphs), []
    of_edges = owner[edges[:, 0]] if len(edges) else np.empty(0, dtype=np.int64)
    order = np.argsort(of_edges, kind="stable")
    ends = np.searchsorted(of_edges[order], np.arange(graphs + 1))
    for number in range(graphs):
        own, start = order[ends[number] : ends[number + 1]], first[number]
        result.append(
            Graph(
                int(sizes[number]), edges[own] - start,
                {name: values[start : start + sizes[number]] for name, values in columns["node"].items()},
                {name: values[own] for name, values in columns["edge"].items()},
                {name: values[number] for name, values in columns["graph"].items()}, title=f"{stem} {number + 1}",
            )
        )  # fmt: skip
    return result


def tu_columns(read: Any, kind: str, size: int) -> dict[str, np.ndarray]:
    """The labels, as texts, and the attributes, as numbers, of nodes, edges or graphs."""
    columns: dict[str, np.ndarray] = {}
    for what in ("labels", "attributes"):
        found = read(f"{kind}_{what}")
        if found is None:
            continue
        path, lines = found
        if len(lines) != size or len({len(cells) for cells in lines}) > 1:
            raise ValueError(f"{path}: {len(lines):,} lines for {size:,} {kind}s, or lines of different lengths")
        for index, values in enumerate(zip(*lines, strict=True)):
            name = f"{what[:-1]}{index or ''}"
            columns[name] = np.array(values, dtype=object) if what == "labels" else column(values)
    return columns
