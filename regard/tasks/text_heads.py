"""Encoders with a head: fill in hidden words, label texts, tag entities, answer questions."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from regard.tasks.text_encoder import TextEncoder
from regard.tokens import Framed

LONGEST_ANSWER = 30
"""Tokens of a span, at most."""
STRIDE = 64
"""Tokens that neighbouring windows of a long passage share."""


@dataclass(frozen=True, slots=True)
class Filled:
    """A word for a hidden place, and its probability."""

    token: str
    probability: float


@dataclass(frozen=True, slots=True)
class Label:
    """A label of a text, and its probability."""

    label: str
    probability: float


@dataclass(frozen=True, slots=True)
class Entity:
    """A stretch of a text with a label, by character offsets."""

    start: int
    end: int
    label: str
    text: str
    score: float


@dataclass(frozen=True, slots=True)
class Answer:
    """A stretch of the passage, by character offsets; text None where the passage does not answer."""

    text: str | None
    start: int
    end: int
    score: float


class MaskFiller(TextEncoder):
    """Says what stands in hidden places."""

    answers = "fill"

    def fill(self, texts: Sequence[str], *, count: int = 5) -> list[list[list[Filled]]]:
        """For each text, for each [MASK] in it, the likeliest words."""
        mask = self.tokenizer.mask
        if mask is None:
            raise ValueError("this model's tokenizer has no mask token, so nothing can be hidden")
        framed = self.frame(texts, parse_special=True)
        for number, one in enumerate(framed, 1):
            if mask not in one.ids:
                raise ValueError(f"text {number} has no [MASK]; write it where a word is to be filled in")
        results = []
        for one, scores in zip(framed, self.scores(framed), strict=True):
            best = scores[torch.tensor(one.ids) == mask].softmax(-1).topk(min(count, scores.shape[-1]))
            results.append(
                [
                    [Filled(self.tokenizer.decode([id]).strip(), p) for id, p in zip(ids, probabilities, strict=True)]
                    for ids, probabilities in zip(best.indices.tolist(), best.values.tolist(), strict=True)
                ]
            )
        return results


class TextClassifier(TextEncoder):
    """Labels texts."""

    answers = "labels"

    def classify(self, texts: Sequence[str], seconds: Sequence[str] | None = None) -> list[list[Label]]:
        """All labels of each text (or pair of texts), the likeliest first."""
        labels = self.model.config.labels
        results = []
        for scores in self.scores(self.frame(texts, seconds)):
            best = scores.softmax(-1).sort(descending=True)
            results.append(
                [Label(labels[i], p) for p, i in zip(best.values.tolist(), best.indices.tolist(), strict=True)]
            )
        return results


class EntityTagger(TextEncoder):
    """Finds entities."""

    answers = "tags"

    def tag(self, texts: Sequence[str]) -> list[list[Entity]]:
        """The entities of each text in their order, with character offsets."""
        labels, framed = self.model.config.labels, self.frame(texts, cut=False)
        for number, one in enumerate(framed, 1):
            if len(one) > self.context:
                raise ValueError(f"text {number} has {len(one):,} tokens, the context is {self.context:,}; split it")
        results = []
        for text, one, scores in zip(texts, framed, self.scores(framed), strict=True):
            best = scores.softmax(-1).max(-1)
            results.append(entities(text, one, [labels[i] for i in best.indices.tolist()], best.values.tolist()))
        return results


def first_tokens(framed: Framed) -> dict[int, list[int]]:
    """The tokens of each word of a text; a word is labelled by its first."""
    words: dict[int, list[int]] = {}
    for token, word in enumerate(framed.words):
        if word is not None:
            words.setdefault(word, []).append(token)
    return words


def entities(text: str, framed: Framed, names: Sequence[str], scores: Sequence[float]) -> list[Entity]:
    """Words with tags B-X, I-X (or E-, L-, S-, U-, or plain X) joined to stretches; O is nothing."""
    found: list[Entity] = []
    goes_on = ""  # the label that the next word may go on with
    for tokens in first_tokens(framed).values():
        name, score = names[tokens[0]], scores[tokens[0]]
        prefix, label = split_tag(name)
        start, end = framed.offsets[tokens[0]][0], framed.offsets[tokens[-1]][1]  # type: ignore[index]
        if name != "O" and label == goes_on and prefix in ("I", "E", "L", ""):
            last = found[-1]
            found[-1] = Entity(last.start, end, label, text[last.start : end], min(last.score, score))
        elif name != "O":
            found.append(Entity(start, end, label, text[start:end], score))
        goes_on = label if name != "O" and prefix in ("B", "I", "") else ""
    return found


def split_tag(name: str) -> tuple[str, str]:
    """B-X as B and X; a plain X, as some models have it, has no prefix."""
    prefix, dash, label = name.partition("-")
    return (prefix, label) if dash and prefix in tuple("BIESLU") else ("", name)


class QuestionAnswerer(TextEncoder):
    """Answers questions about a passage by a stretch of it, or says that it does not answer."""

    answers = "span"

    def answer(self, questions: Sequence[str], passages: Sequence[str]) -> list[Answer]:
        return [self.answer_one(*pair) for pair in zip(questions, passages, strict=True)]

    def answer_one(self, question: str, passage: str) -> Answer:
        """The best span of all windows of the passage, unless every window prefers none at all."""
        framed = self.tokenizer.frame_windows(question, passage, self.context, min(STRIDE, self.context // 4))
        best, nothing = Answer(None, 0, 0, 0.0), 1.0
        for window, scores in zip(framed, self.scores(framed), strict=True):
            begin, end = scores.softmax(0).T
            nothing = min(nothing, float(begin[0] * end[0]))
            inside = torch.tensor([side == 1 for side in window.side])
            likely = (begin * inside)[:, None] * (end * inside)[None]
            likely = likely.triu().tril(LONGEST_ANSWER - 1)
            first, last = divmod(int(likely.argmax()), len(window))
            score = float(likely[first, last])
            if score > best.score:
                start, stop = window.offsets[first][0], window.offsets[last][1]  # type: ignore[index]
                best = Answer(passage[start:stop], start, stop, score)
        return best if best.score > nothing else Answer(None, 0, 0, nothing)
