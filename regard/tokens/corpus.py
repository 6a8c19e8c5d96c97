"""Training text of any size, in chunks of bounded size. Errors name the file and the cure."""

import codecs
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

CHUNK = 1 << 16
# No pre-token of ours has a space after a non-space, so a cut there changes no id.
LAST_BREAK = re.compile(r".*\S(?=[ \t\r\n])", re.DOTALL)


def read_chunks(path: Path | str, size: int = CHUNK) -> Iterator[str]:
    """The text of a UTF-8 file in pieces of about `size` bytes, cut before white space.

    Under our own tokenizers the ids of the pieces, joined, are those of the whole text, as long as no `size`
    bytes stand without white space: there a word is cut.
    """
    return cut_at_spaces(_decoded(Path(path), size))


def corpus(files: Iterable[Path | str] | None, texts: Iterable[str] | None) -> Iterator[str]:
    """Every chunk of the files or of the texts; a ValueError where there is no text."""
    if isinstance(files, str | Path) or isinstance(texts, str):
        raise ValueError("files and texts are lists; put a single one in brackets")
    if (files is None) == (texts is None):
        raise ValueError("train on either files or texts; got both or neither")
    empty = True
    for file in files or ():
        yield from read_chunks(file)
        empty = False
    for text in texts or ():
        check_text(text)
        yield from cut_at_spaces(text[start : start + CHUNK] for start in range(0, len(text), CHUNK))
        empty = empty and not text
    if empty:
        raise ValueError("there is no text to train on; give at least one file, or one text that is not empty")


def check_text(text: str) -> None:
    """Raise an error for lone surrogates, which Python's strings can hold and Unicode text cannot."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise ValueError(
            f"text has a lone surrogate U+{ord(text[error.start]):04X} at character {error.start}; "
            f"replace it with text.encode('utf-8', 'replace').decode()"
        ) from None


def _decoded(path: Path, size: int) -> Iterator[str]:
    if not path.is_file():
        fact = "is a directory" if path.is_dir() else "no such file"
        raise ValueError(f"{path}: {fact}; give the path of a text file")
    decoder, start, line, block = codecs.getincrementaldecoder("utf-8")(), 0, 1, b"begin"
    with path.open("rb") as file:
        while block:
            block = file.read(size)
            pending = len(decoder.getstate()[0])
            try:
                text = decoder.decode(block, final=not block)
            except UnicodeDecodeError as error:
                bad = error.start - pending  # below 0 where the character began in the block before
                line += block[: max(bad, 0)].count(b"\n")
                raise ValueError(
                    f"{path}: not UTF-8 at byte {start + bad} (line {line}); "
                    f"convert it, for example: iconv -f latin1 -t utf-8 {path}"
                ) from None
            start, line = start + len(block), line + block.count(b"\n")
            if text:
                yield text
    if not start:
        raise ValueError(f"{path}: the file is empty; leave it out or fill it")


def cut_at_spaces(blocks: Iterable[str]) -> Iterator[str]:
    """Blocks of a text, each cut before its last white space; the rest goes to the next one."""
    rest = ""
    for block in blocks:
        text = rest + block
        match = LAST_BREAK.match(text)
        cut = match.end() if match else len(text)
        rest = text[cut:]
        yield text[:cut]
    if rest:
        yield rest
