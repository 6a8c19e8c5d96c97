"""The view of feed-forward layers: shares of the residual stream, the loss without each part, and the neurons that
write most at one token."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, cast

import torch
from torch import nn

from regard.inside.draw.canvas import LINES, SOFT, Figure, Sheet, Target, pen, readable, write_legend
from regard.inside.draw.matrices import short_names
from regard.inside.explain.feedforward import (
    PARTS,
    block_writes,
    most_excited,
    part_effects,
    stream_shares,
    strongest_neurons,
)
from regard.inside.views.base import Shown, View, register_view
from regard.models import parts
from regard.tasks.prepared import Prepared

NEURONS, TOKENS, EXAMPLES = 8, 5, 3
"""Neurons that are shown (one of each block at least), tokens that each promotes, and tokens that excite it."""
BEFORE, AFTER = 6, 2
"""Tokens of an example that are shown before and after the one that excites a neuron."""


@torch.no_grad()
def show_feedforward(prepared: Prepared, at: int | None = None, data: Sequence[Prepared] | None = None) -> Shown:
    """Show what the parts of each block write and what is lost without them, and the neurons that write most at the
    last output, or the one `at` a position; examples that excite those are sought in `data`, or in the input itself."""
    whole = prepared.select()
    writes = block_writes(whole)
    shares, effects = stream_shares(whole, writes), part_effects(whole, writes)
    layers = [
        {"layer": one.name, "call": one.call, "parts": {
            part: {"written": rounded(one.relative(part)), "share": rounded(shares.get((one.name, one.call, part))),
                   "rise": round(effects[one.name, one.call, part], 6)}
            for part in PARTS if part in one.added
        }}
        for one in writes
    ]  # fmt: skip
    inputs = [{"layer": name, "share": round(share, 5)} for (name, _, part), share in shares.items() if part == "input"]
    result = {"loss": round(float(whole.loss()), 6), "outputs": len(whole.outputs.rows), "layers": layers,
              "inputs": inputs}  # fmt: skip
    if has_memories(prepared):
        result |= memories(prepared.select(-1 if at is None else at), data)
    return result, lambda path: draw_feedforward(result, path)


def rounded(value: float | None) -> float | None:
    """A share with five digits; None where shares do not sum up."""
    return None if value is None else round(value, 5)


def has_memories(prepared: Prepared) -> bool:
    """Whether neurons can be followed to the outputs: one stream, matrices as they were trained, and logits."""
    stacks = list(parts.stacks(prepared.model).values())
    if prepared.answers in ("vector", "number") or not prepared.uniform or not stacks or stacks[-1].reversible:
        return False
    return all(isinstance(block.feedforward.down, nn.Linear) for block in cast(Iterable[Any], stacks[-1].blocks))


def memories(prepared: Prepared, data: Sequence[Prepared] | None) -> dict[str, Any]:
    """The strongest neurons at the token of one output: what excites each, and what it promotes."""
    neurons = strongest_neurons(prepared, NEURONS)
    excited = most_excited(neurons, [prepared] if data is None else data, EXAMPLES)
    position = int(prepared.outputs.readout[0].argmax())
    rows = []
    for neuron, found in zip(neurons, excited, strict=True):
        order = neuron.logits.argsort(descending=True).tolist()
        promoted, demoted = order[:TOKENS], order[::-1][:TOKENS]
        rows.append({
            "block": neuron.block, "neuron": neuron.index, "activation": round(neuron.activation, 5),
            "strength": round(neuron.strength, 5), "promotes": prepared.names(promoted),
            "raised": [round(float(neuron.logits[one]), 5) for one in promoted], "demotes": prepared.names(demoted),
            "excited": [{"activation": round(value, 5)} | around(example, at) for value, example, at in found],
        })  # fmt: skip
    sequence = prepared.sequences[prepared.row_sequence or 0]
    token = sequence.tokens[position] if position < len(sequence) else ""
    return {"token": token, "position": position, "output": prepared.output_names[0],
            "examples": None if data is None else len(data), "neurons": rows}  # fmt: skip


def around(example: Prepared, at: int) -> dict[str, str]:
    """A token of an example, and what stands before and after it."""
    sequence = example.sequences[example.row_sequence or 0]
    joined = [
        spelled(sequence.tokens[part]) for part in (slice(max(0, at - BEFORE), at), slice(at + 1, at + 1 + AFTER))
    ]
    if sequence.grid is not None:
        joined = ["patch " if at >= sequence.prefix else "", ""]
    return {"before": joined[0], "token": spelled(sequence.tokens[at : at + 1]), "after": joined[1]}


def spelled(tokens: Sequence[str]) -> str:
    """Tokens as running text: the sign of a space in front of a word becomes one."""
    return "".join(readable(tokens)).replace("·", " ")


def render_feedforward(data: Mapping[str, Any]) -> str:
    """A line for each part of each block, then one for each neuron and one for what excites it."""
    width = max(len(one["layer"]) for one in data["layers"])
    lines = [
        f"loss {data['loss']:.4f} of {data['outputs']} outputs; written: norm of what a part adds, by that of the "
        "block's input; share of the last stream; rise of the loss without the part",
        f"{'block':{width}}  {'part':11}  written   share     rise",
    ]
    for one in data["layers"]:
        for part, values in one["parts"].items():
            share = "      –" if values["share"] is None else f"{100 * values['share']:5.1f} %"
            written = "      –" if values["written"] is None else f"{values['written']:7.2f}"
            lines.append(f"{one['layer']:{width}}  {part:11}  {written} {share}  {values['rise']:+.4f}")
    lines += [
        f"{one['layer']:{width}}  {'its input':11}          {100 * one['share']:5.1f} %" for one in data["inputs"]
    ]
    if "neurons" in data:
        among = "this input" if data["examples"] is None else f"{data['examples']:,} examples"
        lines += [
            "",
            f"neurons that write most at {data['token']!r}, for the output {data['output']!r}; excited in {among} by",
        ]
    for one in data.get("neurons", ()):
        lines.append(
            f"block {one['block'] + 1} neuron {one['neuron']} ({one['activation']:.2f}) promotes "
            f"{' '.join(readable(one['promotes'], 16))}"
        )
        lines += [
            f"    {case['activation']:6.2f}  {case['before']}[{case['token']}]{case['after']}"
            for case in one["excited"]
        ]
    return "\n".join(lines)


def draw_feedforward(data: Mapping[str, Any], path: Target = None) -> Figure:
    """Draw bars of what each part writes and of the loss without it, and the strongest neurons as lines of text."""
    layers, sheet = data["layers"], Sheet()
    names = short_names([one["layer"] for one in layers])
    if all(name.startswith("layer ") for name in names):
        names = [f"block {number + 1}" for number in range(len(names))]  # as neurons are named below
    there = [part for part in PARTS if any(part in one["parts"] for one in layers)]
    wide, high = max(3.2, 0.34 * len(layers)), 2.1
    charts = (
        ("written", "norm of what is added / of the stream", "What each part adds to the residual stream"),
        ("rise", "rise of the loss", f"Without it (loss {data['loss']:.2f})"),
    )
    for i, (key, label, title) in enumerate(charts):
        axes = sheet.chart(i * (wide + 1.0), 0, wide, high, title=title, ylabel=label)
        for j, part in enumerate(there):
            places = [k + (j - (len(there) - 1) / 2) * 0.8 / len(there) for k in range(len(layers))]
            heights = [one["parts"].get(part, {key: 0.0})[key] or 0.0 for one in layers]
            axes.bar(places, heights, 0.8 / len(there), color=LINES[j], label=part)
        axes.set_xticks(range(len(names)), names, rotation=90 if max(map(len, names)) > 3 else 0, **pen(7.5))
        axes.margins(x=0.02)
        if i == 1:
            write_legend(axes, loc="upper left", bbox_to_anchor=(1.02, 1), borderaxespad=0)
    if "neurons" in data:
        write_neurons(sheet, data, -0.75 - 0.06 * max(map(len, names)))
    return sheet.save(path)


def write_neurons(sheet: Sheet, data: Mapping[str, Any], top: float) -> None:
    """Write what the strongest neurons promote, and what excites them."""
    rows = data["neurons"]
    axes = sheet.place(0, top - 0.4 * len(rows), 8.4, 0.4 * len(rows))
    axes.set(xlim=(0, 8.4), ylim=(0, 0.4 * len(rows)), autoscale_on=False)
    axes.axis("off")
    token, output = readable([data["token"], data["output"]])
    title = f"Neurons that write most at “{token}”, for the output “{output}”"
    axes.set_title(title, loc="left", **pen(9.5, fontweight="bold"))
    for i, one in enumerate(rows):
        y = 0.4 * (len(rows) - i) - 0.14
        axes.text(0, y, f"block {one['block'] + 1}, {one['neuron']}", va="center", **pen(8))
        axes.text(
            1.15, y, "promotes  " + "  ".join(readable(one["promotes"], 14)), va="center", **pen(8, color=LINES[0])
        )
        cases = "    ".join(f"{case['before'][-26:]}[{case['token']}]{case['after'][:8]}" for case in one["excited"])
        axes.text(1.15, y - 0.17, f"excited by  {readable([cases], 120)[0]}", va="center", **pen(7.5, color=SOFT))


register_view(
    View(
        name="ffn", show=show_feedforward, render=render_feedforward, options=("at", "data"), needs_weights=False,
        complete=False,
    )
)  # fmt: skip
