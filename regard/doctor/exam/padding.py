"""Whether what fills up a batch is hidden, and nothing else."""

import dataclasses

import torch
from jaxtyping import Bool
from torch import Tensor

from regard.doctor.exam.guess import marked
from regard.doctor.exam.subject import InapplicableError, Padding, Subject, rows_of
from regard.doctor.findings import Finding


def padding(subject: Subject) -> str | Finding:
    """Real tokens must not depend on padding; if padding does not depend on real tokens instead, all is inverted."""
    told = subject.padding
    if told is None:
        raise InapplicableError("it takes no mask and no lengths, and knows no padding token")
    B, T = subject.inputs[told.sequence].shape[:2]
    if T < 5:
        raise InapplicableError(f"{T} positions are too few")
    real = torch.arange(T) < torch.tensor([T - 2 - row % (T - 4) for row in range(B)])[:, None]
    if hidden(subject, told, real):
        alone = told.kind != "token" and unused(subject, told, real)
        return f"{told}: hidden from real tokens" + (" by their order; it changes nothing itself" if alone else "")
    turned = dataclasses.replace(told, real=told.hidden, hidden=told.real)
    if not told.sure and hidden(subject, turned, real):
        return f"{turned}: hidden from real tokens"
    if inverted(subject, told, real):
        return Finding(
            "padding mask inverted",
            f"with {told}, answers for real tokens depend on the padding, and not the other way round",
            "invert the mask: nn.MultiheadAttention's key_padding_mask hides where it is True, others show", 1.0,
        )  # fmt: skip
    return Finding(
        "padding leak", f"with {told}, other padding changes the answers for real tokens",
        "hide padding as keys in every attention, and leave it out of means", 0.9,
    )  # fmt: skip


def unused(subject: Subject, told: Padding, real: Bool[Tensor, "B T"]) -> bool:
    """Whether no answer, not even one for padding, depends on what is told to be real."""
    some, every = (subject.answer(**marked(subject, told, mask)) for mask in (real, torch.ones_like(real)))
    return torch.equal(some.nan_to_num(), every.nan_to_num())


def hidden(subject: Subject, told: Padding, real: Bool[Tensor, "B T"]) -> bool:
    """Whether what is no real token may be anything, and those that are still have answers."""
    marks = marked(subject, told, real)
    out = subject.answer(**marks)
    here = real if told.sequence == subject.sequence else torch.ones(len(out), dtype=torch.bool)
    if not out[here].isfinite().all():
        return False
    if told.kind == "token":  # other tokens in its place would be real: leave it away instead
        return all(same_alone(subject, marks[told.sequence], row, int(real[row].sum())) for row in range(len(out)))
    junk = subject.varied(told.sequence, ~real)
    return not subject.moved(subject.answer(**marks | {told.sequence: junk}), out, here.dim())[here].any()


def inverted(subject: Subject, told: Padding, real: Bool[Tensor, "B T"]) -> bool:
    """Whether padding does not depend on real tokens; of one answer for all, whether that does not."""
    marks = marked(subject, told, real)
    out = subject.answer(**marks)
    other = subject.varied(told.sequence, real)
    if told.kind == "token":
        other = torch.where(real, other, marks[told.sequence])
    if told.sequence == subject.sequence:
        moved = subject.moved(subject.answer(**marks | {told.sequence: other}), out, 2)
        return bool(out[~real].isfinite().all()) and not moved[~real].any()
    other = torch.cat([subject.inputs[told.sequence][:, :1], other[:, 1:]], 1)
    return not subject.moved(subject.answer(**marks | {told.sequence: other}), out, 1).any()


def same_alone(subject: Subject, ids: Tensor, row: int, length: int) -> bool:
    """Whether a row says the same without the padding behind it."""
    T, sequence = ids.shape[1], subject.padding.sequence if subject.padding else ""
    inputs = rows_of(subject.inputs | {sequence: ids}, slice(row, row + 1), len(ids))
    cut = {
        name: value[:, :length] if isinstance(value, Tensor) and value.dim() > 1 and value.shape[1] == T else value
        for name, value in inputs.items()
    }
    alone, out = subject.answer(**cut), subject.answer(**inputs)
    if subject.sequence == sequence:
        out = out[:, : alone.shape[1]]
    return not subject.moved(alone, out, 1).any()
