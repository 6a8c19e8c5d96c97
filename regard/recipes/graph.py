"""Graphs: labels or numbers of graphs, or of their nodes, by a small Transformer over nodes.

regard train graph
    logP of 4,991 molecules (needs regard[graph]); with --model.attention edges --model.pooling sum --train.steps 3000,
    about three minutes of one core, a mean error of 0.062 (linear on counts of atoms and bonds 0.53)
regard train graph --data.kind distance --model.encodings distance --train.minutes 1 --train.clock cpu
    the length of a shortest path, 1 minute: 100 % (20 % without structure); as well connected, triangles, communities
regard train graph --data.graphs FOLDER --data.target NAME
    your own: a table of molecules, edges.csv and nodes.csv, TU's format, GraphML
"""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from regard.data.sets.labelled_graphs import SPLIT, GraphBatches, GraphsConfig, as_label, is_label, values_of
from regard.hub.remote import find
from regard.models import preset
from regard.objectives.labels import text_labels, token_labels
from regard.objectives.numbers import numbers
from regard.registry import register_recipe
from regard.runs.fit import Job, prepare
from regard.runs.recipe import Recipe, from_scratch
from regard.tokens.graph_features import GraphFeatures
from regard.train.progress import Line


@register_recipe("graph", verb="predict", bases=("predict-graphs", "embed-graphs"))
def graph(data: Mapping[str, Any]) -> Recipe:
    """Return the recipe of a small Transformer over nodes."""
    model = preset("graph-transformer", "tiny")
    train = from_scratch(steps=2000, batch_tokens=2048, lr=2e-3, every=250)
    return Recipe(name="graph", family="graph-transformer", model=model, data=GraphsConfig(), train=train)


@prepare.register
def prepare_graphs(data: GraphsConfig, recipe: Recipe, out: Path, resume: bool, line: Line) -> Job:
    """Graphs as tensors; the model gets the widths of their attributes and the names of their labels."""
    graphs, valid = data.split()
    target, of_nodes = data.choose_target([graphs[0].graph], data.source)
    values = values_of(graphs)
    labels = tuple(sorted({as_label(value) for value in values})) if is_label(values) else ()
    if len(labels) == 1:
        raise ValueError(f"{data.source} has the one label {labels[0]!r}; there is nothing to tell apart")
    mean, std = (0.0, 1.0) if labels else (float(np.mean(values)), float(np.std(values)) or 1.0)
    if data.base is None:
        features = GraphFeatures.of([each.graph for each in graphs], (target, SPLIT))
    else:  # its weights are those of its own attributes, in their order
        features = GraphFeatures.load(find(data.base))
        if target in [each.name for each in (*features.nodes, *features.links)]:
            raise ValueError(f"{data.base} reads {target!r}, which cannot be predicted by it; choose another base")
    features = replace(features, target=target, mean=mean, std=std)
    width, links = features.widths
    model = replace(
        recipe.model, labels=labels, numbers=0 if labels else 1, level="nodes" if of_nodes else "graph",
        node_features=width, edge_features=links,
    )  # fmt: skip
    if links and not getattr(model, "reads_links", True):
        unread = ", ".join(each.name for each in features.links)
        line.say(
            f"attributes of edges are not read ({unread}); add path to --model.encodings, or --model.attention edges"
        )
    recipe = replace(recipe, model=model)
    batches, most = GraphBatches(features, labels, recipe.train.seed), recipe.train.batch_tokens
    held = batches.examples(valid)
    count = f"{len(values):,} nodes of {len(graphs):,} graphs" if of_nodes else f"{len(graphs):,} graphs"
    return Job(
        recipe=recipe, readers={"graph": features}, stream=batches.stream(batches.examples(graphs), most),
        valid=lambda: batches.once(held, most),
        objective=(token_labels if of_nodes else text_labels) if labels else numbers,
        about=f"{count}: {target}" + (f", {len(labels)} labels" if labels else ""),
    )  # fmt: skip
