"""Byte pair encoding, merge by merge: learned from one text alone, or as a trained tokenizer applies it.

Which pairs are frequent is a matter of the corpus. In the lecture's phrase `th`, `ed` and `un` occur once, so
its merges cannot come from the phrase alone; a tokenizer trained on a corpus shows where they come from.
This is the one place where BPE is written by hand, because it is here to be read; tokenizer.py does the work.
"""

import json
import re
import textwrap
from collections import Counter
from dataclasses import dataclass
from itertools import chain, pairwise
from typing import Any

from regard.tokens.corpus import check_text
from regard.tokens.tokenizer import VISIBLE, Tokenizer

Pair = tuple[str, str]


@dataclass(frozen=True, kw_only=True, slots=True)
class Step:
    """One merge: a pair becomes one symbol wherever it occurs."""

    pair: Pair
    """The two neighbours."""
    symbol: str
    """The symbol that they become."""
    count: int
    """The number of times that the pair occurs in the text: all without a tokenizer, the merged ones with one."""
    rank: int | None
    """The index of this merge among those of the tokenizer; None without a tokenizer."""
    symbols: tuple[str, ...]
    """The whole text after the merge."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Trace:
    """The merges from single symbols to the pieces of a text; `print` shows them."""

    initial: tuple[str, ...]
    steps: tuple[Step, ...]

    @property
    def pieces(self) -> tuple[str, ...]:
        """The symbols after the last merge."""
        return self.steps[-1].symbols if self.steps else self.initial

    def render(self, width: int = 100) -> str:
        """One block of lines a merge, no wider than `width` unless a single symbol is."""
        lines = [f"{len(self.initial)} symbols, {len(self.pieces)} after {len(self.steps)} merges"]
        lines += _wrapped(self.initial, width)
        for number, step in enumerate(self.steps, 1):
            left, right = step.pair
            learned = "" if step.rank is None else f"   learned as merge {step.rank + 1}"
            lines.append(f"{number:3d}  {left} + {right} → {step.symbol}   {step.count}×{learned}")
            lines += _wrapped(step.symbols, width)
        return "\n".join(lines)

    def __str__(self) -> str:
        return self.render()


def trace(text: str, tokenizer: Tokenizer | None = None) -> Trace:
    """Every merge of byte pair encoding on `text`, which should be short: each step keeps the whole of it.

    Without a tokenizer the merges are learned from the text itself, the most frequent pair first (of equals
    the leftmost), until no pair occurs twice. With one, its learned merges are applied in their order.
    """
    check_text(text)
    return _textbook(text) if tokenizer is None else _learned(text, tokenizer)


def _textbook(text: str) -> Trace:
    words = [[c.translate(VISIBLE) for c in word] for word in re.findall(r"\s*\S+|\s+", text)]
    initial = tuple(chain(*words))
    steps: list[Step] = []
    while counts := Counter(pair for word in words for pair in pairwise(word)):
        pair, count = counts.most_common(1)[0]  # of equals, the one that was met first
        if count < 2:
            break
        words = [_merged(word, pair, len(word)) for word in words]
        symbols = tuple(chain(*words))
        steps.append(Step(pair=pair, symbol="".join(pair), count=count, rank=None, symbols=symbols))
    return Trace(initial=initial, steps=tuple(steps))


def _learned(text: str, tokenizer: Tokenizer) -> Trace:
    inner, model = tokenizer.inner, json.loads(tokenizer.inner.model.__getstate__())
    if model["type"] != "BPE":
        raise ValueError(f"a {tokenizer.kind} tokenizer has no merges to show; give one of kind 'bpe'")
    merges: list[Pair] = [(left, right) for left, right in model["merges"]]
    ranks = {pair: rank for rank, pair in enumerate(merges)}
    normal = inner.normalizer.normalize_str(text) if inner.normalizer else text
    split = inner.pre_tokenizer.pre_tokenize_str(normal) if inner.pre_tokenizer else [(normal, None)]
    words = [_spelled(word, model) for word, _ in split if word]
    show = tokenizer.visible
    initial = tuple(map(show, chain(*words)))
    steps: list[Step] = []
    while present := [ranks[pair] for word in words for pair in pairwise(word) if pair in ranks]:
        rank = min(present)
        left, right = merges[rank]
        before = sum(map(len, words))
        # One merge in a word at a time: two pairs may give the same symbol, and free a merge of lower rank.
        words = [_merged(word, merges[rank], 1) for word in words]
        count = before - sum(map(len, words))
        if steps and steps[-1].rank == rank:
            count += steps.pop().count
        pair, symbols = (show(left), show(right)), tuple(map(show, chain(*words)))
        steps.append(Step(pair=pair, symbol=show(left + right), count=count, rank=rank, symbols=symbols))
    if list(chain(*words)) != inner.encode(text, add_special_tokens=False).tokens:
        raise ValueError("this tokenizer does more than merge pairs; its merges alone do not give its tokens")
    return Trace(initial=initial, steps=tuple(steps))


def _spelled(word: str, model: dict[str, Any]) -> list[str]:
    """The symbols that merging starts from: characters, bytes where a character has no entry of its own."""
    vocabulary = model["vocab"]
    if model["ignore_merges"] and word in vocabulary:
        return [word]
    letters = [*word[:-1], word[-1] + (model["end_of_word_suffix"] or "")]
    spelled: list[str] = []
    for letter in letters:
        known = letter in vocabulary or not model["byte_fallback"]
        spelled += [letter] if known else [f"<0x{byte:02X}>" for byte in letter.encode()]
    return spelled


def _merged(word: list[str], pair: Pair, limit: int) -> list[str]:
    """The word with the pair joined, from the left, at most `limit` times."""
    merged: list[str] = []
    position = 0
    while position < len(word):
        if limit and tuple(word[position : position + 2]) == pair:
            merged.append("".join(pair))
            position, limit = position + 2, limit - 1
        else:
            merged.append(word[position])
            position += 1
    return merged


def _wrapped(symbols: tuple[str, ...], width: int) -> list[str]:
    indent = " " * 5
    return textwrap.wrap(
        " ".join(symbols),
        width,
        initial_indent=indent,
        subsequent_indent=indent,
        break_long_words=False,
        break_on_hyphens=False,
    )
