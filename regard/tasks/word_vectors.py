"""Word vectors: the nearest words of a word, or of a sum of words such as king − man + woman."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from regard.config import nearest
from regard.data.readers.text_files import read_text
from regard.data.readers.word_lists import read_analogies, read_similarities
from regard.data.sets.word_windows import WordsConfig, WordStream
from regard.tasks.base import EvalSet, Example, Option, Samples, Scored, Verb, check_list, register_task
from regard.tasks.metrics import similarity_scores
from regard.tasks.single import one_or_many
from regard.tasks.text_encoder import EMBED, TextEncoder
from regard.tokens import Framed
from regard.tokens.encoding import encode_text

PAIRS = 50_000
"""Pairs of neighbours of held-out text that are scored, by default."""
AT_ONCE = 256
"""Sums of words whose nearest words are found at once."""
LEAST = 3
"""Fewest known pairs of words with a rank correlation."""
LONGEST, MOST_TERMS = 1 << 14, 100
"""Words of a text whose mean is taken, and of a sum: nothing else limits them."""
SHOWN = (200, 500, 1000)
"""Ranks of words whose neighbours are shown after training."""


Score = tuple[float | None, int, int]
"""A score in percent, None where too few words are known; the known entries of a list, and all of them."""


@dataclass(frozen=True, slots=True)
class Neighbour:
    """A word, and the cosine of its vector with that of what was asked for."""

    word: str
    similarity: float


@register_task("words")
class WordVectors(TextEncoder):
    """A vector for each word."""

    verbs: ClassVar[tuple[Verb, ...]] = (
        Verb(
            name="nearest", does="finds similar words",
            options=(Option(name="count", kind=int, default=10, limits=(1, 1000)),),
            as_json=lambda rows: {
                "neighbours": [{"word": row.word, "similarity": round(row.similarity, 6)} for row in rows]
            },
            render=lambda answer: "  ".join(f"{row['word']} {row['similarity']:.3f}" for row in answer["neighbours"]),
        ),
        replace(EMBED, blank=False),
    )  # fmt: skip
    learns: ClassVar[tuple[str, ...]] = ()
    data: ClassVar[tuple[type, ...]] = (WordsConfig,)
    examples = ""
    default_texts = ("bank", "river")
    trial = PAIRS

    @property
    def context(self) -> int:
        return LONGEST

    @cached_property
    def units(self) -> Float[Tensor, "V D"]:
        """The vectors of all words with length 1; that of unknown words is zero."""
        units = F.normalize(self.model.embedding.weight.detach().float(), dim=1)
        if self.tokenizer.unk is not None:
            units[self.tokenizer.unk] = 0
        return units

    def frame(
        self, texts: Sequence[str], seconds: Sequence[str] | None = None, *, cut: bool = True, **options: Any
    ) -> list[Framed]:
        """The known words of each text."""
        check_list("texts", texts)
        whole = self.tokenizer.frame(texts, max_len=self.context if cut else None)
        framed = [known_words(text, self.tokenizer.unk) for text in whole]
        for number, (text, words) in enumerate(zip(texts, framed, strict=True), 1):
            if not words.ids:
                raise ValueError(f"text {number} has no word of the vocabulary: {text!r:.60}; give other words")
        return framed

    def word_id(self, word: str) -> int | None:
        """The id of a word; None if the vocabulary does not have it."""
        ids = self.tokenizer.encode(word)
        return ids[0] if len(ids) == 1 and ids[0] != self.tokenizer.unk else None

    def known_id(self, word: str) -> int:
        """The id of a word; an error that names a similar one if the vocabulary does not have it."""
        if (id := self.word_id(word)) is None:
            begins = [known for known in self.tokenizer.inner.get_vocab() if known[:2] == word.lower()[:2]]
            cure = nearest(word.lower(), begins) if begins else "give another word"
            raise ValueError(f"{word!r} is no word of the model's vocabulary; {cure}")
        return id

    @one_or_many
    def nearest(self, words: Sequence[str], *, count: int = 10) -> list[list[Neighbour]]:
        """The words with the highest cosine to each word, or sum of words such as "king - man + woman", the highest
        first; the words of the sum are left out."""
        terms = []
        for number, text in enumerate(words, 1):
            try:
                terms.append([(sign, self.known_id(word)) for sign, word in terms_of(text)])
            except ValueError as error:
                raise ValueError(f"text {number}: {error}") from None
        return [
            [Neighbour(self.tokenizer.pieces([id])[0], value) for id, value in zip(*row, strict=True)]
            for row in self.best(terms, count)
        ]

    def best(self, sums: Sequence[Sequence[tuple[int, int]]], count: int) -> list[tuple[list[int], list[float]]]:
        """The ids of the words nearest to each sum of vectors of length 1, and their cosines."""
        found, units = [], self.units
        for start in range(0, len(sums), AT_ONCE):
            part = sums[start : start + AT_ONCE]
            wanted = torch.stack([sum((sign * units[id] for sign, id in terms), units.new_zeros(())) for terms in part])
            cosines = F.normalize(wanted, dim=1) @ units.mT
            for row, terms in zip(cosines, part, strict=True):
                row[[id for _, id in terms]] = -2.0
                if self.tokenizer.unk is not None:
                    row[self.tokenizer.unk] = -2.0
            values, ids = cosines.topk(min(count, cosines.shape[1] - 1))
            found += [(row.tolist(), value.tolist()) for row, value in zip(ids, values, strict=True)]
        return found

    # ---- scores ---------------------------------------------------------------------------------------------------

    def evaluate(self, test: EvalSet, **options: Any) -> Scored:
        """The share of held-out pairs of neighbours that beat a noise word, and the scores of lists of words."""
        pairs = self.held_out_pairs(test)
        words, contexts = (table.weight.detach().cpu() for table in (self.model.embedding, self.model.contexts))
        centres, right, wrong = (torch.from_numpy(part) for part in pairs)
        margins = (words[centres] * (contexts[right] - contexts[wrong])).sum(-1)
        scores: dict[str, Any] = {"context_accuracy": share_above(margins.numpy()), "examples": len(centres)}
        lines = [f"context accuracy {scores['context_accuracy']:.1f} % ({len(centres):,} pairs of neighbours)"]
        for metric, path, score in self.lists(test):
            value, known, total = score(path)
            scores |= {metric: value, f"{metric}_known": known} if value is not None else {}
            words_of = "too few words known" if value is None else f"{value:.1f}"
            lines.append(f"{metric.replace('_', ' ', 1)} {words_of} ({known:,} of {total:,} known)")
        metrics = tuple(name for name in scores if name != "examples" and not name.endswith("_known"))
        return Scored(
            scores=scores, outputs=[], expected=pairs, summary="   ".join(lines), metrics=metrics,
            total=min(PAIRS, len(self.held_out_ids(test))), unit="pairs of words",
        )  # fmt: skip

    def lists(self, test: EvalSet) -> list[tuple[str, str, Callable[[str], Score]]]:
        """The metric, the path and the score of each list of words."""
        similar = [(f"spearman_{Path(path).stem}", path, self.score_similarities) for path in test.data.similarities]
        return [
            *similar,
            *((f"analogies_{Path(path).stem}", path, self.score_analogies) for path in test.data.analogies),
        ]

    def held_out_ids(self, test: EvalSet) -> np.ndarray:
        """The known words of the held-out text, or of one that the user names, with frequent ones thinned out."""
        if "ids" not in test.kept:
            text = read_text(test.data.text) if "text" in test.named else test.data.held_out()
            ids = encode_text(self.tokenizer, text)
            counts = np.bincount(ids, minlength=len(self.tokenizer))
            if self.tokenizer.unk is not None:
                counts[self.tokenizer.unk] = 0
            stream = WordStream(ids, counts, test.data.window, rows=1, subsample=test.data.subsample)
            test.kept["ids"], test.kept["stream"] = stream.thinned(ids, np.random.default_rng(0)), stream
        return test.kept["ids"]

    def held_out_pairs(self, test: EvalSet) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Words of held-out text, a neighbour of each within the window, and a noise word for each."""
        ids, rng = self.held_out_ids(test).astype(np.int64), np.random.default_rng(0)
        if len(ids) < 2:
            raise ValueError(f"{test.run}: the held-out text has {len(ids)} known words; give more with --data.text")
        places = rng.permutation(len(ids))[: min(test.limit or PAIRS, PAIRS)]
        steps = rng.integers(1, test.data.window + 1, len(places)) * rng.choice([-1, 1], len(places))
        outside = (places + steps < 0) | (places + steps >= len(ids))
        others = np.clip(np.where(outside, places - steps, places + steps), 0, len(ids) - 1)
        return ids[places], ids[others], test.kept["stream"].noise_words(len(places), rng)

    def score_similarities(self, path: str, similarity: Callable[[str, str], float] | None = None) -> Score:
        """Spearman's correlation of cosines, or of another `similarity`, with a list; known pairs, and all."""
        pairs = read_similarities(path)
        known = [
            pair for pair in pairs if self.word_id(pair.first) is not None and self.word_id(pair.second) is not None
        ]
        similarity = similarity or self.similarity
        values = [similarity(pair.first, pair.second) for pair in known]
        expected = [pair.score for pair in known]
        if len(known) < LEAST or len({*expected}) < 2 or len({*values}) < 2:  # nothing is correlated
            return None, len(known), len(pairs)
        return similarity_scores(values, expected)["spearman"], len(known), len(pairs)

    def similarity(self, first: str, second: str) -> float:
        """The cosine of two words' vectors."""
        return float(self.units[self.known_id(first)] @ self.units[self.known_id(second)])

    def score_analogies(self, path: str, signs: tuple[int, int, int] = (-1, 1, 1)) -> Score:
        """The share of analogies a : b = c : d whose d is nearest to b − a + c, in percent; known ones, and all."""
        questions = read_analogies(path)
        ids = [[self.word_id(word) for word in words] for words in questions]
        known = [[id for id in row if id is not None] for row in ids if None not in row]
        found = self.best([list(zip(signs, row[:3], strict=True)) for row in known], 1)
        right = [best == row[3:] for (best, _), row in zip(found, known, strict=True)]
        return round(100 * sum(right) / len(right), 2) if right else None, len(known), len(questions)

    def baselines(self, test: EvalSet, scored: Scored) -> dict[str, dict[str, float]]:
        """Scores without vectors: the more frequent word, letters in common, and the nearest word of c alone."""
        _, right, wrong = scored.expected
        rows = {"the more frequent word": {"context_accuracy": share_above(wrong - right)}}  # ids follow frequency
        for metric, path, _ in self.lists(test):
            name, (value, _, _) = (
                ("letters in common", self.score_similarities(path, common_letters))
                if metric.startswith("spearman")
                else ("nearest to the third word", self.score_analogies(path, (0, 0, 1)))
            )
            if value is not None:
                rows.setdefault(name, {})[metric] = value
        return rows

    def samples(self, test: EvalSet, run: Path) -> Samples:
        words = [word for word in self.tokenizer.pieces(range(len(self.tokenizer))) if word.isalpha() and len(word) > 3]
        chosen = list(dict.fromkeys(words[min(rank, len(words) - 1)] for rank in SHOWN if words))
        rows = [", ".join(row.word for row in found) for found in self.nearest(chosen, count=6)]
        return Samples(
            rows=list(zip(chosen, rows, strict=True)), examples=[Example(inputs=(word,)) for word in chosen],
            commands=[
                *(f"regard nearest {run} {word}" for word in chosen[:1]),
                *(f'regard nearest {run} "{" + ".join(chosen)}"' for _ in chosen[1:2]),
                f"regard eval {run}",
            ],
        )  # fmt: skip


def terms_of(text: str) -> list[tuple[int, str]]:
    """The words of a sum with their signs: "king - man + woman"; a sign stands between spaces."""
    first, *rest = re.split(r"\s+([+\-−–])\s+", text.strip(), maxsplit=MOST_TERMS)
    if len(rest) == 2 * MOST_TERMS:
        raise ValueError(f"it is a sum of more than {MOST_TERMS} words; give fewer")
    pairs = zip(rest[::2], rest[1::2], strict=True)
    return [(1, first), *((1 if sign == "+" else -1, word) for sign, word in pairs)]


def known_words(framed: Framed, unknown: int | None) -> Framed:
    """A text without the words that the vocabulary does not have."""
    keep = [place for place, id in enumerate(framed.ids) if id != unknown]
    parts: dict[str, Any] = {part.name: getattr(framed, part.name) for part in fields(framed)}
    return Framed(**{name: [part[place] for place in keep] for name, part in parts.items()})


def common_letters(first: str, second: str) -> float:
    """The share of pairs of letters that two words have in common."""
    a, b = ({word[i : i + 2] for i in range(len(word) - 1)} for word in (first.lower(), second.lower()))
    return len(a & b) / max(1, len(a | b))


def share_above(margins: np.ndarray) -> float:
    """The share of margins above zero, in percent; those of zero count half."""
    return round(50 * float((np.sign(margins) + 1).mean()), 2)
