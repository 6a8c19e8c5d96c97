"""What models that read texts are looked at with: writers, readers, translators."""

from collections.abc import Sequence
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from regard.decode.sample import ends_of
from regard.inside.page.record import Layer
from regard.inside.page.subjects import Subject, told, written
from regard.inside.text import check_length, read
from regard.tasks.text_heads import EntityTagger, MaskFiller, QuestionAnswerer, TextClassifier
from regard.tasks.translator import LONGEST_SOURCE

AHEAD = 16
"""Tokens that a writer is asked to go on with."""


def limit_of(model: Any) -> int:
    """Tokens that a model was made for."""
    return getattr(model.config, "max_len", None) or LONGEST_SOURCE


class Writing(Subject):
    """A text, and the next token behind each of its own; `target` are tokens that were chosen behind it, or behind the
    first ones that are `kept`."""

    answers = "next"

    def __init__(self, loaded: Any, text: str, target: Sequence[int] | None = None, kept: int | None = None) -> None:
        super().__init__(loaded)
        given, target = [*loaded.front, *loaded.tokenizer.encode(text)], list(target or ())
        self.given = max(1, len(loaded.front))
        if kept is not None and not self.given <= kept <= len(given):
            raise ValueError(f"of {len(given)} tokens {kept} cannot be kept; keep {self.given} to {len(given)}")
        self.ids = [*given[:kept], *target]
        if not self.ids:
            raise ValueError("the text is empty; give it some words")
        self.text = text
        if kept is not None and kept < len(given):
            self.text = loaded.tokenizer.decode(given[len(loaded.front) : kept])
        self.input = {"text": text, "target": target, "kept": kept, "read": self.text}
        self.limit, self.ends = limit_of(self.model), list(loaded.ends)
        check_length(self.model, len(self.ids))
        texts = [text] if not target and self.text == text else []
        self.sequences = [told(loaded.tokenizer, self.ids, "text", "Text", texts=texts)]

    def run(self) -> Float[Tensor, "P V"]:
        scores = self.model(torch.tensor([self.ids]))[0].float()
        scores[:, self.loaded.generation["forbidden"]] = -torch.inf
        return scores

    def sides(self, layer: Layer) -> tuple[int, int]:
        return 0, 0

    def write(self) -> list[int]:
        room, told = min(AHEAD, self.limit - len(self.ids)), self.loaded.generation
        return written(self.model, self.ids, room, ends=self.ends, forbidden=told["forbidden"]) if room else []


class Reading(Subject):
    """A text, or a pair, and what an encoder's head says of it."""

    def __init__(self, loaded: Any, text: str, second: str | None = None) -> None:
        super().__init__(loaded)
        self.input = {"text": text} | ({} if second is None else {"second": second})
        heads = ((MaskFiller, "fill"), (TextClassifier, "labels"), (EntityTagger, "tags"), (QuestionAnswerer, "span"))
        self.answers = next((answers for kind, answers in heads if isinstance(loaded, kind)), "vector")
        self.sequence = 0 if self.answers in ("fill", "tags") else None
        self.inputs = read(loaded, text, second, parse_special=self.answers == "fill").inputs
        self.ids = self.inputs["ids"][0].tolist()
        segments = self.inputs["types"][0].tolist() if "types" in self.inputs and second is not None else None
        texts = [text] if second is None else []
        self.sequences = [told(loaded.tokenizer, self.ids, "text", "Text", texts=texts, segments=segments)]

    def run(self) -> Float[Tensor, "P V"]:
        if self.answers == "vector":
            return self.model.embed(**self.inputs).float()
        scores = self.model(**self.inputs)[0].float()
        return scores.T if self.answers == "span" else scores if scores.dim() == 2 else scores[None]

    def names(self, ids: Sequence[int]) -> list[str]:
        if self.answers == "fill":
            return super().names(ids)
        if self.answers == "span":  # the same token may stand at several places
            return [f"{self.sequences[0]['tokens'][id]} (token {id})" for id in ids]
        return [self.model.config.labels[id] for id in ids]

    def sides(self, layer: Layer) -> tuple[int, int]:
        return 0, 0

    def found(self, scores: Float[Tensor, "P V"]) -> dict[str, Any]:
        if self.answers == "fill" and self.loaded.tokenizer.mask in self.ids:
            return {"row": self.ids.index(self.loaded.tokenizer.mask)}
        if self.answers == "span":
            return {"titles": ["begins at", "ends at"]}
        return {}


class Translating(Subject):
    """A text, and one that is written while it is read: the model's own, or the `target` tokens given."""

    answers, sequence = "next", 1

    def __init__(self, loaded: Any, text: str, target: Sequence[int] | None = None) -> None:
        super().__init__(loaded)
        if not text.strip():
            raise ValueError("the text is empty; give it some words")
        self.source = torch.tensor(loaded.encode([text], min(LONGEST_SOURCE, limit_of(self.model))))
        self.inputs = {"source": self.source, "lengths": torch.tensor([self.source.shape[1]])}
        self.prefix = [*loaded.start, *(target or ())]
        check_length(self.model, len(self.prefix))
        self.ends = ends_of(loaded.generation["eos"])
        own = [id for id in self.write() if id not in self.ends] if target is None else list(target)
        self.ids, self.given = [*loaded.start, *own], len(loaded.start)
        self.input = {"text": text, "target": own}
        self.sequences = [
            told(loaded.tokenizer, self.source[0].tolist(), "source", "Source", texts=[text]),
            told(loaded.tokenizer, self.ids, "target", "Target") | {"front": len(loaded.start)},
        ]

    def run(self) -> Float[Tensor, "P V"]:
        scores = self.model(**self.inputs, target=torch.tensor([self.ids]))[0].float()
        scores[:, self.loaded.generation["forbidden"]] = -torch.inf
        return scores

    def write(self) -> list[int]:
        told, most = self.loaded.generation, 2 * self.source.shape[1] + 16
        room = min(most, told["max_length"], limit_of(self.model)) - len(self.prefix)
        how: dict[str, Any] = dict(ends=self.ends, forbidden=told["forbidden"], **self.inputs)
        return written(self.model, self.prefix, room, **how) if room > 0 else []
