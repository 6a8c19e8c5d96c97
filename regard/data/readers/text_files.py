"""Text files as lines and texts: UTF-8, or UTF-16 with a byte order mark, also packed. Errors name file and line."""

import codecs
from pathlib import Path

from regard import files
from regard.data.readers.packed import unpack
from regard.data.readers.sequences import holds_sequences, sequences_of

MOST_WHOLE = 1 << 34
"""Most bytes of a file that is read at once."""

MARKS = {codecs.BOM_UTF8: "utf-8", codecs.BOM_UTF16_LE: "utf-16-le", codecs.BOM_UTF16_BE: "utf-16-be"}
"""Byte order marks, which spreadsheets write, and the encodings that they stand for."""


def read_bytes(path: Path, *, folder: str, empty: str) -> bytes:
    """The bytes of a file, unpacked; the two texts are the cures that errors name for a folder and an empty file."""
    if path.is_dir():
        raise ValueError(f"{path}: is a directory; give {folder}")
    try:
        raw = unpack(files.read_bytes(path, MOST_WHOLE), path)
    except FileNotFoundError:
        raise ValueError(f"{path}: no such file; {files.missing(path)}") from None
    if not raw.strip():
        raise ValueError(f"{path}: the file is empty; give one with {empty}")
    return raw


def encoding_of(raw: bytes) -> tuple[str, int]:
    """The encoding that the byte order mark of a file names, and the length of the mark; UTF-8 where it has none."""
    return next(((name, len(mark)) for mark, name in MARKS.items() if raw.startswith(mark)), ("utf-8", 0))


def has_mark(path: Path) -> bool:
    """Whether a file begins with a byte order mark, as spreadsheets write and expect it."""
    with path.open("rb") as file:
        return encoding_of(file.read(4))[1] > 0


def as_text(raw: bytes, path: Path) -> str:
    """The text of a file; line ends are newlines, also where they are carriage returns alone."""
    encoding, start = encoding_of(raw)
    try:
        text = raw[start:].decode(encoding)
    except UnicodeDecodeError as error:
        if encoding == "utf-8":
            raise ValueError(not_utf8(raw[start:], error.start, path)) from None
        raise ValueError(f"{path} begins as {encoding}, but is not ({error.reason}); save it as UTF-8") from None
    if "\0" in text[:1000]:
        raise ValueError(f"{path} holds zero bytes: it is no text, or UTF-16 without a mark; save it as UTF-8")
    if "\r" in text and "\n" not in text:  # as old spreadsheets on a Macintosh do
        return text.replace("\r", "\n")
    return text.replace("\r\n", "\n")


def not_utf8(raw: bytes, position: int, path: Path) -> str:
    """The error for a byte that is not UTF-8: its line, and what it would be in latin-1."""
    if b"\0" in raw[:1000]:
        return f"{path} is no text file; give one that an editor can show, as UTF-8"
    begin, line = raw.rfind(b"\n", 0, position) + 1, raw.count(b"\n", 0, position) + 1
    character = raw[position : position + 1].decode("latin-1")
    perhaps = f" (byte {position - begin} is {character!r} in latin-1)" if character.isprintable() else ""
    return f"{path}, line {line}: not UTF-8; convert it: iconv -f latin1 -t utf-8 {path}{perhaps}"


def read_text(paths: tuple[str, ...]) -> str:
    """The text of several files, one after the other; of FASTA and FASTQ the sequences alone."""
    texts = [(_read_whole(Path(path)), Path(path)) for path in paths]
    return "\n".join(sequences_of(text, path) if holds_sequences(path) else text for text, path in texts)


def read_any(paths: tuple[str, ...]) -> str:
    """The content of files of any kind as one text, in which lone surrogates stand for bytes that are no UTF-8."""
    cures = dict(folder="its files", empty="some bytes")
    return "".join(read_bytes(Path(path), **cures).decode("utf-8", "surrogateescape") for path in paths)


def _read_whole(path: Path) -> str:
    raw = read_bytes(path, folder=f"its text files, as in {path}/*.txt", empty="text")
    if encoding_of(raw)[0] != "utf-8":
        return as_text(raw, path)
    try:  # of UTF-8, every character stays, as where the text is read in blocks
        return raw.decode("utf-8").replace("\r\n", "\n")
    except UnicodeDecodeError as error:
        raise ValueError(not_utf8(raw, error.start, path)) from None


def read_lines(path: Path) -> list[str]:
    """The lines of a text file."""
    return split_lines(read_bytes(path, folder="a text file", empty="a text a line"), path)


def split_lines(raw: bytes, path: Path) -> list[str]:
    """Lines end at newlines and nowhere else: Unicode's other separators would shift two files apart."""
    lines = as_text(raw, path).split("\n")
    return [line.removesuffix("\r") for line in (lines if lines[-1] else lines[:-1])]
