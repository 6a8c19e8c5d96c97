"""Entities of a text: from a tag for each word to spans of characters."""

from collections.abc import Sequence
from dataclasses import dataclass

from regard.tokens import Framed


@dataclass(frozen=True, slots=True)
class Entity:
    """A labelled span of a text, by character offsets."""

    start: int
    end: int
    label: str
    text: str
    score: float


def first_tokens(framed: Framed) -> dict[int, list[int]]:
    """Return the indices of the tokens of each word of a text; a word is labelled by its first token."""
    words: dict[int, list[int]] = {}
    for token, word in enumerate(framed.words):
        if word is not None:
            words.setdefault(word, []).append(token)
    return words


def entities(text: str, framed: Framed, names: Sequence[str], scores: Sequence[float]) -> list[Entity]:
    """Join words with tags B-X, I-X (or E-, L-, S-, U-, or plain X) to entities; a word with O belongs to none."""
    spans: list[Entity] = []
    open_label = ""  # the label that the next word may go on with
    for tokens in first_tokens(framed).values():
        name, score = names[tokens[0]], scores[tokens[0]]
        prefix, label = split_tag(name)
        start, end = framed.offsets[tokens[0]][0], framed.offsets[tokens[-1]][1]  # type: ignore[index]
        if name != "O" and label == open_label and prefix in ("I", "E", "L", ""):
            last = spans[-1]
            spans[-1] = Entity(last.start, end, label, text[last.start : end], min(last.score, score))
        elif name != "O":
            spans.append(Entity(start, end, label, text[start:end], score))
        open_label = label if name != "O" and prefix in ("B", "I", "") else ""
    return spans


def split_tag(name: str) -> tuple[str, str]:
    """Split B-X into B and X; a plain X, as some models have it, has no prefix."""
    prefix, dash, label = name.partition("-")
    return (prefix, label) if dash and prefix in tuple("BIESLU") else ("", name)
