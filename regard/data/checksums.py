"""Checksums of data, by which a run knows whether its files are still those that it was trained on."""

import hashlib
import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

LEFT = re.compile(r"Thumbs\.db|desktop\.ini|.*\.cache", re.IGNORECASE)
"""Names of files that desktops and tools leave in folders of data."""
LIMIT = 512 << 20
"""Bytes of a source up to which every one is read."""
BLOCKS, BLOCK = 4096, 16 << 10
"""Number and bytes of the samples that are read of a larger source, spread evenly over its files."""


def checksum(source: Path, listed: Iterable[Path] = ()) -> str:
    """The sha256 of the names, sizes and contents of a file or of all files in a folder, and of further files that it
    lists. Beyond `LIMIT` contents are sampled: a change that keeps every size may then be missed."""
    files = sorted({*walk(source), *(path for path in listed if path.is_file())})
    sizes = [path.stat().st_size for path in files]
    whole = sum(sizes) <= LIMIT
    stride = 1 if whole else -(-len(files) // BLOCKS)
    count = BLOCKS * stride // max(1, len(files))
    digest = hashlib.sha256()
    for number, (path, size) in enumerate(zip(files, sizes, strict=True)):
        digest.update(f"{os.path.relpath(path, source.parent)}\0{size}\0".encode(errors="surrogateescape"))
        if number % stride == 0:
            with path.open("rb") as file:
                if whole or size <= count * BLOCK:
                    starts: Iterable[int] = range(0, size, BLOCK)
                else:
                    starts = (round(i * (size - BLOCK) / max(1, count - 1)) for i in range(count))
                for start in starts:
                    file.seek(start)
                    digest.update(file.read(BLOCK))
    return digest.hexdigest()


def walk(source: Path) -> Iterator[Path]:
    """The file itself, or all files in a folder and those below it, links followed; but for hidden ones, those that
    desktops and tools leave there, and runs."""
    if source.is_file():
        yield source
    seen: set[str] = set()
    for folder, folders, names in os.walk(source, followlinks=True):
        if (real := os.path.realpath(folder)) in seen or "recipe.toml" in names:
            folders.clear()
            continue
        seen.add(real)
        folders[:] = [name for name in folders if not name.startswith(".")]
        paths = (Path(folder, name) for name in names if not name.startswith(".") and not LEFT.fullmatch(name))
        yield from (path for path in paths if path.is_file())  # no FIFOs, on which reading would wait
