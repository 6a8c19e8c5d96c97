"""A folder for the files of one input."""

import atexit
import shutil
import tempfile
from pathlib import Path

FOLDER = Path(tempfile.mkdtemp(prefix="regard-fuzz-"))
atexit.register(shutil.rmtree, FOLDER, ignore_errors=True)


def put(name: str, data: bytes) -> Path:
    """Write a file, with the folders above it, and return its path."""
    path = FOLDER / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return path
