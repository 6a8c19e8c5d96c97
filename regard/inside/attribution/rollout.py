"""How much of each token reaches each output through all layers: attention alone, and attention rollout."""

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from regard.inside.attribution.question import Question
from regard.inside.capture import Seen, look

Step = tuple[str, Float[Tensor, "_ _"]]
"""One attention layer: its kind, and the weights of its heads together."""


@torch.no_grad()
def weights_seen(question: Question) -> Seen:
    """All weights of the model at work on a question."""
    with look(question.model) as seen:
        question.says(question.inputs)
    if seen.names_of("recurrent"):
        raise ValueError(f"{type(question.model).__name__} has a single attention; look at it with --view heads")
    question.check_tokens()
    return seen


def kind_of(seen: Seen, name: str) -> str:
    return seen.calls[name][0].kind


def steps_of(question: Question, seen: Seen | None = None) -> list[Step]:
    """The mean of the heads of each layer, in the order in which they run."""
    seen = seen or weights_seen(question)
    return [(kind_of(seen, name), question.heard(name, seen.attention[name][0]).mean(0)) for name in seen.names]


def flow(steps: Sequence[Step], *, stay: float, go: float) -> Float[Tensor, "T S"]:
    """What of each token read has come to each place behind the last layer.

    Every layer passes on `stay` of what a place had and `go` of what it looks at. A decoder with a source has two
    kinds of tokens behind it; those of the source are told.
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
            memory = torch.eye(weights.shape[1]) if memory is None else memory  # of places that no block reads
            source = torch.zeros_like(weights) if source is None else source
            source, own = stay * source + go * weights @ memory, None if own is None else stay * own
    found = source if source is not None else own if own is not None else memory
    assert found is not None
    return found


def attention(question: Question, seen: Seen | None = None) -> Float[Tensor, "R S"]:
    """Where each output's places look, the plain mean of all layers and heads; of a translator, into its source."""
    steps = steps_of(question, seen)
    last = steps[-1][0]  # cross-attention where there is any
    return question.reads @ torch.stack([weights for kind, weights in steps if kind == last]).mean(0)


def rollout(question: Question, seen: Seen | None = None) -> Float[Tensor, "R S"]:
    """Attention rollout (Abnar and Zuidema, 2020): layers keep half of what they had and take half of what they see."""
    return question.reads @ flow(steps_of(question, seen), stay=0.5, go=0.5)
