"""Superposition in a toy (Elhage et al., 2022): more features than dimensions, if they are rarely active at once."""

import torch
from jaxtyping import Float
from torch import Tensor

from regard.inside.draw.canvas import INK, Figure, Sheet, Target, pen, shades
from regard.inside.draw.figures import FIGURES

STEPS, BATCH, RATE = 2000, 512, 1e-2
TRIES = 4
"""Toy models trained for each sparsity: some starts end in a poor local minimum."""


def squeeze(
    features: int, dims: int, shares: tuple[float, ...], *, importance: float = 0.9, steps: int = STEPS, seed: int = 0
) -> tuple[Float[Tensor, "P M N"], Float[Tensor, "P N"]]:
    """Train ReLU(WᵀW x + b) ≈ x for each sparsity; return W and b of the best of several tries.

    A feature is active with that probability, and then a number from 0 to 1; each matters `importance` times as
    much as the one before it.
    """
    if not 1 <= dims <= features:
        raise ValueError(f"{features} features cannot be squeezed into {dims} dimensions; give fewer, at least 1")
    if not shares or not all(0 < share <= 1 for share in shares):
        raise ValueError(f"shares={shares} of features that are active lie above 0, up to 1; use 1,0.3,0.1,0.03")
    dice = torch.Generator().manual_seed(seed)
    toys = TRIES * len(shares)
    probability = torch.tensor(shares).repeat(TRIES)[:, None, None]
    matters = importance ** torch.arange(features)
    weight = torch.randn(toys, dims, features, generator=dice).mul_(features**-0.5).requires_grad_()
    bias = torch.zeros(toys, features, requires_grad=True)
    average = torch.zeros(toys)
    optimizer = torch.optim.Adam([weight, bias], lr=RATE)
    for step in range(steps):
        optimizer.param_groups[0]["lr"] = RATE * (1 - step / steps)
        active = torch.rand(toys, BATCH, features, generator=dice) < probability
        x = active * torch.rand(toys, BATCH, features, generator=dice)
        back = (x @ weight.mT @ weight + bias[:, None]).relu()
        # Rare features make small losses: divided by the probability, all toys learn at one rate.
        losses = (matters * (back - x).square() / probability).sum((1, 2)) / BATCH
        optimizer.zero_grad()
        losses.sum().backward()
        optimizer.step()
        average = 0.99 * average + 0.01 * losses.detach()
    best = average.view(TRIES, -1).argmin(0) * len(shares) + torch.arange(len(shares))
    return weight.detach()[best], bias.detach()[best]


def represented(weight: Float[Tensor, "*P M N"]) -> Tensor:
    """The number of features that a toy model holds: those whose column is longer than a half."""
    return (weight.norm(dim=-2) > 0.5).sum(-1)


@FIGURES.register("superposition")
def draw_superposition(
    path: Target = None,
    *,
    features: int = 5,
    dims: int = 2,
    shares: tuple[float, ...] = (1.0, 0.3, 0.1, 0.03),
    importance: float = 0.9,
    seed: int = 0,
) -> Figure:
    """Features squeezed through fewer dimensions, ReLU(WᵀWx + b): the rarer they are, the more of them fit."""
    weights, _ = squeeze(features, dims, shares, importance=importance, seed=seed)
    side, step, hues, sheet = 1.9, 2.45, shades(features), Sheet()
    for i, (share, weight) in enumerate(zip(shares, weights, strict=True)):
        left, names = i * step, ("length", "WᵀW", "columns of W") if i == 0 else ("", "", "")
        bars = sheet.chart(left, 0, side, 0.9, xlabel="feature, important first", ylabel=names[0])
        bars.bar(range(1, features + 1), weight.norm(dim=0).tolist(), color=hues, width=0.7)
        bars.set(ylim=(0, 1.25), yticks=(0, 1), xticks=range(1, features + 1, max(1, features // 8)))
        top = sheet.place(left, 1.25, side, side, ylabel=names[1])
        top.imshow((weight.T @ weight).numpy(), cmap="RdBu_r", vmin=-1.2, vmax=1.2)
        top.set(xticks=[], yticks=[])
        if dims == 2:
            top = sheet.place(left, 1.4 + side, side, side, ylabel=names[2])
            top.set(xlim=(-1.3, 1.3), ylim=(-1.3, 1.3), xticks=[], yticks=[])
            for (x, y), hue in zip(weight.T.tolist(), hues, strict=True):
                style = dict(arrowstyle="-|>", color=hue, linewidth=2, mutation_scale=11, shrinkA=0, shrinkB=0)
                top.annotate("", (x, y), (0, 0), arrowprops=style)
        there = "all features at once" if share == 1 else f"each there {100 * share:g} % of the time"
        top.set_title(f"{there}\n{int(represented(weight))} of {features} in {dims} dimensions", loc="left",
                      **pen(8.5, color=INK))  # fmt: skip
    return sheet.save(path)
