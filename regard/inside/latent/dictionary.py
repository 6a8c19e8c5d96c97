"""A sparse dictionary of the vectors behind a block: many directions, of which each token uses few.

A layer holds more features than it has dimensions, at angles to each other (see superposition.py). An autoencoder with
more units than dimensions finds them if it may use only a few at a time. Here a token keeps its k strongest units
(Gao et al., 2024): a penalty on their sum would make all of them too small, and its weight would have to be searched.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.data.sets.collection import Examples
from regard.inside.capture.states import TokenStates, block_at, blocks_of, read_example, token_states
from regard.inside.draw.canvas import INK, SOFT, Figure, Sheet, Target, pen, ramp, readable
from regard.inside.draw.overlays import grid_of_images, overlay

MOST = 40_000
"""Tokens that a dictionary is learned from; a few ten thousand are enough for some hundred units."""
STEPS, BATCH, RATE = 2000, 256, 5e-3
REVIVALS = 8
"""Number of times that inactive units are reinitialised, in the first two thirds of training."""
UNITS, SHOWN, AROUND = 10, 4, 7
"""Units that are printed, examples of each, and tokens on both sides of the strongest."""
OFTEN = 0.03
"""Share of tokens above which a unit that is active on them counts as uninformative."""
Tell = Callable[[str], Any]
"""Function that shows a progress message."""


class Dictionary(nn.Module):
    """A sparse autoencoder: vectors as sums of a few unit-length rows and a shared bias."""

    def __init__(self, examples: Float[Tensor, "N D"], units: int, active: int) -> None:
        super().__init__()
        self.active, self.center = active, examples.mean(0)
        self.size = (examples - self.center).norm(dim=1).mean().clamp(min=1e-9)
        sample = torch.randint(len(examples), (units,))
        rows = F.normalize((examples[sample] - self.center) / self.size + 0.01 * torch.randn(units, examples.shape[1]))
        self.rows = nn.Parameter(rows)
        self.reader = nn.Parameter(rows.clone())
        self.threshold = nn.Parameter(torch.zeros(units))
        self.bias = nn.Parameter(torch.zeros(examples.shape[1]))

    def encode(self, x: Float[Tensor, "N D"]) -> tuple[Float[Tensor, "N K"], Int[Tensor, "N K"]]:
        """Return the activations of the k strongest units of each vector, strongest first, and their indices; 0 is
        unused."""
        scores = F.linear((x - self.center) / self.size - self.bias, self.reader, self.threshold)
        strength, units = scores.relu().topk(self.active, dim=-1)
        return strength, units

    def forward(self, x: Float[Tensor, "N D"]) -> Float[Tensor, "N D"]:
        return self.decode(*self.encode(x))

    def decode(self, strength: Float[Tensor, "N K"], units: Int[Tensor, "N K"]) -> Float[Tensor, "N D"]:
        used = strength.new_zeros(len(strength), len(self.rows)).scatter(1, units, strength)
        return (used @ self.rows + self.bias) * self.size + self.center

    @torch.no_grad()
    def revive(self, dead: Int[Tensor, "M"], missed: Float[Tensor, "N D"], optimizer: torch.optim.Optimizer) -> None:
        """Reinitialise inactive units with the directions of the largest residuals."""
        worst = missed.norm(dim=1).topk(min(len(dead), len(missed))).indices
        dead = dead[: len(worst)]
        self.rows[dead] = self.reader[dead] = F.normalize(missed[worst])
        self.threshold[dead] = 0
        for parameter in (self.rows, self.reader, self.threshold):
            for name in ("exp_avg", "exp_avg_sq"):
                optimizer.state[parameter][name][dead] = 0


def learn(
    x: Float[Tensor, "N D"],
    units: int,
    active: int,
    *,
    steps: int | None = None,
    tell: Tell = lambda _: None,
) -> Dictionary:
    """Train a dictionary on these vectors, with a fixed seed."""
    steps = STEPS if steps is None else steps
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        dictionary = Dictionary(x, units, active)
        optimizer = torch.optim.Adam(dictionary.parameters(), lr=RATE, betas=(0.9, 0.99))
        used, every = torch.zeros(units), max(1, 2 * steps // (3 * REVIVALS))
        for step in range(1, steps + 1):
            optimizer.param_groups[0]["lr"] = RATE * min(1.0, 3 * (1 - step / (steps + 1)))
            batch = x[torch.randint(len(x), (BATCH,))]
            strength, at = dictionary.encode(batch)
            missed = (batch - dictionary.decode(strength, at)) / dictionary.size
            loss = missed.square().sum(1).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            with torch.no_grad():
                dictionary.rows.copy_(F.normalize(dictionary.rows))
                used.index_add_(0, at.flatten(), (strength.flatten() > 0).float())
            if step % every == 0 and step <= every * REVIVALS:
                dead = (used == 0).nonzero()[:, 0]
                if len(dead):
                    dictionary.revive(dead, missed.detach(), optimizer)
                used.zero_()
            tell(f"step {step:,} of {steps:,}, loss {loss.item():.3f}")
    return dictionary.requires_grad_(False)


@dataclass(frozen=True, slots=True)
class Learned:
    """A dictionary and where its units are active."""

    data: dict[str, Any]
    """The result as plain data."""
    tops: list[tuple[int, list[tuple[int, Tensor]]]]
    """For each unit in the data, the examples that it is strongest in, and its strength at each of their tokens."""
    tokens: list[TokenStates]
    examples: Examples


def study(
    task: Any, examples: Examples, layer: int | None, units: int, active: int, *, tell: Tell = lambda _: None
) -> Learned:
    """Train a dictionary on the outputs of a block; report its explained variance, and where its most informative units
    are strongest."""
    if active > units:
        raise ValueError(f"a token cannot use {active} of {units} units; lower --active")
    layer = block_at(blocks_of(read_example(task, examples.items[0])), layer)
    order = np.random.default_rng(0).permutation(len(examples)).tolist()
    examples, tokens, count = examples.take(order), list[TokenStates](), 0
    for one in token_states(task, examples, layer):
        tokens.append(one)
        count += len(one.vectors)
        tell(f"{count:,} tokens read")
        if count >= MOST:
            break
    examples = examples.take(range(len(tokens)))
    x = torch.cat([one.vectors for one in tokens]).float()
    held = torch.arange(len(x)) % 10 == 1
    if held.sum() < 2:
        raise ValueError(f"a dictionary is learned from many tokens, got {len(x)}; give more examples")
    dictionary = learn(x[~held], units, active, tell=tell)
    explained = 1 - (x[held] - dictionary(x[held])).square().sum() / (x[held] - x[held].mean(0)).square().sum()
    strength, at = dictionary.encode(x)
    fired = (strength > 0).float()
    often = torch.zeros(units).index_add_(0, at.flatten(), fired.flatten()) / len(x)
    weight = torch.zeros(units).index_add_(0, at.flatten(), strength.square().flatten())
    telling = torch.where(often > OFTEN, weight / weight.sum().clamp(min=1e-9) - 1, weight)
    best = [unit for unit in telling.argsort(descending=True, stable=True)[:UNITS].tolist() if often[unit] > 0]
    lengths = [len(one.vectors) for one in tokens]
    tops, rows = [], []
    for unit in best:
        here = torch.where(at == unit, strength, 0).sum(1).split(lengths)
        top = torch.stack([one.max() for one in here]).topk(min(SHOWN, len(here)))
        own = [i for i, value in zip(top.indices.tolist(), top.values.tolist(), strict=True) if value > 0]
        tops.append((unit, [(i, here[i]) for i in own]))
        rows.append({"unit": unit, "often": often[unit].item(), "examples": [
            {"name": examples.names[i], "token": int(here[i].argmax()), "strength": here[i].max().item(),
             "shown": shown(tokens[i], here[i])} for i in own
        ]} | of_label(examples.labels, here))  # fmt: skip
    data = {
        "layer": layer, "tokens": len(x), "examples": len(tokens), "units": units, "explained": explained.item(),
        "active": fired.sum(1).mean().item(), "dead": int((often == 0).sum()), "best": rows,
    }  # fmt: skip
    return Learned(data, tops, tokens, examples)


def shown(states: TokenStates, strength: Float[Tensor, "T"]) -> str:
    """Return the tokens around the strongest one, which is in brackets; for an image its cell."""
    best = int(strength.argmax())
    if states.grid is not None:
        return f"cell {states.labels[best]} of {states.grid[0]} × {states.grid[1]}"
    pieces = [f"[{piece}]" if i == best else piece for i, piece in enumerate(states.labels)]
    return " ".join(readable(pieces[max(0, best - AROUND) : best + AROUND + 1]))


def of_label(labels: Sequence[str], here: Sequence[Tensor]) -> dict[str, Any]:
    """Return the label whose examples activate a unit most, and their share of its activation."""
    if not labels:
        return {}
    sums: dict[str, float] = {}
    for label, one in zip(labels, here, strict=True):
        sums[label] = sums.get(label, 0.0) + one.sum().item()
    label = max(sums, key=lambda name: sums[name])
    return {"label": label, "share": sums[label] / sum(sums.values())}


def render(data: Mapping[str, Any]) -> str:
    """A dictionary as lines for a terminal: what it explains, and its most telling units."""
    lines = [
        f"{data['units']} units behind block {data['layer']}, learned from {data['tokens']:,} tokens of "
        f"{data['examples']:,} examples",
        f"explained: {100 * data['explained']:.1f} % of the variance of held-out tokens; a token uses "
        f"{data['active']:.1f} units; {data['dead']} are never used",
    ]
    for row in data["best"]:
        label = f", {100 * row['share']:.0f} % of it in {row['label']}" if "label" in row else ""
        lines += ["", f"unit {row['unit']}: active on {100 * row['often']:.2f} % of all tokens{label}"]
        lines += [f"  {one['strength']:5.2f}  {one['shown']}{image_name(one)}" for one in row["examples"]]
    return "\n".join(lines)


def image_name(states: Mapping[str, Any]) -> str:
    """Return the name of an image after the cell in it."""
    return f" in {states['name']}" if states["shown"].startswith("cell ") else ""


def draw(task: Any, learned: Learned, path: Target = None) -> Figure:
    """Draw the most telling units: tokens shaded by a unit's strength, or images lit where it is active."""
    if not learned.tops:
        raise ValueError("no unit is ever used, so there is nothing to draw; give more examples, or other ones")
    if not learned.examples.images:
        return draw_texts(learned, path)

    def glowing(i: int, strength: Float[Tensor, "T"]) -> np.ndarray:
        grid = learned.tokens[i].grid
        image = read_example(task, learned.examples.items[i]).image
        assert grid is not None and image is not None
        return overlay(image, strength.reshape(grid).numpy())

    known = learned.examples.labels or [""] * len(learned.examples)
    rows = [[glowing(*one) for one in tops] for _, tops in learned.tops]
    labels = [[known[i] for i, _ in tops] for _, tops in learned.tops]
    names = [f"unit {unit}" for unit, _ in learned.tops]
    return grid_of_images(rows, labels, path, names=names, side=0.9, title=title_of(learned))


def title_of(learned: Learned) -> str:
    """The title of a figure."""
    data = learned.data
    return f"{data['units']} units behind block {data['layer']}: {100 * data['explained']:.0f} % of the variance"


def draw_texts(learned: Learned, path: Target) -> Figure:
    """A unit after the other; each line is an example around its strongest token."""
    line, height = 0.21, sum(1.5 + len(tops) for _, tops in learned.tops) * 0.21
    sheet = Sheet()
    axes = sheet.blank(3, height)
    y = height - 0.1
    for row, (_, tops) in zip(learned.data["best"], learned.tops, strict=True):
        label = f" · {100 * row['share']:.0f} % in {row['label']}" if "label" in row else ""
        title = f"unit {row['unit']} · {100 * row['often']:.2f} % of tokens{label}"
        axes.text(0, y, title, va="center", **pen(8.5, color=SOFT))
        top = max(strength.max().item() for _, strength in tops)
        for i, strength in tops:
            y -= line
            x, best = 0.1, int(strength.argmax())
            pieces, first = readable(learned.tokens[i].labels), max(0, best - AROUND)
            for piece, value in list(zip(pieces, (strength / top).tolist(), strict=True))[first : best + AROUND + 1]:
                back = dict(facecolor=ramp()(0.75 * value), edgecolor="none", pad=1.6)
                ink = pen(8.5, color="white" if value > 0.7 else INK)
                drawn = axes.text(x, y, piece, va="center", bbox=back, **ink)
                x += drawn.get_window_extent().width / sheet.figure.dpi + 0.07
        y -= 1.5 * line
    axes.set_title(title_of(learned), loc="left", **pen(9.5, fontweight="bold"))
    return sheet.save(path)
