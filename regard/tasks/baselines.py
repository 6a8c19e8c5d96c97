"""The simplest honest predictors of each task: constants, copies, counts of words, linear classifiers of raw inputs.

Constants are chosen on the very examples that are scored, so that no constant is better; what needs training data
learns from the first examples that the model was trained on. Shares are in percent.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np

TEXTS = 20_000
"""The most training texts that a baseline learns from."""
IMAGES = 1000
"""The most training images that a baseline learns from."""
SIDE = 16
"""Images are shrunk to this side, or to one that is less than twice as large, for a linear classifier."""
CAPTIONS = 200
"""Captions that the best constant one is chosen from, and compared with."""


def best_constant(expected: Sequence[Hashable]) -> float:
    """The share of examples whose right output is the most frequent one."""
    return round(100 * max(Counter(expected).values(), default=0) / max(1, len(expected)), 2)


def most_frequent(expected: Sequence[Any]) -> Any:
    """The most frequent output; of equally frequent ones, the first."""
    return Counter(expected).most_common(1)[0][0]


def words_of(text: str) -> list[str]:
    """The words of a text in lower case."""
    return re.findall(r"\w+", text.lower())


def labels_by_words(texts: Sequence[str], labels: Sequence[str], others: Sequence[str]) -> list[str]:
    """Labels of other texts by naive Bayes on the words of labelled ones."""
    from sklearn.feature_extraction.text import CountVectorizer
    from sklearn.naive_bayes import MultinomialNB
    from sklearn.pipeline import make_pipeline

    reader = make_pipeline(CountVectorizer(token_pattern=r"\w+"), MultinomialNB())
    return list(reader.fit(list(texts), list(labels)).predict(list(others)))


def tags_by_word(
    words: Sequence[Sequence[str]], tags: Sequence[Sequence[str]], others: Sequence[Sequence[str]]
) -> list[list[str]]:
    """For each word of other texts the tag that it has most often in the tagged ones; unknown words have the tag O."""
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    for row, tagged in zip(words, tags, strict=True):
        for word, tag in zip(row, tagged, strict=True):
            counts[word][tag] += 1
    usual = {word: counter.most_common(1)[0][0] for word, counter in counts.items()}
    return [[usual.get(word, "O") for word in row] for row in others]


def labels_by_pixels(pixels: Any, labels: np.ndarray, others: Any) -> np.ndarray:
    """Labels of other images by a linear classifier on the shrunken pixels of labelled ones."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    reader = make_pipeline(StandardScaler(), LogisticRegression(max_iter=200))
    return reader.fit(shrunken(pixels), labels).predict(shrunken(others))


def shrunken(pixels: Any) -> np.ndarray:
    """Images (number, rows, columns, channels) as rows of numbers, blocks of pixels averaged; a file holds them too."""
    parts = [shrunken_part(pixels[first : first + IMAGES]) for first in range(0, len(pixels), IMAGES)]
    return np.concatenate(parts)


def shrunken_part(pixels: np.ndarray) -> np.ndarray:
    """Some images as rows of numbers."""
    rows, columns = pixels.shape[1:3]
    step = max(1, min(rows, columns) // SIDE)
    cut = pixels[:, : rows // step * step, : columns // step * step]
    blocks = cut.reshape(len(cut), rows // step, step, columns // step, step, -1)
    return blocks.mean((2, 4), dtype=np.float32).reshape(len(cut), -1) / 255


def overlap(first: str, second: str) -> float:
    """The share of words that two texts have in common."""
    a, b = set(words_of(first)), set(words_of(second))
    return len(a & b) / max(1, len(a | b))


def first_name(question: str, passage: str) -> str:
    """The first name or number of a passage (capitalised words inside a sentence, or digits) that is not part of the
    question; for "how many" and "when", the first number."""
    asked = set(words_of(question))
    numbers = bool({"many", "much", "when", "year", "old"} & asked)
    spans = re.findall(r"\d[\d.,:]*\d|\d|(?:[^\W\d_a-z]\w*)(?:[ -][^\W\d_a-z]\w*)*", passage)
    fresh = [span for span in spans if not set(words_of(span)) <= asked]
    wanted = [span for span in fresh if span[0].isdigit() == numbers]
    return next(iter([*wanted, *fresh]), "")


def constant_caption(references: Sequence[Sequence[str]]) -> str:
    """The caption that shares most words and pairs of words with the captions of all images."""
    captions = [row[0] for row in references if row]
    captions = captions[:: max(1, len(captions) // CAPTIONS)][:CAPTIONS]
    grams = [Counter([*(words := words_of(text)), *zip(words, words[1:], strict=False)]) for text in captions]
    shared = [sum((each & other).total() for other in grams) / max(1, each.total()) ** 0.5 for each in grams]
    return captions[int(np.argmax(shared))] if captions else ""


def mean_boxes(labels: Sequence[np.ndarray], boxes: Sequence[np.ndarray]) -> dict[int, tuple[float, np.ndarray]]:
    """For each label the share of images that show it, and the mean of its boxes."""
    rows: dict[int, list[np.ndarray]] = defaultdict(list)
    shown: Counter[int] = Counter()
    for own, places in zip(labels, boxes, strict=True):
        shown.update({int(label) for label in own})
        for label, box in zip(own, places, strict=True):
            rows[int(label)].append(box)
    return {label: (shown[label] / len(labels), np.mean(places, axis=0)) for label, places in rows.items()}
