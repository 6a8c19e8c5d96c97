"""Running text for language models: the user's files, or Python's own documentation; code, sequences and bytes, too."""

import hashlib
from dataclasses import dataclass, replace
from itertools import chain
from typing import ClassVar

from regard.data.generated.code import library, library_hash
from regard.data.generated.docs import documentation, documentation_hash
from regard.data.generated.genome import genome, genome_hash
from regard.data.readers.large_texts import LargeText, text_bytes
from regard.data.readers.text_files import read_any, read_text
from regard.data.sets.base import TextData
from regard.data.sets.overview import SHOWN, Overview, shortened

MOST = 1 << 24
"""Most characters of a large text that are scored."""
EMBEDDED = {"code": (library, library_hash), "dna": (genome, genome_hash)}
"""The embedded text of kinds of tokens other than prose's, and its hash."""
HELD_OUT = 10
"""Without validation files the last one part in so many is held out."""


@dataclass(frozen=True, kw_only=True, slots=True)
class TextConfig(TextData):
    """Where text comes from (nothing given: Python's documentation, its library as code, or DNA), and its tokens."""

    own: ClassVar[tuple[str, ...]] = ("text",)
    reading: ClassVar[tuple[str, ...]] = ("lowercase", "kind")
    beside: ClassVar[tuple[str, ...]] = ("valid_text",)

    text: tuple[str, ...] = ()
    """UTF-8 text files, read one after the other; FASTA or FASTQ; with kind=bytes files of any kind."""
    valid_text: tuple[str, ...] = ()
    """Files for validation (nothing given: the last tenth of the text is held out)."""
    vocab_size: int = 1024
    sha256: str | None = None
    """The hash of the text that a run was trained on; recorded by the run."""
    memory: float = 0.25
    """GiB of text that are read into memory; larger texts are encoded into a file once and read from there."""

    def __post_init__(self) -> None:
        if self.valid_text and not self.text:
            raise ValueError("validation text without training text; give --data.text too")
        if self.memory < 0:
            raise ValueError(f"memory={self.memory} must not be negative")

    @property
    def large(self) -> bool:
        """Whether the user's text is too large for the memory that it may take."""
        return self.kind != "bytes" and text_bytes(self.text) > self.memory * 2**30

    def read(self, paths: tuple[str, ...]) -> str:
        """The text of files."""
        return read_any(paths) if self.kind == "bytes" else read_text(paths)

    def part(self, split: str) -> str:
        """The embedded text of a split."""
        return EMBEDDED.get(self.kind, (documentation,))[0](split)

    def split(self) -> tuple[str, str]:
        """Training and validation text."""
        if self.embedded:
            return self.part("train"), self.part("valid")
        text = self.read(self.text)
        if self.valid_text:
            return text, self.read(self.valid_text)
        cut = len(text) - max(2, len(text) // HELD_OUT)
        return text[:cut], text[cut:]

    def large_split(self) -> tuple[LargeText, LargeText]:
        """Training and validation text of `split`, to be read block by block."""
        text = LargeText(self.text)
        if self.valid_text:
            return text, LargeText(self.valid_text)
        count = text.count()
        cut = count - max(2, count // HELD_OUT)
        return replace(text, stop=cut), replace(text, start=cut)

    def overview(self) -> list[Overview]:
        """A summary of the user's text: its length and its beginning."""
        if self.embedded:
            return []
        text = LargeText(self.text).beginning(1 << 16) if self.large else self.read(self.text)
        text = text.encode("utf-8", "replace").decode()  # what is no text is not printed
        count, unit = (text_bytes(self.text), "bytes") if self.large else (len(text), "characters")
        shown = [shortened(line) for line in text.split("\n", 50) if line.strip()][:SHOWN]
        source = ", ".join(self.text)
        return [Overview(source=source, part="train", count=count, unit=unit, about="running text", examples=shown)]

    def held_out(self) -> str:
        """The test text; of the user's files, the validation text, or its beginning where that is large."""
        if self.large:
            return self.large_split()[1].beginning(MOST)
        return self.part("test") if self.embedded else self.split()[1]

    def digest(self) -> str:
        """The sha256 of everything that `split` gives."""
        if self.embedded:
            return EMBEDDED.get(self.kind, (None, documentation_hash))[1]()
        if not self.large:
            return hashlib.sha256("\0".join(self.split()).encode("utf-8", "surrogateescape")).hexdigest()
        text, held_out = self.large_split()
        digest = hashlib.sha256()
        for block in chain(text, ("\0",), held_out):
            digest.update(block.encode())
        return digest.hexdigest()


@dataclass(frozen=True, kw_only=True, slots=True)
class SpansConfig(TextConfig):
    """Running text with spans taken out of it, which a model is to restore."""

    reading: ClassVar[tuple[str, ...]] = ("lowercase", "max_len", "rate")

    vocab_size: int = 2000
    rate: float = 0.15
    """Share of the tokens taken out."""
    span: float = 3.0
    """Mean length of a span, in tokens."""
    max_len: int = 128
    """Tokens of a window."""

    def __post_init__(self) -> None:
        TextConfig.__post_init__(self)
        if not 0 < self.rate < 1 or self.span < 1 or self.max_len < 8:
            raise ValueError("rate must be between 0 and 1, span at least 1, max_len at least 8")
