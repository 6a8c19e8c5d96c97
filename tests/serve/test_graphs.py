"""Graphs over the API: objects of nodes and edges, files, and what is refused in one line."""

import base64

import numpy as np
import pytest

from regard.data.generated.graphs import distance
from regard.data.sets import labelled_graphs
from regard.modalities.graph import as_value
from regard.recipes import fit
from tests.serve.running import serving_here

BOMB = base64.b64encode(b'<!DOCTYPE a [<!ENTITY b "c">]><a/>').decode()


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    out = tmp_path_factory.mktemp("serve") / "graphs"
    with pytest.MonkeyPatch.context() as patch:
        graphs = distance(np.random.default_rng(0), 20)
        patch.setattr(labelled_graphs, "embedded_graphs", lambda kind, part: graphs)
        fit(
            "graph",
            out=out,
            quiet=True,
            **{"data.kind": "distance", "model.dim": 16, "model.depth": 1, "train.steps": 1},
        )
        with serving_here({"graphs": str(out)}, preload=True) as running:
            yield running


def post(server, route, **body):
    return server.post(f"/v1/{route}", model="graphs", **body)


def test_a_graph_is_predicted_as_an_object_and_as_a_file(server):
    graph = as_value(distance(np.random.default_rng(5), 1)[0])
    (row,) = post(server, "predict", graph=graph).json["data"]
    (label,) = row["predictions"]
    assert label["distance"] in "12345" and 0 < label["probability"] < 1
    nodes = "".join(f'<node id="{i}"><data key="k">{"no" if i else "yes"}</data></node>' for i in range(3))
    edges = '<edge source="0" target="2"/>'
    text = f'<graphml><key id="k" for="node" attr.name="marked"/><graph>{nodes}{edges}</graph></graphml>'
    uri = "data:application/xml;base64," + base64.b64encode(text.encode()).decode()
    rows = post(server, "predict", input=[uri, uri]).json["data"]
    assert len(rows) == 2 and rows[0]["predictions"] == rows[1]["predictions"]


@pytest.mark.parametrize(("graph", "error"), [
    ({"nodes": 2, "edges": [[0, 5]]}, "edge 0: two of the 2 nodes, counted from 0"),
    ({"nodes": 0, "edges": []}, "is not between 1 and"),
    ({"nodes": 2, "edges": []}, "has no attribute 'marked'"),
    ("/etc/passwd", "no data: URI of a graph"),
    ("data:application/xml;base64," + BOMB, "document type"),
])  # fmt: skip
def test_what_is_wrong_is_said_in_a_line(server, graph, error):
    answer = post(server, "predict", graph=graph)
    assert answer.status == 400 and error in answer.error["message"]


def test_a_look_at_a_graph_has_its_nodes_and_layers(server):
    graph = as_value(distance(np.random.default_rng(5), 1)[0])
    page = post(server, "look", graph=graph).json
    assert len(page["sequences"][0]["tokens"]) == len(graph["nodes"]) and page["layers"]
    assert len(page["input"]["places"]) == len(graph["nodes"]) and page["input"]["edges"]
