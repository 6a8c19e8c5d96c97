"""Packed text files: gzip, bzip2, xz and Zstandard; the first byte chooses."""

import bz2
import gzip
import lzma

import zstandard

from fuzz.scratch import put
from regard.data.readers.text_files import read_text

READS = ("regard.data.readers.packed", "regard.data.readers.text_files")
SUFFIXES = (".gz", ".bz2", ".xz", ".zst", "")
TEXT = "a red bird\nsees the naïve horse\n".encode() * 4


def seeds() -> list[bytes]:
    """Return a text packed in each way, and in UTF-16."""
    packed = [gzip.compress(TEXT, mtime=0), bz2.compress(TEXT), lzma.compress(TEXT), zstandard.compress(TEXT)]
    packed += ["a red bird\n".encode("utf-16")]
    return [bytes([number]) + raw for number, raw in enumerate(packed)]


def run(data: bytes) -> None:
    """Read the file as a text."""
    suffix = SUFFIXES[data[0] % len(SUFFIXES)] if data else ""
    read_text((str(put(f"text.txt{suffix}", data[1:])),))
