"""FASTA and FASTQ: sequences of bases or amino acids, each behind a line with its name. Errors name file and line."""

import re
from collections.abc import Iterator
from pathlib import Path

from regard.config import one_line
from regard.data.readers.packed import kind_of

FASTA = (".fa", ".fasta", ".fna", ".ffn", ".faa", ".frn", ".fas")
FASTQ = (".fq", ".fastq")
SUFFIXES = (*FASTA, *FASTQ)
LETTERS = re.compile(r"[A-Za-z*.~-]*")
"""Bases, amino acids and their ambiguity codes, stops and gaps."""


def holds_sequences(path: Path | str) -> bool:
    """Whether a file has sequences, by its suffix."""
    return kind_of(path) in SUFFIXES


def sequences_of(text: str, path: Path) -> str:
    """The sequences of a file in capitals, one a line, without their names and qualities."""
    read = fastq if kind_of(path) in FASTQ else fasta
    found = [sequence for _, sequence in read(text, path)]
    if not any(found):
        raise ValueError(f"{path} has no sequence; give lines of letters below a line such as >name")
    return "\n".join(sequence.upper() for sequence in found if sequence) + "\n"


def fasta(text: str, path: Path) -> Iterator[tuple[str, str]]:
    """Yield the name and the letters of each sequence; a line that begins with ; is a comment."""
    name: str | None = None
    parts: list[str] = []
    for number, line in enumerate(text.split("\n"), 1):
        line = line.strip()
        if line.startswith(">"):
            if name is not None:
                yield name, "".join(parts)
            name, parts = line[1:].strip(), []
        elif line and not line.startswith(";"):
            if name is None:
                raise ValueError(
                    f"{path}, line {number}: a sequence without a name; write a line such as >name above it"
                )
            parts.append(letters(line, path, number))
    if name is not None:
        yield name, "".join(parts)


def fastq(text: str, path: Path) -> Iterator[tuple[str, str]]:
    """Yield the name and the letters of each read; sequence and qualities may have several lines."""
    lines = text.rstrip("\n").split("\n")
    at = 0
    while at < len(lines):
        head, first = lines[at].strip(), at + 1
        if not head:
            at += 1
            continue
        if not head.startswith("@"):
            raise ValueError(
                f"{path}, line {first}: {one_line(repr(head), 40)} does not begin a read; write @name there"
            )
        parts = []
        at += 1
        while at < len(lines) and not lines[at].startswith("+"):
            parts.append(letters(lines[at].strip(), path, at + 1))
            at += 1
        sequence, at = "".join(parts), at + 1
        left = len(sequence)
        while left > 0 and at < len(lines):
            left -= len(lines[at].strip("\r"))
            at += 1
        if left:
            fact = f"the read has {len(sequence):,} letters and {len(sequence) - left:,} qualities"
            raise ValueError(f"{path}, line {first}: {fact}; write one for each letter, below a line with +")
        yield head[1:], sequence


def letters(line: str, path: Path, number: int) -> str:
    """The letters of a line of a sequence."""
    end = LETTERS.match(line).end()  # type: ignore[union-attr]  # it matches nothing, too
    if end < len(line):
        raise ValueError(f"{path}, line {number}: {line[end]!r} stands for no base and no amino acid; remove it")
    return line
