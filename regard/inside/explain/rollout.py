"""Explanations by weights alone, through all layers: plain attention, and attention rollout."""

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from regard.inside.capture.weights import Seen, look
from regard.tasks.prepared import Prepared

Step = tuple[str, Float[Tensor, "_ _"]]
"""One attention layer: its kind, and the mean weights of its heads."""


@torch.no_grad()
def all_weights(prepared: Prepared) -> Seen:
    """The weights of all attention layers of a model for one input."""
    with look(prepared.model) as seen:
        prepared.run(prepared.inputs)
    if seen.names_of("recurrent"):
        raise ValueError(f"{type(prepared.model).__name__} has a single attention layer; use --view heads")
    check_uniform(prepared)
    return seen


def check_uniform(prepared: Prepared) -> None:
    """Raise an error where tokens are not the same in all layers: windows and pooled grids are not one sequence."""
    if not prepared.uniform:
        prepared.stacks  # noqa: B018  it raises the error, if there are none
        raise ValueError(f"the tokens of a {type(prepared.model).__name__} change between layers; use --view ablation")


def steps_of(prepared: Prepared, seen: Seen | None = None) -> list[Step]:
    """The kind and the mean weights of the heads of each layer, in the order in which they run."""
    seen = seen or all_weights(prepared)
    return [
        (seen.kind_of(name), prepared.without_ablated(name, seen.attention[name][0]).mean(0)) for name in seen.names
    ]


def flow(steps: Sequence[Step], *, stay: float, go: float) -> Float[Tensor, "T S"]:
    """Return the share of each input token in each position after the last layer.

    Every layer passes on `stay` of what a position had and `go` of what it attends to. For a decoder with a source,
    the input tokens are those of the source.
    """
    memory, own, source = None, None, None
    for kind, weights in steps:
        if kind == "encoder":
            memory = torch.eye(len(weights)) if memory is None else memory
            memory = stay * memory + go * weights @ memory
        elif kind == "decoder":
            own = torch.eye(len(weights)) if own is None else own
            own = stay * own + go * weights @ own
            source = None if source is None else stay * source + go * weights @ source
        else:
            memory = torch.eye(weights.shape[1]) if memory is None else memory  # of cells that no block reads
            source = torch.zeros_like(weights) if source is None else source
            source, own = stay * source + go * weights @ memory, None if own is None else stay * own
    reached = source if source is not None else own if own is not None else memory
    assert reached is not None
    return reached


def attention(prepared: Prepared, seen: Seen | None = None) -> Float[Tensor, "R S"]:
    """The weight of each token for each output, the plain mean of all layers and heads (of cross-attention if any)."""
    steps = steps_of(prepared, seen)
    last = steps[-1][0]  # cross-attention where there is any
    return prepared.outputs.readout @ torch.stack([weights for kind, weights in steps if kind == last]).mean(0)


def rollout(prepared: Prepared, seen: Seen | None = None) -> Float[Tensor, "R S"]:
    """Attention rollout (Abnar and Zuidema, 2020): a layer keeps half of what it had and takes half by attention."""
    return prepared.outputs.readout @ flow(steps_of(prepared, seen), stay=0.5, go=0.5)
