"""Graphs with labels or numbers, for each graph or each node: the user's own, molecules, or generated ones; batches."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
import torch

from regard.config import nearest
from regard.data.generated.graphs import graphs as embedded_graphs
from regard.data.notices import notify_once
from regard.data.readers.graph_files import Graph, is_missing, text_of
from regard.data.readers.graph_sources import open_graphs
from regard.data.sets.base import Data
from regard.data.sets.batches import IGNORE, Batch, Stream
from regard.data.sets.overview import Overview, label_notes

Kind = Literal["molecules", "connected", "distance", "triangles", "communities"]
HELD_OUT = 5
"""One of so many of the user's graphs, or nodes, is held out for validation."""
SPLIT = "split"
"""The attribute of nodes that says which are for training, validation and test."""
TARGETS = {"molecules": "logp", "communities": "community"}
"""Targets of embedded graphs that have another name than the graphs."""
FEW = 20
"""Different whole numbers of a target up to which they are labels."""


@dataclass(frozen=True, slots=True, eq=False)
class LabelledGraph:
    """A graph with what is to be predicted: a label, a number, or one of them for each node that counts here."""

    graph: Graph
    target: Any
    """A label or number; of nodes an array, and `chosen` says which count."""
    number: int
    chosen: np.ndarray | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class GraphsConfig(Data):
    """Where graphs come from (nothing given: embedded ones), and what is predicted of them."""

    own: ClassVar[tuple[str, ...]] = ("graphs",)
    splitting: ClassVar[tuple[str, ...]] = ("target",)
    reading: ClassVar[tuple[str, ...]] = ("target",)
    decides: ClassVar[dict[str, str]] = dict.fromkeys(
        ("model.labels", "model.numbers", "model.level", "model.node_features", "model.edge_features"),
        "follows from the graphs; use --data.target",
    )

    kind: Kind = "molecules"
    """Embedded graphs: molecules, or generated: connected, distance, triangles; communities of nodes."""
    graphs: str | None = None
    """A table of molecules, a folder with edges.csv and nodes.csv or in TU's format, a .graphml, .smi or .json."""
    valid: str | None = None
    """Graphs for validation (none: a part of the above)."""
    test: str | None = None
    """Graphs for the final test (none: those for validation)."""
    target: str | None = None
    """The attribute of graphs, or of nodes, that is predicted (none: the only one, or that called label)."""
    base: str | None = None
    """A run or checkpoint whose weights to start from."""

    @property
    def parts(self) -> dict[str, str]:
        named = {"train": self.graphs, "valid": self.valid, "test": self.test}
        return {part: source for part, source in named.items() if source}

    @property
    def idle(self) -> dict[str, str]:
        return {"kind": f"graphs {self.graphs}"} if self.graphs else {}

    @property
    def source(self) -> str:
        return self.graphs or self.kind

    def read(self, source: str | None, part: str = "train") -> list[LabelledGraph]:
        """The graphs of a source, or a part of the embedded ones, with what is to be predicted."""
        graphs = embedded_graphs(self.kind, part) if source is None else open_graphs(source)
        name, of_nodes = self.choose_target(graphs, source or self.kind)
        found: list[LabelledGraph] = []
        for line, graph in enumerate(graphs, 1):
            table: Any = graph.nodes if of_nodes else graph.facts
            if name not in table:
                raise ValueError(f"{source}, graph {line}: there is no {name!r} to predict; add it")
            if of_nodes:  # nodes without a label are read, but not learned from
                chosen = np.array([not is_missing(value) for value in graph.nodes[name]])
                found.append(LabelledGraph(graph, graph.nodes[name], len(found), chosen))
            elif not is_missing(graph.facts[name]):
                found.append(LabelledGraph(graph, graph.facts[name], len(found)))
        if len(found) < len(graphs):
            notify_once(
                f"{source}: {len(graphs) - len(found):,} of {len(graphs):,} graphs have no {name} and are left out"
            )
        if not found:
            raise ValueError(f"{source}: no graph has a {name}; give it to some")
        return found

    def choose_target(self, graphs: Sequence[Graph], source: str) -> tuple[str, bool]:
        """The name of the attribute that is predicted, and whether it is one of nodes."""
        facts, nodes = graphs[0].facts, graphs[0].nodes
        wanted = self.target or (TARGETS.get(self.kind, self.kind) if self.embedded else None)
        if wanted is not None:
            if wanted in facts or wanted in nodes:
                return wanted, wanted not in facts
            raise ValueError(f"{source}: no attribute {wanted!r} to predict; {nearest(wanted, [*facts, *nodes])}")
        if len(facts) == 1 or "label" in facts:
            return ("label" if "label" in facts else next(iter(facts))), False
        if not facts and "label" in nodes:
            return "label", True
        known = ", ".join([*facts, *nodes]) or "no attributes"
        raise ValueError(f"{source} has {known}; say which is predicted: --data.target NAME")

    def split(self) -> tuple[list[LabelledGraph], list[LabelledGraph]]:
        return self.part("train"), self.part("valid")

    def held_out(self) -> list[LabelledGraph]:
        return self.part("test")

    def part(self, part: str) -> list[LabelledGraph]:
        """The graphs of a part: a file of their own, else a share of all graphs, or of the nodes of a single one."""
        source = {"train": self.graphs, "valid": self.valid, "test": self.test or self.valid}[part]
        whole = self.read(self.graphs if source is None else source, part)
        if len(whole) == 1 and whole[0].chosen is not None:
            return [of_part(whole[0], part, source is not None and part != "train")]
        if self.embedded or source is not None and (part != "train" or self.valid):
            return whole
        if len(whole) < 2:
            raise ValueError(f"{self.graphs} has a single graph; give more, or others as --data.valid")
        order = np.random.default_rng(0).permutation(len(whole))
        held = set(order[: max(1, len(whole) // HELD_OUT)].tolist())
        return [each for each in whole if (each.number in held) == (part != "train")]

    def overview(self) -> list[Overview]:
        views = []
        for part, source in self.parts.items():
            graphs = self.read(source)
            labels = Counter(str(each.target) for each in graphs) if graphs[0].chosen is None else Counter()
            labels = labels if is_label([each.target for each in graphs]) else Counter()
            about = f"{sum(each.graph.count for each in graphs):,} nodes"
            notes = label_notes(labels, len(graphs), "graphs") if part == "train" and labels else []
            views.append(Overview(source=source, part=part, count=len(graphs), unit="graphs", about=about,
                                  labels=labels, notes=notes))  # fmt: skip
        return views


def of_part(whole: LabelledGraph, part: str, named: bool) -> LabelledGraph:
    """A large graph with the nodes of a part: by its attribute "split", or three in five, one and one."""
    assert whole.chosen is not None
    split = whole.graph.nodes.get(SPLIT)
    if named:
        own = whole.chosen
    elif split is not None:
        own = np.array([str(value) in (part, {"valid": "val"}.get(part, part)) for value in split])
    else:
        share = np.random.default_rng(0).permutation(whole.graph.count) % HELD_OUT
        own = {"train": share > 1, "valid": share == 0, "test": share == 1}[part]
    chosen = own & whole.chosen
    if not chosen.any():
        raise ValueError(f"no node with a label is for {part}: the attribute {SPLIT!r} says train, valid or test")
    return LabelledGraph(whole.graph, whole.target, whole.number, chosen)


def values_of(examples: Sequence[LabelledGraph]) -> list[Any]:
    """The targets of graphs, or of the nodes that count."""
    if examples and examples[0].chosen is not None:
        return [value for each in examples for value in np.asarray(each.target)[each.chosen].tolist()]
    return [each.target for each in examples]


def is_label(values: Sequence[Any]) -> bool:
    """Whether values to predict are labels: texts, or few different whole numbers."""
    if any(isinstance(value, str) for value in values):
        return True
    return len(set(values)) <= FEW and all(float(value).is_integer() for value in values)


def as_label(value: Any) -> str:
    """The label of a value: 2.0 is "2"."""
    return text_of(value)


@dataclass(frozen=True, slots=True, eq=False)
class GraphExample:
    """A graph for a batch: its arrays, and its target or those of its nodes."""

    encoded: Any
    """A `regard.tokens.graph_features.Encoded`."""
    target: Any
    number: int

    @property
    def sizes(self) -> tuple[int]:
        return (len(self.encoded.nodes),)


@dataclass(frozen=True)
class GraphBatches:
    """Turns graphs into batches."""

    features: Any
    """Attributes as numbers: a `regard.tokens.graph_features.GraphFeatures`."""
    labels: tuple[str, ...]
    seed: int = 0

    def examples(self, graphs: Sequence[LabelledGraph]) -> list[GraphExample]:
        """Graphs with the indices of their labels, or their numbers at the scale of training."""
        return [GraphExample(self.features.encode(each.graph), self.target(each), each.number) for each in graphs]

    def target(self, example: LabelledGraph) -> Any:
        if example.chosen is None:
            return self.value(example.target)
        rest = IGNORE if self.labels else np.nan
        values = zip(np.asarray(example.target).tolist(), example.chosen, strict=True)
        return np.array([self.value(value) if chosen else rest for value, chosen in values])

    def value(self, value: Any) -> int | float:
        """The index of a label, or a number at the scale of training."""
        if not self.labels:
            return (float(value) - self.features.mean) / self.features.std
        label = as_label(value)
        if label not in self.labels:
            raise ValueError(f"the label {label!r} occurs in no graph for training; add some")
        return self.labels.index(label)

    def stream(self, examples: Sequence[GraphExample], max_nodes: int) -> Stream:
        """Endless batches of these graphs; a single one is the same tensors every time."""
        if len(examples) == 1:
            batch = self.collate(examples)
            return Stream(lambda epoch: examples, lambda _: batch, max_nodes, seed=self.seed)
        return Stream(lambda epoch: examples, self.collate, max_nodes, seed=self.seed)

    def once(self, examples: Sequence[GraphExample], max_nodes: int) -> Any:
        """Every example once."""
        return self.stream(examples, max_nodes).once(examples)

    def collate(self, examples: Sequence[GraphExample]) -> Batch:
        """The tensors of some graphs, and their targets."""
        inputs = self.features.batch([each.encoded for each in examples])
        kind = torch.long if self.labels else torch.float32
        if np.ndim(examples[0].target):
            rest = IGNORE if self.labels else float("nan")
            targets = torch.full(inputs["nodes"].shape[:2], rest, dtype=kind)
            for row, each in enumerate(examples):
                targets[row, : len(each.target)] = torch.from_numpy(each.target).to(kind)
        else:
            targets = torch.tensor([each.target for each in examples], dtype=kind)
        return Batch(inputs, targets, tuple(each.number for each in examples))
