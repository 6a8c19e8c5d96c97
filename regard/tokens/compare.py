"""One text in characters, words, subwords and stems: how many tokens each makes, what is unknown, and what is lost."""

import re
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from functools import cache
from typing import Any

from regard.tokens.corpus import check_text
from regard.tokens.tokenizer import Tokenizer

WORD = re.compile(r"\w+|[^\w\s]")
UNKNOWN = "[UNK]"


@dataclass(frozen=True, kw_only=True, slots=True)
class Row:
    """One way to split a text."""

    kind: str
    """characters, words, subwords or stems."""
    tokens: list[str]
    """The tokens, spaces as · where they are a part."""
    vocabulary: int
    """Entries of its vocabulary, learned from the corpus."""
    unknown: list[str]
    """Letters, words or stems that the vocabulary lacks."""
    back: str
    """The text that can be given back."""
    lost: list[str]
    """Words that are not given back as they were: `running → run`."""

    @property
    def pairs(self) -> int:
        """The comparisons of attention: n²."""
        return len(self.tokens) ** 2

    def to_dict(self) -> dict[str, Any]:
        return asdict(self) | {"count": len(self.tokens), "pairs": self.pairs}


def compare(text: str, corpus: Iterable[str], *, vocab_size: int) -> list[Row]:
    """Return the ways to split a text, with vocabularies of at most `vocab_size` learned from lines of a corpus."""
    check_text(text)
    lines = list(corpus)
    counts = Counter(word for line in lines for word in WORD.findall(line))
    rows = [characters(text, {letter for line in lines for letter in line}), words(text, counts, vocab_size)]
    rows.append(subwords(text, Tokenizer.train(texts=lines, vocab_size=vocab_size)))
    stem = stemmer()
    return rows if stem is None else [*rows, stems(text, counts, stem)]


def characters(text: str, known: set[str]) -> Row:
    unknown = [letter for letter in text if letter not in known]
    back = "".join(letter if letter in known else "\N{REPLACEMENT CHARACTER}" for letter in text)
    return Row(
        kind="characters", tokens=[letter.replace(" ", "·") for letter in text], vocabulary=len(known), unknown=unknown,
        back=back, lost=changed(text, back),
    )  # fmt: skip


def words(text: str, counts: Counter[str], vocab_size: int) -> Row:
    """Split into words and marks; those that are not among the most frequent become one unknown token."""
    known = {word for word, _ in counts.most_common(vocab_size)}
    split = WORD.findall(text)
    back = WORD.sub(lambda word: word[0] if word[0] in known else UNKNOWN, text)
    unknown = [word for word in split if word not in known]
    tokens = [word if word in known else UNKNOWN for word in split]
    return Row(
        kind="words", tokens=tokens, vocabulary=len(known), unknown=unknown, back=back,
        lost=[f"{word} → {UNKNOWN}" for word in unknown],
    )  # fmt: skip


def subwords(text: str, tokenizer: Tokenizer) -> Row:
    ids = tokenizer.encode(text)
    back = tokenizer.decode(ids)
    return Row(
        kind="subwords", tokens=tokenizer.pieces(ids), vocabulary=len(tokenizer), unknown=[], back=back,
        lost=changed(text, back),
    )  # fmt: skip


def stems(text: str, counts: Counter[str], stem: Callable[[str], str]) -> Row:
    """Replace each word by its stem: tense, number and capitals are gone."""
    back = WORD.sub(lambda word: stem(word[0]), text)
    vocabulary = {stem(word) for word in counts}
    return Row(
        kind="stems", tokens=WORD.findall(back), vocabulary=len(vocabulary),
        unknown=[word for word in WORD.findall(back) if word not in vocabulary], back=back, lost=changed(text, back),
    )  # fmt: skip


def changed(text: str, back: str) -> list[str]:
    """Return the words of a text that another text of as many words has changed."""
    pairs = zip(text.split(), back.split(), strict=False)
    return [f"{before} → {after}" for before, after in pairs if before != after]


def stemmer() -> Callable[[str], str] | None:
    """Return the English Snowball stemmer of NLTK; None if that is not installed."""
    try:
        from nltk.stem.snowball import EnglishStemmer
    except ImportError:
        return None
    return cache(EnglishStemmer().stem)
