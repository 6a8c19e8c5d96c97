"""The data of a page about one input: `Page(task, "a text")`. In a notebook it displays itself; `save` writes one file.

Everything is plain data that goes into JSON. Nothing is computed before it is needed, but the pass itself.
"""

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from regard.config import nearest
from regard.files import write_atomically
from regard.inside.capture.ablation import without
from regard.inside.capture.record import Layer, opaque, record
from regard.inside.draw.document import framed, whole_page
from regard.inside.draw.packing import in_bytes, packed
from regard.inside.explain.agreement import aligners
from regard.inside.page.offline import everything
from regard.inside.page.sequences import image_uri, sequence_data
from regard.inside.page.vectors import embedded
from regard.inside.views.base import show_view
from regard.inside.views.explanations import explain
from regard.models import parts

BEST = 200
"""Number of columns whose logits are listed."""
TEMPERATURES = [round(0.1 + 0.05 * i, 2) for i in range(39)]
"""Values of the page's temperature slider, for which the sum over all other tokens is stored."""

Head = tuple[int | str, int]
"""A layer, by its name or its index, and a head of it."""


class Page:
    """A pass through a task's model, with some heads ablated (`off`).

    `inputs` are what the task reads: a text, a pair of texts, or an image (a path, or a Pillow image), for a matcher
    of images and texts with texts behind it. `target` are tokens behind a text, or of a translation. The text of a
    language model may be cut: so many of its tokens are `kept`.
    """

    def __init__(
        self, task: Any, *inputs: Any, target: str | Sequence[int] | None = None, kept: int | None = None,
        off: Iterable[Head] = (), name: str = "",
    ) -> None:  # fmt: skip
        self.task, self.model, self.inputs, self.name = task, task.model, inputs, name
        self.off, self.own = list(dict.fromkeys(off)), target is None
        self.prepared = task.read(*inputs, target=target, kept=kept, greedy=True)
        self.sequences = [sequence_data(self.prepared, one, task) for one in self.prepared.sequences]
        pixels = self.prepared.inputs.get("pixels")
        with torch.inference_mode():
            with without(self.model, self.off), embedded(self.model, pixels) as self.strips:
                self.logits, self.layers = record(self.model, self.run)
                if self.logits.isnan().any() or (self.logits == torch.inf).any():
                    raise ValueError("the model's output is NaN: its weights are damaged; train it again")
                self.details = self.prepared.details(self.logits)
                self.ahead = self.written()
            self.whole, self.whole_ahead = self.logits, self.ahead
            if self.off:
                self.whole, self.whole_ahead = self.run(), self.written()

    def run(self) -> Float[Tensor, "P V"]:
        """A pass through the model: rows of logits, or one row that is a vector."""
        logits = self.prepared.run(self.prepared.inputs)[0].float().cpu()
        if len(self.prepared.forbidden):
            logits[:, list(self.prepared.forbidden)] = -torch.inf
        return logits

    def written(self) -> list[int] | None:
        """Return the tokens that the model generates; None where it does not generate."""
        return None if self.prepared.generation is None else self.prepared.generation.write(self.model)

    def describe(self) -> dict[str, Any]:
        """Return sequences, layers and answer as data, without the weights."""
        prepared = self.prepared
        rows, sequence = len(self.logits), prepared.row_sequence
        last = prepared.answers == "next" and not (self.own and sequence)  # a whole translation from its start
        answer = {"kind": prepared.answers, "sequence": sequence, "rows": rows, "row": rows - 1 if last else 0,
                  "fixed": prepared.fixed} | self.details  # fmt: skip
        if prepared.answers == "number":
            answer["value"] = float(self.logits[0, 0])
        image = {} if prepared.image is None else {"image": image_uri(prepared.image)}
        sound = {} if prepared.sound is None else {"sound": prepared.sound}
        for data, one in zip(self.sequences, prepared.sequences, strict=True):
            if "tokens" in data:
                data["tokens"] = one.tokens  # those of queries are named by what they found
            data["vectors"] = self.strips.of(data.get("ids") or [])
        return {
            "model": type(self.model).__name__, "name": self.name, "input": image | sound | prepared.request,
            "sequences": self.sequences, "layers": [self.layer_data(layer) for layer in self.layers], "answer": answer,
            "off": [list(head) for head in self.off], "change": self.change(self.logits),
            "ahead": self.tokens(self.ahead), "own": self.own, "ends": self.ends,
            "before": self.tokens(self.whole_ahead) if self.off else None, "temperatures": TEMPERATURES,
            "views": self.views, "mechanisms": self.prepared.mechanisms, "opaque": opaque(self.model),
        }  # fmt: skip

    @property
    def ends(self) -> list[int]:
        """The EOS ids of the model."""
        return [] if self.prepared.generation is None else list(self.prepared.generation.ends)

    def layer_data(self, layer: Layer) -> dict[str, Any]:
        """The data of a layer without its weights."""
        queries, keys = self.prepared.sides(layer.name, layer.kind)
        cut = self.windows(layer)
        towers = len({one.name for one in self.prepared.sequences}) > 1 and self.prepared.answers == "match"
        tab = self.prepared.sequences[queries].name if towers else "cross" if layer.kind == "recurrent" else layer.kind
        return {
            "name": layer.name, "kind": layer.kind, "heads": layer.heads, "queries": queries, "keys": keys, "tab": tab,
            "kernel": type(layer.kernel).__name__.lower(),
            "size": [layer.size[0] if cut else 1, *self.lengths(layer)],
        } | cut  # fmt: skip

    def windows(self, layer: Layer) -> dict[str, Any]:
        """The windows of a layer: which cell is where in which window; −1 is padding."""
        grids = self.prepared.grids.get(layer.name)
        if grids is None or (cuts := grids.windows) is None:
            return {}
        count = cuts.grid[0] * cuts.grid[1]
        cells = cuts.split(torch.arange(1.0, count + 1)[None, :, None])[..., 0].long() - 1
        return {"windows": {"size": cuts.size, "shift": cuts.shift, "counts": list(cuts.counts),
                            "cells": packed(cells, "i4")}}  # fmt: skip

    def lengths(self, layer: Layer) -> list[int]:
        """The numbers of a layer's queries and keys that are shown: a text beside longer ones was padded."""
        if self.windows(layer):
            return list(layer.size[1:])
        return [len(self.prepared.sequences[side]) for side in self.prepared.sides(layer.name, layer.kind)]

    def tokens(self, ids: list[int] | None) -> list[dict[str, Any]] | None:
        """Return the label and id of each token; None for None."""
        if ids is None:
            return None
        return [{"token": token, "id": id} for token, id in zip(self.prepared.names(ids), ids, strict=True)]

    def layer(self, number: int) -> dict[str, Any]:
        """Return the weights of all heads of a layer; with windows, those of every window."""
        layer = self.at(number)
        T, S = self.lengths(layer)
        every = layer.weights()[:, :, :T, :S]
        return in_bytes(every if self.windows(layer) else every[:1])

    def head(self, number: int, head: int, row: int = 0, kind: str = "f4") -> dict[str, Any]:
        """q, k, v of a head, and the steps to its weights; `row` is a window. `kind` f2 takes half the room."""
        layer = self.at(number)
        if not 0 <= head < layer.heads or not 0 <= row < layer.size[0]:
            known = f"it has {layer.heads} and {layer.size[0]}"
            raise ValueError(f"{layer.name} has no head {head} of window {row}; {known}")
        T, S = self.lengths(layer)
        numbers = layer.numbers(head, row)
        cuts = dict(q=(T,), k=(S,), v=(S,), bias=(T, S), scores=(T, S), mask=(T, S))
        data: dict[str, Any] = {"scale": numbers["scale"], "own": numbers["scale"] is numbers["scores"] is None}
        for name, sides in cuts.items():
            x = numbers[name]
            x = None if x is None else x[tuple(slice(side) for side in sides)]
            data[name] = None if x is None else packed(x, "u1" if name == "mask" else kind)
        return data

    def probabilities(self, row: int) -> dict[str, Any]:
        """The best logits of a row, and log Σ exp(logit / temperature) of all others; `whole` is with no head off."""
        if not 0 <= row < len(self.logits):
            raise ValueError(f"there is no row {row}; there are {len(self.logits)}, 0 to {len(self.logits) - 1}")
        best = self.logits[row].topk(min(BEST, self.logits.shape[1]))
        ids = best.indices[best.values > -torch.inf].tolist()
        now, whole = (
            {"logits": [round(one, 5) for one in logits[row][ids].tolist()], "rest": rest(logits[row], ids)}
            for logits in (self.logits, self.whole)
        )
        return {"names": self.prepared.names(ids), "ids": ids, **now, "whole": whole}

    def change(self, logits: Float[Tensor, "P V"]) -> float:
        """Return the difference of an answer from the unablated model's, from 0 to 1: total variation of probabilities,
        1 − cosine of vectors, or relative difference of numbers."""
        if self.prepared.answers == "number":
            far = (logits - self.whole).abs() / (logits.abs() + self.whole.abs()).clamp(min=1e-9)
            return float(far.mean())
        if self.prepared.answers == "vector":
            return float((1 - torch.cosine_similarity(logits[0], self.whole[0], dim=0)).clamp(0, 1))
        prompt = self.prepared.answers == "next" and not self.prepared.row_sequence and self.prepared.image is None
        rows = slice(-1 if prompt else None, None)
        apart = (logits[rows].softmax(-1) - self.whole[rows].softmax(-1)).abs().sum(-1) / 2
        return float(apart.mean())

    @torch.inference_mode()
    def effects(self, ended: Callable[[], bool] = lambda: False) -> list[list[float]]:
        """Return, for each layer, the change of the answer when each head alone is ablated; raise an error once `ended`
        is true."""
        effects = []
        for layer in self.layers:
            row = []
            for head in range(layer.heads):
                if ended():
                    raise ValueError("the request was cancelled")
                with without(self.model, [(layer.name, head)]):
                    row.append(round(self.change(self.run()), 6))
            effects.append(row)
        return effects

    def best_alignment(self) -> dict[str, Any] | None:
        """The cross-attention head that attends most often to the source token that matters most; None where nothing
        is translated, or no token that is written depends on the source."""
        if self.prepared.image is not None or not any(layer.kind == "cross" for layer in self.layers):
            return None
        best = aligners(self.prepared.select())[0]
        number = [layer.name for layer in self.layers].index(best.layer)
        data = {"layer": number, "head": best.head, "agrees": round(best.share, 4), "of": best.outputs}
        return data if best.outputs else None

    @property
    def views(self) -> list[str]:
        """Return the names of the explanations that are available for this answer."""
        if opaque(self.model):  # all others need weights, or name heads of layers that are not shown
            return [view for view in self.prepared.explanations if view == "lens"]
        return self.prepared.explanations

    def view(self, name: str, *, at: int | None = None, against: str | None = None) -> dict[str, Any]:
        """An explanation of all outputs, or of the one `at` a position, or a part of the model at work; a patch is
        `against` another text."""
        if name in self.prepared.mechanisms:
            with without(self.model, self.off):
                return show_view(self.prepared, name)[0]
        if name not in self.views:
            raise ValueError(f"there is no view {name!r} of this model and input; {nearest(name, self.views)}")
        other = None
        if against is not None:
            whole = None if self.prepared.row_sequence else self.prepared.request["target"]
            other = self.task.read(against, target=whole, greedy=True)
        return explain(self.prepared, name, at=at, against=other, off=self.off)[0]

    def copies(self, name: str) -> int:
        """The number of passes through the model for a view, each with one position or one head changed."""
        heads, stacks = sum(layer.heads for layer in self.layers), parts.stacks(self.model).values()
        positions = self.length * sum(len(stack.blocks) + 1 for stack in stacks)
        return {"ablation": heads, "agreement": self.length, "patch": heads + positions}.get(name, 1)

    @property
    def length(self) -> int:
        """Number of tokens, or cells, of the input."""
        return len(self.prepared.sequences[0])

    @property
    def nbytes(self) -> int:
        """Bytes that the pass holds: q, k and v of each layer, and the logits."""
        held = [call[name] for layer in self.layers for call in layer.calls for name in "qkv"]
        return sum(x.nbytes for x in [*held, self.logits, *([] if self.whole is self.logits else [self.whole])])

    def at(self, number: int) -> Layer:
        """Return a layer by its index."""
        if not 0 <= number < len(self.layers):
            raise ValueError(f"there is no layer {number}; the model has {len(self.layers)}, counted from 0")
        return self.layers[number]

    def html(self) -> str:
        """The text of a single file with everything inside: it needs no network, and no server."""
        return whole_page(everything(self))

    def save(self, path: str | Path) -> None:
        """Write the page as a single file."""
        write_atomically(Path(path), lambda file: Path(file).write_text(self.html(), encoding="utf-8"))

    def _repr_html_(self) -> str:
        return framed(self.html())


def rest(logits: Float[Tensor, "V"], ids: Sequence[int]) -> list[float | None]:
    """log Σ exp(logit / temperature) over all but some columns, at each temperature; None where nothing is left."""
    others = logits.clone()
    others[list(ids)] = -torch.inf
    sums = (others.double() / torch.tensor(TEMPERATURES, dtype=torch.float64)[:, None]).logsumexp(-1).tolist()
    return [None if value == -torch.inf else round(value, 5) for value in sums]
