"""Generation and beam search for a batch of ids, with an engine of its own."""

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
    """Generate a continuation of each row of `prefix` (a prompt, or BOS), greedily or sampled. The score of a
    hypothesis is the sum of its log-probabilities.

    `max_len` counts the generated tokens, `eos` included: with `force_end` the last one allowed is `eos`, at no cost.
    `forbidden` tokens are never chosen; the others keep their probabilities.
    `rows` numbers the rows for the random numbers (default: 0, 1, …), so that a corpus gives the same samples in
    batches of any size. `inputs` is the batch of what the model `reads`, as `source` with `lengths`, or `pixels`.
    """
    options: dict[str, Any] = dict(max_len=max_len, sampling=sampling, force_end=force_end)
    tickets = _serve(model, prefix, inputs, rows or range(len(prefix)), eos, forbidden=tuple(forbidden), **options)
    return [ticket.result()[0] for ticket in tickets]


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
    """Return the `n_best` continuations of each row of `prefix`, best first; score = Σ log p / length^length_penalty,
    `eos` counted.

    A search ends when it has `beams` finished hypotheses and the best running one, at its present length, is not
    above the worst of them. `early_stopping` True skips that comparison; "never" makes it safe, with the length that
    favours the running one most. The other arguments are those of `generate`.
    """
    options: dict[str, Any] = dict(max_len=max_len, force_end=force_end, beams=beams, n_best=n_best)
    options |= dict(length_penalty=length_penalty, early_stopping=early_stopping)
    tickets = _serve(model, prefix, inputs, range(len(prefix)), eos, forbidden=tuple(forbidden), **options)
    if beams > 1:
        return [ticket.result() for ticket in tickets]
    lengths = [len(ticket.ids) if ticket.ids[-1:] and ticket.ids[-1] in ends_of(eos) else max_len for ticket in tickets]
    return [
        [Hypothesis(ids=best.ids, score=best.score / length**length_penalty) for best in ticket.result()]
        for ticket, length in zip(tickets, lengths, strict=True)
    ]


def _serve(
    model: Generator,
    prefix: Int[Tensor, "B T"],
    inputs: dict[str, Tensor],
    rows: Sequence[int],
    eos: Ends,
    **options: Any,
) -> list[Ticket]:
    requests = [
        Request(prompt=prompt, inputs=unbatch(inputs, index), row=row, ends=tuple(ends_of(eos)), **options)
        for index, (prompt, row) in enumerate(zip(prefix.tolist(), rows, strict=True))
    ]
    return Engine(model).serve(requests)


def unbatch(inputs: dict[str, Tensor], index: int) -> dict[str, Tensor]:
    """Return one row of batched inputs; where there are `lengths`, sequences of tokens or frames lose their padding."""
    rows = {name: values[index] for name, values in inputs.items() if name != "lengths"}
    if "lengths" in inputs:
        rows = {name: row[: int(inputs["lengths"][index])] for name, row in rows.items()}
    return rows
