"""The views by name: each as plain data, as lines for a terminal, and as a picture."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from regard.inside.ablation import without
from regard.inside.attribution.agreement import agree
from regard.inside.attribution.asking import ask
from regard.inside.attribution.drawing import Table, draw_on_picture, draw_tables
from regard.inside.attribution.effects import ablation
from regard.inside.attribution.gradients import gradient
from regard.inside.attribution.lens import lens
from regard.inside.attribution.patching import pair, patch
from regard.inside.attribution.pictures import seen_views
from regard.inside.attribution.question import Question
from regard.inside.attribution.rollout import rollout
from regard.inside.capture import matching
from regard.inside.views import short_names
from regard.nn.weights import find_kernels
from regard.tasks import ImageEncoder, PixelModel, TextEncoder

VIEWS = ("rollout", "gradient", "ablation", "lens", "patch", "agreement")
Shown = tuple[dict[str, Any], Callable[[str | Path | None], Any]]
"""Plain data, and what draws it to a path."""
MOST = 3
"""Tokens, heads and places that are named in a line."""


def explain(
    loaded: Any, text: Any, view: str, *, second: str | None = None, target: str | Sequence[int] | None = None,
    at: int | None = None, token: str | None = None, against: Any = None, other_target: Sequence[int] | None = None,
    off: Iterable[tuple[int | str, int]] = (),
) -> Shown:  # fmt: skip
    """A view of what an output rests on, with some heads `off`; see `ask` for which output, and `pair` for a patch
    `against` another text."""
    if (view == "patch") != (against is not None):
        raise ValueError('a patch compares two texts: --view patch goes with --against "another text"')
    if view == "patch" and second is not None:
        raise ValueError("patching swaps between two single texts; give the other with --against")
    if isinstance(loaded, ImageEncoder | PixelModel) and view not in (known := seen_views(loaded)):
        why = f"use {' or '.join(known)}" if known else "leave out --view to see where it looks"
        raise ValueError(f"a {type(loaded.model).__name__} has no view {view!r} of what it rests on; {why}")
    if type(loaded) is TextEncoder and view in ("lens", "patch"):
        raise ValueError(
            f"a vector says nothing that a {view} could trace; use rollout, gradient, ablation or agreement"
        )
    how: dict[str, Any] = dict(target=target, at=at, token=token)
    off = list(off)
    names = list(find_kernels(loaded.model)) if off else []
    with without(loaded.model, off):
        if view == "patch":
            return show_patch(*pair(loaded, text, against, **how, other_target=other_target))
        silent = frozenset((matching(layer, names)[0], head) for layer, head in off)
        question = replace(ask(loaded, text, second, **how), off=silent)
        said, draw = {
            "rollout": show_tokens, "gradient": show_tokens, "ablation": show_heads, "lens": show_lens,
            "agreement": show_agreement,
        }[view](question, view)  # fmt: skip
    return said | ({"left_out": question.left_out} if question.left_out else {}), draw


def numbers(values: Float[Tensor, "..."]) -> Any:
    """Rows of numbers for JSON; what is not known is null."""
    return np.where(np.isnan(found := values.detach().double().numpy().round(6)), None, found).tolist()  # type: ignore


def show_tokens(question: Question, view: str) -> Shown:
    """Which tokens each output rests on."""
    weights = (rollout if view == "rollout" else gradient)(question).detach()
    said = {"view": view, "tokens": question.tokens, "outputs": question.names, "weights": numbers(weights)}
    titles = {"rollout": "Attention rollout", "gradient": "Attention weighted by the gradient of each output"}
    table = Table(values=weights.numpy(), rows=question.names, columns=question.tokens, title=titles[view])
    if question.picture is not None:
        maps = {f"{i} {name}" if len(weights) > 1 else view: weights[i] for i, name in enumerate(question.names)}
        lead = question.names[0] if len(weights) == 1 else "the picture"
        return said, lambda path: draw_on_picture(question.picture, maps, path, lead)
    return said, lambda path: draw_tables([table], path)


def show_heads(question: Question, view: str) -> Shown:
    """How much the loss rises without each head."""
    with torch.no_grad():
        base = question.loss().item()
    effects = ablation(question)
    layers = [{"layer": name, "heads": numbers(one)} for name, one in effects.items()]
    said = {"view": view, "outputs": question.names, "loss": round(base, 6), "layers": layers}
    table = head_table(effects, f"How much the loss ({base:.3f}) rises without each head")
    return said, lambda path: draw_tables([table], path)


def head_table(found: dict[str, Float[Tensor, "H"]], title: str) -> Table:
    """Layers below each other, heads side by side, with numbers; a layer with fewer heads has empty cells."""
    widest = max(map(len, found.values()))
    values = np.full((len(found), widest), np.nan)
    for row, one in zip(values, found.values(), strict=True):
        row[: len(one)] = one.numpy()
    texts = [["" if np.isnan(one) else short(one) for one in row] for row in values]
    return Table(
        values=values, rows=short_names(list(found)), columns=[str(i) for i in range(widest)], texts=texts,
        title=title,
    )  # fmt: skip


def short(value: float) -> str:
    """Two digits, and nothing of what is as good as zero."""
    return "·" if abs(value) < 0.0005 else f"{value:.3f}" if abs(value) < 0.0995 else f"{value:.2f}"


def depth_name(depth: int) -> str:
    return f"block {depth}" if depth else "input"


def show_lens(question: Question, view: str) -> Shown:
    """What the model would say behind each block, and how likely the right answer is there."""
    chances = lens(question)
    best = chances.topk(min(MOST, chances.shape[-1]))
    right = chances[:, range(len(question.choices)), question.choices]
    layers = ["input", *map(str, range(1, len(chances)))]
    words = [[[question.spell(id) for id in cell] for cell in row] for row in best.indices.tolist()]
    rows = [
        {"layer": layer, "right": numbers(right[i]), "top": words[i], "chances": numbers(best.values[i])}
        for i, layer in enumerate(layers)
    ]
    table = Table(
        values=best.values[..., 0].numpy()[::-1], rows=[depth_name(i) for i in range(len(layers))][::-1],
        columns=question.names, texts=[[cell[0] for cell in row] for row in words][::-1], top=1.0,
        title="What would be said behind each block; above: what is said",
    )  # fmt: skip
    return {"view": view, "outputs": question.names, "layers": rows}, lambda path: draw_tables([table], path)


def show_patch(question: Question, other: Question) -> Shown:
    """Where the difference between two prompts comes back."""
    found = patch(question, other)
    places = [
        {"stack": name, "tokens": found.labels[name], "shares": numbers(one)} for name, one in found.places.items()
    ]
    heads = [{"layer": name, "heads": numbers(one)} for name, one in found.heads.items()]
    said = {
        "view": "patch", "choices": list(found.choices), "difference": list(found.difference), "places": places,
        "layers": heads,
    }  # fmt: skip
    title = f"How much of “{found.choices[0]}” over “{found.choices[1]}” comes back from"
    tables = [
        Table(
            values=one.numpy()[::-1], columns=found.labels[name], top=1.0,
            rows=[depth_name(i) for i in range(len(one))][::-1], title=f"{title} a place of the {name}",
        )
        for name, one in found.places.items()
    ]  # fmt: skip
    tables.append(head_table(found.heads, f"{title} a head"))
    return said, lambda path: draw_tables(tables, path)


def show_agreement(question: Question, view: str) -> Shown:
    """The views beside each other, and their rank correlations."""
    found = agree(question)
    views = list(found.weights)
    said = {
        "view": view, "tokens": question.tokens, "outputs": question.names, "views": views,
        "correlations": numbers(found.correlations), "meaning": found.meaning,
        "weights": {name: numbers(one) for name, one in found.weights.items()},
    }  # fmt: skip
    strips = torch.stack([relative(one) for one in found.weights.values()])
    of = f"“{question.names[0]}”" if len(question.names) == 1 else f"{len(question.names)} outputs, their mean"
    texts = [["" if np.isnan(one) else f"{one:.2f}" for one in row] for row in found.correlations.tolist()]
    tables = [
        Table(values=strips.numpy(), rows=views, columns=question.tokens, title=f"What matters for {of}", top=1.0),
        Table(values=found.correlations.numpy(), rows=views, columns=views, texts=texts, top=1.0,
              title="How far they agree (rank correlation)"),
    ]  # fmt: skip
    if question.picture is not None:
        maps = {
            f"{view}, ρ = {row[-1]:.2f}": found.weights[view][0]
            for view, row in zip(views, found.correlations, strict=True)
        }
        return said, lambda path: draw_on_picture(question.picture, maps, path, question.names[0])
    return said, lambda path: draw_tables(tables, path)


def relative(weights: Float[Tensor, "R S"]) -> Float[Tensor, "S"]:
    """The mean of outputs, each beside its largest; the largest is 1."""
    positive = weights.clamp(min=0)
    mean = (positive / positive.amax(1, keepdim=True).clamp(min=1e-12)).mean(0)
    return mean / mean.max().clamp(min=1e-12)


def render(said: dict[str, Any]) -> str:
    """The same for a terminal."""
    count = said.get("left_out", 0)
    rest = [f"({count:,} outputs before these are left out; --at asks about one)"] if count else []
    return "\n".join([*RENDER[said["view"]](said), *rest])


def strongest(names: Sequence[str], values: Sequence[float], most: int = MOST) -> str:
    """The largest values with their names."""
    order = sorted(range(len(names)), key=lambda i: -values[i])[:most]
    return "  ".join(f"{names[i]} {values[i]:.3f}" for i in order)


def render_tokens(said: dict[str, Any]) -> list[str]:
    lines = [f"{'output':16}rests most on ({said['view']})"]
    return lines + [
        f"{name[:15]:16}{strongest(said['tokens'], row)}"
        for name, row in zip(said["outputs"], said["weights"], strict=True)
    ]


def render_heads(said: dict[str, Any]) -> list[str]:
    lines = [f"loss {said['loss']:.4f}; how much it rises without a head:"]
    return lines + head_lines(said["layers"])


def head_lines(layers: list[dict[str, Any]]) -> list[str]:
    """A row for each layer, and the heads that matter most."""
    width = max(len(one["layer"]) for one in layers) + 2
    lines = [f"{'':{width}}" + "".join(f"{f'head {i}':>9}" for i in range(max(len(one["heads"]) for one in layers)))]
    lines += [f"{one['layer']:{width}}" + "".join(f"{value:9.4f}" for value in one["heads"]) for one in layers]
    names = [f"{one['layer']} head {i}" for one in layers for i in range(len(one["heads"]))]
    return [*lines, "most: " + strongest(names, [value for one in layers for value in one["heads"]])]


def render_lens(said: dict[str, Any]) -> list[str]:
    layers = said["layers"]
    lines = [f"{'output':16}{'right from':>11}   how likely it is behind {layers[0]['layer']}, 1 … {len(layers) - 1}"]
    for i, name in enumerate(said["outputs"]):
        wrong = [number for number, one in enumerate(layers) if one["top"][i][0] != name]
        first = wrong[-1] + 1 if wrong else 0
        since = "never" if first == len(layers) else depth_name(first)
        lines.append(f"{name[:15]:16}{since:>11}   " + " ".join(f"{one['right'][i]:4.2f}" for one in layers))
    return lines


def render_patch(said: dict[str, Any]) -> list[str]:
    first, other = said["choices"]
    lines = ["score of {!r} less that of {!r}: {:.2f} with the first text, {:.2f} with the other".format(
        first, other, *said["difference"])]  # fmt: skip
    for one in said["places"]:
        lines.append(f"{one['stack']}: what comes back from one place, the strongest of each block")
        for depth, row in enumerate(one["shares"]):
            lines.append(f"  {depth_name(depth):9}{strongest(one['tokens'], row)}")
    return [*lines, "what comes back from one head:", *head_lines(said["layers"])]


def render_agreement(said: dict[str, Any]) -> list[str]:
    lines = [f"{'':11}" + "".join(f"{view:>11}" for view in said["views"])]
    for view, row in zip(said["views"], said["correlations"], strict=True):
        lines.append(f"{view:11}" + "".join(f"{'' if one is None else f'{one:.2f}':>11}" for one in row))
    return [*lines, said["meaning"]]


RENDER: dict[str, Callable[[dict[str, Any]], list[str]]] = {
    "rollout": render_tokens, "gradient": render_tokens, "ablation": render_heads, "lens": render_lens,
    "patch": render_patch, "agreement": render_agreement,
}  # fmt: skip
