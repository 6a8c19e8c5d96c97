"""The agreement of explanations of the same output, by rank correlation, and which head aligns source and target."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from regard.inside.explain.effects import erasure
from regard.inside.explain.gradients import gradient
from regard.inside.explain.rollout import all_weights, attention, rollout
from regard.tasks.prepared import Prepared

FEWEST = 3
"""Tokens that an output must attend to for an order among them to mean something."""
STRONG, WEAK = 0.7, 0.4


@dataclass(frozen=True, slots=True)
class Agreement:
    """The importance of tokens by each explanation, and how similar their orders are."""

    weights: dict[str, Float[Tensor, "R S"]]
    correlations: Float[Tensor, "V V"]
    """Spearman's ρ of each pair of views, the mean over outputs; nan where nothing can be compared."""

    @property
    def meaning(self) -> str:
        """The result in one or two sentences."""
        views = list(self.weights)
        measured = {view: float(self.correlations[i, -1]) for i, view in enumerate(views[:-1])}
        known = {view: rho for view, rho in measured.items() if not np.isnan(rho)}
        if not known:
            return "There are too few tokens to compare the views; give a longer text."
        best, worst = max(known, key=known.__getitem__), min(known, key=known.__getitem__)
        fact = (
            "Measured by what happens when a token is taken away (ablation), "
            f"{best} is nearest (ρ = {known[best]:.2f}) and {worst} farthest (ρ = {known[worst]:.2f})."
        )
        if known[best] >= STRONG:
            return f"{fact} Here {best} may be read as an explanation; where views differ, trust ablation."
        if known[best] >= WEAK:
            return f"{fact} That is a hint, not an explanation: what is looked at is only partly what is used."
        return f"{fact} None of them explains these outputs: they show where the model looks, not what it uses."


def agree(prepared: Prepared) -> Agreement:
    """The importance of each token by attention, rollout, gradient and, last, ablation."""
    seen = all_weights(prepared)
    reached = rollout(prepared, seen)
    weights = {
        "attention": attention(prepared, seen), "rollout": reached, "gradient": gradient(prepared).detach(),
        "ablation": erasure(prepared),
    }  # fmt: skip
    return Agreement(weights, correlate(weights, reached > 0))


def correlate(weights: Mapping[str, Float[Tensor, "R S"]], visible: Tensor) -> Float[Tensor, "V V"]:
    """The mean over rows of the rank correlation between each two, among the tokens that a row can attend to."""
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
    """Share of the outputs that depend on the source for which the head attends most to the most important source
    token."""
    outputs: int
    """Number of outputs that depend on the source."""

    @property
    def summary(self) -> str:
        """The alignment in one sentence."""
        if not self.outputs:
            return "best alignment: none, for no token that is written depends on a single source token"
        return (
            f"best alignment: {self.layer} head {self.head} attends to the source token that matters most for "
            f"{self.share:.0%} of the {self.outputs} tokens that depend on one"
        )


def aligners(*inputs: Prepared) -> list[Aligner]:
    """Every cross-attention head of a translator as an alignment, over one or more texts; the best first.

    What matters most is measured by erasing source tokens; an output depends on one where that halves its probability.
    """
    hits: dict[tuple[str, int], int] = {}
    outputs = 0
    for prepared in inputs:
        seen = all_weights(prepared)
        if not seen.names_of("cross"):
            raise ValueError(f"{type(prepared.model).__name__} has no source to align with; use a translator")
        drops, wanted = erasure(prepared).max(-1)
        depends = drops > np.log(2)
        outputs += int(depends.sum())
        for name in seen.names_of("cross"):
            strongest = (prepared.outputs.readout @ seen.attention[name][0]).argmax(-1)  # H R
            for head, right in enumerate((strongest == wanted)[:, depends].sum(-1).tolist()):
                hits[name, head] = hits.get((name, head), 0) + right
    order = sorted(hits, key=lambda one: -hits[one])
    return [Aligner(*one, share=hits[one] / max(1, outputs), outputs=outputs) for one in order]
