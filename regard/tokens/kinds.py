"""Kinds of tokens, and how the vocabulary of each is learned.

bpe    byte-level BPE: the 256 bytes, then the learned merges, which never cross a word
word   ASCII, bytes for the rest, then the most frequent words, each with the space before it
char   ASCII, bytes for the rest, then the other characters seen in training
code   byte-level BPE whose merges never cross a token of Python's lexer
dna    ASCII, bytes for the rest, then all words of k bases; k is the largest for which they fit
bytes  the 256 bytes
"""

import json
from collections import Counter
from collections.abc import Iterator
from itertools import product
from typing import Any

import tokenizers
from tokenizers import decoders, models, normalizers, pre_tokenizers, trainers

KINDS = ("bpe", "word", "char", "code", "dna", "bytes")

# GPT-2's pattern, except that marks stay with their letters, digits stand alone and 'tis is not 't + is.
SUBWORDS = r"['’](?:[sdmt]|ll|ve|re)(?![\p{L}\p{M}])| ?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+|\s+(?!\S)|\s+"
WORDS = r" ?[\p{L}\p{M}\p{N}]+(?:['’][\p{L}\p{M}]+)*| ?[^\s\p{L}\p{M}\p{N}]|\s+(?!\S)|\s+"
# The tokens of Python's lexer, each with the space before it; strings and comments are cut into such tokens,
# too: quotes, with what is before them as in f", and \ with the character after it. So nothing depends on where a text
# begins, and broken code has tokens as well. White space at the beginning of a line, and each newline, stand alone.
CODE = "|".join(
    (
        r"\r?\n|\r",
        r"(?:(?<=\S) )?(?:" + "|".join(
            (
                r"\\[^\r\n]",
                r"(?i:[rbfut]{0,2})(?:\"\"\"|'''|[\"'])",
                r"(?i:0x(?:_?[\da-f])+|0b(?:_?[01])+|0o(?:_?[0-7])+)",
                r"(?:\d(?:_?\d)*\.(?:\d(?:_?\d)*)?|\.\d(?:_?\d)*|\d(?:_?\d)*)(?i:e[+-]?\d(?:_?\d)*)?[jJ]?",
                r"[\p{L}\p{M}\p{N}\p{Pc}]+",
                r"\*\*=?|//=?|>>=?|<<=?|!=|->|:=|\.\.\.|[-+*/%&|^=<>@]=?",
                r"[^\s\p{L}\p{M}\p{N}\p{Pc}\"']",
            )
        ) + ")",
        r"[^\S\r\n]+",
    )
)  # fmt: skip
KNOWN = (SUBWORDS, WORDS, CODE)
"""Patterns of ours, whose time grows with the length of a text and no faster."""
BASES = "ACGT"
ALPHABET = [chr(code) for code in range(128)] + [f"<0x{byte:02X}>" for byte in range(128, 256)]


def learn(
    kind: str, chunks: Iterator[str], names: list[str], vocab_size: int, lowercase: bool, progress: bool
) -> tokenizers.Tokenizer:
    """Return a tokenizer of the library of a kind, with special tokens of these names."""
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    options: dict[str, Any] = {"vocab_size": vocab_size, "show_progress": progress}
    if kind == "bytes":
        vocabulary = {entry: id for id, entry in enumerate([*names, *sorted(byte_level.alphabet())])}
        inner = build(models.BPE(vocab=vocabulary, merges=[]), None, lowercase)
        inner.pre_tokenizer, inner.decoder = byte_level, decoders.ByteLevel()
        inner.add_special_tokens(names)
        return inner
    if kind in ("bpe", "code"):
        inner = build(models.BPE(), CODE if kind == "code" else SUBWORDS, lowercase)
        inner.pre_tokenizer = pre_tokenizers.Sequence([inner.pre_tokenizer, byte_level])
        inner.decoder = decoders.ByteLevel()
        options |= {"special_tokens": names, "initial_alphabet": byte_level.alphabet()}
        inner.train_from_iterator(chunks, trainers.BpeTrainer(min_frequency=2, **options))
        return inner

    # The others are a BPE without merges: an entry as a whole, else its characters, else their bytes.
    pattern = {"word": WORDS, "char": None, "dna": None}[kind]
    if kind == "word":
        counter = build(models.WordLevel(), WORDS, lowercase)
        counter.train_from_iterator(chunks, trainers.WordLevelTrainer(min_frequency=1, **options))
        ids = counter.get_vocab()
        seen = sorted(ids, key=ids.__getitem__)
    elif kind == "dna":
        size = longest(vocab_size - len(names) - len(ALPHABET))
        seen, pattern = ["".join(word) for word in product(BASES, repeat=size)], f"[{BASES}]{{{size}}}"
    else:
        lower = normalizers.Lowercase().normalize_str if lowercase else str
        counts: Counter[str] = Counter()
        for chunk in chunks:
            counts.update(lower(chunk))
        seen = sorted(counts, key=lambda character: (-counts[character], character))
    entries = list(dict.fromkeys([*names, *ALPHABET, *seen]))[:vocab_size]
    vocabulary = {entry: id for id, entry in enumerate(entries)}
    whole = kind != "char"
    inner = build(models.BPE(vocab=vocabulary, merges=[], byte_fallback=True, ignore_merges=whole), pattern, lowercase)
    if kind == "dna":  # where small letters are bases, too
        inner.normalizer = normalizers.Sequence([normalizers.Replace(base.lower(), base) for base in BASES])
    inner.decoder = decoders.Sequence([decoders.ByteFallback(), decoders.Fuse()])
    inner.add_special_tokens(names)
    return inner


def build(model: models.Model, pattern: str | None, lowercase: bool) -> tokenizers.Tokenizer:
    """Return a tokenizer of the library that cuts texts by a pattern first."""
    inner = tokenizers.Tokenizer(model)
    if lowercase:
        inner.normalizer = normalizers.Lowercase()
    if pattern:
        inner.pre_tokenizer = pre_tokenizers.Split(tokenizers.Regex(pattern), "isolated")
    return inner


def longest(room: int) -> int:
    """Return the largest number of bases whose words all fit into a vocabulary with so many free entries."""
    size = 1
    while len(BASES) ** (size + 1) <= room:
        size += 1
    return size


def kind_of(inner: tokenizers.Tokenizer) -> str:
    """Return one of `KINDS`, or for other published files the name of their model, such as "wordpiece"."""
    model = json.loads(inner.model.__getstate__())
    state = json.loads(inner.pre_tokenizer.__getstate__()) if inner.pre_tokenizer is not None else {}
    before = str(state)
    if model["type"] == "BPE" and not model["merges"]:
        if model["byte_fallback"]:
            return "dna" if f"[{BASES}]{{" in before else "word" if model["ignore_merges"] else "char"
        if state.get("type") == "ByteLevel":
            return "bytes"
    if model["type"] == "BPE" and str({"Regex": CODE}) in before:
        return "code"
    return "word" if model["type"] == "WordLevel" else str(model["type"]).lower()
