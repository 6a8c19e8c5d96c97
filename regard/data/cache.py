"""The folder of what is made once and read again: decoded images, encoded texts, the table of recipes and fields."""

import contextlib
import os
import re
import time
from pathlib import Path

DAYS = 30
"""Files that nobody has read for so many days are deleted when others are written."""


def cache_folder() -> Path:
    """Return the cache folder, which the variable REGARD_CACHE may name."""
    return Path(os.environ.get("REGARD_CACHE") or Path.home() / ".cache" / "regard")


def clear(folder: Path) -> None:
    """Delete what nobody has read for long, and drafts of processes that died."""
    for path in [*folder.glob("*.images"), *folder.glob("*.ids"), *folder.glob("*.draft-*")]:
        if not re.match(r"[0-9a-f]{32}\.", path.name):  # not one of ours
            continue
        with contextlib.suppress(OSError):
            age = (time.time() - path.stat().st_mtime) / 86400
            if age > (1 if ".draft-" in path.name else DAYS):
                path.unlink()
                path.with_suffix(".npz").unlink(missing_ok=True)
