"""Checks of the initialisation: the loss, the scale of activations, the sharpness of attention."""

import math
from typing import Any

from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from regard.doctor.exam.subject import Subject, fields_of, traced
from regard.doctor.findings import Finding
from regard.doctor.verdicts import InapplicableError

EXCESS = 2.0
"""Nats above ln V that logits of a sensible size never add: those of standard deviation σ add σ²/2."""
LARGE = 1000.0
"""Root mean square of activations that no sensible initialisation reaches."""
SHARP = 2.5
"""Standard deviation of attention scores above which a softmax is nearly one-hot."""
WIDE = 32
"""Smallest head width at which a missing 1/√d_k has an effect."""


def gives_logits(subject: Subject) -> bool:
    """Whether the output holds a logit for each token or class, not features."""
    raw = subject.run()
    out = subject.answer()
    if subject.loss is not None or out.dim() < 2 or out.shape[-1] < 2:
        return False
    if subject.vocab is None and out.dim() > 2:
        return False  # boxes, pixels, vectors
    if "logits" in fields_of(raw) or out.shape[-1] == subject.vocab:
        return True
    widths = {m.embedding_dim for m in subject.model.modules() if isinstance(m, nn.Embedding)}
    return out.shape[-1] not in widths and "last_hidden_state" not in fields_of(raw)


def loss(subject: Subject) -> str | Finding:
    """The loss at initialisation, averaged over all classes, is near ln V."""
    out = subject.answer().detach()
    if subject.loss is not None:
        return f"your loss is {subject.loss(subject.run()).item():.4g} at the start"
    if not gives_logits(subject) or subject.compares():
        raise InapplicableError("its outputs are no logits of tokens or classes")
    V = out.shape[-1]
    value, expected = -out.float().log_softmax(-1).mean().item(), math.log(V)
    result = f"the loss at the start is {value:.2f}, guessing among {V} is ln {V} = {expected:.2f}"
    if value - expected < EXCESS:
        return result
    spread = out.float().std(-1).mean().item()
    return Finding(
        "exploding initialisation", f"{result}: the logits have a standard deviation of {spread:.3g}",
        "start smaller: weights with std 0.02 or 1/√width, the embedding too if the output is tied to it",
        0.85, where="the output",
    )  # fmt: skip


def scale(subject: Subject) -> str | Finding:
    """No submodule has a huge output."""
    sizes = [(name, x.float().square().mean().sqrt().item()) for name, x in traced(subject)[0]
             if x.dim() > 1 and x.shape[0] == subject.rows and x.isfinite().all()]  # fmt: skip
    if not sizes:
        raise InapplicableError("it has no submodules")
    where, most = max(sizes, key=lambda pair: pair[1])
    if most < LARGE:
        return f"activations stay below {max(most, 0.01):.2g} (root mean square, {where})"
    where, first = next(pair for pair in sizes if pair[1] >= LARGE)
    return Finding(
        "exploding initialisation", f"at the start the activations of {where} are {first:.2g} (root mean square)",
        "start smaller: weights with std 0.02 or 1/√width; a norm in each block", 0.9, where=where,
    )  # fmt: skip


def attention(subject: Subject) -> str | Finding:
    """The scores before the softmax of attention are small enough for all keys to count."""
    with SoftmaxRecorder(subject.rows) as recorder:
        subject.run()
    if not recorder.spreads:
        raise InapplicableError("no softmax over products of queries and keys was seen")
    number, (spread, width, peak) = max(enumerate(recorder.spreads), key=lambda pair: pair[1][0])
    result = f"scores of standard deviation {spread:.2g} at width {width}, largest weight {peak:.2f}"
    if spread < SHARP or width < WIDE:
        return result
    if spread / math.sqrt(width) > 1.5:
        return Finding(
            "exploding initialisation", f"{result}: even √d_k = {math.sqrt(width):.1f} does not account for that",
            "start queries and keys smaller", 0.8, where=f"softmax {number}",
        )  # fmt: skip
    return Finding(
        "scores not divided by √d_k", f"{result}; divided by √d_k it would be {spread / math.sqrt(width):.2g}",
        "divide q @ k.T by √d_k: a softmax that starts nearly one-hot has no gradient", 0.9, where=f"softmax {number}",
    )  # fmt: skip


class SoftmaxRecorder(TorchDispatchMode):
    """Records every softmax over products of queries and keys, however it is written."""

    def __init__(self, rows: int) -> None:
        super().__init__()
        self.rows = rows
        self.spreads: list[tuple[float, int, float]] = []
        """Standard deviation of scores, head width and mean largest weight of each softmax, in the order of calls."""
        self.products: dict[int, int] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        name = func.name()
        if name.startswith(("aten::bmm", "aten::baddbmm")):
            a = args[-2]
            self.products[out.numel()] = a.shape[-1]
        elif name.startswith(("aten::_softmax", "aten::_safe_softmax")) and args[0].numel() in self.products:
            self.keep(args[0], self.products[args[0].numel()])
        elif name.startswith("aten::_scaled_dot_product"):
            q, k = args[0].detach(), args[1].detach()
            q, k = (x.repeat_interleave(q.shape[1] // x.shape[1], 1) if x.dim() > 3 else x for x in (q, k))
            scale = (kwargs or {}).get("scale")
            scores = q @ k.transpose(-2, -1) * (q.shape[-1] ** -0.5 if scale is None else scale)
            masked = (kwargs or {}).get("attn_mask")
            self.keep(scores if masked is None else scores + masked, q.shape[-1])
        return out

    def keep(self, scores: Tensor, width: int) -> None:
        """Records scores by their variance over rows of the batch, which a bias or a mask does not have."""
        if scores.shape[0] % self.rows or scores.dim() < 3 or self.rows < 2:
            return
        shown = scores.detach().float()
        peak = shown.softmax(-1).amax(-1).nan_to_num().mean().item()
        rows = shown.unflatten(0, (self.rows, -1))
        seen = (rows.isfinite() & (rows > -80)).all(0)
        if seen.any():
            self.spreads.append((rows.var(0)[seen].mean().sqrt().item(), width, peak))
