"""Laws of models that read graphs, as functions of a case: the numbering of nodes, and what fills up a batch, are
nothing."""

import torch
from torch import Tensor

from regard.doctor.case import Case, Inputs
from regard.doctor.laws import close, differs


def renumbered(inputs: Inputs, order: Tensor) -> Inputs:
    """Graphs whose node order[n] has become node n; the list of edges is turned around, too."""
    place = torch.argsort(order)
    edges = torch.where(inputs["edges"] < 0, -1, place[inputs["edges"].clamp(min=0)]).flip(1)
    return inputs | {"nodes": inputs["nodes"][:, order], "edges": edges, "links": inputs["links"].flip(1)}


def full(case: Case) -> Inputs:
    """The graphs of the example, all without filling: the last nodes of some have no edges."""
    inputs = case.inputs
    return inputs | {"lengths": torch.full_like(inputs["lengths"], inputs["nodes"].shape[1])}


def by_node(case: Case, out: Tensor) -> bool:
    """Whether an output has a row for each node."""
    return out.dim() > 2 and out.shape[1] == case.inputs["nodes"].shape[1]


@torch.no_grad()
def order_of_nodes_is_unknown(case: Case) -> None:
    """Renumbered nodes have the same outputs in their new order, and a graph the same output."""
    inputs = full(case)
    order = torch.randperm(inputs["nodes"].shape[1])
    out, other = case.model(**inputs), case.model(**renumbered(inputs, order))
    differs(inputs["nodes"][:, order], inputs["nodes"], "the nodes were renumbered")
    close(other, out[:, order] if by_node(case, out) else out, "renumbered nodes")


@torch.no_grad()
def filling_changes_nothing(case: Case) -> None:
    """Neither nodes nor edges that fill up a batch change an output."""
    inputs, out = case.inputs, case.output
    hidden = torch.arange(inputs["nodes"].shape[1]) >= inputs["lengths"][:, None]
    assert hidden.any() and not hidden.all(), "the example has no filling: this law could not fail"

    def real(answer: Tensor) -> Tensor:
        return answer[:, : hidden.shape[1]][~hidden] if by_node(case, out) else answer

    noise = torch.randn_like(inputs["nodes"])
    junk = torch.where(hidden[..., None], noise, inputs["nodes"])
    close(real(case.model(**inputs | {"nodes": junk})), real(out), "other numbers in nodes that fill up the batch")
    empty = inputs["edges"][..., :1] < 0
    links = torch.where(empty, torch.randn_like(inputs["links"]), inputs["links"])
    close(real(case.model(**inputs | {"links": links})), real(out), "other numbers in edges that fill up the batch")
    wider = {name: torch.cat([inputs[name], inputs[name][:, :3]], dim=1) for name in ("nodes",)}
    wider["edges"] = torch.cat([inputs["edges"], torch.full_like(inputs["edges"][:, :2], -1)], dim=1)
    wider["links"] = torch.cat([inputs["links"], inputs["links"][:, :2]], dim=1)
    close(real(case.model(**inputs | wider)), real(out), "three more nodes and two more edges of filling")
    changed = torch.where(hidden[..., None], inputs["nodes"], noise)
    differs(real(case.model(**inputs | {"nodes": changed})), real(out), "the real nodes were changed")


@torch.no_grad()
def graphs_do_not_meet(case: Case) -> None:
    """Changing all nodes and edges of the first graph changes its output, and that of no other."""
    inputs, out = case.inputs, case.output
    changed = {name: value.clone() for name, value in inputs.items()}
    changed["nodes"][0] += 1
    changed["edges"][0] = -1
    other = case.model(**changed)
    close(other[1:], out[1:], "the first graph was changed, the others moved")
    differs(other[:1], out[:1], "the first graph was changed")
