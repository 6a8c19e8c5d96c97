"""A batch of ids through an engine of its own: for a model that is at hand, without tokenizer or server."""

from collections.abc import Sequence
from typing import Any

from jaxtyping import Int
from torch import Tensor

from regard.decode.beam import EarlyStopping
from regard.decode.engine import Engine
from regard.decode.requests import Request, Ticket
from regard.decode.sample import Ends, Hypothesis, Sampling, ends_of
from regard.models.base import Generator


def generate(
    model: Generator,
    prefix: Int[Tensor, "B T"],
    *,
    eos: Ends,
    max_len: int,
    sampling: Sampling | None = None,
    forbidden: Sequence[int] = (),
    force_end: bool = False,
    rows: Sequence[int] | None = None,
    **inputs: Tensor,
) -> list[Hypothesis]:
    """What the model writes after each row of `prefix` (a prompt, or the mark of the start): greedy, or drawn as
    `sampling` says. Scores are sums of log-probabilities.

    `max_len` counts the tokens written, `eos` included: with `force_end` the last one allowed is `eos`, at no cost.
    `forbidden` tokens are never chosen; the others keep their probabilities.
    `rows` numbers the rows for the noise (default: 0, 1, …), so that a corpus cut into batches of any size gives
    the same samples. `inputs` are what else the model reads: `source` and `lengths` for an encoder–decoder, `pixels`
    for one that sees.
    """
    how: dict[str, Any] = dict(max_len=max_len, sampling=sampling, force_end=force_end)
    found = _serve(model, prefix, eos, forbidden, rows or range(len(prefix)), inputs, how)
    return [ticket.result()[0] for ticket in found]


def beam_search(
    model: Generator,
    prefix: Int[Tensor, "B T"],
    *,
    eos: Ends,
    max_len: int,
    beams: int = 4,
    length_penalty: float = 1.0,
    n_best: int = 1,
    early_stopping: EarlyStopping = False,
    forbidden: Sequence[int] = (),
    force_end: bool = False,
    **inputs: Tensor,
) -> list[list[Hypothesis]]:
    """The `n_best` continuations of each row of `prefix`, best first; score = Σ log p / length^length_penalty, `eos`
    counted.

    A sentence is done when it has `beams` finished hypotheses and the best running one, at its present length, is
    not above the worst of them. `early_stopping` True does without that comparison; "never" makes it safe, with the
    length that serves the running one best. The other arguments are those of `generate`.
    """
    how: dict[str, Any] = dict(max_len=max_len, force_end=force_end, beams=beams, n_best=n_best)
    how |= dict(length_penalty=length_penalty, early_stopping=early_stopping)
    found = _serve(model, prefix, eos, forbidden, range(len(prefix)), inputs, how)
    if beams > 1:
        return [ticket.result() for ticket in found]
    lengths = [len(ticket.ids) if ticket.ids[-1:] and ticket.ids[-1] in ends_of(eos) else max_len for ticket in found]
    return [
        [Hypothesis(ids=best.ids, score=best.score / length**length_penalty) for best in ticket.result()]
        for ticket, length in zip(found, lengths, strict=True)
    ]


def _serve(
    model: Generator,
    prefix: Int[Tensor, "B T"],
    eos: Ends,
    forbidden: Sequence[int],
    rows: Sequence[int],
    inputs: dict[str, Tensor],
    how: dict[str, Any],
) -> list[Ticket]:
    sources: list[list[int] | None] = [None] * len(prefix)
    if "source" in inputs:
        lengths = inputs["lengths"].tolist()
        sources = [ids[:length] for ids, length in zip(inputs["source"].tolist(), lengths, strict=True)]
    pictures = list(inputs["pixels"]) if "pixels" in inputs else [None] * len(prefix)
    ends: dict[str, Any] = dict(ends=tuple(ends_of(eos)), forbidden=tuple(forbidden))
    requests = [
        Request(prompt=prompt, source=source, pixels=pixels, row=row, **ends, **how)
        for prompt, source, pixels, row in zip(prefix.tolist(), sources, pictures, rows, strict=True)
    ]
    return Engine(model).serve(requests)
