"""How far views of the same output agree, by rank correlation, and which head says what matters."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from regard.inside.attribution.effects import erasure
from regard.inside.attribution.gradients import gradient
from regard.inside.attribution.question import Question
from regard.inside.attribution.rollout import attention, rollout, weights_seen

FEWEST = 3
"""Tokens that an output must see for an order among them to mean something."""
STRONG, WEAK = 0.7, 0.4


@dataclass(frozen=True, slots=True)
class Agreement:
    """What matters by each view, and how alike their orders are."""

    weights: dict[str, Float[Tensor, "R S"]]
    correlations: Float[Tensor, "V V"]
    """Spearman's ρ of each pair of views, the mean over outputs; nan where nothing can be compared."""

    @property
    def meaning(self) -> str:
        """In a sentence or two."""
        views = list(self.weights)
        found = {view: float(self.correlations[i, -1]) for i, view in enumerate(views[:-1])}
        known = {view: rho for view, rho in found.items() if not np.isnan(rho)}
        if not known:
            return "There are too few tokens to compare the views; give a longer text."
        best, worst = max(known, key=known.__getitem__), min(known, key=known.__getitem__)
        told = (
            "Measured by what happens when a token is taken away (ablation), "
            f"{best} is nearest (ρ = {known[best]:.2f}) and {worst} farthest (ρ = {known[worst]:.2f})."
        )
        if known[best] >= STRONG:
            return f"{told} Here {best} may be read as an explanation; where views differ, trust ablation."
        if known[best] >= WEAK:
            return f"{told} That is a hint, not an explanation: what is looked at is only partly what is used."
        return f"{told} None of them explains these outputs: they show where the model looks, not what it uses."


def agree(question: Question) -> Agreement:
    """Attention, rollout, gradient and, last, ablation: the tokens of one question in the order of each."""
    seen = weights_seen(question)
    reached = rollout(question, seen)
    weights = {
        "attention": attention(question, seen), "rollout": reached, "gradient": gradient(question).detach(),
        "ablation": erasure(question),
    }  # fmt: skip
    return Agreement(weights, correlate(weights, reached > 0))


def correlate(weights: Mapping[str, Float[Tensor, "R S"]], visible: Tensor) -> Float[Tensor, "V V"]:
    """The mean over rows of the rank correlation between each two, among what a row can see."""
    rows = []
    for row, seen in enumerate(visible):
        if int(seen.sum()) >= FEWEST:
            rows.append(spearman(np.stack([one[row, seen].double().numpy() for one in weights.values()])))
    if not rows:
        return torch.full((len(weights), len(weights)), float("nan"))
    every = np.ma.masked_invalid(np.stack(rows))
    return torch.from_numpy(every.mean(0).filled(np.nan))


def spearman(values: np.ndarray) -> np.ndarray:
    """Rank correlations of the rows; equal values share a rank, and a row without an order has nan."""
    less = (values[:, :, None] > values[:, None, :]).sum(-1)
    same = (values[:, :, None] == values[:, None, :]).sum(-1)
    ranks = less + (same + 1) / 2
    ranks = ranks - ranks.mean(1, keepdims=True)
    length = np.sqrt((ranks**2).sum(1))
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.clip(ranks @ ranks.T / (length[:, None] * length), -1, 1)


@dataclass(frozen=True, slots=True)
class Aligner:
    """A cross-attention head as an alignment of source and target."""

    layer: str
    head: int
    share: float
    """Of the outputs that rest on the source: how often the head looks most at the token that matters most."""
    outputs: int
    """How many those are."""

    @property
    def told(self) -> str:
        if not self.outputs:
            return "best alignment: none, for no token that is written rests on a single source token"
        return (
            f"best alignment: {self.layer} head {self.head} looks at the source token that matters most for "
            f"{self.share:.0%} of the {self.outputs} tokens that rest on one"
        )


def aligners(*questions: Question) -> list[Aligner]:
    """Every cross-attention head of a translator as an alignment, over one or more texts; the best first.

    What matters most is found by taking source tokens away; an output rests on one where that halves its chance.
    """
    hits: dict[tuple[str, int], int] = {}
    outputs = 0
    for question in questions:
        seen = weights_seen(question)
        if not seen.names_of("cross"):
            raise ValueError(f"{type(question.model).__name__} has no source to align with; use a translator")
        drops, wanted = erasure(question).max(-1)
        rests = drops > np.log(2)
        outputs += int(rests.sum())
        for name in seen.names_of("cross"):
            looks = (question.reads @ seen.attention[name][0]).argmax(-1)  # H R
            for head, right in enumerate((looks == wanted)[:, rests].sum(-1).tolist()):
                hits[name, head] = hits.get((name, head), 0) + right
    order = sorted(hits, key=lambda one: -hits[one])
    return [Aligner(*one, share=hits[one] / max(1, outputs), outputs=outputs) for one in order]
