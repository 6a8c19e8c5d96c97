"""Graphs from files: every format, any order of lines, and one line for what is wrong."""

import json
import random
from dataclasses import astuple

import numpy as np
import pytest

from regard.data.readers.graph_files import Graph, from_json
from regard.data.readers.graph_sources import from_bytes, open_graphs
from regard.data.sets.labelled_graphs import GraphsConfig, values_of
from regard.modalities.graph import as_value, read
from regard.tokens.graph_features import GraphFeatures

GRAPHML = """<?xml version="1.0"?><graphml xmlns="http://graphml.graphdrawing.org/xmlns">
<key id="d0" for="node" attr.name="kind" attr.type="string"/><key id="d1" for="edge" attr.name="weight"/>
<key id="d2" for="graph" attr.name="label"/>
<graph id="g" edgedefault="undirected"><data key="d2">yes</data>
<node id="a"><data key="d0">x</data></node><node id="b"><data key="d0">y</data></node><node id="c"/>
<edge source="a" target="b"><data key="d1">2.5</data></edge></graph></graphml>"""


def test_graphml_has_attributes_of_nodes_edges_and_the_graph(tmp_path):
    (tmp_path / "g.graphml").write_text(GRAPHML)
    (graph,) = open_graphs(tmp_path / "g.graphml")
    assert graph.count == 3 and graph.edges.tolist() == [[0, 1]] and graph.names == ("a", "b", "c")
    assert graph.nodes["kind"].tolist() == ["x", "y", ""] and graph.links["weight"].tolist() == [2.5]
    assert graph.facts == {"label": "yes"} and not graph.directed


def test_tables_give_one_graph_in_any_order_of_lines(tmp_path):
    lines = [f"n{i},n{(7 * i + 3) % 40},{i % 3}" for i in range(200)]
    found = []
    for seed in range(3):
        random.Random(seed).shuffle(lines)
        (tmp_path / "edges.csv").write_text("\n".join(["source,target,kind", *lines]))
        (graph,) = open_graphs(tmp_path / "edges.csv")
        found.append((graph.names, sorted(map(tuple, graph.edges.tolist()))))
    assert found[0] == found[1] == found[2] and found[0][0][:3] == ("n0", "n1", "n2")


def test_a_folder_of_nodes_and_edges(tmp_path):
    (tmp_path / "nodes.csv").write_text("id,colour,size\nb,red,1\na,blue,2\nalone,red,3\n")
    (tmp_path / "edges.csv").write_text("source\ttarget\na\tb\na\ta\n")
    (graph,) = open_graphs(tmp_path)
    assert graph.names == ("b", "a", "alone") and graph.edges.tolist() == [[1, 0], [1, 1]]
    assert graph.nodes["colour"].tolist() == ["red", "blue", "red"] and graph.nodes["size"].tolist() == [1, 2, 3]


def test_the_format_of_tu_dortmund(tmp_path):
    files = {
        "A": "1, 2\n2, 1\n3, 4\n4, 3\n", "graph_indicator": "1\n1\n2\n2\n2\n", "graph_labels": "1\n-1\n",
        "node_labels": "0\n1\n0\n1\n2\n", "edge_labels": "0\n0\n1\n1\n", "node_attributes": "1.5, 2\n" * 5,
    }  # fmt: skip
    for kind, text in files.items():
        (tmp_path / f"TINY_{kind}.txt").write_text(text)
    first, second = open_graphs(tmp_path)
    assert (first.count, second.count) == (2, 3) and second.edges.tolist() == [[0, 1], [1, 0]]
    assert second.nodes["label"].tolist() == ["0", "1", "2"] and second.links["label"].tolist() == ["1", "1"]
    assert first.nodes["attribute1"].tolist() == [2, 2]
    assert (first.facts, second.facts) == (
        {"label": "1"},
        {"label": "-1"},
    )
    (tmp_path / "TINY_A.txt").write_text("1, 2\n2, 3\n")
    (tmp_path / "TINY_edge_labels.txt").unlink()
    with pytest.raises(ValueError, match="TINY_A.txt, line 2: its two nodes are of different graphs"):
        open_graphs(tmp_path)


def test_molecules(tmp_path):
    pytest.importorskip("rdkit")
    (tmp_path / "m.smi").write_text("CCO ethanol\nc1ccccc1\tbenzene\n")
    first, second = open_graphs(tmp_path / "m.smi")
    assert first.nodes["element"].tolist() == ["C", "C", "O"] and first.links["bond"].tolist() == ["single", "single"]
    assert second.count == 6 and set(second.links["bond"]) == {"aromatic"}
    (tmp_path / "m.csv").write_text("name,smiles,logp\na,CCO,-0.1\nb,C,0.6\n")
    assert [graph.facts["logp"] for graph in open_graphs(tmp_path / "m.csv")] == [-0.1, 0.6]
    (tmp_path / "m.csv").write_text("smiles,logp\nCCO,1\nC(,2\n")
    with pytest.raises(ValueError, match=r"m.csv, line 3: 'C\(' is no molecule"):
        open_graphs(tmp_path / "m.csv")


WRONG = {
    "edges.csv": [
        ("a,b\n1,2\n", "columns source and target are missing"),
        ("source,target\n1,2\n1\n", "line 3: 1 cells, the header has 2"),
        ("source,target\n1,\n", "line 2: an end of the edge is empty"),
        ("source,target\n", "the graph has no nodes"),
    ],
    "g.graphml": [
        (GRAPHML.replace('target="b"', 'target="z"'), "edge 1: there is no node 'z'"),
        (GRAPHML.replace('id="b"', 'id="a"'), "node 2 has the id of another, 'a'"),
        ("<graphml><graph></graph></graphml>", "the graph has no nodes"),
        ('<!DOCTYPE x [<!ENTITY a "aaaa">]><graphml/>', "declares a document type"),
        ("<graphml>", "not valid XML"),
    ],
    "g.json": [
        ('{"nodes": 2, "edges": [[0, 2]]}', "edge 0: two of the 2 nodes, counted from 0"),
        ('{"nodes": 0, "edges": []}', "nodes=0 is not between"),
        ('{"nodes": []}', "the graph has no nodes"),
        ('{"nodes": 2', "not valid JSON"),
        ('{"nodes": [{"a": [1]}]}', "attribute 'a' is neither a number nor a text"),
    ],
}


@pytest.mark.parametrize(("name", "text", "error"), [(n, *case) for n, cases in WRONG.items() for case in cases])
def test_what_is_wrong_is_one_line_with_its_place(tmp_path, name, text, error):
    (tmp_path / name).write_text(text)
    with pytest.raises(ValueError, match=error) as raised:
        open_graphs(tmp_path / name)
    assert str(raised.value).startswith(str(tmp_path / name)) and "\n" not in str(raised.value)


def test_a_node_that_does_not_exist_is_named_with_its_line(tmp_path):
    (tmp_path / "nodes.csv").write_text("id\na\nb\n")
    (tmp_path / "edges.csv").write_text("source,target\na,b\nb,zebra\n")
    with pytest.raises(ValueError, match=r"edges.csv, line 3: there is no node 'zebra' in the table of nodes"):
        open_graphs(tmp_path)
    (tmp_path / "nodes.csv").write_text("id\na\na\n")
    with pytest.raises(ValueError, match=r"nodes.csv, line 3: the node 'a' stands in line 2, too"):
        open_graphs(tmp_path)


def test_a_missing_number_does_not_make_words_of_the_others(tmp_path):
    (tmp_path / "nodes.csv").write_text("id,size,colour\na,1.5,red\nb,,\nc,NA,3\n")
    (tmp_path / "edges.csv").write_text("source,target\na,b\n")
    (graph,) = open_graphs(tmp_path)
    assert graph.nodes["size"].tolist()[0] == 1.5 and np.isnan(graph.nodes["size"][1:]).all()
    assert graph.nodes["colour"].tolist() == ["red", "", "3"]
    features = GraphFeatures.of([graph])
    assert features.widths[0] == 4 and features.encode(graph).nodes[:, 0].tolist() == [0, 0, 0]  # the mean


def test_rows_without_a_number_to_predict_are_left_out(tmp_path):
    pytest.importorskip("rdkit")
    (tmp_path / "m.csv").write_text("smiles,logs\nCCO,0.5\nCCC,1.25\nCCN,\nCCCC,2.5\nCCCO,nan\n")
    config = GraphsConfig(graphs=str(tmp_path / "m.csv"))
    assert values_of(config.read(config.graphs)) == [0.5, 1.25, 2.5]
    assert sorted(values_of(config.part("train")) + values_of(config.part("valid"))) == [0.5, 1.25, 2.5]
    with pytest.raises(ValueError, match="no graph has a logs"):
        (tmp_path / "m.csv").write_text("smiles,logs\nCCO,\nCCC,\n")
        config.read(config.graphs)


def test_words_that_look_like_numbers_are_the_same_after_json():
    nodes = {"label": np.array(["0", "3", "0"], dtype=object), "size": np.array([1.5, np.nan, 2.0])}
    graph = Graph(3, np.array([[0, 1], [1, 2]]), nodes, {"bond": np.array(["1", "2"], dtype=object)})
    features, again = GraphFeatures.of([graph]), read(json.loads(json.dumps(as_value(graph))))[0]
    for one, other in zip(astuple(features.encode(graph)), astuple(features.encode(again)), strict=True):
        assert np.array_equal(one, other)


def test_bytes_are_recognised_by_their_beginning():
    assert from_bytes(GRAPHML.encode())[0].count == 3
    assert from_bytes(b"source,target\n1,2\n")[0].count == 2
    assert [graph.facts for graph in from_bytes(b"smiles,logp\nCCO,1.5\nCC,2\n")] == [{"logp": 1.5}, {"logp": 2.0}]
    assert from_bytes(json.dumps({"nodes": 2, "edges": [[0, 1]]}).encode())[0].edges.tolist() == [[0, 1]]
    assert from_json({"nodes": [{"a": 1}, {"a": 2}], "edges": [[0, 1, {"w": 2}]]}).links["w"].tolist() == [2]
