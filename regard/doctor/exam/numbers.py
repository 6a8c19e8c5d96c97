"""Checks of numbers and types: deterministic, finite, in other number types, with all tensors registered."""

import copy
import dataclasses
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn

from regard.doctor.exam.sight import part
from regard.doctor.exam.subject import Subject, cast, traced
from regard.doctor.findings import Finding
from regard.doctor.verdicts import InapplicableError, in_one_line

DTYPES = (torch.float64, torch.bfloat16, torch.float16)


def deterministic(subject: Subject) -> str | Finding:
    """Two passes in evaluation mode agree, whatever the random seed."""
    (seen, first), (again, second) = (traced(dataclasses.replace(subject, seed=seed)) for seed in (1, 2))
    if same(first, second):
        return "whatever the random numbers"
    where = next((name for (name, a), (_, b) in zip(seen, again, strict=False) if not same(a, b)), "")
    off = (first - second).abs().max().item() if first.shape == second.shape else float("nan")
    return Finding(
        "dropout left on", f"in eval mode two passes over the same input differ by {off:.2g}",
        "use nn.Dropout, or F.dropout(x, p, training=self.training): F.dropout alone always drops", 0.9,
        where=part(subject, where),
    )  # fmt: skip


def same(a: Tensor, b: Tensor) -> bool:
    return a.shape == b.shape and torch.equal(a.nan_to_num(), b.nan_to_num())


def finite(subject: Subject) -> str | Finding:
    """The output has no NaN and no infinity."""
    seen, out = traced(subject)
    if out.isfinite().all():
        return f"outputs {'×'.join(map(str, out.shape))}"
    where = next((name for name, output in seen if output.isnan().any()), "")
    return Finding(
        "not finite", f"{(~out.isfinite()).float().mean().item():.0%} of its outputs are NaN or infinite",
        "look for a row of the mask that hides everything, a division by 0 or a log of it", 0.8,
        where=part(subject, where),
    )  # fmt: skip


def dtypes(subject: Subject) -> str | Finding:
    """The model also runs in float64, bfloat16 and float16."""
    fine, cannot = [], []
    for dtype in DTYPES:
        name, weight = str(dtype).removeprefix("torch."), 0.3 if dtype == torch.float16 else 0.5
        try:
            out = subject.answer(copy.deepcopy(subject.model).to(dtype), **cast(subject.inputs, dtype))
        except Exception as error:
            if "not implemented for" in str(error):  # by PyTorch, on this machine
                cannot.append(name)
                continue
            cure = "make constants with dtype=x.dtype, and hide with float('-inf') or torch.finfo(x.dtype).min"
            return Finding("dtype trap", f"model.to({name}) fails in its forward: {in_one_line(error)}", cure, weight)
        if not out.isfinite().all():
            cure = "hide with float('-inf') or torch.finfo(x.dtype).min instead of a fixed large number"
            return Finding("dtype trap", f"in {name} its outputs are not finite", cure, weight)
        fine.append(name)
    if not fine:
        raise InapplicableError(f"this machine cannot compute it in {', '.join(cannot)}")
    return f"runs in {', '.join(fine)}"


def registered(subject: Subject) -> str | Finding:
    """Every tensor and layer of the model is registered: `.to()`, saving and training miss others."""
    kept = {t.data_ptr() for t in (*subject.model.parameters(), *subject.model.buffers())}
    for prefix, module in subject.model.named_modules():
        for name, value in vars(module).items():
            if name.startswith("_") and name in nn.Module().__dict__:
                continue
            where = f"{prefix}.{name}".lstrip(".")
            for kind in unregistered(value, kept):
                if kind == "module":
                    return Finding(
                        "layers not registered",
                        f"{where} is a plain {type(value).__name__} of layers: not trained, not saved",
                        "use nn.ModuleList or nn.ModuleDict", 0.95, where=where,
                    )  # fmt: skip
                return Finding(
                    "tensor not registered", f"{where} is a plain tensor: .to(device) and .to(dtype) leave it behind",
                    f"self.register_buffer({name!r}, …, persistent=False), or nn.Parameter if it is trained", 0.6,
                    where=where,
                )  # fmt: skip
    return "every tensor moves and is saved with it"


def unregistered(value: Any, kept: set[int]) -> Iterator[str]:
    """The kinds of unregistered parts of an attribute: "module" or "tensor"."""
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, (list, tuple)) else [value]
    for each in parts:
        if isinstance(each, nn.Module) and any(p.data_ptr() not in kept for p in each.parameters()):
            yield "module"
        elif isinstance(each, Tensor) and each.numel() > 1 and each.is_leaf and each.data_ptr() not in kept:
            yield "tensor"
