"""Checks of dependence: on later positions, on the order of positions, on other rows of the batch."""

import torch
from jaxtyping import Bool
from torch import Tensor, nn

from regard.doctor.exam.subject import Subject, is_tokens, traced
from regard.doctor.findings import Finding
from regard.doctor.laws import direction
from regard.doctor.verdicts import InapplicableError

NEAR, FAR = 16, 6
"""Positions that are examined: the first NEAR, and FAR spread over all."""

Sight = Bool[Tensor, "T T"]
"""Boolean matrix of dependences: row is the output's position, column the position that it depends on."""


# ---- the future -----------------------------------------------------------------------------------------------


def future(subject: Subject) -> str | Finding:
    """No output depends on later positions, by changing them and by the gradient."""
    examined = positions(subject)
    sights = by_output(subject, examined)
    last, first = sights[-1][1], next((sight for _, sight in sights if mixes(sight)), sights[-1][1])
    by_gradient_too = by_gradient(subject, examined)
    seen = last | by_gradient_too if by_gradient_too is not None else last
    later = torch.ones_like(seen).triu(1)
    if not (seen & later).any():
        return (
            f"no position of {subject.sequence!r} sees a later one"
            if mixes(seen)
            else "no position depends on another one"
        )
    one_way = not (first & later).any() or not (first & later.T).any()
    if not subject.causal and seen.equal(seen.T) and (first.equal(first.T) or one_way):
        return (
            f"an encoder: positions of {subject.sequence!r} see later ones as well as earlier ones; "
            "if it must not, --causal"
        )
    where, leak = next(((name, sight) for name, sight in sights if (sight & later).any()), ("", seen))
    rule, cure = leak_rule(leak, examined)
    seen_by = "by its output and by its gradient"
    if by_gradient_too is None or not (by_gradient_too & later).any():
        seen_by = "by its output"
    elif not (last & later).any():
        seen_by = "by its gradient"
    return Finding("future leak", f"{rule}, seen {seen_by}", cure, 1.0, where=part(subject, where))


def leak_rule(sight: Sight, examined: list[int]) -> tuple[str, str]:
    """Describe which positions depend on which later ones, as a rule if there is one, and return the cure."""
    later = sight & torch.ones_like(sight).triu(1)
    near = later[: min(NEAR, len(examined)), : min(NEAR, len(examined))]
    n = len(near)
    ahead = [int(row.nonzero().max()) - t if row.any() else 0 for t, row in enumerate(near)]
    reach = ahead[0]
    if not (sight & torch.ones_like(sight).tril(-1)).any():
        return "each position sees only later ones: the mask is reversed", (
            "invert or transpose it (nn.MultiheadAttention hides where True, scaled_dot_product_attention shows)"
        )
    if 0 < reach < n - 1 and near.equal(torch.ones_like(near).triu(1).tril(reach)):
        if reach == 1:
            return "each position sees the one after it: the mask is off by one", (
                "show torch.tril(ones), or hide torch.triu(ones, diagonal=1)"
            )
        return f"each position sees the next {reach}", "move the mask's diagonal back"
    if near.equal(torch.ones_like(near).triu(1)):
        return "every position sees every later one: nothing hides the future", "pass a causal mask (is_causal=True)"
    rows = near.any(1).nonzero().flatten().tolist()
    if rows == [0] and near[0, 1:].all():
        return "position 0 sees every later one: it may see nothing, not even itself, and so averages everything", (
            "let each position see itself: hide with torch.triu(ones, diagonal=1)"
        )
    pairs = [(examined[t], examined[s]) for t, s in later.nonzero().tolist()]
    shown = ", ".join(f"{t} sees {s}" for t, s in pairs[:6]) + (f" and {len(pairs) - 6} more" if len(pairs) > 6 else "")
    return f"positions see later ones: {shown}", "look for a view or reshape across time, or a mask of the wrong shape"


def positions(subject: Subject) -> list[int]:
    """The positions that are examined."""
    T = subject.inputs[subject.sequence].shape[1]
    return sorted({*range(min(T, NEAR)), *torch.linspace(0, T - 1, FAR).long().tolist()})


def by_output(subject: Subject, examined: list[int]) -> list[tuple[str, Sight]]:
    """The dependences of every submodule's output in the order of calls, and last those of the model's output."""
    name = subject.sequence
    shape = subject.inputs[name].shape[:2]
    base, out = traced(subject)
    kept = [index for index, (_, output) in enumerate(base) if output.shape[:2] == shape and output.dim() > 2]
    sights = [torch.zeros(len(examined), len(examined), dtype=torch.bool) for _ in range(len(kept) + 1)]
    for column, position in enumerate(examined):
        where = torch.zeros(shape, dtype=torch.bool)
        where[:, position] = True
        seen, other = traced(subject, **{name: subject.varied(name, where)})
        for sight, index in zip(sights, kept, strict=False):
            if index < len(seen) and seen[index][1].shape == base[index][1].shape:
                sight[:, column] = subject.moved(seen[index][1], base[index][1], 2).any(0)[examined]
        sights[-1][:, column] = subject.moved(other, out, 2).any(0)[examined]
        if subject.late:
            raise InapplicableError("one pass takes too long")
    return [*zip([base[index][0] for index in kept], sights, strict=False), ("", sights[-1])]


def by_gradient(subject: Subject, examined: list[int]) -> Sight | None:
    """The dependences by the gradients of a sequence's vectors; None if these cannot be intercepted."""
    name = subject.sequence
    value, leaves = subject.inputs[name], []

    def cut(module: nn.Module, args: tuple[Tensor, ...], kwargs: dict[str, Tensor], out: Tensor) -> Tensor | None:
        looked_up = next(iter((*args, *kwargs.values())))
        if looked_up.shape != value.shape or not looked_up.equal(value):
            return None
        leaves.append(out.detach().requires_grad_())
        return leaves[-1]

    handles = [
        m.register_forward_hook(cut, with_kwargs=True) for m in subject.model.modules() if isinstance(m, nn.Embedding)
    ]
    try:
        if value.is_floating_point():
            leaves.append(value.clone().requires_grad_())
            out = subject.answer(**{name: leaves[0]})
        else:
            out = subject.answer()
    finally:
        for handle in handles:
            handle.remove()
    if not leaves or not out.requires_grad:
        return None
    rows = []
    for t in examined:
        scalar = (out[:, t] * direction(out)).sum()
        grads = torch.autograd.grad(scalar, leaves, retain_graph=True, allow_unused=True)
        reach = [grad.abs().sum((0, *range(2, grad.dim()))) for grad in grads if grad is not None]
        total = torch.stack(reach).sum(0).nan_to_num() if reach else torch.zeros(value.shape[1])
        rows.append(total[examined] > 1e-9 * total.max())
    return torch.stack(rows)


def mixes(sight: Sight) -> bool:
    """Whether some position depends on another one."""
    return bool((sight & ~torch.eye(len(sight), dtype=torch.bool)).any())


def part(subject: Subject, name: str) -> str | None:
    """Return a submodule's name, or its parent's for linear, dropout and norm layers."""
    if not name:
        return None
    kind = type(subject.model.get_submodule(name))
    return name.rpartition(".")[0] or name if kind in (nn.Linear, nn.Dropout, nn.Identity, nn.LayerNorm) else name


# ---- order ----------------------------------------------------------------------------------------------------


def order(subject: Subject) -> str | Finding:
    """The order of tokens, or patches, changes the output."""
    names = [name for name in subject.content() if is_tokens(name, subject.inputs[name])]
    names += [name for name in subject.content() if subject.inputs[name].dim() == 4 and patch_of(subject)]
    if not names:
        raise InapplicableError("it takes neither tokens nor patches" if subject.content() else "it takes no tensors")
    known = []
    for name in names:
        result = order_of(subject, name)
        if isinstance(result, Finding):
            return result
        known += [repr(name)] if result else []
    if not known:
        raise InapplicableError("no position depends on another one")
    return f"other orders of {' and '.join(known)} give other answers"


def order_of(subject: Subject, name: str) -> bool | Finding:
    """Whether the order counts in the first submodule where the last position depends on others; a finding if not.

    Deeper ones of a causal model could infer an order from how much each position has seen.
    """
    value = subject.inputs[name]
    if value.dim() == 4:
        side = patch_of(subject)
        mixed, changed = shuffled(value, side), subject.varied(name, torch.ones(value.shape[:2], dtype=torch.bool))
        shape = None
    else:
        B, T = shape = value.shape[:2]
        between = torch.arange(T)
        between[1:-1] = between[1:-1].flip(0)
        where = torch.ones(B, T, dtype=torch.bool)
        where[:, [0, -1]] = False
        mixed, changed = value[:, between], subject.varied(name, where)
    runs = [traced(subject, **{name: tokens}) for tokens in (value, changed, mixed)]
    for (where_, base), (_, other), (_, again) in zip(*([*seen, ("", out)] for seen, out in runs), strict=True):
        if base.shape[:2] == shape and base.dim() > 2:
            base, other, again = base[:, -1], other[:, -1], again[:, -1]
        elif where_:
            continue
        if subject.moved(other, base, 1).any():
            if subject.moved(again, base, 1).any():
                return True
            what = "patches" if value.dim() == 4 else "tokens"
            return Finding(
                "positions missing", f"the {what} of {name!r} in another order give the same answer",
                "add positions to the embedding (learned or sinusoidal), or rotary ones to queries and keys", 0.9,
                where=part(subject, where_),
            )  # fmt: skip
    return False


def patch_of(subject: Subject) -> int | None:
    """The side of the patches that the first convolution cuts images into, None if it does not."""
    stem = next((module for module in subject.model.modules() if isinstance(module, nn.Conv2d)), None)
    if stem is None or stem.stride != stem.kernel_size or not stem.stride[0] == stem.stride[1] > 1:
        return None
    return stem.stride[0]


def shuffled(pixels: Tensor, side: int | None) -> Tensor:
    """Images with their rows of patches in reverse order; the rest at the lower edge stays."""
    assert side is not None
    whole = pixels.shape[2] // side * side
    rows = pixels[:, :, :whole].unflatten(2, (-1, side)).flip(2).flatten(2, 3)
    return torch.cat([rows, pixels[:, :, whole:]], 2)


# ---- other rows -----------------------------------------------------------------------------------------------


def batch(subject: Subject) -> str | Finding:
    """No row's output depends on other rows, in evaluation and in training mode."""
    out = subject.answer()
    if subject.rows < 2 or out.shape[0] != subject.rows:
        raise InapplicableError("the example has one row" if subject.rows < 2 else "it has no output for each row")
    if subject.compares():
        raise InapplicableError("it compares rows with each other")
    dependence = row_dependence(subject)
    if dependence:
        row, other = dependence
        cure = "look for a view, reshape or mean that crosses the batch axis"
        if subject.sequence and not mixes(by_output(subject, positions(subject))[-1][1]):
            cure = "positions do not see each other, rows do: batch_first=True is missing, or inputs should be T × B"
        return Finding("batch dependence", f"other contents of row {other} change the answer for row {row}", cure, 0.95)
    tokens = any(is_tokens(name, subject.inputs[name]) for name in subject.content())
    subject.model.train()
    try:
        dependence = row_dependence(subject) if tokens else None  # images are often normalized over their batch
    finally:
        subject.model.eval()
    if dependence:
        row, other = dependence
        return Finding(
            "batch dependence", f"in training, other contents of row {other} change the answer for row {row}",
            "use LayerNorm or RMSNorm instead of BatchNorm: over tokens it also mixes past and future", 0.7,
        )  # fmt: skip
    return "no row depends on another one"


def row_dependence(subject: Subject) -> tuple[int, int] | None:
    """A row and another one that it depends on, None if all are independent."""
    out = subject.answer().detach()
    for row in range(subject.rows):
        changes = {}
        for name in subject.content():
            where = torch.zeros(subject.inputs[name].shape[:2], dtype=torch.bool)
            where[row] = True
            changes[name] = subject.varied(name, where)
        moved = subject.moved(subject.answer(**changes), out, 1)
        moved[row] = False
        if moved.any():
            return int(moved.nonzero()[0]), row
    return None
