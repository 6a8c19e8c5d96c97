"""Parameters that do not learn: none asked them to, no gradient reaches them, or no optimizer moves them."""

import re
from collections.abc import Iterator, Mapping

from torch import nn

from regard.doctor.findings import Finding
from regard.doctor.vitals import layer_of

SAMPLES = 4
"""Sampled steps without a change before a parameter is said to be frozen; what starts at zero hides others at first."""


class Frozen:
    """Counts for how many sampled steps each parameter has stood still."""

    def __init__(self, model: nn.Module) -> None:
        self.model = model
        self.still: dict[str, int] = {}
        self.samples = 0

    def add(self, gradient: Mapping[str, float], moved: Mapping[str, float] | None) -> Iterator[Finding]:
        """Squared norms of gradients and updates (none where the rate is zero) of one sampled step."""
        if not self.samples:
            yield from self.asked_not_to()
        self.samples += 1
        for name, p in self.model.named_parameters():
            if p.requires_grad and (not gradient.get(name) or (moved is not None and not moved[name])):
                self.still[name] = self.still.get(name, 0) + 1
        if self.samples == SAMPLES:
            stuck = [name for name, count in self.still.items() if count == SAMPLES]
            yield from self.named(stuck, "got no gradient, or no update, in any of the first sampled steps")

    def asked_not_to(self) -> Iterator[Finding]:
        """Parts of a model may be frozen on purpose: for an adapter or a new head, but then most of it is."""
        every = dict(self.model.named_parameters())
        fixed = [name for name, p in every.items() if not p.requires_grad]
        trained = {re.sub(r"\d+", "#", name) for name, p in every.items() if p.requires_grad}
        odd = [name for name in fixed if 2 * len(fixed) < len(every) or re.sub(r"\d+", "#", name) in trained]
        yield from self.named(odd, "need no gradient (requires_grad=False) while the rest learns")

    def named(self, names: list[str], why: str) -> Iterator[Finding]:
        if names:
            layers = list(dict.fromkeys(map(layer_of, names)))
            some = ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
            yield Finding(
                "a frozen layer",
                f"{some} {why}",
                f"let {' and '.join(layers[:3])} learn: requires_grad, a path to the loss, a place in the optimizer",
                0.9,
                where=layers[0],
            )
