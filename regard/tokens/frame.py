"""Texts as a model reads them: "[CLS] a [SEP] b [SEP]", with the characters that each token came from.

Where the special tokens go is read off once from what the tokenizer's own post-processor does to a short text;
cutting to a length and windows are then arithmetic on lists.
"""

import re
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import tokenizers

Span = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Framed:
    """One or two texts between special tokens; every list has one entry a token."""

    ids: list[int]
    """The ids that the model reads."""
    types: list[int]
    """The segment of each token: 0, or 1 for the second text where the model distinguishes them."""
    offsets: list[Span | None]
    """Start and end of each token in its text, without white space around it; None for special tokens."""
    side: list[int | None]
    """The text that a token is from: 0 or 1; None for special tokens."""
    words: list[int | None]
    """The number of the word in its text that a token belongs to; None for special tokens."""

    def __len__(self) -> int:
        return len(self.ids)


class Part(NamedTuple):
    """The tokens of one text, or of a window of it."""

    ids: list[int]
    offsets: list[Span]
    words: list[int]

    def cut(self, start: int, end: int) -> "Part":
        return Part(self.ids[start:end], self.offsets[start:end], self.words[start:end])

    def moved(self, places: Sequence[int] | None) -> "Part":
        """Return the tokens with offsets into the original text, given the index of each character there."""
        return self if places is None else self._replace(offsets=[(places[a], places[b]) for a, b in self.offsets])


class Slot(NamedTuple):
    """A position in a frame: a special token, or (`id` None) all tokens of a side."""

    id: int | None
    side: int
    type: int


class Framer:
    """The frames of a tokenizer: for one text and for two."""

    def __init__(self, inner: tokenizers.Tokenizer, bos: int | None, eos: int | None) -> None:
        if inner.post_processor is None and bos is not None and eos is not None:
            ends = [Slot(bos, 0, 0), Slot(None, 0, 0), Slot(eos, 0, 0)]
            self.slots = [ends, [*ends, Slot(None, 1, 1), Slot(eos, 1, 1)]]
        else:
            probe = next((text for text in ("a", *inner.get_vocab()) if _has_tokens(inner, text)), "a")
            self.slots = [_slots(inner.encode(probe)), _slots(inner.encode(probe, probe))]
        # Without a pre-tokenizer the library sees one word; then white space says what a word is.
        self.splits = inner.pre_tokenizer is not None and len(inner.pre_tokenizer.pre_tokenize_str("a▁b a b")) > 1

    def part(self, text: str, encoding: tokenizers.Encoding) -> Part:
        """The tokens of a text as the library encodes it, with white space cut from their offsets."""
        spans = [_trimmed(text, start, end) for start, end in encoding.offsets]
        if self.splits:
            return Part(encoding.ids, spans, [word or 0 for word in encoding.word_ids])
        ends = [piece.end() for piece in re.finditer(r"\S+", text)]
        return Part(encoding.ids, spans, [bisect_right(ends, start) for start, _ in spans])

    def room(self, sides: int, max_len: int | None) -> int | None:
        """The number of text tokens that fit beside the special tokens."""
        special = sum(slot.id is not None for slot in self.slots[sides - 1])
        if max_len is not None and max_len <= special:
            raise ValueError(f"max_len={max_len} leaves no room beside {special} special tokens; use a larger one")
        return None if max_len is None else max_len - special

    def frame(self, parts: Sequence[Part]) -> Framed:
        framed = Framed([], [], [], [], [])
        for slot in self.slots[len(parts) - 1]:
            part = parts[slot.side]
            special = slot.id is not None
            count = 1 if special else len(part.ids)
            framed.ids.extend([slot.id] if slot.id is not None else part.ids)
            framed.types.extend([slot.type] * count)
            framed.offsets.extend([None] if special else part.offsets)
            framed.side.extend([None if special else slot.side] * count)
            framed.words.extend([None] if special else part.words)
        return framed


def fit(parts: Sequence[Part], room: int | None) -> list[Part]:
    """Cut parts to at most `room` tokens together: the longer one first, then both equally."""
    if room is None:
        return list(parts)
    if len(parts) == 1:
        return [parts[0].cut(0, room)]
    sizes = [len(part.ids) for part in parts]
    shorter = 0 if sizes[0] <= sizes[1] else 1
    keep = min(sizes[shorter], room // 2)
    return [part.cut(0, keep if side == shorter else room - keep) for side, part in enumerate(parts)]


def windows(part: Part, size: int, overlap: int) -> list[Part]:
    """Stretches of at most `size` tokens that cover the part; neighbours share `overlap` tokens."""
    starts = range(0, max(len(part.ids) - overlap, 1), size - overlap)
    return [part.cut(start, start + size) for start in starts]


def translate(text: str, names: Sequence[str], own: str) -> tuple[str, list[int] | None]:
    """Return the text with alternative names of a token replaced by its own, and the original index of each
    character."""
    others = [re.escape(name) for name in names if name != own]
    pieces = re.split(f"({'|'.join(others)})", text)
    if len(pieces) == 1:
        return text, None
    places: list[int] = []
    start = 0
    for number, piece in enumerate(pieces):
        # Inside a name no token ends, so only where it starts and ends matters.
        places += [start] * len(own) if number % 2 else range(start, start + len(piece))
        start += len(piece)
    return "".join(own if number % 2 else piece for number, piece in enumerate(pieces)), [*places, start]


def _has_tokens(inner: tokenizers.Tokenizer, text: str) -> bool:
    try:
        return bool(inner.encode(text, add_special_tokens=False).ids)
    except Exception:  # the library raises bare Exception where a closed vocabulary has no such word
        return False


def _slots(encoding: tokenizers.Encoding) -> list[Slot]:
    slots: list[Slot] = []
    for id, side, type in zip(encoding.ids, encoding.sequence_ids, encoding.type_ids, strict=True):
        slot = Slot(id if side is None else None, side or 0, type)
        if slot.id is not None or slot not in slots:
            slots.append(slot)
    return slots


def _trimmed(text: str, start: int, end: int) -> Span:
    """The start and end of a token without the white space around it; of white space alone, all of it."""
    piece = text[start:end]
    bare = piece.strip()
    if len(bare) in (0, len(piece)):
        return start, end
    start += len(piece) - len(piece.lstrip())
    return start, start + len(bare)
