"""Text to ids and back, by tokens of several kinds (kinds.py). Every Unicode string survives the round trip.

Nothing is unknown: what was not seen is spelled in characters or bytes. `bpe` splits numbers into single
digits, so that 1999 and 2000 share their parts at any vocabulary size. `tokenizer.json` holds everything.
"""

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import tokenizers

from regard.config import nearest, one_line, reading
from regard.files import check_regular, write_text
from regard.tokens.bounds import MOST_BYTES, check_bounds, is_panic, library_errors, parse
from regard.tokens.corpus import check_text, corpus
from regard.tokens.frame import Framed, Framer, Part, fit, translate, windows
from regard.tokens.kinds import KINDS, KNOWN, kind_of, learn
from regard.tokens.published import has_files, open_words, read_files, read_settings
from regard.tokens.spm import keep_names_apart

SPECIALS = ("<pad>", "<bos>", "<eos>")

# The first that a vocabulary holds is taken. GPT-2 has one token for both ends and none for padding.
USUAL_NAMES = {
    "pad": ("<pad>", "[PAD]", "<|pad|>", "<|padding|>", "<|finetune_right_pad_id|>"),
    "bos": ("<bos>", "<s>", "[CLS]", "[BOS]", "<|begin_of_text|>", "<|startoftext|>", "<|endoftext|>"),
    "eos": ("<eos>", "</s>", "[SEP]", "[EOS]", "<|end_of_text|>", "<|endoftext|>"),
    "mask": ("<mask>", "[MASK]", "<|mask|>"),
    "unk": ("<unk>", "[UNK]"),
    "cls": ("[CLS]", "<cls>", "<s>", "<bos>"),
    "sep": ("[SEP]", "<sep>", "</s>", "<eos>"),
}

# The patterns split a name of this form, so that no entry learned from text can be a special token.
SPECIAL_FORM = re.compile(r"<(?!0x)\w*[a-zA-Z0-9]\w*>|\[\w*[a-zA-Z0-9]\w*\]", re.ASCII)

VISIBLE: dict[int, str] = {
    **{code: f"⟨{code:02X}⟩" for code in (*range(32), *range(127, 160), 0x2028, 0x2029)},
    **{0xDC00 + byte: f"⟨{byte:02X}⟩" for byte in range(128, 256)},  # as "surrogateescape" leaves stray bytes
    **{ord(" "): "·", ord("\n"): "↵", ord("\t"): "⇥"},
}


class Tokenizer:
    """Text to ids and back; `encode` adds no special tokens, `decode` leaves them out.

    `pad`, `bos`, `eos`, `mask`, `unk`, `cls` and `sep` are ids, None where the vocabulary has no such token. The
    name of a special token inside a text is text, unless `parse_special`. `inner` is the tokenizer of the library.
    """

    def __init__(
        self,
        inner: tokenizers.Tokenizer,
        *,
        names: Mapping[str, str | None] | None = None,
        parse_special: bool = False,
    ) -> None:
        inner.encode_special_tokens = not parse_special  # not part of the JSON, hence set here
        inner.no_truncation()  # published files may cut at 128 tokens without a word
        inner.no_padding()
        self.inner, self.parse_special = inner, parse_special
        self.names = _find_names(inner, {}) if names is None else dict(names)
        ids = {role: inner.token_to_id(name) if name else None for role, name in self.names.items()}
        self.pad, self.bos, self.eos, self.mask, self.unk, self.cls, self.sep = (ids.get(role) for role in USUAL_NAMES)
        self.vocab_size = 1 + max(inner.get_vocab().values())  # published vocabularies can have holes
        self._added = {token.content for token in inner.get_added_tokens_decoder().values()}
        decoder = b"" if inner.decoder is None else inner.decoder.__getstate__()
        self.spells_bytes = b'"ByteFallback"' in decoder  # and judges all bytes in a row together
        byte_level = b'"ByteLevel"' in decoder
        self._byte_of = _byte_symbols() if byte_level else {}

    @classmethod
    def train(
        cls,
        files: Iterable[Path | str] | None = None,
        *,
        texts: Iterable[str] | None = None,
        kind: str = "bpe",
        vocab_size: int,
        lowercase: bool = False,
        specials: Sequence[str] = (),
        progress: bool = False,
    ) -> "Tokenizer":
        """Learn a vocabulary of at most `vocab_size` from UTF-8 files or from texts, in bounded memory.

        Ids: `<pad> <bos> <eos>`, your `specials`, the alphabet, then what was learned, most frequent first.
        A pair that occurs once is never merged, so a small corpus gives fewer entries than asked for.
        """
        if kind not in KINDS:
            raise ValueError(f"kind={kind!r} is no kind of tokenizer; {nearest(kind, KINDS)}")
        names = [*SPECIALS, *specials]
        for name in names:
            if not SPECIAL_FORM.fullmatch(name) or names.count(name) > 1:
                raise ValueError(f"special token {name!r} must look like '<mask>' or '[MASK]', each only once")
        if vocab_size < (minimum := len(names) + 256):
            reason = f"{len(names)} special tokens and 256 bytes or characters come first"
            raise ValueError(f"vocab_size={vocab_size} is too small; use {minimum} or more: {reason}")
        return cls(learn(kind, corpus(files, texts), names, vocab_size, lowercase, progress))

    @classmethod
    def load(cls, path: Path | str, *, parse_special: bool = False, target: bool = False, **names: str) -> "Tokenizer":
        """Read a tokenizer, ours or a published one: `tokenizer.json`, or the files beside a checkpoint without one.

        `pad=`, `bos=`, `eos=`, `mask=`, `unk=`, `cls=`, `sep=` name special tokens; for those not given,
        `tokenizer_config.json` beside the file decides, or else the usual names. `target` takes the target
        language's pieces where a checkpoint has two kinds (Marian); the ids mean the same in both.
        """
        path = _json_path(path)
        files = path.name == "tokenizer.json" and not path.exists() and has_files(path.parent)
        if not files and not path.exists():
            raise ValueError(f"{path}: no such file; train a tokenizer and save it there")
        with library_errors(path), reading(path.parent if files else path):
            if files:
                inner, settings = read_files(path.parent, target=target)
            else:
                check_regular(path, MOST_BYTES)
                inner, settings = parse(path.read_bytes()), read_settings(path.parent)
            check_bounds(inner, path.parent if files else path, KNOWN)
            open_words(inner)
            keep_names_apart(inner)
        for role in names.keys() - USUAL_NAMES.keys():
            raise ValueError(f"{role!r} is no role of a special token; {nearest(role, USUAL_NAMES)}")
        for role, name in names.items():
            if inner.token_to_id(name) is None:
                added = [token.content for token in inner.get_added_tokens_decoder().values()]
                raise ValueError(f"{role}={name!r} is not in the vocabulary; {nearest(name, added)}")
        return cls(inner, names=_find_names(inner, settings) | names, parse_special=parse_special)

    def save(self, path: Path | str) -> Path:
        """Write `tokenizer.json`, whole or not at all; a path that does not end in .json is a directory.

        Where the usual names would not find the special tokens again, `tokenizer_config.json` beside it names them.
        """
        path = _json_path(path)
        roles = {f"{role}_token": name for role, name in self.names.items()}
        beside = path.with_name("tokenizer_config.json")
        write_text(path, self.inner.to_str(pretty=True))
        if beside.exists() or self.names != _find_names(self.inner, {}):
            write_text(beside, json.dumps({"tokenizer_class": "PreTrainedTokenizerFast"} | roles, indent=2))
        return path

    def encode(self, text: str, *, parse_special: bool = False) -> list[int]:
        """The ids of a text, none added; with `parse_special`, names such as [MASK] in it become special tokens."""
        if parse_special:
            return _encode(self._reader.encode_batch_fast, [text])[0].ids
        return self.encode_batch([text])[0]

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        """The ids of several texts, on all cores."""
        return [encoding.ids for encoding in _encode(self.inner.encode_batch_fast, texts)]

    def frame(
        self,
        texts: Sequence[str],
        seconds: Sequence[str] | None = None,
        *,
        max_len: int | None = None,
        parse_special: bool = False,
    ) -> list[Framed]:
        """Texts, or pairs of texts, between the special tokens that the model was trained with.

        Without a frame of its own, a vocabulary with BOS and EOS gives `<bos> a <eos>` and `<bos> a <eos> b <eos>`.
        `max_len` cuts the longer text first. `parse_special` turns the name of a special token in a text into
        that token; every usual name of the mask stands for the tokenizer's own.
        """
        if seconds is not None and len(seconds) != len(texts):
            raise ValueError(f"{len(texts)} texts and {len(seconds)} second texts; give one second text for each")
        sides = [self._parts(side, parse_special) for side in (texts, seconds) if side is not None]
        room = self._framer.room(len(sides), max_len)
        return [self._framer.frame(fit(parts, room)) for parts in zip(*sides, strict=True)]

    def frame_windows(self, question: str, passage: str, max_len: int, stride: int) -> list[Framed]:
        """A pair whose second text is too long for one frame, as several that each hold the whole first one.

        Neighbouring windows share `stride` tokens of the passage, so that no answer is cut by all of them.
        """
        first, second = self._parts([question, passage], parse_special=False)
        room = (self._framer.room(2, max_len) or 0) - len(first.ids)
        if not 0 <= stride < room:
            raise ValueError(
                f"max_len={max_len} leaves {max(room, 0)} tokens of passage beside a question of {len(first.ids)}, "
                f"and stride={stride} of them would be repeated; use a larger max_len or a smaller stride"
            )
        return [self._framer.frame([first, part]) for part in windows(second, room, stride)]

    def decode(self, ids: Sequence[int]) -> str:
        """The text of ids; special tokens are left out, bytes that are no whole character become �."""
        return self.decode_batch([ids])[0]

    def decode_batch(self, batch: Sequence[Sequence[int]]) -> list[str]:
        """The texts of several lists of ids."""
        return self.inner.decode_batch([self._checked(ids) for ids in batch])

    def pieces(self, ids: Sequence[int]) -> list[str]:
        """A readable label for each id: · is a space, ↵ a newline, ⟨E2⟩ a byte of an incomplete character."""
        return [self.visible(self.inner.id_to_token(id) or f"⟨{id}⟩") for id in self._checked(ids)]

    def visible(self, token: str) -> str:
        """The readable label of an entry of the vocabulary."""
        if token in self._added:
            return token
        return self._raw(token).decode("utf-8", errors="surrogateescape").translate(VISIBLE)

    def bytes_of(self, id: int) -> bytes:
        """The bytes of a token, which may be a part of a character."""
        token = self.inner.id_to_token(id) or ""
        return token.encode() if token in self._added else self._raw(token)

    def _raw(self, token: str) -> bytes:
        if self._byte_of:
            return b"".join(self._byte_of.get(symbol) or symbol.encode() for symbol in token)
        if re.fullmatch("<0x[0-9A-F]{2}>", token):
            return bytes.fromhex(token[3:5])
        return token.replace("▁", " ").encode()

    @cached_property
    def kind(self) -> str:
        """One of `KINDS`, or for other published files the name of their model, such as "wordpiece"."""
        return kind_of(self.inner)

    @cached_property
    def byte_ids(self) -> list[int]:
        """The ids of the tokens that are single bytes, of a byte-level vocabulary."""
        symbols = {byte: symbol for symbol, byte in self._byte_of.items()}
        ids = self.inner.get_vocab()
        return [ids[symbols[bytes([byte])]] for byte in range(256)]

    @cached_property
    def sentinels(self) -> list[int]:
        """The ids of T5's `<extra_id_0>`, `<extra_id_1>`, … in that order; empty where there are none."""
        ids: list[int] = []
        while (id := self.inner.token_to_id(f"<extra_id_{len(ids)}>")) is not None:
            ids.append(id)
        return ids

    @cached_property
    def _framer(self) -> Framer:
        return Framer(self.inner, self.bos, self.eos)

    @cached_property
    def _reader(self) -> tokenizers.Tokenizer:
        """A second tokenizer of the library, which reads the names of special tokens in a text as these tokens."""
        reader = tokenizers.Tokenizer.from_str(self.inner.to_str())
        reader.encode_special_tokens = False
        return reader

    def _parts(self, texts: Sequence[str], parse_special: bool) -> list[Part]:
        own = self.names.get("mask") if parse_special else None
        moved = [translate(text, USUAL_NAMES["mask"], own) if own else (text, None) for text in texts]
        reader = self._reader if parse_special else self.inner
        encodings = _encode(reader.encode_batch, [text for text, _ in moved])
        parts = [self._framer.part(text, encoding) for (text, _), encoding in zip(moved, encodings, strict=True)]
        return [part.moved(places) for part, (_, places) in zip(parts, moved, strict=True)]

    def __len__(self) -> int:
        return self.vocab_size

    def __repr__(self) -> str:
        return f"Tokenizer(kind={self.kind!r}, vocab_size={self.vocab_size})"

    def __reduce__(self) -> tuple[Any, ...]:
        return partial(Tokenizer, names=self.names, parse_special=self.parse_special), (self.inner,)

    def _checked(self, ids: Sequence[int]) -> list[int]:
        """Return the ids; raise an error for an id outside the vocabulary, which the library would skip silently."""
        for id in (min(ids), max(ids)) if len(ids) else ():
            if not 0 <= id < self.vocab_size:
                raise ValueError(f"id {id} is outside the vocabulary of {self.vocab_size}; use its own tokenizer")
        return list(ids)


def _encode(call: Callable[..., list[tokenizers.Encoding]], texts: Sequence[str]) -> list[tokenizers.Encoding]:
    try:
        return call(list(texts), add_special_tokens=False)
    except TypeError:  # what the library says of a lone surrogate does not mention it
        for text in texts:
            check_text(text)
        raise
    except BaseException as error:
        if type(error) is not Exception and not is_panic(error):  # the library raises bare ones, and panics
            raise
        raise ValueError(f"the tokenizer fails on this text ({one_line(error)}); use another text or model") from None


def _find_names(inner: tokenizers.Tokenizer, config: Mapping[str, Any]) -> dict[str, str | None]:
    """The special token in each role: from `tokenizer_config.json`, else the first usual name."""
    names: dict[str, str | None] = {}
    for role, usual in USUAL_NAMES.items():
        keys = [f"{role}_token", *{"bos": ["cls_token"], "eos": ["sep_token"]}.get(role, [])]
        written = [config[key] for key in keys if key in config][:1]  # null says that there is none
        candidates = [name["content"] if isinstance(name, dict) else name for name in written] or usual
        names[role] = next((name for name in candidates if name and inner.token_to_id(name) is not None), None)
    return names


def _json_path(path: Path | str) -> Path:
    path = Path(path)
    return path if path.suffix == ".json" else path / "tokenizer.json"


def _byte_symbols() -> dict[str, bytes]:
    """GPT-2's symbol for each byte: the character itself where it prints, else the next one from 256 on."""
    prints = [*range(33, 127), *range(161, 173), *range(174, 256)]
    hidden = [byte for byte in range(256) if byte not in prints]
    symbols = [chr(code) for code in (*prints, *range(256, 256 + len(hidden)))]
    return {symbol: bytes([byte]) for symbol, byte in zip(symbols, prints + hidden, strict=True)}
