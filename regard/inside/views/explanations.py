"""Explanations of outputs: rollout, gradient, ablation of heads, logit lens, patching, and their agreement."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from regard.inside.capture.ablation import without
from regard.inside.capture.image import image_cells
from regard.inside.capture.weights import matching
from regard.inside.draw.matrices import short_names
from regard.inside.draw.tables import Table, draw_on_image, draw_tables
from regard.inside.explain.agreement import agree
from regard.inside.explain.effects import ablation
from regard.inside.explain.gradients import gradient
from regard.inside.explain.lens import lens
from regard.inside.explain.patching import pair, patch
from regard.inside.explain.rollout import rollout
from regard.inside.views.base import Shown, View, register_view
from regard.models import parts
from regard.tasks.prepared import Prepared

MOST = 3
"""Tokens, heads and positions that are named in a line."""


def explain(
    prepared: Prepared, view: str, *, at: int | None = None, token: str | None = None, against: Prepared | None = None,
    off: Iterable[tuple[int | str, int]] = (),
) -> Shown:  # fmt: skip
    """An explanation of a model's outputs, or of the one `at` a position, with some heads ablated (`off`).

    `token` explains another token, or label, than the model's own; a patch is `against` another text.
    """
    if (view == "patch") != (against is not None):
        raise ValueError('a patch compares two texts: --view patch goes with --against "another text"')
    if view not in EXPLANATIONS:
        raise ValueError(f"{view!r} explains no outputs; use {' or '.join(EXPLANATIONS)}")
    if view not in prepared.explanations:
        family, known = type(prepared.model).__name__, prepared.explanations
        if view != "ablation" and not known and not prepared.grids:
            prepared.stacks  # noqa: B018  it raises an error that says what is missing
        cure = f"use {' or '.join(known)}" if known else "leave out --view to see what it attends to"
        raise ValueError(f"the outputs of a {family} for this input are not explained by {view}; {cure}")
    off = list(off)
    names = list(parts.attention_layers(prepared.model)) if off else []
    ablated = frozenset((matching(layer, names)[0], head) for layer, head in off)
    with without(prepared.model, off):
        if against is not None:
            data, draw = show_patch(*pair(prepared, against, at=at, token=token))
        else:
            prepared = replace(prepared.select(at, token), ablated=ablated)
            data, draw = EXPLANATIONS[view](prepared)
    left_out = {} if against is not None else {"left_out": prepared.outputs.left_out}
    return {"view": view} | data | {name: count for name, count in left_out.items() if count}, draw


def numbers(values: Float[Tensor, "..."]) -> Any:
    """Nested lists of numbers for JSON; nan becomes null."""
    array = values.detach().double().numpy().round(6)
    return np.where(np.isnan(array), None, array).tolist()  # type: ignore


def show_tokens(prepared: Prepared, view: str) -> Shown:
    """Show the importance of each token for each output, by rollout or gradient."""
    weights = (rollout if view == "rollout" else gradient)(prepared).detach()
    names = prepared.output_names
    data = {"tokens": prepared.tokens, "outputs": names, "weights": numbers(weights)}
    titles = {"rollout": "Attention rollout", "gradient": "Attention weighted by the gradient of each output"}
    if prepared.image is not None:
        maps = {f"{i} {name}" if len(weights) > 1 else view: weights[i] for i, name in enumerate(names)}
        return data, on_image(prepared, maps, names[0] if len(weights) == 1 else "the image")
    table = Table(values=weights.numpy(), rows=names, columns=prepared.tokens, title=titles[view])
    return data, lambda path: draw_tables([table], path)


def on_image(prepared: Prepared, maps: dict[str, Tensor], title: str) -> Callable[[Any], Any]:
    """A function that draws maps of tokens' weights on their image; the prefix is left out."""
    cells = {name: one[prepared.sequences[0].prefix :] for name, one in maps.items()}
    return lambda path: draw_on_image(*image_cells(prepared), cells, path, title)


def show_ablation(prepared: Prepared) -> Shown:
    """Show the rise of the loss without each head."""
    with torch.no_grad():
        base = prepared.loss().item()
    effects = ablation(prepared)
    layers = [{"layer": name, "heads": numbers(one)} for name, one in effects.items()]
    data = {"outputs": prepared.output_names, "loss": round(base, 6), "layers": layers}
    table = head_table(effects, f"How much the loss ({base:.3f}) rises without each head")
    return data, lambda path: draw_tables([table], path)


def head_table(effects: dict[str, Float[Tensor, "H"]], title: str) -> Table:
    """A table of numbers with a row for each layer and a column for each head; missing heads are empty cells."""
    widest = max(map(len, effects.values()))
    values = np.full((len(effects), widest), np.nan)
    for row, one in zip(values, effects.values(), strict=True):
        row[: len(one)] = one.numpy()
    texts = [["" if np.isnan(one) else short(one) for one in row] for row in values]
    return Table(
        values=values, rows=short_names(list(effects)), columns=[str(i) for i in range(widest)], texts=texts,
        title=title,
    )  # fmt: skip


def short(value: float) -> str:
    """A number with two or three decimals; a dot for what is nearly zero."""
    return "·" if abs(value) < 0.0005 else f"{value:.3f}" if abs(value) < 0.0995 else f"{value:.2f}"


def depth_name(depth: int) -> str:
    """The name of a state: the input of a stack, or the output of a block, counted from 1."""
    return f"block {depth}" if depth else "input"


def show_lens(prepared: Prepared) -> Shown:
    """Show the model's output decoded after each block, and the probability of its final output there."""
    probabilities = lens(prepared)
    best = probabilities.topk(min(MOST, probabilities.shape[-1]))
    right = probabilities[:, range(len(prepared.outputs.columns)), prepared.outputs.columns]
    layers = ["input", *map(str, range(1, len(probabilities)))]
    words = [[prepared.names(cell) for cell in row] for row in best.indices.tolist()]
    rows = [
        {"layer": layer, "right": numbers(right[i]), "top": words[i], "probabilities": numbers(best.values[i])}
        for i, layer in enumerate(layers)
    ]
    table = Table(
        values=best.values[..., 0].numpy()[::-1], rows=[depth_name(i) for i in range(len(layers))][::-1],
        columns=prepared.output_names, texts=[[cell[0] for cell in row] for row in words][::-1], top=1.0,
        title="The most probable token after each block; above: the token that came",
    )  # fmt: skip
    return {"outputs": prepared.output_names, "layers": rows}, lambda path: draw_tables([table], path)


def show_patch(first: Prepared, other: Prepared) -> Shown:
    """Show the positions and heads that restore the difference between two texts."""
    result = patch(first, other)
    positions = [
        {"stack": name, "tokens": result.labels[name], "shares": numbers(one)} for name, one in result.positions.items()
    ]
    heads = [{"layer": name, "heads": numbers(one)} for name, one in result.heads.items()]
    data = {
        "choices": list(result.choices), "difference": list(result.difference), "positions": positions,
        "layers": heads,
    }  # fmt: skip
    title = f"How much of “{result.choices[0]}” over “{result.choices[1]}” comes back from"
    tables = [
        Table(
            values=one.numpy()[::-1], columns=result.labels[name], top=1.0,
            rows=[depth_name(i) for i in range(len(one))][::-1], title=f"{title} a position of the {name}",
        )
        for name, one in result.positions.items()
    ]  # fmt: skip
    tables.append(head_table(result.heads, f"{title} a head"))
    return data, lambda path: draw_tables(tables, path)


def show_agreement(prepared: Prepared) -> Shown:
    """Show four explanations and their rank correlations."""
    result, names = agree(prepared), prepared.output_names
    views = list(result.weights)
    data = {
        "tokens": prepared.tokens, "outputs": names, "views": views,
        "correlations": numbers(result.correlations), "meaning": result.meaning,
        "weights": {name: numbers(one) for name, one in result.weights.items()},
    }  # fmt: skip
    strips = torch.stack([relative(one) for one in result.weights.values()])
    of = f"“{names[0]}”" if len(names) == 1 else f"{len(names)} outputs, their mean"
    texts = [["" if np.isnan(one) else f"{one:.2f}" for one in row] for row in result.correlations.tolist()]
    tables = [
        Table(values=strips.numpy(), rows=views, columns=prepared.tokens, title=f"What matters for {of}", top=1.0),
        Table(values=result.correlations.numpy(), rows=views, columns=views, texts=texts, top=1.0,
              title="How far they agree (rank correlation)"),
    ]  # fmt: skip
    if prepared.image is not None:
        maps = {
            f"{view}, ρ = {row[-1]:.2f}": result.weights[view][0]
            for view, row in zip(views, result.correlations, strict=True)
        }
        return data, on_image(prepared, maps, names[0])
    return data, lambda path: draw_tables(tables, path)


def relative(weights: Float[Tensor, "R S"]) -> Float[Tensor, "S"]:
    """The mean over outputs of weights, each row relative to its largest; the largest of the mean is 1."""
    positive = weights.clamp(min=0)
    mean = (positive / positive.amax(1, keepdim=True).clamp(min=1e-12)).mean(0)
    return mean / mean.max().clamp(min=1e-12)


def render(data: dict[str, Any]) -> str:
    """An explanation as lines for a terminal."""
    count = data.get("left_out", 0)
    rest = [f"({count:,} outputs before these are left out; --at chooses one)"] if count else []
    return "\n".join([*RENDER[data["view"]](data), *rest])


def strongest(names: Sequence[str], values: Sequence[float], most: int = MOST) -> str:
    """The largest values with their names."""
    order = sorted(range(len(names)), key=lambda i: -values[i])[:most]
    return "  ".join(f"{names[i]} {values[i]:.3f}" for i in order)


def render_tokens(data: dict[str, Any]) -> list[str]:
    lines = [f"{'output':16}depends most on ({data['view']})"]
    return lines + [
        f"{name[:15]:16}{strongest(data['tokens'], row)}"
        for name, row in zip(data["outputs"], data["weights"], strict=True)
    ]


def render_ablation(data: dict[str, Any]) -> list[str]:
    lines = [f"loss {data['loss']:.4f}; how much it rises without a head:"]
    return lines + head_lines(data["layers"])


def head_lines(layers: list[dict[str, Any]]) -> list[str]:
    """A row for each layer, and the heads that matter most."""
    width = max(len(one["layer"]) for one in layers) + 2
    lines = [f"{'':{width}}" + "".join(f"{f'head {i}':>9}" for i in range(max(len(one["heads"]) for one in layers)))]
    lines += [f"{one['layer']:{width}}" + "".join(f"{value:9.4f}" for value in one["heads"]) for one in layers]
    names = [f"{one['layer']} head {i}" for one in layers for i in range(len(one["heads"]))]
    return [*lines, "most: " + strongest(names, [value for one in layers for value in one["heads"]])]


def render_lens(data: dict[str, Any]) -> list[str]:
    layers = data["layers"]
    lines = [f"{'output':16}{'right from':>11}   its probability behind {layers[0]['layer']}, 1 … {len(layers) - 1}"]
    for i, name in enumerate(data["outputs"]):
        wrong = [number for number, one in enumerate(layers) if one["top"][i][0] != name]
        first = wrong[-1] + 1 if wrong else 0
        since = "never" if first == len(layers) else depth_name(first)
        lines.append(f"{name[:15]:16}{since:>11}   " + " ".join(f"{one['right'][i]:4.2f}" for one in layers))
    return lines


def render_patch(data: dict[str, Any]) -> list[str]:
    first, other = data["choices"]
    lines = ["logit of {!r} less that of {!r}: {:.2f} with the first text, {:.2f} with the other".format(
        first, other, *data["difference"])]  # fmt: skip
    for one in data["positions"]:
        lines.append(f"{one['stack']}: what comes back from one position, the strongest of each block")
        for depth, row in enumerate(one["shares"]):
            lines.append(f"  {depth_name(depth):9}{strongest(one['tokens'], row)}")
    return [*lines, "what comes back from one head:", *head_lines(data["layers"])]


def render_agreement(data: dict[str, Any]) -> list[str]:
    lines = [f"{'':11}" + "".join(f"{view:>11}" for view in data["views"])]
    for view, row in zip(data["views"], data["correlations"], strict=True):
        lines.append(f"{view:11}" + "".join(f"{'' if one is None else f'{one:.2f}':>11}" for one in row))
    return [*lines, data["meaning"]]


EXPLANATIONS: dict[str, Callable[[Prepared], Shown]] = {
    "rollout": partial(show_tokens, view="rollout"), "gradient": partial(show_tokens, view="gradient"),
    "ablation": show_ablation, "lens": show_lens, "patch": lambda prepared: explain(prepared, "patch"),
    "agreement": show_agreement,
}  # fmt: skip
RENDER: dict[str, Callable[[dict[str, Any]], list[str]]] = {
    "rollout": render_tokens, "gradient": render_tokens, "ablation": render_ablation, "lens": render_lens,
    "patch": render_patch, "agreement": render_agreement,
}  # fmt: skip


for name in EXPLANATIONS:
    options = ("at", "token", *(["against"] if name == "patch" else []))
    needs = name not in ("ablation", "lens", "patch")
    view = View(name=name, show=partial(explain, view=name), render=render, options=options, needs_weights=needs,
                complete=False)  # fmt: skip
    register_view(view, *([False] if name == "rollout" else []))  # on grids it has a view of its own
