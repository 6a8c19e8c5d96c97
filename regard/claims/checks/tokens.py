"""Checks of tokens: characters, words and subwords of the embedded text, and the lectures' phrases."""

import re
from collections import Counter
from functools import cache

from regard.claims.checks.base import check
from regard.data.generated.docs import documentation
from regard.data.sets.batches import pair_batch
from regard.tokens.tokenizer import Tokenizer

TRAIN, HELD_OUT = 400_000, 60_000
"""Characters of the embedded text that are learned from, and of its test part."""


@cache
def texts() -> tuple[str, str]:
    return documentation("train")[:TRAIN], documentation("test")[:HELD_OUT]


@cache
def learned(kind: str, size: int = 4000) -> Tokenizer:
    """Return a tokenizer that is trained on the embedded text."""
    return Tokenizer.train(texts=texts()[0].splitlines(), kind=kind, vocab_size=size)


def words_of(text: str) -> list[str]:
    return re.findall(r"\w+", text.lower())


@check
def unseen(unit: str) -> float:
    """Return the share of the held-out text's characters (or words) that the training text does not have."""
    split = list if unit == "characters" else words_of
    known, held_out = set(split(texts()[0])), split(texts()[1])
    return sum(one not in known for one in held_out) / len(held_out)


@check
def lost(kind: str) -> int:
    """Return the number of held-out lines that a tokenizer does not give back as they were."""
    tokenizer = learned(kind)
    lines = texts()[1].splitlines()
    return sum(tokenizer.decode(ids) != line for ids, line in zip(tokenizer.encode_batch(lines), lines, strict=True))


@cache
def tokens_of(kind: str) -> int:
    return sum(map(len, learned(kind).encode_batch(texts()[1].splitlines())))


@check
def tokens_ratio(more: str, fewer: str) -> float:
    """Return how many times more tokens the held-out text has in one kind of tokens than in another."""
    counts = {
        "characters": sum(map(len, texts()[1].splitlines())),
        "subwords": tokens_of("bpe"),
        "words": len(re.findall(r"\w+|[^\w\s]", texts()[1])),
    }
    return counts[more] / counts[fewer]


@check
def comparisons_saved() -> float:
    """Return how many times more pairs attention compares in characters than in subwords, for one text."""
    return tokens_ratio("characters", "subwords") ** 2


@check
def vocabulary_per_character() -> float:
    """Return how many times more different words than different characters the training text has."""
    return len(set(words_of(texts()[0]))) / len(set(texts()[0]))


@check
def vocabulary_growth() -> float:
    """Return how many times more different words the whole training text has than its first tenth."""
    all_words = words_of(texts()[0])
    return len(set(all_words)) / len(set(all_words[: len(all_words) // 10]))


@check
def rare_words() -> float:
    """Return the share of the different words that occur only once or twice."""
    counts = Counter(words_of(texts()[0]))
    return sum(count <= 2 for count in counts.values()) / len(counts)


@check
def single_tokens(most: int = 50) -> float:
    """Return the share of the most frequent words of four letters or more that are one subword token."""
    frequent = [word for word, _ in Counter(w for w in words_of(texts()[0]) if len(w) > 3).most_common(most)]
    return sum(len(learned("bpe").encode(f" {word}")) == 1 for word in frequent) / len(frequent)


@check
def pieces_of_unseen_words() -> float:
    """Return the mean number of subwords of a word of four letters or more that the training text does not have."""
    known = set(words_of(texts()[0]))
    new = {word for word in words_of(texts()[1]) if word not in known and word.isalpha() and len(word) > 3}
    return sum(len(learned("bpe").encode(f" {word}")) for word in new) / len(new)


@check
def vocabulary_size(size: int) -> int:
    """Return the entries of a BPE vocabulary that was trained for so many."""
    return len(learned("bpe", size))


@check
def scripts_kept() -> int:
    """Return how many of eight strings of other scripts, emoji and code BPE gives back unchanged."""
    strings = [
        "你好，世界",
        "مرحبا",
        "नमस्ते",
        "שלום",
        "👩‍🚀 🚀",
        "for i in range(3):\n\tx[i] += 1",
        "Ærøskøbing",
        "fájni fog",
    ]
    return sum(learned("bpe").decode(learned("bpe").encode(text)) == text for text in strings)


@check
def tokens_in(text: str, unit: str) -> int:
    """Return the number of characters of a text, or of its words and punctuation marks."""
    return len(text) if unit == "characters" else len(re.findall(r"\w+|[^\w\s]", text))


@check
def pair_counts(text: str, pairs: list[str]) -> list[int]:
    """Return how often pairs of neighbouring characters occur in a text, a space being _."""
    text = text.lower().replace(" ", "_")
    counts = Counter(a + b for a, b in zip(text, text[1:], strict=False))
    return [counts[pair] for pair in pairs]


@check
def pair_counts_of_text(pairs: list[str]) -> float:
    """Return the least share of all neighbouring pairs of characters in the training text that is one of these."""
    text = texts()[0].lower()
    return min(text.count(pair) for pair in pairs) / len(text)


@check
def forced_lengths() -> list[int]:
    """Return the lengths of decoder input and target of a sentence of four tokens."""
    batch = pair_batch([[9, 9]], [[2, 3, 4, 5]], bos=0, eos=1, pad_id=7)
    return [batch.inputs["target"].shape[1], batch.targets.shape[1]]


@check
def forced_shift() -> int:
    """Return how many decoder inputs, after the first, differ from the target one position before."""
    batch = pair_batch([[9, 9]], [[2, 3, 4, 5]], bos=0, eos=1, pad_id=7)
    return int((batch.inputs["target"][:, 1:] != batch.targets[:, :-1]).sum())


@check
def bytes_of_tokens() -> float:
    """Return the mean number of bytes of a subword token of the held-out text, with a vocabulary of 8000."""
    lines = texts()[1].splitlines()
    count = sum(map(len, learned("bpe", 8000).encode_batch(lines)))
    return len("".join(lines).encode()) / count
