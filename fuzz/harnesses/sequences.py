"""FASTA and FASTQ; the first byte chooses."""

from pathlib import Path

from regard.data.readers.sequences import sequences_of

READS = ("regard.data.readers.sequences",)
WORDS = [b">", b"@", b"+", b";", b"\n", b"\r\n", b"ACGT", b"NNNN", b"*", b"-", b"@I", b" "]


def seeds() -> list[bytes]:
    """Return both formats behind a byte that says which."""
    return [
        b"a>chr1 first\nACGTac\n\nGTN\n;note\n>empty\n>chr2\r\nMKT*-\n",
        b"q@one\nACGT\n+one\nIII@\n@two\nAC\nGT\n+\n@I\nII\n\n",
    ]


def run(data: bytes) -> None:
    """Read the sequences of a text that was decoded."""
    text = data[1:].decode("utf-8", "replace")
    sequences_of(text, Path("x.fq" if data[:1] == b"q" else "x.fa"))
