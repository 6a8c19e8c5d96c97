"""The check that padding, and nothing else, is hidden."""

import dataclasses

import torch
from jaxtyping import Bool
from torch import Tensor

from regard.doctor.exam.guess import with_real
from regard.doctor.exam.subject import Padding, Subject, rows_of
from regard.doctor.findings import Finding
from regard.doctor.verdicts import InapplicableError


def padding(subject: Subject) -> str | Finding:
    """Real tokens do not depend on padding; if padding does not depend on real tokens instead, the mask is inverted."""
    spec = subject.padding
    assert spec is not None
    B, T = subject.inputs[spec.sequence].shape[:2]
    if T < 5:
        raise InapplicableError(f"{T} positions are too few")
    real = torch.arange(T) < torch.tensor([T - 2 - row % (T - 4) for row in range(B)])[:, None]
    if hidden(subject, spec, real):
        alone = spec.kind != "token" and unused(subject, spec, real)
        return f"{spec}: hidden from real tokens" + (" by their order; it changes nothing itself" if alone else "")
    if spec.kind == "lengths" and hidden(subject, spec, real.flip(1)):
        return f"{spec}: hidden from real tokens, which are the last ones"
    swapped = dataclasses.replace(spec, real=spec.hidden, hidden=spec.real)
    if not spec.sure and hidden(subject, swapped, real):
        return f"{swapped}: hidden from real tokens"
    if inverted(subject, spec, real):
        return Finding(
            "padding mask inverted",
            f"with {spec}, outputs of real tokens depend on the padding, and not the other way round",
            "invert the mask: nn.MultiheadAttention's key_padding_mask hides where it is True, others show", 1.0,
        )  # fmt: skip
    return Finding(
        "padding leak", f"with {spec}, other padding changes the outputs of real tokens",
        "hide padding as keys in every attention, and leave it out of means", 0.9,
    )  # fmt: skip


def unused(subject: Subject, spec: Padding, real: Bool[Tensor, "B T"]) -> bool:
    """Whether no output, not even of padding, depends on which tokens are specified as real."""
    first, second = (subject.answer(**with_real(subject, spec, mask)) for mask in (real, torch.ones_like(real)))
    return torch.equal(first.nan_to_num(), second.nan_to_num())


def hidden(subject: Subject, spec: Padding, real: Bool[Tensor, "B T"]) -> bool:
    """Whether the outputs of real tokens are finite and do not depend on the content of padding."""
    mask = with_real(subject, spec, real)
    out = subject.answer(**mask)
    here = real if spec.sequence == subject.sequence else torch.ones(len(out), dtype=torch.bool)
    if not out[here].isfinite().all():
        return False
    if spec.kind == "token":  # other tokens would be real: remove the padding instead
        return all(same_alone(subject, mask[spec.sequence], row, int(real[row].sum())) for row in range(len(out)))
    junk = subject.varied(spec.sequence, ~real)
    return not subject.moved(subject.answer(**mask | {spec.sequence: junk}), out, here.dim())[here].any()


def inverted(subject: Subject, spec: Padding, real: Bool[Tensor, "B T"]) -> bool:
    """Whether the outputs of padding, or the one output of a row, do not depend on real tokens."""
    mask = with_real(subject, spec, real)
    out = subject.answer(**mask)
    other = subject.varied(spec.sequence, real)
    if spec.kind == "token":
        other = torch.where(real, other, mask[spec.sequence])
    if spec.sequence == subject.sequence:
        moved = subject.moved(subject.answer(**mask | {spec.sequence: other}), out, 2)
        return bool(out[~real].isfinite().all()) and not moved[~real].any()
    other = torch.cat([subject.inputs[spec.sequence][:, :1], other[:, 1:]], 1)
    return not subject.moved(subject.answer(**mask | {spec.sequence: other}), out, 1).any()


def same_alone(subject: Subject, ids: Tensor, row: int, length: int) -> bool:
    """Whether a row has the same output without the padding behind it."""
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
