"""All that the page shows of one input: `Page(loaded, "a text")`. In a notebook it shows itself; `save` makes one file.

Everything is plain data that goes into JSON. Nothing is computed before it is asked for, but the pass itself.
"""

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from regard.files import write_atomically
from regard.inside.ablation import without
from regard.inside.attribution import aligners, ask
from regard.inside.page.offline import framed, kept_of, whole_page
from regard.inside.page.packing import in_bytes, packed
from regard.inside.page.pictures import Captioning, Comparing, Detecting, Painting, Seeing
from regard.inside.page.record import opaque, record
from regard.inside.page.rests import copies, possible, view
from regard.inside.page.subjects import Subject
from regard.inside.page.texts import Reading, Translating, Writing
from regard.inside.page.vectors import embedded
from regard.tasks import (
    ImageCaptioner,
    ImageEncoder,
    ImageTextMatcher,
    LanguageModel,
    ObjectDetector,
    PixelModel,
    TextEncoder,
    Translator,
)

BEST = 200
"""Chances that are told one by one."""
TEMPERATURES = [round(0.1 + 0.05 * i, 2) for i in range(39)]
"""Where the page's slider can stand: there the sum over all other tokens is told, so that all chances are exact."""

Head = tuple[int | str, int]
"""A layer, by its name or its place, and a head of it."""


class Page:
    """A pass through a loaded model, with some heads `off`; `target` are the tokens behind a text, or of a translation.

    `words` are what the model reads: a text, a pair of texts, or a picture (a path, or an image of Pillow's), for a
    CLIP with texts behind it. A language model's text may be cut: so many of its tokens are `kept`.
    """

    def __init__(
        self, loaded: Any, *words: Any, target: Sequence[int] | None = None, kept: int | None = None,
        off: Iterable[Head] = (), name: str = "",
    ) -> None:  # fmt: skip
        self.loaded, self.words, self.name = loaded, words, name
        self.off, self.own = list(dict.fromkeys(off)), target is None
        self.subject = subject_of(loaded, words, checked(loaded, target), kept)
        with torch.inference_mode():
            with without(loaded.model, self.off), embedded(loaded.model) as self.strips:
                self.scores, self.layers = record(loaded.model, self.subject.run)
                if self.scores.isnan().any() or (self.scores == torch.inf).any():
                    raise ValueError("the model's answer is no number: its weights are broken; train it again")
                self.found = self.subject.found(self.scores)  # it may name tokens
                self.ahead = self.subject.write()
            self.whole, self.whole_ahead = self.scores, self.ahead
            if self.off:
                self.whole, self.whole_ahead = self.subject.run(), self.subject.write()

    def describe(self) -> dict[str, Any]:
        """Sequences, layers and answer: all but the weights."""
        subject = self.subject
        last = subject.answers == "next" and not (self.own and subject.sequence)  # a whole translation from its start
        row = len(self.scores) - 1 if last else 0
        answer = {"kind": subject.answers, "sequence": subject.sequence, "rows": len(self.scores), "row": row,
                  "given": subject.given}  # fmt: skip
        answer |= self.found
        layers = []
        for layer in self.layers:
            queries, keys = subject.sides(layer)
            blocks, T, S = layer.size
            cut = subject.more(layer)
            one: dict[str, Any] = {
                "name": layer.name, "kind": layer.kind, "heads": layer.heads, "queries": queries, "keys": keys,
                "tab": "cross" if layer.kind == "recurrent" else layer.kind,
                "kernel": type(layer.kernel).__name__.lower(),
                "size": [blocks if "windows" in cut else 1, *self.lengths(layer)],
            }  # fmt: skip
            layers.append(one | cut)
        sequences = [one | {"vectors": self.strips.of(one.get("ids", []))} for one in subject.sequences]
        return {
            "model": type(self.loaded.model).__name__, "name": self.name, "input": subject.input,
            "sequences": sequences, "layers": layers, "answer": answer, "off": [list(head) for head in self.off],
            "change": self.change(self.scores), "ahead": self.told(self.ahead), "own": self.own,
            "ends": self.subject.ends,
            "before": self.told(self.whole_ahead) if self.off else None, "temperatures": TEMPERATURES,
            "views": possible(self), "opaque": opaque(self.loaded.model),
        }  # fmt: skip

    def lengths(self, layer: Any) -> list[int]:
        """Queries and keys of a layer that are shown: a text beside longer ones was filled up."""
        if "windows" in self.subject.more(layer):
            return list(layer.size[1:])
        return [length_of(self.subject.sequences[side]) for side in self.subject.sides(layer)]

    def told(self, ids: list[int] | None) -> list[dict[str, Any]] | None:
        """Tokens by name and number."""
        pairs = zip(self.subject.names(ids), ids, strict=True) if ids is not None else ()
        return None if ids is None else [{"token": token, "id": id} for token, id in pairs]

    def layer(self, number: int) -> dict[str, Any]:
        """The weights of all heads of a layer, of every window where there are some: heads after windows."""
        layer = self.at(number)
        T, S = self.lengths(layer)
        every = layer.weights()[:, :, :T, :S]
        return in_bytes(every if "windows" in self.subject.more(layer) else every[:1])

    def head(self, number: int, head: int, row: int = 0, kind: str = "f4") -> dict[str, Any]:
        """q, k, v of a head, and what becomes weights of them; `row` is a window. `kind` f2 takes half the room."""
        layer = self.at(number)
        if not 0 <= head < layer.heads or not 0 <= row < layer.size[0]:
            known = f"it has {layer.heads} and {layer.size[0]}"
            raise ValueError(f"{layer.name} has no head {head} of window {row}; {known}")
        T, S = self.lengths(layer)
        found = layer.numbers(head, row)
        cuts = dict(q=(T,), k=(S,), v=(S,), bias=(T, S), scores=(T, S), mask=(T, S))
        told: dict[str, Any] = {"scale": found["scale"], "own": found["scale"] is None and found["scores"] is None}
        for name, sides in cuts.items():
            x = found[name]
            x = None if x is None else x[tuple(slice(side) for side in sides)]
            told[name] = None if x is None else packed(x, "u1" if name == "mask" else kind)
        return told

    def chances(self, row: int) -> dict[str, Any]:
        """The scores of the best choices, and log Σ exp(score / temperature) of all others, with no head off beside."""
        if not 0 <= row < len(self.scores):
            raise ValueError(f"there is no row {row}; there are {len(self.scores)}, 0 to {len(self.scores) - 1}")
        best = self.scores[row].topk(min(BEST, self.scores.shape[1]))
        ids = best.indices[best.values > -torch.inf].tolist()
        now, whole = (
            {"scores": [round(one, 5) for one in scores[row][ids].tolist()], "rest": rest(scores[row], ids)}
            for scores in (self.scores, self.whole)
        )
        return {"names": self.subject.names(ids), "ids": ids, **now, "whole": whole}

    def change(self, scores: Float[Tensor, "P V"]) -> float:
        """How much of the answer is another one, from 0 to 1: half of what chances differ by, or 1 − the cosine."""
        if self.subject.answers == "vector":
            return float((1 - torch.cosine_similarity(scores[0], self.whole[0], dim=0)).clamp(0, 1))
        rows = slice(-1, None) if isinstance(self.subject, Writing) else slice(None)
        apart = (scores[rows].softmax(-1) - self.whole[rows].softmax(-1)).abs().sum(-1) / 2
        return float(apart.mean())

    @torch.inference_mode()
    def effects(self, ended: Callable[[], bool] = lambda: False) -> list[list[float]]:
        """For each layer, how much of the answer each head changes when it alone is off, until it has `ended`."""
        found = []
        for layer in self.layers:
            row = []
            for head in range(layer.heads):
                if ended():
                    raise ValueError("nobody waits for the answer any more")
                with without(self.loaded.model, [(layer.name, head)]):
                    row.append(round(self.change(self.subject.run()), 6))
            found.append(row)
        return found

    def best_alignment(self) -> dict[str, Any] | None:
        """The head across that looks most often at the source token that matters most; None where nothing is
        translated, or what is written rests on no source token."""
        if not isinstance(self.subject, Translating) or not any(layer.kind == "cross" for layer in self.layers):
            return None
        best = aligners(ask(self.loaded, self.words[0], target=self.subject.ids[1:]))[0]
        number = [layer.name for layer in self.layers].index(best.layer)
        found = {"layer": number, "head": best.head, "agrees": round(best.share, 4), "of": best.outputs}
        return found if best.outputs else None

    def view(self, name: str, **how: Any) -> dict[str, Any]:
        """What outputs rest on, as `regard look --view` tells it; see `explain` for the views."""
        return view(self, name, **how)

    def copies(self, name: str) -> int:
        """How often the input goes through the model for such a view."""
        return copies(self, name)

    @property
    def length(self) -> int:
        """Tokens, or places, of what is read."""
        return length_of(self.subject.sequences[0])

    @property
    def nbytes(self) -> int:
        """Bytes that the pass holds: q, k and v of each layer, and the scores."""
        held = [call[name] for layer in self.layers for call in layer.calls for name in "qkv"]
        return sum(x.nbytes for x in [*held, self.scores, *([] if self.whole is self.scores else [self.whole])])

    def at(self, number: int) -> Any:
        if not 0 <= number < len(self.layers):
            raise ValueError(f"there is no layer {number}; the model has {len(self.layers)}, counted from 0")
        return self.layers[number]

    def html(self) -> str:
        """One file with everything inside: it needs no network, and no server."""
        return whole_page(kept_of(self))

    def save(self, path: str | Path) -> None:
        write_atomically(Path(path), lambda file: Path(file).write_text(self.html(), encoding="utf-8"))

    def _repr_html_(self) -> str:
        return framed(self.html())


def subject_of(loaded: Any, words: Sequence[Any], target: Sequence[int] | None, kept: int | None = None) -> Subject:
    """Who knows what to do with the words."""
    kind, count = type(loaded.model).__name__, len(words)
    seen = isinstance(loaded, ImageEncoder | PixelModel)
    if not count or count > (2 if isinstance(loaded, TextEncoder) else 1) and not isinstance(loaded, ImageTextMatcher):
        what = "picture" if seen else "text or pair" if isinstance(loaded, TextEncoder) else "text"
        raise ValueError(f"a {kind} looks at one {what} at a time, got {count}; call it once for each")
    if kept is not None and not isinstance(loaded, LanguageModel):
        raise ValueError(f"only the text of a language model is cut, and a {kind} is none; leave out kept")
    if isinstance(loaded, ImageTextMatcher):
        return Comparing(loaded, words[0], words[1:])
    if isinstance(loaded, ImageCaptioner | PixelModel):
        return (Captioning if isinstance(loaded, ImageCaptioner) else Painting)(loaded, words[0], target)
    if seen:
        return (Detecting if isinstance(loaded, ObjectDetector) else Seeing)(loaded, words[0])
    if isinstance(loaded, TextEncoder):
        return Reading(loaded, *words)
    if isinstance(loaded, Translator):
        return Translating(loaded, words[0], target)
    return Writing(loaded, words[0], target, kept)


def checked(loaded: Any, target: Sequence[int] | None) -> Sequence[int] | None:
    """Tokens that exist."""
    size = getattr(loaded.model.config, "vocab_size", 0)
    wrong = [id for id in target or () if not 0 <= id < size]
    if wrong:
        raise ValueError(f"there is no token {wrong[0]}: the vocabulary has {size:,}, counted from 0")
    return target


def length_of(sequence: dict[str, Any]) -> int:
    if "tokens" in sequence:
        return len(sequence["tokens"])
    rows, columns = sequence["grid"]
    return len(sequence["front"]) + rows * columns


def rest(scores: Float[Tensor, "V"], ids: Sequence[int]) -> list[float | None]:
    """log Σ exp(score / temperature) over all but some tokens, at each temperature; None where nothing is left."""
    others = scores.clone()
    others[list(ids)] = -torch.inf
    sums = (others.double() / torch.tensor(TEMPERATURES, dtype=torch.float64)[:, None]).logsumexp(-1).tolist()
    return [None if value == -torch.inf else round(value, 5) for value in sums]
