"""Running text for language models: the user's files, or Python's own documentation."""

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Literal

from regard.data.generated.docs import documentation, documentation_hash

HELD_OUT = 10
"""Without validation files the last one part in so many is held out."""


@dataclass(frozen=True, kw_only=True, slots=True)
class TextConfig:
    """Where text comes from (nothing given: Python's documentation), and its tokens."""

    own: ClassVar[tuple[str, ...]] = ("text",)

    text: tuple[str, ...] = ()
    """UTF-8 text files, read one after the other."""
    valid_text: tuple[str, ...] = ()
    """Files for validation (nothing given: the last tenth of the text is held out)."""
    tokenizer: str | None = None
    """An existing tokenizer.json (none: one is trained on the training text)."""
    kind: Literal["bpe", "word", "char"] = "bpe"
    """Kind of tokenizer to train."""
    vocab_size: int = 1024
    """Entries of the tokenizer to train."""
    lowercase: bool = False
    """Lower-case everything."""
    sha256: str | None = None
    """Of the text that a run was trained on; recorded by the run."""

    def __post_init__(self) -> None:
        if self.valid_text and not self.text:
            raise ValueError("validation text without training text; give --data.text too")

    @property
    def embedded(self) -> bool:
        return not self.text

    def split(self) -> tuple[str, str]:
        """Training and validation text."""
        if self.embedded:
            return documentation("train"), documentation("valid")
        text = read_text(self.text)
        if self.valid_text:
            return text, read_text(self.valid_text)
        cut = len(text) - max(2, len(text) // HELD_OUT)
        return text[:cut], text[cut:]

    def digest(self) -> str:
        """The sha256 of everything that `split` gives."""
        if self.embedded:
            return documentation_hash()
        return hashlib.sha256("\0".join(self.split()).encode()).hexdigest()


def read_text(paths: tuple[str, ...]) -> str:
    """The text of some UTF-8 files, in order; what cannot be read is named by file and line."""
    return "\n".join(_read_one(Path(path)) for path in paths)


def _read_one(path: Path) -> str:
    try:
        raw = path.read_bytes()
    except FileNotFoundError:
        raise ValueError(f"{path}: no such file; check the path") from None
    except IsADirectoryError:
        raise ValueError(f"{path}: is a directory; give its text files, as in {path}/*.txt") from None
    if not raw.strip():
        raise ValueError(f"{path}: the file is empty; give one with text")
    try:
        return raw.decode("utf-8").replace("\r\n", "\n")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise ValueError(f"{path}, line {line}: not UTF-8; convert it: iconv -f latin1 -t utf-8 {path}") from None
