"""A beam search on record: every continuation that it considered, and which of them it kept. Greedy choice beside it.

It calls the model's `prefill` and `step`, one sequence at a time; the engine finds the same hypotheses.
"""

from dataclasses import dataclass
from typing import Any, Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor

from regard.decode.beam import Beams
from regard.decode.requests import Request
from regard.decode.sample import Hypothesis, evaluating
from regard.train.device import device_of


@dataclass(frozen=True, slots=True)
class Candidate:
    """One continuation that a step of the search considered."""

    id: int
    """Its token."""
    origin: int
    """The beam that it continues, by its rank in the step before."""
    log_prob: float
    """Of the token alone."""
    total: float
    """Sum of the log-probabilities of the whole hypothesis."""
    fate: Literal["kept", "ended", "dropped"]
    beam: int | None
    """Its rank among the beams of the next step, if it is kept."""


@dataclass(frozen=True, slots=True)
class Tree:
    """A whole search: the candidates of each step, best first, the finished hypotheses, and the greedy sequence."""

    steps: list[list[Candidate]]
    hypotheses: list[Hypothesis]
    greedy: list[tuple[int, float]]
    """Tokens of greedy choice, EOS included, with their log-probabilities."""


class Recorded(Beams):
    """Beams that keep what the last step considered."""

    last: tuple[Tensor, Tensor, Tensor]

    def candidates(
        self, log_probs: Float[Tensor, "N B C"], ids: Int[Tensor, "N B C"]
    ) -> tuple[Float[Tensor, "N E"], Int[Tensor, "N E"], Int[Tensor, "N E"]]:
        self.last = super().candidates(log_probs, ids)
        return self.last


def beam_tree(model: Any, request: Request) -> Tree:
    """Run the beam search of a request, and greedy choice."""
    steps: list[list[Candidate]] = []
    with evaluating(model):
        cache, logits = begin(model, request)
        beams = Recorded(request.rules, [request.max_len], like=logits)
        done = False
        while not done:
            before, rows = beams.total[0].tolist(), len(logits)
            best = allowed(logits, request).topk(min(2 * request.beams, logits.shape[1]))
            origins, tokens, over = beams.extend(best.values[None], best.indices[None])
            steps.append(considered([part[0].tolist() for part in beams.last], before, request))
            done = bool(over)
            if not done:
                cache.select(origins[0].clamp(max=rows - 1))  # beams of −∞ may name rows that are not there yet
                logits = model.step(tokens[0], cache)
        return Tree(steps, beams.hypotheses(0, request.beams), greedy_path(model, request))


def begin(model: Any, request: Request) -> tuple[Any, Float[Tensor, "1 V"]]:
    """Return the cache behind a request's prompt, and the logits of its next token."""
    cache = model.new_cache(len(request.prompt) + request.max_len)
    inputs = {name: values[None] for name, values in request.inputs.items()}
    if request.sequences:
        inputs["lengths"] = torch.tensor([request.source_length], device=device_of(model))
    return cache, model.prefill(torch.tensor([list(request.prompt)], device=device_of(model)), cache, **inputs)


def allowed(logits: Float[Tensor, "B V"], request: Request) -> Float[Tensor, "B V"]:
    """Return log-probabilities, −∞ for forbidden tokens; the others keep theirs."""
    log_probs = logits.log_softmax(-1, dtype=torch.promote_types(logits.dtype, torch.float32))
    log_probs[:, list(request.forbidden)] = -torch.inf
    return log_probs


def considered(step: list[Any], before: list[float], request: Request) -> list[Candidate]:
    """Return the candidates of a step, best first; those of probability 0 are left out."""
    rows, kept = [], 0
    for rank, (total, origin, id) in enumerate(zip(*step, strict=True)):
        if total == -torch.inf:
            continue
        ends = id in request.ends
        stays = not ends and kept < request.beams
        fate: Any = "kept" if stays else "ended" if ends and rank < request.beams else "dropped"
        rows.append(Candidate(id, origin, total - before[origin], total, fate, kept if stays else None))
        kept += stays
    return rows


def greedy_path(model: Any, request: Request) -> list[tuple[int, float]]:
    """Return the tokens of greedy choice, EOS included, with their log-probabilities."""
    cache, logits = begin(model, request)
    path: list[tuple[int, float]] = []
    while True:
        best = allowed(logits, request)[0].max(-1)
        path.append((int(best.indices), float(best.values)))
        if path[-1][0] in request.ends or len(path) == request.max_len - request.force_end:
            return path
        logits = model.step(best.indices[None], cache)
