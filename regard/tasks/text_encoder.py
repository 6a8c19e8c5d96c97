"""An encoder of texts: a vector for each text, and search among them. Every text encoder can do this much."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from regard.data.notices import track
from regard.data.sets.batches import bucket, pad
from regard.data.sets.labelled_texts import ExamplesConfig
from regard.data.sets.text_overview import key_of
from regard.hub.checkpoint import export_model
from regard.hub.sentence_transformers import longest_text
from regard.tasks.base import EvalSet, Example, Samples, Scored, Task, Verb, check_list, quoted, register_task
from regard.tasks.baselines import overlap
from regard.tasks.default_texts import SENTENCES
from regard.tasks.metrics import similarity_scores
from regard.tasks.prepared_text import read_encoder
from regard.tasks.single import one_or_many
from regard.tokens import Framed, Tokenizer
from regard.tokens.export import Frame, export_tokenizer
from regard.train.device import device_of

BATCH_TOKENS = 8192
EMBED = Verb(
    name="embed", does="embeds", method="vectors", blank=True,
    as_json=lambda vector: {"embedding": [round(value, 6) for value in vector.tolist()]},
    render=lambda answer: " ".join(f"{value:.6f}" for value in answer["embedding"]),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Match:
    """A search result: its similarity to the query, its index in the corpus, and the text (or path) itself."""

    score: float
    place: int
    text: str


class TextTask(Task):
    """A task whose model has a tokenizer."""

    tokenizer: Tokenizer
    examples: ClassVar[Any] = ""
    """The kind of labelled examples that it is scored on: a value of `ExamplesConfig.task`."""
    default_texts: ClassVar[Sequence[str | tuple[str, str]]] = SENTENCES
    """Texts, or pairs of them, that the page offers for a model without examples of its own."""
    frame_of_export: ClassVar[Frame] = "both"
    """The special tokens around a text in an exported tokenizer."""

    @classmethod
    def default_data(cls) -> Any:
        return ExamplesConfig(task=cls.examples) if cls.examples else super().default_data()

    @classmethod
    def default_examples(cls, path: Path, config: Any) -> list[Example]:
        return [Example(inputs=(text,) if isinstance(text, str) else text) for text in cls.default_texts]

    def held_out(self, test: EvalSet) -> list[Any]:
        """The labelled examples of a test set; an error if they are for another task."""
        if (other := getattr(test.data, "task", None)) is None:
            raise ValueError(f"the task {self.name!r} has data of its own; give its class evaluate and samples")
        if other != self.examples:
            raise ValueError(
                f"{test.run} was trained to {self.examples}; leave out --data.task {other}, or give another model"
            )
        return test.read("examples", test.data.held_out)[: test.limit]

    def held_out_text(self, test: EvalSet) -> str:
        """The running text of a test set."""
        data = test.data
        return test.read("text", lambda: data.read(data.text) if test.named and data.text else data.held_out())

    def count(self, test: EvalSet) -> int:
        """The number of held-out examples, whatever the limit."""
        return len(self.held_out(replace(test, limit=None)))

    def known(self, test: EvalSet) -> list[Any]:
        """The examples that the model was trained on, for baselines."""
        if "known" not in test.kept:
            test.kept["known"] = test.own.split()[0]
        return test.kept["known"]

    def learned(self, test: EvalSet) -> int:
        if test.data.test is None or getattr(test.own, "task", None) != self.examples:
            return 0
        known = {key_of(self.examples, example) for example in self.known(test)}
        return sum(key_of(self.examples, example) in known for example in self.held_out(test))

    def export(self, out: Path) -> None:
        export_model(self.model, out, **self.generation_to_export())
        export_tokenizer(self.tokenizer, out, frame=self.frame_of_export, max_len=self.model.config.max_len)

    def generation_to_export(self) -> dict[str, Any]:
        """Settings of decoding that other projects expect beside the weights."""
        return {}


@register_task("embed")
class TextEncoder(TextTask):
    """A text encoder; its subclasses use the head that it was trained with."""

    verbs: ClassVar[tuple[Verb, ...]] = (EMBED,)
    learns: ClassVar[tuple[str, ...]] = ("classify", "tag", "answer")
    data: ClassVar[tuple[type, ...]] = (ExamplesConfig,)
    examples = "embed"

    longest: int | None = None
    """Most tokens of a text, where the checkpoint wants fewer than the model has positions."""

    def __init__(self, model: Any, tokenizer: Tokenizer) -> None:
        self.model, self.tokenizer = model.eval(), tokenizer

    @classmethod
    def load(cls, path: Path, model: Any) -> "Task":
        task = super().load(path, model)
        assert isinstance(task, TextEncoder)
        task.longest = longest_text(path)
        return task

    @property
    def context(self) -> int:
        return min(self.model.config.max_len, self.longest or self.model.config.max_len)

    def frame(
        self, texts: Sequence[str], seconds: Sequence[str] | None = None, *, cut: bool = True, **options: Any
    ) -> list[Framed]:
        """Texts (or pairs of them) with their special tokens, cut to the model's context."""
        check_list("texts", texts)
        return self.tokenizer.frame(texts, seconds, max_len=self.context if cut else None, **options)

    def lengths(self, texts: Sequence[str], seconds: Sequence[str] | None = None, *, cut: bool = True) -> list[int]:
        """The number of tokens of each text, or pair of texts."""
        return [len(framed) for framed in self.frame(texts, seconds, cut=cut)]

    def batches(self, framed: Sequence[Framed]) -> Iterator[tuple[list[int], dict[str, Tensor]]]:
        """Batches of texts of similar length: their indices, and the inputs of the model."""
        if not framed:
            return
        groups = bucket(np.array([[len(text)] for text in framed]), BATCH_TOKENS, None)
        for group in track(groups, "texts:", len(framed), len):
            inputs = text_inputs([framed[i] for i in group], self.tokenizer, self.model.config)
            yield group.tolist(), {name: values.to(device_of(self.model)) for name, values in inputs.items()}

    @torch.inference_mode()
    def logits(self, framed: Sequence[Framed]) -> list[Tensor]:
        """The output of the model's head for each text, without padding where there is a row for each token."""
        results: list[Tensor] = [torch.empty(0)] * len(framed)
        for indices, inputs in self.batches(framed):
            for index, row in zip(indices, self.model(**inputs).cpu(), strict=True):
                results[index] = row[: len(framed[index])] if row.dim() == 2 else row
        return results

    @one_or_many
    @torch.inference_mode()
    def embed(self, texts: Sequence[str], *, normalize: bool = True) -> Float[Tensor, "N D"]:
        """A vector for each text, of length 1 if `normalize`."""
        framed = self.frame(texts)
        vectors = torch.empty(len(framed), self.model.config.dim, dtype=next(self.model.parameters()).dtype)
        for indices, inputs in self.batches(framed):
            vectors[indices] = self.model.embed(**inputs).cpu()
        return F.normalize(vectors, dim=-1) if normalize else vectors

    @one_or_many
    def vectors(self, items: Sequence[Any]) -> Float[Tensor, "N D"]:
        """Return vectors of length 1 of texts; subclasses may read other inputs."""
        return self.embed(items)

    read = read_encoder

    def search(self, query: str, corpus: Sequence[str], *, count: int = 5) -> list[Match]:
        """The texts of a corpus that are most similar to the query, by the cosine of their vectors."""
        if not corpus:
            return []
        best = (self.embed(corpus) @ self.embed([query])[0]).topk(min(count, len(corpus)))
        pairs = zip(best.values.tolist(), best.indices.tolist(), strict=True)
        return [Match(score, index, corpus[index]) for score, index in pairs]

    def evaluate(self, test: EvalSet, **options: Any) -> Scored:
        examples = self.held_out(test)
        first, second = (self.embed([getattr(example, side) for example in examples]) for side in ("a", "b"))
        similarities = (first * second).sum(-1).tolist()
        expected = [example.score for example in examples]
        return Scored(
            scores=similarity_scores(similarities, expected), outputs=[f"{value:.4f}" for value in similarities],
            expected=expected, total=self.count(test),
        )  # fmt: skip

    def baselines(self, test: EvalSet, scored: Scored) -> dict[str, dict[str, float]]:
        shared = [overlap(example.a, example.b) for example in self.held_out(test)]
        known = len({*shared}) > 1 and len({*scored.expected}) > 1  # otherwise nothing is correlated
        return {"words in common": similarity_scores(shared, scored.expected)} if known else {}

    def samples(self, test: EvalSet, run: Path) -> Samples:
        examples = self.held_out(test)[:3]
        corpus = [example.b for example in examples]
        best = [self.search(example.a, corpus, count=1)[0] for example in examples]
        rows = [(example.a, f"{match.score:.2f}  {match.text}") for example, match in zip(examples, best, strict=True)]
        texts = [text for example in examples for text in (example.a, example.b)]
        return Samples(
            rows=rows, commands=[f"regard embed {run} --search {quoted(examples[0].a)} --in corpus.txt"],
            examples=[Example(inputs=(text,)) for text in texts],
        )  # fmt: skip


def text_inputs(framed: Sequence[Framed], tokenizer: Tokenizer, config: Any) -> dict[str, Tensor]:
    """Framed texts as one batch: ids, lengths, and segments where the model has several."""
    inputs = {
        "ids": pad([text.ids for text in framed], tokenizer.pad or 0),
        "lengths": torch.tensor([len(text) for text in framed]),
    }
    if getattr(config, "types", 0) > 1:
        inputs["types"] = pad([text.types for text in framed], 0)
    return inputs
