"""(being written)"""

from pathlib import Path


def find(directory: str | Path) -> Path:
    return Path(directory)
