"""Text encoders with a head: fill in masked words, label texts, tag entities, answer questions."""

import shlex
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from regard.data.notices import track
from regard.data.sets.batches import IGNORE, Batch
from regard.data.sets.labelled_texts import sides_of, tag_of
from regard.data.sets.masked_text import MaskedConfig
from regard.objectives.labels import hide_padding
from regard.tasks.base import EvalSet, Example, Option, Samples, Scored, Verb, Work, quoted, register_task
from regard.tasks.baselines import TEXTS, best_constant, first_name, labels_by_words, most_frequent, tags_by_word
from regard.tasks.default_texts import HIDDEN_WORDS, NAMES, QUESTIONS, REVIEWS
from regard.tasks.entities import Entity, entities, first_tokens
from regard.tasks.metrics import accuracy, answer_scores, label_scores, label_table, tag_scores, tag_table
from regard.tasks.single import one_or_many
from regard.tasks.text_encoder import EMBED, TextEncoder
from regard.tokens import Tokenizer
from regard.tokens.encoding import cut_text, mask_texts

LONGEST_ANSWER = 30
"""The most tokens in an answer."""
MASKED_TEXTS = 200
"""Windows of held-out text whose masked tokens are predicted, by default."""
STRIDE = 64
"""Tokens that neighbouring windows of a long passage share."""


@dataclass(frozen=True, slots=True)
class Filled:
    """A token for a masked position, and its probability."""

    token: str
    probability: float


@dataclass(frozen=True, slots=True)
class Label:
    """A label, and its probability."""

    label: str
    probability: float


@dataclass(frozen=True, slots=True)
class Answer:
    """A span of the passage, by character offsets; text is None where the passage does not answer the question."""

    text: str | None
    start: int
    end: int
    score: float


def ranked(logits: Tensor, labels: Sequence[str]) -> list[Label]:
    """Labels with their probabilities, the most probable first."""
    best = logits.softmax(-1).sort(descending=True)
    pairs = zip(best.indices.tolist(), best.values.tolist(), strict=True)
    return [Label(labels[i], probability) for i, probability in pairs]


def labels_as_json(labels: Sequence[Label]) -> dict[str, Any]:
    """The labels of one input."""
    return {"labels": [asdict(label) | {"probability": round(label.probability, 6)} for label in labels]}


def best_label(answer: dict[str, Any]) -> dict[str, Any]:
    """The most probable label of an input, and its probability."""
    return answer["labels"][0]


def render_labels(answer: dict[str, Any], count: int | None = 1) -> str:
    """The first `count` labels in one line."""
    return "\t".join(f"{row['label']}\t{row['probability']:.1%}" for row in answer["labels"][:count])


@register_task("fill")
class MaskFiller(TextEncoder):
    """Predicts the tokens at masked positions."""

    verbs: ClassVar[tuple[Verb, ...]] = (
        Verb(
            name="fill", does="fills in hidden words", options=(Option(name="count", kind=int, default=5),),
            as_json=lambda rows: {"positions": [[asdict(token) for token in row] for row in rows]},
            render=lambda answer: "\n".join(
                "  ".join(f"{row['token']} {row['probability']:.1%}" for row in rows) for rows in answer["positions"]
            ),
        ),
        EMBED,
    )  # fmt: skip
    data: ClassVar[tuple[type, ...]] = (MaskedConfig,)
    examples = ""

    output = "fill"

    @one_or_many
    def fill(self, texts: Sequence[str], *, count: int = 5) -> list[list[list[Filled]]]:
        """For each text, for each [MASK] in it, the most probable tokens."""
        mask = self.tokenizer.mask
        if mask is None:
            raise ValueError("this model's tokenizer has no mask token, so nothing can be filled in")
        framed = self.frame(texts, parse_special=True)
        for number, text in enumerate(framed, 1):
            if mask not in text.ids:
                raise ValueError(f"text {number} has no [MASK]; write it where a word is to be filled in")
        results = []
        for text, logits in zip(framed, self.logits(framed), strict=True):
            best = logits[torch.tensor(text.ids) == mask].softmax(-1).topk(min(count, logits.shape[-1]))
            rows = zip(best.indices.tolist(), best.values.tolist(), strict=True)
            results.append(
                [[Filled(self.tokenizer.decode([id]).strip(), p) for id, p in zip(*row, strict=True)] for row in rows]
            )
        return results

    def evaluate(self, test: EvalSet, **options: Any) -> Scored:
        """The share of masked tokens of held-out text that the model predicts first."""
        data = test.data
        text = self.held_out_text(test)
        room = min(data.max_len, self.context)
        windows = cut_text(self.tokenizer, text, room - 3)
        parts = windows[: test.limit or MASKED_TEXTS]
        single = replace(data, next_sentence=False)
        examples = mask_texts(parts, self.tokenizer, single, room, np.random.default_rng(0))
        right, expected = 0, list[int]()
        for example, logits in zip(examples, self.logits([example.framed for example in examples]), strict=True):
            targets = torch.tensor(example.targets)
            right += int((logits.argmax(-1) == targets).sum())
            expected += targets[targets != IGNORE].tolist()
        share = round(100 * right / max(1, len(expected)), 2)
        return Scored(
            scores={"masked_accuracy": share, "examples": len(expected)}, outputs=[], expected=expected,
            total=min(len(windows), MASKED_TEXTS), unit="windows of text",
        )  # fmt: skip

    def baselines(self, test: EvalSet, scored: Scored) -> dict[str, dict[str, float]]:
        return {"most frequent token": {"masked_accuracy": best_constant(scored.expected)}}

    def samples(self, test: EvalSet, run: Path) -> Samples:
        texts = ["Return a [MASK] of all elements.", "Raise an [MASK] if the file does not exist."]
        rows = [", ".join(f"{w.token} {w.probability:.0%}" for w in best[0]) for best in self.fill(texts, count=5)]
        commands = [f'regard fill {run} "{texts[0]}"', f"regard finetune {run} --task classify --data.train train.tsv"]
        return Samples(rows=list(zip(texts, rows, strict=True)), commands=commands)

    @classmethod
    def default_examples(cls, path: Path, config: Any) -> list[Example]:
        tokenizer = Tokenizer.load(path)
        mask = "[MASK]" if tokenizer.mask is None else tokenizer.pieces([tokenizer.mask])[0]
        return [Example(inputs=(text.replace("[MASK]", mask),)) for text in HIDDEN_WORDS]


@register_task("classify")
class TextClassifier(TextEncoder):
    """Labels texts."""

    verbs: ClassVar[tuple[Verb, ...]] = (
        Verb(
            name="classify", does="labels texts", as_json=labels_as_json, render=render_labels, columns=best_label,
            options=(Option(name="seconds", each=True, help="A second text for each, for a model of pairs."),),
        ),
        EMBED,
    )  # fmt: skip
    examples = "classify"
    default_texts = REVIEWS

    output = "labels"

    @one_or_many
    def classify(self, texts: Sequence[str], seconds: Sequence[str] | None = None) -> list[list[Label]]:
        """All labels of each text (or pair of texts), the most probable first."""
        seconds = [seconds] if isinstance(seconds, str) else seconds
        return [ranked(logits, self.model.config.labels) for logits in self.logits(self.frame(texts, seconds))]

    def validate(self, batches: Iterable[Batch]) -> dict[str, float]:
        return accuracy(self.model, batches)

    def evaluate(self, test: EvalSet, **options: Any) -> Scored:
        examples = self.held_out(test)
        labels, expected = [best[0].label for best in self.classify(*sides_of(examples))], [e.label for e in examples]
        scores, table = label_scores(labels, expected), label_table(labels, expected, self.model.config.labels)
        return Scored(scores=scores, outputs=labels, expected=expected, total=self.count(test), **table)

    def work(self, test: EvalSet) -> Work:
        texts, seconds = sides_of(self.held_out(test))
        return Work(run=lambda: self.classify(texts, seconds), count=len(texts), unit="text")

    def baselines(self, test: EvalSet, scored: Scored) -> dict[str, dict[str, float]]:
        expected = list(scored.expected)
        usual = [most_frequent(expected)] * len(expected)
        rows = {"most frequent label": label_scores(usual, expected)}
        known, examples = self.known(test)[:TEXTS], self.held_out(test)
        if len({example.label for example in known}) > 1:
            texts, others = ([f"{e.text} {e.second or ''}" for e in part] for part in (known, examples))
            predicted = labels_by_words(texts, [example.label for example in known], others)
            rows["naive Bayes on words"] = label_scores(predicted, expected)
        return rows

    def samples(self, test: EvalSet, run: Path) -> Samples:
        texts, seconds = sides_of(self.held_out(test)[:3])
        labels = [f"{best[0].label}  {best[0].probability:.0%}" for best in self.classify(texts, seconds)]
        more = f" --second {quoted(seconds[0])}" if seconds else ""
        commands = [f"regard {self.verbs[0].name} {run} {quoted(texts[0])}{more}"]
        pairs = zip(texts, seconds, strict=True) if seconds else zip(texts, strict=True)
        examples = [Example(inputs=pair) for pair in pairs]
        return Samples(rows=list(zip(texts, labels, strict=True)), commands=commands, examples=examples)


def render_entities(answer: dict[str, Any]) -> str:
    """A line for each entity."""
    rows = answer["entities"]
    lines = [f"{row['label']}\t{row['text']}\t{row['start']}-{row['end']}\t{row['score']:.1%}" for row in rows]
    return "\n".join(lines or ["(none)"])


@register_task("tag")
class EntityTagger(TextEncoder):
    """Finds entities."""

    verbs: ClassVar[tuple[Verb, ...]] = (
        Verb(
            name="tag", does="tags entities", render=render_entities,
            as_json=lambda entities: {"entities": [asdict(entity) for entity in entities]},
        ),
        EMBED,
    )  # fmt: skip
    examples = "tag"
    default_texts = NAMES

    output = "tags"

    @one_or_many
    def tag(self, texts: Sequence[str]) -> list[list[Entity]]:
        """The entities of each text in their order, with character offsets."""
        labels, framed = self.model.config.labels, self.frame(texts, cut=False)
        for number, text in enumerate(framed, 1):
            if len(text) > self.context:
                raise ValueError(f"text {number} has {len(text):,} tokens, the context is {self.context:,}; split it")
        results = []
        for words, frame, logits in zip(texts, framed, self.logits(framed), strict=True):
            best = logits.softmax(-1).max(-1)
            results.append(entities(words, frame, [labels[i] for i in best.indices.tolist()], best.values.tolist()))
        return results

    def validate(self, batches: Iterable[Batch]) -> dict[str, float]:
        tags: list[list[list[str]]] = [[], []]
        for batch in batches:
            for rows, ids in zip(tags, (self.model(**batch.inputs).argmax(-1), batch.targets), strict=True):
                labelled = zip(ids, batch.targets != IGNORE, strict=True)
                rows += [[self.model.config.labels[i] for i in row[kept].tolist()] for row, kept in labelled]
        return {"f1": tag_scores(*tags)["f1"]}

    def evaluate(self, test: EvalSet, **options: Any) -> Scored:
        """Metrics over whole entities, compared as tags of words."""
        examples = self.held_out(test)
        texts = [example.text for example in examples]
        predicted = self.tag(texts)
        tags = [self.words_with_tags(texts, rows)[1] for rows in (predicted, [e.entities for e in examples])]
        outputs = ["; ".join(f"{span.label}: {span.text}" for span in spans) for spans in predicted]
        return Scored(
            scores=tag_scores(*tags), outputs=outputs, expected=tags[1], total=self.count(test), metrics=("f1",),
            classes=tag_table(*tags),
        )  # fmt: skip

    def baselines(self, test: EvalSet, scored: Scored) -> dict[str, dict[str, float]]:
        known, examples = (
            self.words_with_tags([e.text for e in part], [e.entities for e in part])
            for part in (self.known(test)[: TEXTS // 4], self.held_out(test))
        )
        return {"most frequent tag of each word": tag_scores(tags_by_word(*known, examples[0]), scored.expected)}

    def words_with_tags(
        self, texts: Sequence[str], spans: Sequence[Sequence[Any]]
    ) -> tuple[list[list[str]], list[list[str]]]:
        """The words of each text as the tokenizer separates them, and the tag of each by labelled spans."""
        words, tags = list[list[str]](), list[list[str]]()
        for text, framed, row in zip(texts, self.tokenizer.frame(texts), spans, strict=True):
            groups = first_tokens(framed).values()
            ends = [(framed.offsets[tokens[0]], framed.offsets[tokens[-1]]) for tokens in groups]
            words.append([text[first[0] : last[1]] for first, last in ends])  # type: ignore[index]
            tags.append([tag_of(first, row) for first, _ in ends])
        return words, tags

    def samples(self, test: EvalSet, run: Path) -> Samples:
        texts = [example.text for example in self.held_out(test)[:3]]
        rows = [", ".join(f"{span.text} ({span.label})" for span in spans) for spans in self.tag(texts)]
        return Samples(
            rows=list(zip(texts, rows, strict=True)), commands=[f"regard {self.verbs[0].name} {run} {quoted(texts[0])}"]
        )


def render_answer(answer: dict[str, Any]) -> str:
    """The text of an answer, its characters in the passage, and its probability."""
    text = "not answerable" if answer["text"] is None else f"{answer['text']}\t{answer['start']}-{answer['end']}"
    return f"{text}\t{answer['score']:.1%}"


@register_task("answer")
class QuestionAnswerer(TextEncoder):
    """Answers questions by a span of a passage, or says that the passage does not answer."""

    verbs: ClassVar[tuple[Verb, ...]] = (
        Verb(
            name="answer", does="answers questions", input="question", as_json=asdict, render=render_answer,
            options=(Option(name="passages", each=True, help="The text that holds the answer, for each question."),),
        ),
        EMBED,
    )  # fmt: skip
    examples = "answer"
    default_texts = QUESTIONS

    output = "span"

    @one_or_many
    def answer(self, questions: Sequence[str], passages: Sequence[str] = ()) -> list[Answer]:
        """The best span of each passage for its question."""
        passages = [passages] if isinstance(passages, str) else passages
        if len(questions) != len(passages):
            raise ValueError(f"{len(questions)} questions, {len(passages)} passages; give one for each")
        pairs = track(zip(questions, passages, strict=True), "questions:", len(questions))
        return [self.answer_one(*pair) for pair in pairs]

    def validate(self, batches: Iterable[Batch]) -> dict[str, float]:
        equal: list[bool] = []
        for batch in batches:
            logits = hide_padding(self.model(**batch.inputs), batch.inputs["lengths"])
            equal += (logits.argmax(1) == batch.targets).all(1).tolist()
        return {"exact_match": round(100 * sum(equal) / max(1, len(equal)), 2)}

    def evaluate(self, test: EvalSet, **options: Any) -> Scored:
        examples = self.held_out(test)
        results = self.answer([example.question for example in examples], [example.passage for example in examples])
        texts, expected = [result.text or "" for result in results], [example.answer or "" for example in examples]
        unanswerable = [i for i, answer in enumerate(expected) if not answer]
        scores: dict[str, Any] = answer_scores(texts, expected)
        if unanswerable:
            share = sum(not texts[i] for i in unanswerable) / len(unanswerable)
            scores["unanswerable_found"] = round(100 * share, 2)
        scores["examples"] = len(examples)
        return Scored(scores=scores, outputs=texts, expected=expected, total=self.count(test))

    def baselines(self, test: EvalSet, scored: Scored) -> dict[str, dict[str, float]]:
        """The first name or number of the passage, and the most frequent answer: often "not answerable"."""
        names = [first_name(example.question, example.passage) for example in self.held_out(test)]
        usual = most_frequent(scored.expected)
        constant = "always " + (quoted(usual) if usual else "not answerable")
        answers = {"first name or number": names, constant: [usual] * len(names)}
        return {name: answer_scores(texts, scored.expected) for name, texts in answers.items()}

    def samples(self, test: EvalSet, run: Path) -> Samples:
        examples = self.held_out(test)[:3]
        results = self.answer([example.question for example in examples], [example.passage for example in examples])
        rows = [
            (f"{example.question} ({example.passage})", result.text or "(not answerable)")
            for example, result in zip(examples, results, strict=True)
        ]
        first = examples[0]
        return Samples(
            rows=rows,
            commands=[f"regard answer {run} {quoted(first.question)} --passage {shlex.quote(first.passage)}"],
            examples=[Example(inputs=(example.question, example.passage)) for example in examples],
        )

    def answer_one(self, question: str, passage: str) -> Answer:
        """Return the best span of all windows of the passage; none if every window prefers no answer."""
        framed = self.tokenizer.frame_windows(question, passage, self.context, min(STRIDE, self.context // 4))
        best, nothing = Answer(None, 0, 0, 0.0), 1.0
        for window, logits in zip(framed, self.logits(framed), strict=True):
            begin, end = logits.softmax(0).T
            nothing = min(nothing, float(begin[0] * end[0]))
            inside = torch.tensor([side == 1 for side in window.side])
            spans = (begin * inside)[:, None] * (end * inside)[None]
            spans = spans.triu().tril(LONGEST_ANSWER - 1)
            first, last = divmod(int(spans.argmax()), len(window))
            score = float(spans[first, last])
            if score > best.score:
                start, stop = window.offsets[first][0], window.offsets[last][1]  # type: ignore[index]
                best = Answer(passage[start:stop], start, stop, score)
        return best if best.score > nothing else Answer(None, 0, 0, nothing)
