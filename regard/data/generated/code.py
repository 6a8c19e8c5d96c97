"""The embedded code: the modules of Python's standard library, as they are installed.

Nothing is stored, nothing is downloaded, nothing is imported. Whole modules belong to one split. The code differs
between versions of Python; `library_hash` identifies it.
"""

import hashlib
import sysconfig
import tokenize
from functools import cache
from pathlib import Path

from regard.data.generated.splits import SPLITS, check_stream, split_by_hash

LEAST = 20
"""Modules without which an installation has no sources."""


@cache
def library(split: str) -> str:
    """The modules of a split, one after the other: about 90 % of all train, 5 % valid, 5 % test."""
    check_stream(split)
    root = Path(sysconfig.get_paths()["stdlib"])
    paths = sorted(path for path in root.glob("*.py") if path.is_file())
    if len(paths) < LEAST:
        raise ValueError("this Python comes without the sources of its standard library; give code of your own")
    return "\n\n".join(source(path) for path in paths if split_by_hash(f"module {path.name}", 90) == split)


def source(path: Path) -> str:
    """The text of a module, in the encoding that it names."""
    with tokenize.open(path) as file:
        return file.read()


@cache
def library_hash() -> str:
    """The SHA-256 of this Python's modules, in hexadecimal."""
    return hashlib.sha256("\0".join(map(library, SPLITS)).encode()).hexdigest()
