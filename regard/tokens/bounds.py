"""Bounds of a tokenizer that somebody else has written: texts that grow without end, patterns that search for ages, and
panics of the library, which are no exceptions of Python's."""

import base64
import json
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import tokenizers

from regard.config import MOST_SIZE, one_line

MOST_BYTES = 1 << 27
"""Most bytes of a tokenizer.json; the largest that are published have a quarter of it."""
MOST_GROWTH = 64
"""Most characters that the replacements of a tokenizer may make of one."""
LONGEST_PIECE = 1000
"""Most characters of an entry of a SentencePiece vocabulary."""
MOST_SECONDS = 0.5
"""Most processor time for a text of 2,048 repeated characters; usual patterns take a hundredth."""
MOST_ADDED = 1000
"""Most tokens that a text of one letter may become."""
ALONE = threading.RLock()
LENGTHS = (128, 512, 2048)
UNITS = ("a", "A", "1", " ", "\n", ".", "'", "_", "é", "a ", "aA")


@contextmanager
def library_errors(path: Path) -> Iterator[None]:
    """Context manager around calls of the library: its bare exceptions and its panics are errors of one line. What a
    panic prints on stderr is left out."""
    try:
        with muted():
            yield
    except BaseException as error:
        if type(error) is not Exception and not is_panic(error):
            raise
        raise ValueError(f"{path}: not a tokenizer.json ({one_line(error)}); save or download it again") from None


def is_panic(error: BaseException) -> bool:
    """Whether an exception is a panic of compiled code; their class is not to be imported."""
    return type(error).__name__ == "PanicException"


@contextmanager
def muted() -> Iterator[None]:
    """Context manager: drop what compiled code writes to stderr; one thread at a time, since it is the process's."""
    with ALONE:
        try:
            kept = os.dup(2)
        except OSError:  # there is none
            yield
            return
        nowhere = os.open(os.devnull, os.O_WRONLY)
        try:
            os.dup2(nowhere, 2)
            yield
        finally:
            os.dup2(kept, 2)
            os.close(nowhere)
            os.close(kept)


def parse(data: bytes) -> tokenizers.Tokenizer:
    """The tokenizer of a tokenizer.json.

    The library cuts a prefix from the second part of every merge without a look at it. In the middle of a character
    that makes a text that is none, and an error about it ends the process.
    """
    try:
        model = json.loads(data)["model"]
    except (ValueError, LookupError, TypeError, RecursionError) as error:
        raise ValueError(f"not a tokenizer.json ({one_line(error)}); save or download it again") from None
    prefix = model.get("continuing_subword_prefix")
    for merge in model.get("merges") or () if prefix else ():
        second = merge.split(" ")[-1] if isinstance(merge, str) else merge[1]
        if not second.startswith(prefix):
            raise ValueError(f"the merge {merge!r} does not go on with the prefix {prefix!r}; download it again")
    return tokenizers.Tokenizer.from_buffer(data)


def check_bounds(inner: tokenizers.Tokenizer, path: Path, known: tuple[str, ...]) -> None:
    """Raise an error if a tokenizer makes texts much longer, or if one of its patterns, but for those that are known,
    takes a time that grows faster than the square of a text's length."""
    inner.no_truncation()  # of which a file may ask the impossible
    inner.no_padding()
    size = 1 + max(inner.get_vocab().values(), default=-1)
    if not 0 < size <= MOST_SIZE:
        fact = f"its largest id is {size - 1:,}" if size else "its vocabulary is empty"
        raise ValueError(f"{path}: {fact}; save or download it again")
    parts = [part for part in (inner.normalizer, inner.pre_tokenizer, inner.decoder) if part is not None]
    states = [json.loads(part.__getstate__()) for part in parts]
    for state in states:
        if (growth := growth_of(state)) > MOST_GROWTH:
            fact = f"its replacements can make {growth:,} characters of one, at most {MOST_GROWTH} are allowed"
            raise ValueError(f"{path}: {fact}; do not use this tokenizer")
    framed = [*ids_of(inner, "a"), *ids_of(inner, "a", "a")]
    if len(framed) > MOST_ADDED:
        raise ValueError(f"{path}: it makes {len(framed):,} tokens of three letters; do not use this tokenizer")
    if framed and max(framed) >= size:
        raise ValueError(f"{path}: it adds the token {max(framed)}, its vocabulary has {size:,}; download it again")
    patterns = {text for state in states for text in patterns_of(state)} - set(known)
    if patterns:
        letters = sorted({letter for text in patterns for letter in text if letter.isalnum()})[:24]
        check_time(inner, path, (*UNITS, *letters))


def ids_of(inner: tokenizers.Tokenizer, text: str, second: str | None = None) -> list[int]:
    """The ids of one text or two between special tokens; none if a closed vocabulary lacks a character of them."""
    try:
        return inner.encode(text, second).ids
    except Exception:  # the library raises bare Exception
        return []


def growth_of(state: Any) -> int:
    """The number of characters that all replacements of a part of a tokenizer, one after the other, make of one."""
    if isinstance(state, list):
        product = 1
        for part in state:
            product = min(product * growth_of(part), 1 << 62)
        return product
    if not isinstance(state, dict):
        return 1
    if isinstance(table := state.get("precompiled_charsmap"), str):
        with suppress(ValueError):
            return longest_replacement(base64.b64decode(table))
    content = state.get("content") if state.get("type") == "Replace" else None
    own = len(content) if isinstance(content, str) else 1
    return max(1, own) * growth_of(list(state.values()))


def longest_replacement(table: bytes) -> int:
    """The longest replacement of a table of characters by SentencePiece, in characters; the table follows a trie."""
    size = int.from_bytes(table[:4], "little")
    return max(len(text.decode("utf-8", "replace")) for text in table[4 + size :].split(b"\0"))


def patterns_of(state: Any) -> Iterator[str]:
    """The regular expressions of a part of a tokenizer."""
    if isinstance(state, dict) and isinstance(state.get("Regex"), str):
        yield state["Regex"]
    for part in state.values() if isinstance(state, dict) else state if isinstance(state, list) else ():
        yield from patterns_of(part)


def check_time(inner: tokenizers.Tokenizer, path: Path, units: tuple[str, ...]) -> None:
    """Raise an error if encoding a repeated text takes too long; longer ones are tried only after shorter ones."""
    for length in LENGTHS:
        for unit in units:
            start = time.thread_time()
            ids_of(inner, unit * (length // len(unit)) + "\x01")
            if time.thread_time() - start > MOST_SECONDS:
                fact = f"its pattern takes more than {MOST_SECONDS} s for {length} times {unit!r}"
                raise ValueError(f"{path}: {fact}; do not use this tokenizer")
