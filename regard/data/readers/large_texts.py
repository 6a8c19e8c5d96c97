"""Texts larger than memory: read in blocks, as often as needed. Errors name file and line."""

import codecs
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from regard.data.readers.sequences import holds_sequences

BLOCK = 1 << 16
"""Characters of a block; a text in memory is encoded in blocks of the same size, so that the ids are the same."""
PACKED = (".gz", ".zst", ".bz2", ".xz", ".parquet", ".arrow")
"""Suffixes of files whose bytes are not their text."""


def text_bytes(paths: tuple[str, ...]) -> int:
    """The bytes of some files of plain text; 0 if they cannot be read in blocks."""
    files = [Path(path) for path in paths]
    if any(not file.is_file() or file.suffix.lower() in PACKED or holds_sequences(file) for file in files):
        return 0
    return sum(file.stat().st_size for file in files)


@dataclass(frozen=True, slots=True)
class LargeText:
    """A range of characters of several UTF-8 files read as one text; iterating yields it in blocks."""

    paths: tuple[str, ...]
    start: int = 0
    stop: int | None = None

    def __iter__(self) -> Iterator[str]:
        skip, left, rest = self.start, None if self.stop is None else self.stop - self.start, ""
        for text in whole_text(self.paths):
            if skip:
                text, skip = text[skip:], max(0, skip - len(text))
            if left is not None:
                text = text[:left]
                left -= len(text)
            rest += text
            while len(rest) >= BLOCK:
                yield rest[:BLOCK]
                rest = rest[BLOCK:]
            if left == 0:
                break
        if rest:
            yield rest

    def count(self) -> int:
        """The characters of this text."""
        return sum(map(len, self))

    def beginning(self, characters: int) -> str:
        """The first characters, at most so many."""
        stop = self.start + characters
        return "".join(LargeText(self.paths, self.start, stop if self.stop is None else min(stop, self.stop)))

    def sample(self, characters: int, count: int) -> Iterator[str]:
        """About so many characters of all `count`, in blocks from everywhere."""
        every = max(1, count // characters)
        return (block for number, block in enumerate(self) if number % every == 0)


def whole_text(paths: tuple[str, ...]) -> Iterator[str]:
    """The text of several files in pieces, with a newline between files, and every line ended by a newline alone."""
    for number, path in enumerate(paths):
        if number:
            yield "\n"
        held, empty = "", True
        for piece in decoded(Path(path)):
            text = held + piece
            held = "\r" if text.endswith("\r") else ""  # the newline may be in the next piece
            text = text.removesuffix("\r").replace("\r\n", "\n")
            empty = empty and not text.strip()
            yield text
        yield held
        if empty:
            raise ValueError(f"{path}: the file is empty; give one with text")


def decoded(path: Path) -> Iterator[str]:
    """The pieces of a UTF-8 file."""
    decoder, line = codecs.getincrementaldecoder("utf-8")(), 1
    with path.open("rb") as file:
        while True:
            block = file.read(1 << 20)
            pending = len(decoder.getstate()[0])
            try:
                yield decoder.decode(block, final=not block)
            except UnicodeDecodeError as error:
                line += block[: max(0, error.start - pending)].count(b"\n")
                if b"\0" in block[:1000]:
                    raise ValueError(f"{path} is no text file; give one that an editor can show, as UTF-8") from None
                raise ValueError(
                    f"{path}, line {line}: not UTF-8; convert it: iconv -f latin1 -t utf-8 {path}"
                ) from None
            if not block:
                return
            line += block.count(b"\n")
