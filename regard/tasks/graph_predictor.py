"""Models of graphs: a vector for each, labels or numbers of graphs or of their nodes."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from regard.data.graph_layout import layout
from regard.data.notices import notify_once
from regard.data.readers.graph_files import Graph
from regard.data.sets.batches import Batch, bucket
from regard.data.sets.labelled_graphs import GraphsConfig, LabelledGraph, as_label, values_of
from regard.modalities.graph import GRAPH
from regard.tasks.base import EvalSet, Example, Samples, Scored, Task, Verb, Work, register_task
from regard.tasks.baselines import most_frequent
from regard.tasks.metrics import label_scores, label_table
from regard.tasks.prepared import Outputs, Prepared, TokenSequence, all_tokens, on_device
from regard.tasks.single import one_or_many
from regard.tasks.text_encoder import EMBED
from regard.tokens.graph_features import GraphFeatures

GraphInput = str | Path | bytes | dict | list | Graph
"""A file of graphs, an object of nodes and edges, a SMILES, or graphs that were read."""
KNOWN = 5000
"""Training graphs that a linear baseline learns from."""
NODES = 4096
"""Nodes of the graphs that are computed together."""
MOST_SHOWN = 1024
"""Nodes of the largest graph that is looked at: weights are a matrix."""
MOST_DRAWN = 400
"""Nodes of the largest graph that is drawn."""


@register_task("embed-graphs")
class GraphEncoder(Task):
    """A model of graphs: a vector for each."""

    inputs: ClassVar[tuple[str, ...]] = ("graph",)
    verbs: ClassVar[tuple[Verb, ...]] = (EMBED,)
    data: ClassVar[tuple[type, ...]] = (GraphsConfig,)

    def __init__(self, model: Any, features: GraphFeatures) -> None:
        self.model, self.features = model.eval(), features

    def facts(self) -> dict[str, str]:
        facts = super().facts()
        facts.pop("context", None)  # graphs have no order, and no limit by it
        return facts

    @torch.inference_mode()
    def outputs(self, function: Any, graphs: Sequence[Graph]) -> list[Tensor]:
        """The result of `function` for each graph; of a graph's nodes as many rows."""
        encoded, results = [self.features.encode(graph) for graph in graphs], [torch.empty(0)] * len(graphs)
        for group in bucket(np.array([[graph.count] for graph in graphs]), NODES, None) if graphs else []:
            inputs = on_device(self.features.batch([encoded[number] for number in group]), self.model)
            for number, row in zip(group, function(**inputs).float().cpu(), strict=True):
                results[number] = row[: graphs[number].count] if row.dim() > 1 else row
        return results

    @one_or_many
    def embed(self, graphs: Sequence[GraphInput], *, normalize: bool = True) -> Float[Tensor, "N D"]:
        """A vector for each graph, of length 1 if `normalize`; of a file of several, for the first."""
        rows = self.outputs(self.model.embed, [first_of(item) for item in graphs])
        vectors = torch.stack(rows) if rows else torch.empty(0, self.model.config.dim)
        return F.normalize(vectors, dim=-1) if normalize else vectors

    vectors = embed

    def read(self, *graphs: Any, **options: Any) -> Prepared:
        """Prepare a graph; its nodes are the tokens. Of a file of several, the first."""
        if len(graphs) != 1:
            raise ValueError(f"a {type(self.model).__name__} reads one graph at a time, got {len(graphs)}")
        model, answers, graph = self.model, self.output, first_of(graphs[0])
        of_nodes = answers != "vector" and model.config.level == "nodes"
        if graph.count > MOST_SHOWN:
            raise ValueError(f"a graph of {graph.count:,} nodes is too large to show, at most {MOST_SHOWN:,}")
        if answers == "labels" and not model.config.labels:
            answers = "number"

        def run(inputs: dict[str, Tensor]) -> Tensor:
            rows = model.embed(**inputs) if answers == "vector" else model(**inputs)
            return rows if of_nodes else rows[:, None]

        def choose(prepared: Prepared) -> Outputs:
            column = 0 if answers in ("vector", "number") else int(prepared.logits()[0, 0].argmax())
            return Outputs([0], [column], all_tokens(graph.count))

        return Prepared(
            model=model, run=run, answers=answers, labels=list(model.config.labels), own_views=("graph",),
            inputs=on_device(self.features.batch([self.features.encode(graph)]), model),
            row_sequence=0 if of_nodes else None, choose=None if of_nodes else choose,
            sequences=[TokenSequence("graph", f"{graph.count} nodes", node_names(graph))],
            embed=lambda inputs: model.embed(**inputs),
            request={"answer": self.described(graph)} | placed(graph),
        )  # fmt: skip

    def described(self, graph: Graph) -> str:
        """A few words about a graph, for figures."""
        return graph.title or f"{graph.count} nodes"


def first_of(item: GraphInput) -> Graph:
    """The graph of an input; of a file of several the first, and a line says so."""
    graphs = GRAPH.read(item)
    if len(graphs) > 1:
        name = item if isinstance(item, str | Path) else "the input"
        notify_once(f"{name} has {len(graphs):,} graphs, of which the first is read; give one a file")
    return graphs[0]


def placed(graph: Graph) -> dict[str, Any]:
    """The edges of a graph and positions of its nodes, for the page; {} for one that is too large to draw."""
    if graph.count > MOST_DRAWN:
        return {}
    edges = graph.edges.tolist()
    return {"edges": edges, "places": layout(graph.count, edges).round(3).tolist()}


def node_names(graph: Graph) -> list[str]:
    """The names of nodes, or their numbers with their first attribute."""
    if len(graph.names) or not graph.nodes:
        return [graph.name(node) for node in range(graph.count)]
    first = next(iter(graph.nodes.values()))
    return [f"{node}:{value}" if isinstance(value, str) else str(node) for node, value in enumerate(first)]


def render_predictions(answer: dict[str, Any]) -> str:
    """A line for each graph or node."""
    return "\n".join("\t".join(shown(value) for value in row.values()) for row in answer["predictions"])


def table_columns(answer: dict[str, Any]) -> dict[str, Any]:
    """The fields of the one prediction as columns of a table; those of nodes, or of several graphs, are one cell."""
    rows = answer["predictions"]
    return rows[0] if len(rows) == 1 and "node" not in rows[0] else answer


def shown_row(rows: list[dict[str, Any]]) -> str:
    """A prediction in a few words."""
    return ", ".join(f"{name} {shown(value)}" for name, value in rows[0].items())


def shown(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


@register_task("predict-graphs")
class GraphPredictor(GraphEncoder):
    """Predicts a label or a number of each graph, or of each node."""

    verbs: ClassVar[tuple[Verb, ...]] = (
        Verb(
            name="predict", does="predicts facts of graphs", help="Predict labels or numbers of graphs, or of nodes.",
            as_json=lambda rows: {"predictions": rows}, render=render_predictions,
            columns=table_columns,
        ),
        EMBED,
    )  # fmt: skip
    output = "labels"

    @one_or_many
    def predict(self, graphs: Sequence[GraphInput]) -> list[list[dict[str, Any]]]:
        """For each file of graphs a row for each graph in it, or each node: a label and its probability, or a number,
        under the name of what was learned."""
        files = [GRAPH.read(item) for item in graphs]
        rows = iter(self.outputs(self.model, [graph for file in files for graph in file]))
        return [[row for graph in file for row in self.rows(graph, next(rows), len(file) > 1)] for file in files]

    def described(self, graph: Graph) -> str:
        rows: Any = self.predict([graph])
        more = f": {shown_row(rows[0])}" if len(rows[0]) == 1 else ""
        return super().described(graph) + more

    def rows(self, graph: Graph, out: Tensor, several: bool) -> list[dict[str, Any]]:
        """The predictions of a graph, or of its nodes by name."""
        named = {"graph": graph.title} if several and graph.title else {}
        if out.dim() == 1:
            return [named | self.row(out)]
        return [named | {"node": graph.name(node)} | self.row(own) for node, own in enumerate(out)]

    def row(self, out: Tensor) -> dict[str, Any]:
        """A label with its probability, or a number."""
        name, labels = self.features.target or "value", self.model.config.labels
        if not labels:
            return {name: round(float(out[0]) * self.features.std + self.features.mean, 6)}
        best = out.softmax(-1).max(-1)
        return {name: labels[int(best.indices)], "probability": round(float(best.values), 6)}

    @torch.no_grad()
    def validate(self, batches: Iterable[Batch]) -> dict[str, float]:
        if not self.model.config.labels:
            return {}
        right = count = 0
        for batch in batches:
            known = batch.targets >= 0
            right += int((self.model(**batch.inputs).argmax(-1) == batch.targets)[known].sum())
            count += int(known.sum())
        return {"accuracy": 100 * right / max(1, count)}

    def held_out(self, test: EvalSet) -> list[LabelledGraph]:
        """The graphs of a test set: all of the named files, or those held out of the run's own data."""

        def read() -> list[LabelledGraph]:
            named = "graphs" in test.named and not test.named & {"valid", "test"}
            return test.data.read(test.data.graphs) if named else test.data.held_out()

        graphs = test.read("graphs", read)
        return graphs[: test.limit] if test.limit else graphs

    def predicted(self, graphs: Sequence[LabelledGraph]) -> list[Any]:
        """The label or number of each graph, or of each node that counts."""
        values: list[Any] = []
        answers: Any = self.predict([each.graph for each in graphs])
        for each, rows in zip(graphs, answers, strict=True):
            chosen = [True] if each.chosen is None else each.chosen
            values += [row[self.features.target] for row, own in zip(rows, chosen, strict=True) if own]
        return values

    def evaluate(self, test: EvalSet, **options: Any) -> Scored:
        graphs = self.held_out(test)
        predicted, expected = self.predicted(graphs), values_of(graphs)
        unit = "nodes" if graphs and graphs[0].chosen is not None else "graphs"
        if not self.model.config.labels:
            return Scored(
                scores=number_scores(predicted, expected), outputs=[f"{value:.4f}" for value in predicted],
                expected=expected, total=len(expected), unit=unit, metrics=("mean_error",), lower=True,
                summary=summary(number_scores(predicted, expected)),
            )  # fmt: skip
        expected = [as_label(value) for value in expected]
        return Scored(
            scores=label_scores(predicted, expected), outputs=predicted, expected=expected, total=len(expected),
            unit=unit, **label_table(predicted, expected, self.model.config.labels),
        )  # fmt: skip

    def baselines(self, test: EvalSet, scored: Scored) -> dict[str, dict[str, float]]:
        expected, labels = list(scored.expected), self.model.config.labels
        if labels:
            rows = {"most frequent label": label_scores([most_frequent(expected)] * len(expected), expected)}
        else:
            rows = {"the median": number_scores([float(np.median(expected))] * len(expected), expected)}
        if (linear := self.linear(test)) is not None:
            name = "linear on attributes" if self.model.config.level == "nodes" else "linear on counts of attributes"
            rows[name] = label_scores(linear, expected) if labels else number_scores(linear, expected)
        return rows

    def linear(self, test: EvalSet) -> list[Any] | None:
        """The answers of a ridge regression on the attributes of nodes, summed over each graph; it sees no edge."""
        try:
            known, others = test.own.part("train")[:KNOWN], self.held_out(test)
        except (OSError, ValueError):  # the training data are no longer where they were
            return None
        labels, values = self.model.config.labels, values_of(known)
        targets = np.array([[as_label(value) == label for label in labels] if labels else [value] for value in values])
        inputs, asked = (np.concatenate([self.summed(each) for each in part]) for part in (known, others))
        middle, offset = inputs.mean(0), targets.mean(0)
        inner = (inputs - middle).T @ (inputs - middle)
        weights = np.linalg.solve(inner + np.eye(len(inner)), (inputs - middle).T @ (targets - offset))
        out = (asked - middle) @ weights + offset
        return [labels[best] for best in out.argmax(1)] if labels else out[:, 0].tolist()

    def summed(self, each: LabelledGraph) -> np.ndarray:
        """The numbers of a graph's nodes, summed, with how many they are; or those of each node that counts."""
        nodes = self.features.encode(each.graph).nodes.astype(float)
        return np.append(nodes.sum(0), len(nodes))[None] if each.chosen is None else nodes[each.chosen]

    def work(self, test: EvalSet) -> Work:
        graphs = [each.graph for each in self.held_out(test)]
        return Work(run=lambda: self.predict(graphs), count=len(graphs), unit="graph")

    def samples(self, test: EvalSet, run: Path) -> Samples:
        graphs = self.held_out(test)[:5]
        rows = []
        answers: Any = self.predict([each.graph for each in graphs])
        for each, own in zip(graphs, answers, strict=True):
            about = each.graph.title or f"a graph of {each.graph.count} nodes"
            expected = f", {as_label(each.target)}" if each.chosen is None else ""
            rows.append((about + expected, render_predictions({"predictions": own[:3]}).replace("\n", "; ")))
        examples = [Example(inputs=(each.graph,), label=about) for each, (about, _) in zip(graphs, rows, strict=True)]
        return Samples(rows=rows, commands=[f"regard predict {run} FILE", f"regard eval {run}"], examples=examples)


def number_scores(predicted: Sequence[float], expected: Sequence[float]) -> dict[str, Any]:
    """The mean absolute error, and the share of the variance that is explained."""
    error = np.array(predicted) - np.array(expected)
    spread = float(np.var(expected)) or 1.0
    explained = round(1 - float(np.mean(error**2)) / spread, 4)
    return {"mean_error": round(float(np.abs(error).mean()), 4), "r2": explained, "examples": len(predicted)}


def summary(scores: dict[str, Any]) -> str:
    """The error of numbers in a line."""
    return f"mean absolute error {scores['mean_error']:.3f}   R² {scores['r2']:.3f}   ({scores['examples']:,} examples)"
