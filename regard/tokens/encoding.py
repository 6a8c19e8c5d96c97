"""Texts as ids for training: long texts, pairs of texts, and texts with masked words."""

from dataclasses import dataclass, replace

import numpy as np

from regard.data.readers.text_files import Pairs
from regard.data.sets.batches import IdPair
from regard.data.sets.masked_text import MaskedConfig, hide, pair_up, sentences, stretches
from regard.tokens.corpus import corpus
from regard.tokens.frame import Framed
from regard.tokens.tokenizer import Tokenizer


def encode_text(tokenizer: Tokenizer, text: str) -> np.ndarray:
    """The ids of a text of any length, encoded in chunks."""
    parts = tokenizer.encode_batch(list(corpus(None, [text])))
    return np.concatenate([np.asarray(part, dtype=np.int32) for part in parts])


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
