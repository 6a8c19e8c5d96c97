"""Checks of learning: every parameter takes part, and one batch can be overfitted."""

import copy
import math

import torch
from torch import Tensor, nn

from regard.doctor.exam.start import gives_logits
from regard.doctor.exam.subject import Subject, answer_in, tensors_in
from regard.doctor.findings import Finding
from regard.doctor.laws import descent, error_of
from regard.doctor.verdicts import InapplicableError

RATES = (1e-2, 3e-3, 1e-3, 1e-1)
STEPS = 60


def parameters(subject: Subject) -> str | Finding:
    """Every parameter is trained: it is not frozen, and a gradient reaches it within three steps.

    Three, because weights that are initialised to zero pass no gradient on before their first update.
    """
    model = copy.deepcopy(subject.model).train()
    named = dict(model.named_parameters())
    unreached = set(named)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    noise = torch.Generator().manual_seed(3)
    for _ in range(3):
        parts = [part for part in tensors_in(subject.run(model)) if part.requires_grad]
        total = sum((part * torch.randn(part.shape, generator=noise).to(part)).nan_to_num().mean() for part in parts)
        if not isinstance(total, Tensor):
            cure = "look for .detach(), .data and no_grad"
            return Finding("unused parameters", "no gradient reaches any parameter", cure, 1.0)
        optimizer.zero_grad()
        total.backward()
        unreached -= {name for name, p in named.items() if p.grad is not None and p.grad.ne(0).any()}
        optimizer.step()
    total_size = sum(p.numel() for p in named.values())
    if unreached:
        shown, size = layers(unreached), sum(named[name].numel() for name in unreached)
        return Finding(
            "unused parameters", f"no gradient reaches {shown}: {size:,} of {total_size:,} parameters",
            "use them in forward, take them out, or look for .detach(), .data and no_grad on the way", 0.9, where=shown,
        )  # fmt: skip
    frozen = {name for name in subject.frozen if "pos" not in name.lower()}  # tables of sines are kept that way
    size = sum(named[name].numel() for name in frozen)
    if frozen and size <= total_size / 2:
        return Finding(
            "a frozen layer", f"{layers(frozen)} has requires_grad=False: {size:,} of {total_size:,} parameters",
            "remove requires_grad_(False), if that was not meant", 0.85, where=layers(frozen),
        )  # fmt: skip
    return f"all {total_size:,} take part" + (f"; {size:,} are frozen, as for fine-tuning" if frozen else "")


def layers(names: set[str]) -> str:
    """The modules that parameters belong to, three of them by name."""
    owners = list(dict.fromkeys(name.rpartition(".")[0] or name for name in sorted(names)))
    return ", ".join(owners[:3]) + (f" and {len(owners) - 3} more" if len(owners) > 3 else "")


def overfit(subject: Subject) -> str | Finding:
    """A few dozen steps of Adam on one batch halve the loss at one of several rates."""
    targets = random_targets(subject, subject.answer().detach())

    def loss_of(model: nn.Module) -> Tensor:
        out = subject.run(model)
        loss = error_of(answer_in(out), targets) if subject.loss is None else subject.loss(out)
        if not loss.requires_grad:
            raise InapplicableError("no gradient reaches any parameter")
        return loss

    best: tuple[float, float, float] = (math.inf, 0.0, 0.0)
    for rate in RATES:
        first = None
        for step, loss in enumerate(descent(subject.model, loss_of, rate, STEPS), 1):
            first = loss if first is None else first
            if loss < best[0]:
                best = (loss, first, rate)
            if best[0] < 0.1 * first:
                return f"the loss on one batch fell from {first:.3g} to {best[0]:.2g} in {step} steps at rate {rate:g}"
            if subject.late:
                raise InapplicableError(f"no time left after {step} steps: {first:.3g} became {best[0]:.3g}")
    result = f"the loss on one batch fell from {best[1]:.3g} to {best[0]:.3g} in {STEPS} steps at rate {best[2]:g}"
    if best[0] < 0.5 * best[1]:
        return result
    return Finding(
        "does not learn", f"{result}, and no further at {', '.join(f'{rate:g}' for rate in RATES if rate != best[2])}",
        "see the other findings; if there are none: is the loss that of these outputs?", 0.4,
    )  # fmt: skip


def random_targets(subject: Subject, out: Tensor) -> Tensor:
    """Random classes for logits, random numbers for other outputs."""
    generator = torch.Generator().manual_seed(11)
    if gives_logits(subject):
        return torch.randint(out.shape[-1], out.shape[:-1], generator=generator)
    return torch.randn(out.shape, generator=generator) * out.std().item() + out.mean().item()
