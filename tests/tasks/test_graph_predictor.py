"""Models of graphs from training to prediction: whole files in, renumbered nodes, large graphs, and what is wrong."""

import json

import numpy as np
import pytest
import torch

import regard
from regard.data.generated import graphs as generated
from regard.data.notices import listening
from regard.data.readers.graph_files import Graph
from regard.data.sets.labelled_graphs import GraphsConfig
from regard.eval.scores import evaluate
from regard.inside.views import show_view
from regard.recipes import fit
from regard.tasks import EvalSet

TINY = {"model.dim": 24, "model.depth": 2, "model.ffn_dim": 32, "train.steps": 2, "train.eval_every": 2}
ALL = ("degree", "walk", "laplacian", "distance", "path")


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Graphs in which every value has a place: kinds of nodes, weights of edges, and labels."""
    folder, rng = tmp_path_factory.mktemp("graphs"), np.random.default_rng(0)
    for number in range(12):
        nodes = [{"kind": "ab"[rng.integers(2)], "size": float(rng.normal())} for _ in range(9)]
        edges = [[int(a), int(b), {"weight": float(rng.normal())}] for a, b in rng.integers(9, size=(14, 2))]
        text = json.dumps({"nodes": nodes, "edges": edges})
        (folder / f"{number:02}.json").write_text(text)
    return folder


def labelled(files, target):
    """The graphs of a folder with a fact each."""
    graphs = [graph for graph in regard.registry.modalities["graph"].read(str(files))]
    for number, graph in enumerate(graphs):
        graph.facts[target] = "yes" if number % 2 else "no"
    return graphs


def train(out, monkeypatch, graphs, quiet=True, **fields):
    monkeypatch.setattr("regard.data.sets.labelled_graphs.open_graphs", lambda source: graphs)
    fit("graph", out=out, quiet=quiet, **TINY | {"data.graphs": str(out.parent)} | fields)
    return regard.load(out)


def moved(graph, order):
    """A graph whose node order[n] became node n, its edges in another order."""
    place, turn = np.argsort(order), slice(None, None, -1)
    return Graph(
        graph.count, place[graph.edges][turn], {name: values[order] for name, values in graph.nodes.items()},
        {name: values[turn] for name, values in graph.links.items()},
    )  # fmt: skip


@pytest.mark.parametrize("fields", [{"model.encodings": ALL}, {"model.attention": "edges", "model.encodings": ALL[:3]}])
def test_renumbered_nodes_change_no_prediction_of_the_graph(files, tmp_path, monkeypatch, fields):
    graphs = labelled(files, "label")
    task = train(tmp_path / "run", monkeypatch, graphs, **fields)
    hexagon = Graph(9, np.array([(i, (i + 1) % 9) for i in range(9)]), graphs[0].nodes, {"weight": np.ones(9)})
    for graph in [*graphs[:3], hexagon]:  # of a ring, eigenvalues have several eigenvectors
        order = np.random.default_rng(1).permutation(graph.count)
        a, b = task.outputs(task.model, [graph, moved(graph, order)])
        assert torch.allclose(a, b, atol=1e-5) and torch.allclose(*task.embed([graph, moved(graph, order)]), atol=1e-5)


def test_a_graph_is_predicted_alone_as_in_a_batch_and_after_loading(files, tmp_path, monkeypatch):
    graphs = labelled(files, "label")
    task = train(tmp_path / "run", monkeypatch, graphs, **{"model.encodings": ALL})
    small = Graph(
        2, np.array([(0, 1)]), {name: values[:2] for name, values in graphs[0].nodes.items()}, {"weight": np.ones(1)}
    )
    together = task.predict([*graphs[:4], small])
    for graph, rows in zip([*graphs[:4], small], together, strict=True):
        (own,) = task.predict([graph])
        assert own[0]["label"] == rows[0]["label"] and abs(own[0]["probability"] - rows[0]["probability"]) < 1e-5
    assert regard.load(tmp_path / "run").predict([graphs[0]]) == task.predict([graphs[0]])
    heard = []
    with listening(lambda text, passing: heard.append(text)):
        assert torch.allclose(task.embed(str(files)), task.embed(graphs[0]))
    assert heard == [f"{files} has 12 graphs, of which the first is read; give one a file"]


def test_nodes_of_one_large_graph(tmp_path, monkeypatch):
    monkeypatch.setattr(generated, "MEMBERS", 30)
    generated.graphs.cache_clear()
    out = tmp_path / "run"
    fit("graph", out=out, quiet=True, **TINY | {"data.kind": "communities", "model.attention": "edges"})
    data, task = GraphsConfig(kind="communities"), regard.load(out)
    graph = data.held_out()[0]
    scored = task.evaluate(EvalSet(data=data, own=data))
    assert scored.scores["examples"] == 120 - 12 == int(graph.chosen.sum()) and scored.unit == "nodes"
    rows = task.predict([graph.graph])[0]
    assert [row["node"] for row in rows] == [str(node) for node in range(120)] and rows[0]["community"] in "0123"
    assert task.verb("predict").columns({"predictions": rows}) == {"predictions": rows}  # a cell of a table has all
    assert task.verb("predict").columns({"predictions": [{"logp": 1.5}]}) == {"logp": 1.5}
    assert "community" not in [each.name for each in task.features.nodes]  # the answer is no input
    order = np.random.default_rng(0).permutation(120)
    a, b = task.outputs(task.model, [graph.graph, moved(graph.graph, order)])
    assert torch.allclose(a[order], b, atol=1e-5)
    generated.graphs.cache_clear()


def test_numbers_of_molecules(tmp_path):
    pytest.importorskip("rdkit")
    table = tmp_path / "molecules.csv"
    rows = [f"{'C' * n}{tail},{n + 0.5}" for n in range(1, 7) for tail in ("O", "N", "=O")]
    table.write_text("\n".join(["smiles,logp", *rows]))
    fit("graph", out=tmp_path / "run", quiet=True, **TINY | {"data.graphs": str(table), "model.pooling": "sum"})
    task = regard.load(tmp_path / "run")
    assert task.predict("CCO")[0].keys() == {"logp"}
    (tmp_path / "new.smi").write_text("CCO\nCCN\n")
    first, second = task.predict([tmp_path / "new.smi"])[0]
    assert (
        first["graph"] == "CCO"
        and abs(first["logp"] - task.predict("CCO")[0]["logp"]) < 1e-5
        and second["graph"] == "CCN"
    )
    scored = evaluate(tmp_path / "run", {})
    assert scored.lower and set(scored.scores) == {"mean_error", "r2", "examples"}
    linear = scored.baselines["linear on counts of attributes"]
    assert linear["mean_error"] < scored.baselines["the median"]["mean_error"]  # here the number is one of atoms
    with pytest.raises(ValueError, match="'C1' is no molecule that RDKit can read"):
        task.predict("C1")


@pytest.mark.parametrize("fields, named", [({}, True), ({"model.attention": "edges"}, False)])
def test_attributes_of_edges_that_are_not_read_are_named(files, tmp_path, monkeypatch, capsys, fields, named):
    train(tmp_path / "run", monkeypatch, labelled(files, "label"), quiet=False, **fields)
    assert ("attributes of edges are not read (weight); add path" in capsys.readouterr().err) == named


def test_fine_tuning_reads_attributes_in_the_order_of_the_base(files, tmp_path, monkeypatch):
    """Values are sorted by their number, and others may be the most frequent in other graphs."""
    graphs = labelled(files, "label")
    before = train(tmp_path / "run", monkeypatch, graphs)
    order = before.features.nodes[0].values
    for graph in graphs:
        graph.nodes["kind"][:] = order[1]
    after = train(tmp_path / "tuned", monkeypatch, graphs, **{"data.base": str(tmp_path / "run")})
    assert len(order) == 2 and after.features.nodes == before.features.nodes


def test_what_the_model_did_not_learn_to_read_is_said(files, tmp_path, monkeypatch):
    graphs = labelled(files, "label")
    task = train(tmp_path / "run", monkeypatch, graphs)
    with pytest.raises(ValueError, match="has no attribute 'kind', but size; add it"):
        task.predict([{"nodes": [{"size": 1}], "edges": []}])
    with pytest.raises(ValueError, match="attribute 'size' is a number, got 'large'"):
        task.predict([{"nodes": [{"size": "large", "kind": "a"}], "edges": []}])
    (rows,) = task.predict([{"nodes": [{"size": 1, "kind": "never seen"}], "edges": []}])
    assert rows[0]["label"] in ("yes", "no")


def test_a_graph_is_drawn_with_attention_and_importance(files, tmp_path, monkeypatch):
    graphs = labelled(files, "label")
    task = train(tmp_path / "run", monkeypatch, graphs)
    prepared = task.read(graphs[0])
    data, draw = show_view(prepared, "graph", layer=0, head=1)
    assert len(data["nodes"]) == 9 and data["of"] == "encoder.blocks.0.attention, head 1"
    assert 0 < data["elsewhere"] < 1 and all(0 <= edge["attention"] <= 1 for edge in data["edges"])
    draw(tmp_path / "graph.png")
    assert (tmp_path / "graph.png").stat().st_size > 5000
    assert {"heads", "rollout", "gradient", "agreement"} <= set(prepared.views)


@pytest.mark.parametrize(("fields", "error"), [
    ({"model.encodings": ("sun",)}, "encodings has 'sun', which is none of degree, walk"),
    ({"model.attention": "edges", "model.encodings": ("distance",)}, "use attention=nodes for it"),
    ({"model.position": "rotary"}, "position=rotary would number the nodes"),
    ({"model.labels": ("a", "b")}, "follows from the graphs"),
    ({"data.kind": "distance", "data.target": "colour"}, "distance: no attribute 'colour' to predict"),
])  # fmt: skip
def test_settings_that_cannot_be_are_refused(tmp_path, fields, error):
    with pytest.raises(ValueError, match=error):
        fit("graph", out=tmp_path / "run", quiet=True, **{"data.kind": "distance"} | fields)
