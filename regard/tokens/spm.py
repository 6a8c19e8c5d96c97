"""SentencePiece's model files, read without its library: a protobuf of pieces with scores, and how text is prepared.

What is built is one `tokenizers.Tokenizer` that gives SentencePiece's ids: Unigram as it is, BPE with the merges
that its scores imply. A text with the name of a special token in it stays text.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from struct import error as StructError  # noqa: N812
from struct import unpack_from
from typing import Any

import tokenizers
from tokenizers import decoders, models, normalizers, pre_tokenizers

from regard.files import read_bytes
from regard.tokens.bounds import LONGEST_PIECE, MOST_BYTES

UNIGRAM, BPE = 1, 2
NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = range(1, 7)
SPACE = "▁"
# For an entry that only the other language of a pair uses: it is the last way to spell something.
FOREIGN_SCORE = -1e5


@dataclass(frozen=True, slots=True)
class Piece:
    """One entry of the vocabulary; its index in the list is its id."""

    name: str
    score: float = 0.0
    kind: int = NORMAL


@dataclass(frozen=True, kw_only=True, slots=True)
class PieceModel:
    """The content of a `.model` or `.spm` file."""

    pieces: Sequence[Piece]
    """The vocabulary in the order of its ids."""
    algorithm: int = UNIGRAM
    """Unigram or BPE, by SentencePiece's numbers."""
    charsmap: bytes = b""
    """The compiled table of characters to replace; empty for none."""
    dummy_prefix: bool = True
    """A space goes before every text."""
    squeeze: bool = True
    """Runs of spaces become one; those at both ends are dropped."""

    @property
    def special(self) -> list[str]:
        """The names of pieces that no text contains."""
        return [piece.name for piece in self.pieces if piece.kind in (CONTROL, UNKNOWN)]


def read_pieces(path: Path) -> PieceModel:
    """Read a SentencePiece file; a ValueError where it is none, or of a kind that is not read here."""
    raw = read_bytes(path, MOST_BYTES)
    try:
        top = _fields(raw)
        pieces = [_piece(_fields(raw)) for raw in top[1]]
        trainer, normalizer = _fields(top.get(2, [b""])[0]), _fields(top.get(3, [b""])[0])
    except (KeyError, IndexError, ValueError, TypeError, AttributeError, StructError):
        raise ValueError(f"{path}: not a SentencePiece model, or cut short; download it again") from None
    if (longest := max(len(piece.name) for piece in pieces)) > LONGEST_PIECE:
        raise ValueError(
            f"{path}: a piece has {longest:,} characters, at most {LONGEST_PIECE} are read; download it again"
        )
    algorithm = _last(trainer, 3, UNIGRAM)
    if algorithm not in (UNIGRAM, BPE) or _last(trainer, 24, 0):
        raise ValueError(f"{path}: only Unigram and BPE with spaces before words are read; convert to tokenizer.json")
    return PieceModel(
        pieces=pieces,
        algorithm=algorithm,
        charsmap=_last(normalizer, 2, b""),
        dummy_prefix=bool(_last(normalizer, 3, 1)),
        squeeze=bool(_last(normalizer, 4, 1)),
    )


def build(
    model: PieceModel, *, ids: Mapping[str, int] | None = None, before: Sequence[normalizers.Normalizer] = ()
) -> tokenizers.Tokenizer:
    """The tokenizer of a model; its special tokens are still to be added.

    `before` changes the text first. `ids` are those of another vocabulary (Marian's); pieces that it lacks are
    left out, so that a text that has one is spelled with others.
    """
    byte_fallback = any(piece.kind == BYTE for piece in model.pieces)
    unknown = next((piece.name for piece in model.pieces if piece.kind == UNKNOWN), None)
    if model.algorithm == BPE:
        vocabulary = {piece.name: id for id, piece in enumerate(model.pieces)} if ids is None else dict(ids)
        merges = merges_by_score(piece for piece in model.pieces if piece.name in vocabulary)
        core: models.Model = models.BPE(
            vocabulary, merges, unk_token=unknown, fuse_unk=True, byte_fallback=byte_fallback
        )
    else:
        scores = _unigram_scores(model.pieces)
        names = list(scores) if ids is None else sorted(ids, key=ids.__getitem__)
        entries = [(name, scores.get(name, FOREIGN_SCORE * len(name))) for name in names]
        core = models.Unigram(entries, names.index(unknown) if unknown else None, byte_fallback)
    inner = tokenizers.Tokenizer(core)
    inner.normalizer = normalizers.Sequence([*before, *_normalizers(model)])
    # Words can be cut apart before the search if no piece spans two of them; Llama's "▁▁" does.
    split = not any(SPACE in piece.name[1:] for piece in model.pieces)
    inner.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="never", split=split)
    steps: list[Any] = [decoders.Replace(SPACE, " "), decoders.ByteFallback(), decoders.Fuse()]
    strip = [decoders.Strip(" ", 1, 0)] if model.dummy_prefix or model.squeeze else []
    inner.decoder = decoders.Sequence([*steps, *strip])
    if model.algorithm == BPE:  # merging never crosses what a user defined
        inner.add_tokens([piece.name for piece in model.pieces if piece.kind == USER_DEFINED])
    return inner


def merges_by_score(pieces: Iterable[Piece]) -> list[tuple[str, str]]:
    """Every way to make a piece of two others, the best score first; of equals the longest left part.

    SentencePiece merges any two neighbours that make a piece; tokenizers wants the pairs in their order.
    """
    scores = {piece.name: piece.score for piece in pieces if piece.kind == NORMAL}
    pairs = [
        (name[:cut], name[cut:])
        for name in scores
        for cut in range(1, len(name))
        if name[:cut] in scores and name[cut:] in scores
    ]
    return sorted(pairs, key=lambda pair: (-scores[pair[0] + pair[1]], -len(pair[0])))


def keep_names_apart(inner: tokenizers.Tokenizer) -> None:
    """Cut the names of special tokens in a text in two, since Unigram would take them for the tokens."""
    if not isinstance(inner.model, models.Unigram):
        return
    inner.encode_special_tokens = True
    names = [token.content for token in inner.get_added_tokens_decoder().values() if token.special]
    names += [name for byte in range(256) if inner.token_to_id(name := f"<0x{byte:02X}>") is not None]
    recognised = [name for name in names if inner.token_to_id(name) in inner.encode(name, add_special_tokens=False).ids]
    ends = sorted({(name[0], _digits(name[1:])) for name in recognised if len(name) > 1})
    if ends:
        groups = groupby(ends, key=lambda end: end[0])
        pattern = "|".join(f"{re.escape(first)}(?={'|'.join(rest for _, rest in group)})" for first, group in groups)
        cut = pre_tokenizers.Split(tokenizers.Regex(pattern), "merged_with_previous")
        inner.pre_tokenizer = pre_tokenizers.Sequence([inner.pre_tokenizer, cut] if inner.pre_tokenizer else [cut])


def _digits(text: str) -> str:
    """A pattern of the text in which numbers match any number, so that 256 bytes or 100 sentinels are one pattern."""
    if re.fullmatch("0x[0-9A-F]{2}>", text):
        return "0x[0-9A-F]{2}>"
    return re.sub("[0-9]+", "[0-9]+", re.escape(text))


def _unigram_scores(pieces: Sequence[Piece]) -> dict[str, float]:
    """The scores of the pieces; user-defined pieces win against every other segmentation, as in SentencePiece."""
    best = max((piece.score for piece in pieces if piece.kind == NORMAL), default=0.0)
    return {piece.name: len(piece.name) * best - 0.1 if piece.kind == USER_DEFINED else piece.score for piece in pieces}


def _normalizers(model: PieceModel) -> Iterator[normalizers.Normalizer]:
    if model.charsmap:
        table = normalizers.Precompiled(model.charsmap)
        # The library looks a letter with two marks up by its first mark only; composed, it is one character.
        if table.normalize_str("e\u0301") == "é":
            yield normalizers.NFC()
        yield table
    if model.squeeze:
        yield normalizers.Replace(tokenizers.Regex("^ +| +$"), "")
        yield normalizers.Replace(tokenizers.Regex(" {2,}"), " ")
    if model.dummy_prefix:
        yield normalizers.Prepend(SPACE)
    yield normalizers.Replace(" ", SPACE)


def _piece(fields: Mapping[int, list[Any]]) -> Piece:
    return Piece(_last(fields, 1, b"").decode(), _last(fields, 2, 0.0), _last(fields, 3, NORMAL))


def _last(fields: Mapping[int, list[Any]], number: int, default: Any) -> Any:
    return fields.get(number, [default])[-1]


def _fields(data: bytes) -> dict[int, list[Any]]:
    """The values of a protobuf message by field number: integers, 4-byte floats, and bytes for all else."""
    fields: dict[int, list[Any]] = {}
    offset = 0
    while offset < len(data):
        key, offset = _varint(data, offset)
        number, wire = key >> 3, key & 7
        value: Any
        if wire == 0:
            value, offset = _varint(data, offset)
        elif wire == 5:
            value, offset = unpack_from("<f", data, offset)[0], offset + 4
        elif wire in (1, 2):
            size, offset = (8, offset) if wire == 1 else _varint(data, offset)
            value, offset = data[offset : offset + size], offset + size
        else:
            raise ValueError(f"wire type {wire}")
        if offset > len(data):
            raise ValueError("cut short")
        fields.setdefault(number, []).append(value)
    return fields


def _varint(data: bytes, offset: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[offset]
        offset += 1
        value |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            return value, offset
        if shift > 63:
            raise ValueError("a number of more than 64 bits")
