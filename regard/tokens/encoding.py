"""Texts as ids for training: long texts, pairs of texts, and texts with masked words."""

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path

import numpy as np

from regard.data.cache import cache_folder, clear
from regard.data.notices import notify
from regard.data.readers.large_texts import LargeText
from regard.data.readers.pairs import Pairs
from regard.data.sets.batches import IdPair
from regard.data.sets.masked_text import MaskedConfig, hide, pair_up, sentences, stretches
from regard.files import write_atomically
from regard.tokens.corpus import corpus, cut_at_spaces
from regard.tokens.frame import Framed
from regard.tokens.tokenizer import Tokenizer

TOGETHER = 64
"""Chunks that are encoded at the same time."""


def batched(items: Iterable[str], count: int) -> Iterator[list[str]]:
    """Items in lists of at most so many."""
    rest = iter(items)
    while group := list(islice(rest, count)):
        yield group


def raw(text: str) -> bytes:
    """The bytes of a text, in which lone surrogates stand for bytes that are no UTF-8."""
    return text.encode("utf-8", "surrogateescape")


def encode_text(tokenizer: Tokenizer, text: str) -> np.ndarray:
    """The ids of a text of any length, encoded in chunks."""
    if tokenizer.kind == "bytes" and tokenizer.inner.normalizer is None:
        return np.array(tokenizer.byte_ids, dtype=np.int32)[np.frombuffer(raw(text), dtype=np.uint8)]
    return np.concatenate([ids.astype(np.int32) for ids in encode_chunks(tokenizer, corpus(None, [text]))])


def encode_chunks(tokenizer: Tokenizer, chunks: Iterable[str]) -> Iterator[np.ndarray]:
    """The ids of chunks of a text, some at a time, since lists of ids take much memory."""
    for group in batched(chunks, TOGETHER):
        yield np.concatenate([np.asarray(ids, dtype=np.int64) for ids in tokenizer.encode_batch(group)])


def encode_large(tokenizer: Tokenizer, text: LargeText, digest: str) -> np.ndarray:
    """The ids of a large text with this hash, mapped from a file in the cache folder, which is written if missing."""
    kind = np.uint16 if tokenizer.vocab_size <= 1 << 16 else np.uint32
    name = hashlib.sha256(f"{digest} {text.start} {text.stop} {tokenizer.inner.to_str()}".encode()).hexdigest()
    path = cache_folder() / f"{name[:32]}.ids"

    def write(draft: Path) -> None:
        written = 0
        with draft.open("wb") as file:
            for ids in encode_chunks(tokenizer, cut_at_spaces(text)):
                file.write(ids.astype(kind).data)
                written += len(ids)
                notify(f"encoded {written:,} tokens", passing=True)
        notify(f"{', '.join(text.paths)}: {written:,} tokens lie in {path}")

    if not path.is_file():
        write_atomically(path, write)
        clear(path.parent)
    path.touch()
    return np.memmap(path, dtype=kind, mode="r")


def encode_pairs(pairs: Pairs, tokenizer: Tokenizer, max_len: int) -> list[IdPair]:
    """Pairs of texts as ids, numbered from 1, without those that have an empty side or are too long."""
    sources = tokenizer.encode_batch([source for source, _ in pairs])
    targets = tokenizer.encode_batch([target for _, target in pairs])
    full = [i for i, (source, target) in enumerate(pairs) if source.strip() and target.strip()]
    kept = [i for i in full if max(len(sources[i]), len(targets[i])) < max_len]
    return [IdPair(sources[i], targets[i], i + 1) for i in kept]


@dataclass(frozen=True, slots=True)
class MaskedExample:
    """A frame with masked tokens, their targets, and whether its second text follows the first (0) or not (1)."""

    framed: Framed
    targets: list[int]
    label: int | None
    number: int

    @property
    def sizes(self) -> tuple[int, ...]:
        return (len(self.framed),)


def cut_text(tokenizer: Tokenizer, text: str, room: int) -> list[str]:
    """A text cut into stretches of whole sentences, each of at most `room` tokens where no sentence is longer."""
    parts = sentences(text)
    return stretches(parts, [len(ids) for ids in tokenizer.encode_batch(parts)], room)


def mask_texts(
    parts: list[str], tokenizer: Tokenizer, data: MaskedConfig, room: int, rng: np.random.Generator
) -> list[MaskedExample]:
    """Stretches of text, alone or in pairs, framed and with some tokens masked."""
    if data.next_sentence:
        first, second, labels = zip(*pair_up(parts, rng), strict=True)
        frames = tokenizer.frame(first, second, max_len=room)
    else:
        labels = (None,) * len(parts)
        frames = tokenizer.frame(parts, max_len=room)
    assert tokenizer.mask is not None
    specials = [getattr(tokenizer, role) for role in tokenizer.names if getattr(tokenizer, role) is not None]
    ordinary = np.setdiff1d(np.arange(len(tokenizer)), specials)
    examples = []
    for number, (framed, label) in enumerate(zip(frames, labels, strict=True), 1):
        units = framed.words if data.whole_words else range(len(framed))
        words = [
            None if word is None or side is None else (side, word)
            for side, word in zip(framed.side, units, strict=True)
        ]
        ids, targets = hide(framed.ids, words, rng, rate=data.rate, mask=tokenizer.mask, ordinary=ordinary)
        examples.append(MaskedExample(replace(framed, ids=ids), targets, label, number))
    return examples
