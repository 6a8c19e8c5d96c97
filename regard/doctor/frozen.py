"""Parameters that do not learn: requires_grad is False, no gradient reaches them, or no optimizer updates them."""

import re
from collections.abc import Iterator, Mapping

from torch import nn

from regard.doctor.findings import Finding
from regard.doctor.vitals import layer_of

SAMPLES = 4
"""Sampled steps without a change before a parameter counts as frozen; zero weights block others at first."""


class Frozen:
    """Counts the sampled steps in which each parameter did not change."""

    def __init__(self, model: nn.Module) -> None:
        self.model = model
        self.still: dict[str, int] = {}
        self.samples = 0

    def add(self, gradient: Mapping[str, float], moved: Mapping[str, float] | None) -> Iterator[Finding]:
        """Takes the squared norms of gradients and updates (None at rate zero) of a sampled step; yields findings."""
        if not self.samples:
            yield from self.not_required()
        self.samples += 1
        for name, p in self.model.named_parameters():
            if p.requires_grad and (not gradient.get(name) or (moved is not None and not moved[name])):
                self.still[name] = self.still.get(name, 0) + 1
        if self.samples == SAMPLES:
            stuck = [name for name, count in self.still.items() if count == SAMPLES]
            yield from self.named(stuck, "got no gradient, or no update, in any of the first sampled steps")

    def not_required(self) -> Iterator[Finding]:
        """Yields a finding for parameters without requires_grad, unless most have none, as below an adapter."""
        every = dict(self.model.named_parameters())
        fixed = [name for name, p in every.items() if not p.requires_grad]
        trained = {re.sub(r"\d+", "#", name) for name, p in every.items() if p.requires_grad}
        odd = [name for name in fixed if 2 * len(fixed) < len(every) or re.sub(r"\d+", "#", name) in trained]
        yield from self.named(odd, "need no gradient (requires_grad=False) while the rest learns")

    def named(self, names: list[str], why: str) -> Iterator[Finding]:
        """Yield a finding about these parameters, if there are any."""
        if names:
            layers = list(dict.fromkeys(map(layer_of, names)))
            shown = ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
            yield Finding(
                "a frozen layer",
                f"{shown} {why}",
                f"let {' and '.join(layers[:3])} learn: requires_grad, a path to the loss, a place in the optimizer",
                0.9,
                where=layers[0],
            )
